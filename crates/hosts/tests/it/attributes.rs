//! Modes, owners, times and attributes of files, and limits of processes, at the level without namespaces (L1).
//!
//! Each payload runs twice. Without a sandbox it must leave a trace outside, or it would prove nothing; at L1 it must leave
//! none. What ordinary programs do inside the workspace must give the same result with and without the sandbox.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command as Program, Stdio},
};

use helve_contract::ports::SandboxLevel;
use helve_hosts::{LevelPolicy, Sandbox, SandboxConfig};

use crate::{
    payloads::run_as_nobody,
    sandbox::{Place, run, settings},
};

/// When a payload can be expected to leave a trace without a sandbox.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fires {
    Always,
    /// Where the kernel has the call: newer ones, and other numberings of the same.
    WhereKnown,
}
use Fires::{Always, WhereKnown};

/// Run by `sh`. `$V` is a file outside that the command may read, `$D` its directory, `$V/../link` a link to it.
const SHELL: [(&str, &str); 22] = [
    ("chmod", "chmod 777 $V"),
    ("chmod by ..", "chmod 777 ../out/victim"),
    ("chmod by a longer ..", "mkdir -p a/b; chmod 777 a/b/../../../out/victim"),
    ("chmod from its folder", "cd $D && chmod 777 victim"),
    ("chmod by a link", "ln -s $V l; chmod 777 l"),
    ("chmod by a chain of links", "ln -s $D d; ln -s d/victim m; ln -s m l; chmod 777 l"),
    ("chmod by a relative link", "ln -s ../out/victim l; chmod 777 l"),
    ("chmod by /proc/self/cwd", "cd $D && chmod 777 /proc/self/cwd/victim"),
    ("chmod by /proc/self/root", "chmod 777 /proc/self/root$V"),
    ("chmod of a folder", "chmod 777 $D"),
    ("chmod -R", "chmod -R 777 $D"),
    ("chmod by descriptor", "exec 5<$V; chmod 777 /proc/self/fd/5"),
    ("chmod by the shell's descriptor", "exec 5<$V; chmod 777 /proc/$$/fd/5"),
    ("chmod by /dev/fd", "chmod 777 /dev/fd/5 5<$V"),
    ("chmod beneath a descriptor", "exec 5<$D; chmod 777 /proc/self/fd/5/victim"),
    ("chmod by a link to a descriptor", "ln -s /proc/self/fd/5 l; chmod 777 l 5<$V"),
    ("chown", "chown $(id -u) $V"),
    ("chown -h of a link", "chown -h $(id -u) $D/link"),
    ("touch", "touch -c -d @1 $V"),
    ("touch -h of a link", "touch -h -d @1 $D/link"),
    ("cp --attributes-only", "cp --attributes-only --preserve=mode,timestamps $0 $V"),
    ("truncate", "python3 -c 'import os; os.truncate(os.environ[\"V\"], 0)'"),
];

/// Run by Python. `V` and `D` as above; `f` and `d` are open for reading, `p` is open without any rights, `here` is a file
/// inside.
const PYTHON: [(&str, Fires, &str); 37] = [
    ("fchmod", Always, "os.fchmod(f, 0o777)"),
    ("fchmod of a folder", Always, "os.fchmod(d, 0o777)"),
    ("fchown", Always, "os.fchown(f, os.getuid(), os.getgid())"),
    ("futimens", Always, "os.utime(f, (1, 1))"),
    ("fsetxattr", Always, "os.setxattr(f, 'user.b', b'2')"),
    ("fremovexattr", Always, "os.removexattr(f, 'user.a')"),
    ("setxattr", Always, "os.setxattr(V, 'user.b', b'2')"),
    ("removexattr", Always, "os.removexattr(V, 'user.a')"),
    ("lsetxattr", Always, "os.setxattr(V, 'user.b', b'2', follow_symlinks=False)"),
    ("lremovexattr", Always, "os.removexattr(V, 'user.a', follow_symlinks=False)"),
    ("setxattr by a link", Always, "os.symlink(V, 'l'); os.setxattr('l', 'user.b', b'2')"),
    ("setxattr by descriptor", Always, "os.setxattr(f'/proc/self/fd/{f}', 'user.b', b'2')"),
    ("chmod by a folder's descriptor", Always, "os.chmod('victim', 0o777, dir_fd=d)"),
    ("chmod by a descriptor and ..", Always, "os.chmod('../out/victim', 0o777, dir_fd=d)"),
    ("lchown", Always, "os.lchown(V, os.getuid(), os.getgid())"),
    ("chown by a folder's descriptor", Always, "os.chown('victim', os.getuid(), -1, dir_fd=d)"),
    ("chown of nothing", Always, "os.chown(V, -1, -1)"),
    ("utime by a folder's descriptor", Always, "os.utime('victim', (1, 1), dir_fd=d)"),
    ("utime to now", Always, "os.utime(V)"),
    ("chmod by a bare descriptor", Always, "os.chmod(f'/proc/self/fd/{p}', 0o777)"),
    ("chmod by the thread's descriptor", Always, "os.chmod(f'/proc/thread-self/fd/{f}', 0o777)"),
    ("chmod by number", Always, "os.chmod(f'/proc/{os.getpid()}/fd/{f}', 0o777)"),
    ("chmod by a task", Always, "os.chmod(f'/proc/self/task/{os.getpid()}/fd/{f}', 0o777)"),
    (
        "chmod by a parent's descriptor",
        Always,
        "os.fork() or os.chmod(f'/proc/{os.getppid()}/fd/{f}', 0o777); os.wait()",
    ),
    ("fchmodat2 of a descriptor", WhereKnown, "call(452, f, b'', 0o777, 0x1000)"),
    ("fchmodat2 of a bare descriptor", WhereKnown, "call(452, p, b'', 0o777, 0x1000)"),
    ("fchmodat2", WhereKnown, "call(452, -100, V.encode(), 0o777, 0x100)"),
    ("fchownat of a descriptor", Always, "call(260, p, b'', os.getuid(), os.getgid(), 0x1000)"),
    ("utimensat of a descriptor", WhereKnown, "call(280, p, b'', bytes(32), 0x1000)"),
    ("utimensat without a path", Always, "call(280, f, None, bytes(32), 0)"),
    ("utime", Always, "call(132, V.encode(), bytes(16))"),
    ("utimes", Always, "call(235, V.encode(), bytes(32))"),
    ("futimesat", Always, "call(261, d, b'victim', bytes(32))"),
    ("futimesat without a path", Always, "call(261, f, None, bytes(32))"),
    ("setxattrat", WhereKnown, "call(463, f, b'', 0x1000, b'user.b', struct.pack('QII', addr(b'2'), 1, 0), 16)"),
    ("flags of the file", WhereKnown, "fcntl.ioctl(f, 0x40086602, struct.pack('l', 0x40))"),
    ("chmod in the numbers of i386", WhereKnown, "int80(15, V.encode(), 0o777)"),
];

const PRELUDE: &str = "
import ctypes, fcntl, mmap, os, struct
V, D, here = os.environ['V'], os.environ['D'], 'file'
f, d, p = os.open(V, os.O_RDONLY), os.open(D, os.O_RDONLY), os.open(V, os.O_PATH)
libc = ctypes.CDLL(None, use_errno=True)
keep = []
def addr(data):
    keep.append(ctypes.create_string_buffer(data))
    return ctypes.addressof(keep[-1])
def call(number, *words):
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    if libc.syscall(ctypes.c_long(number), *words) < 0:
        raise OSError(ctypes.get_errno(), 'call')
def int80(number, path, mode):
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    page[256:256 + len(path) + 1] = path + bytes(1)
    code = b'\\x53\\xb8' + struct.pack('I', number) + b'\\xbb' + struct.pack('I', at + 256) + b'\\xb9' + struct.pack('I', mode)
    page[0:len(code) + 4] = code + b'\\xcd\\x80\\x5b\\xc3'
    ctypes.CFUNCTYPE(ctypes.c_int)(at)()
";

/// A workspace, and beside it a directory that commands may read.
struct Row {
    place: Place,
    victim: PathBuf,
}

impl Row {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.0.join("ws")).unwrap();
        fs::create_dir(place.0.join("out")).unwrap();
        let victim = place.0.join("out/victim");
        fs::write(&victim, "content").unwrap();
        fs::write(place.0.join("ws/file"), "content").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
        rustix::fs::setxattr(&victim, "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
        std::os::unix::fs::symlink("victim", place.0.join("out/link")).unwrap();
        Self { place, victim }
    }

    /// All that a change of attributes leaves behind: the kernel sets the last time at each of them.
    fn trace(&self) -> Vec<String> {
        let about = |name: &str| {
            let it = fs::symlink_metadata(self.place.0.join("out").join(name)).unwrap();
            format!(
                "{:?}",
                (it.mode(), it.uid(), it.gid(), it.size(), it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec())
            )
        };
        ["", "victim", "link"].map(about).to_vec()
    }

    async fn run(&self, level: SandboxLevel, argv: &[&str]) -> (i32, String) {
        let out = self.victim.parent().unwrap();
        let given = SandboxConfig { readable: vec![out.to_owned()], ..settings(LevelPolicy::Exactly(level)) };
        let inside = Place(self.place.0.join("ws"));
        let mut command = inside.script("");
        std::mem::forget(inside);
        command.script = None;
        command.argv = argv.iter().map(|word| (*word).to_owned()).collect();
        command.env = vec![("V".into(), self.victim.display().to_string()), ("D".into(), out.display().to_string())];
        let ran = run(&Sandbox::new(given).unwrap(), &command).await.unwrap();
        (ran.exit.code, format!("{}{}", ran.out, ran.err))
    }
}

/// Times of files are those of the last tick; a change in the same tick would leave no trace.
fn next_tick(dir: &Path) {
    let probe = dir.join("tick");
    let now = || {
        fs::write(&probe, "").unwrap();
        let about = fs::metadata(&probe).unwrap();
        (about.ctime(), about.ctime_nsec())
    };
    let first = now();
    while now() == first {
        std::thread::yield_now();
    }
}

/// Whether it left a trace, how it ended and what it said.
async fn attempt(level: SandboxLevel, argv: &[&str]) -> (bool, i32, String) {
    let row = Row::new();
    next_tick(&row.place.0);
    let before = row.trace();
    let (code, said) = row.run(level, argv).await;
    (row.trace() != before, code, said)
}

async fn files_outside_are_out_of_reach() {
    let python: Vec<_> =
        PYTHON.iter().map(|(name, fires, line)| (*name, *fires, format!("{PRELUDE}{line}\n"))).collect();
    let shell = SHELL.iter().map(|(name, line)| (*name, Always, vec!["sh", "-c", *line, "file"]));
    let python = python.iter().map(|(name, fires, text)| (*name, *fires, vec!["python3", "-c", text.as_str()]));
    let mut fired = 0;
    for (name, fires, argv) in shell.chain(python) {
        let (left_trace, _, said) = attempt(SandboxLevel::None, &argv).await;
        assert!(left_trace || fires == WhereKnown, "{name} proves nothing: {said}");
        fired += usize::from(left_trace);
        let (left_trace, code, said) = attempt(SandboxLevel::Rules, &argv).await;
        assert!(!left_trace, "{name} reached a file outside: {said}");
        assert!(code != 0 || !said.is_empty(), "{name} was told that it worked");
    }
    println!("user {}: {fired} payloads fired without a sandbox, none at L1", rustix::process::geteuid().as_raw());
}

/// What can be seen of the limits of a process.
fn limits(process: &Child) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", process.id())).unwrap();
    let stat = read("stat");
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let status = read("status");
    let cpus = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap().to_owned();
    let io = Program::new("ionice").args(["-p", &process.id().to_string()]).output().unwrap();
    // Nice value and policy.
    vec![read("limits"), cpus, fields[16].to_owned(), fields[38].to_owned(), String::from_utf8(io.stdout).unwrap()]
}

const PROCESSES: [(&str, &str); 7] = [
    ("prlimit", "prlimit --pid $P --nofile=3:3"),
    ("renice", "renice -n 5 -p $P"),
    ("renice of a group", "renice -n 5 -g $P"),
    ("taskset", "taskset -pc 0 $P"),
    ("chrt", "chrt -b -p 0 $P"),
    ("sched_setparam", "chrt -i -p 0 $P"),
    ("ionice", "ionice -c3 -p $P"),
];

async fn processes_outside_are_out_of_reach() {
    for (name, line) in PROCESSES {
        for level in [SandboxLevel::None, SandboxLevel::Rules] {
            let mut sleeper = Program::new("sleep").arg("1000").process_group(0).stdin(Stdio::null()).spawn().unwrap();
            let before = limits(&sleeper);
            let row = Row::new();
            let (_, said) = row.run(level, &["sh", "-c", &format!("P={}; {line}", sleeper.id())]).await;
            let changed = limits(&sleeper) != before;
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
            let one_processor = name == "taskset" && std::thread::available_parallelism().unwrap().get() == 1;
            assert_eq!(changed, level == SandboxLevel::None && !one_processor, "{name} at {level:?}: {said}");
        }
    }
}

/// What programs do inside, and a listing of the result.
const INSIDE: [(&str, &str); 24] = [
    ("chmod +x", "printf '#!/bin/sh\\necho ran\\n' > s; chmod +x s; ./s"),
    ("chmod", "chmod 604 file; chmod g+w,o-r file"),
    ("chmod -R", "mkdir -p a/b; touch a/b/c; chmod -R u=rwX,go= a"),
    ("chmod of the workspace", "chmod 750 .; chmod 751 \"$PWD\""),
    ("chmod by ..", "mkdir a; cd a; chmod 600 ../file; chmod 601 ../a/../file"),
    ("chmod by an absolute link", "ln -s \"$PWD/file\" l; chmod 611 l"),
    ("chmod by descriptor", "exec 5<file; chmod 602 /proc/self/fd/5; chmod 612 /dev/fd/5"),
    ("touch", "touch -d @1234567 file; touch -r file new; touch -c -m -d @99 new; touch -a -d @77 new"),
    ("touch -h", "ln -s none l; touch -h -d @5 l"),
    ("chown to oneself", "chown $(id -u):$(id -g) file; chown -h $(id -u) file; chgrp $(id -g) file"),
    (
        "tar",
        "mkdir t; echo x > t/x; chmod 750 t/x; touch -d @11 t/x; ln -s x t/l; touch -d @12 t; tar cf t.tar t; rm -r t; tar xpf t.tar; rm t.tar",
    ),
    (
        "cp -a",
        "echo x > x; chmod 753 x; touch -d @13 x; ln -s x l; mkdir d; mv x l d; touch -d @14 d; cp -a d e; cp -p d/x y",
    ),
    ("install", "install -m 751 file g; install -d -m 711 h"),
    (
        "git",
        "git init -q r; cd r; echo x > x; chmod +x x; git add x; git -c user.name=n -c user.email=a@b commit -qm one; rm x; git checkout -q x; git clone -q . c; ls -l x c/x | cut -c1-10; cd ..; rm -rf r",
    ),
    ("make", "printf 'a: file\\n\\tcp -p file a\\n' > Makefile; make -s; make -q && echo done"),
    ("gcc", "printf 'int main(void){return 0;}' > c.c; gcc c.c -o c && ./c && echo ran; rm c"),
    ("mktemp", "t=$(mktemp); chmod 640 $t; stat -c %a $t; mv $t kept"),
    ("truncate", "truncate -s 3 file; cat file"),
    ("gzip", "touch -d @15 file; chmod 640 file; gzip -k file; gunzip -c file.gz; rm file.gz"),
    ("mkdir -m", "mkdir -m 2750 m; chmod g+s m"),
    (
        "attributes",
        "python3 -c \"import os; os.setxattr('file','user.k',b'v'); os.setxattr('file','user.r',b'v'); os.removexattr('file','user.r'); print(os.listxattr('file'), os.getxattr('file','user.k'))\"",
    ),
    (
        "descriptors",
        "python3 -c \"import os; f=os.open('file',os.O_RDONLY); d=os.open('.',os.O_RDONLY); os.fchmod(f,0o631); os.utime(f,(3,4)); os.fchown(f,-1,os.getgid()); os.setxattr(f,'user.k',b'v'); os.chmod('file',0o632,dir_fd=d); os.utime('file',(5,6),dir_fd=d)\"",
    ),
    (
        "no name",
        "python3 -c \"import os; f=os.open('t',os.O_RDWR|os.O_CREAT,0o600); os.unlink('t'); os.fchmod(f,0o640); print(oct(os.fstat(f).st_mode)); g=os.open('.',os.O_TMPFILE|os.O_RDWR,0o600); os.fchmod(g,0o644); print(oct(os.fstat(g).st_mode))\"",
    ),
    (
        "own limits",
        "ulimit -n 99; ulimit -n; nice -n 3 nice; taskset 1 echo pinned; prlimit --core=0 echo limited; ionice -c3 echo idle; chrt -b 0 echo batch",
    ),
];

/// Names, kinds, modes and owners, and the times that were set.
const LISTING: &str = "cd \"$W\"; echo; find . -path ./.git -prune -o -printf '%p %M %U:%G ' -a \\( -newermt @100000000 -printf 'now\\n' -o -printf '%T@\\n' \\) | sort";

async fn programs_inside_work_as_always() {
    for (name, line) in INSIDE {
        let mut wanted = None;
        for level in [SandboxLevel::None, SandboxLevel::Rules] {
            let row = Row::new();
            let line = format!("W=$PWD; umask 022; {line}; {LISTING}");
            let (_, said) = row.run(level, &["bash", "-c", &line]).await;
            let said = said.replace(&row.place.0.display().to_string(), "PLACE");
            match &wanted {
                None => wanted = Some(said),
                Some(wanted) => assert_eq!(said, *wanted, "{name}"),
            }
        }
        let wanted = wanted.unwrap();
        assert!(!wanted.contains("not permitted") && !wanted.contains("not found"), "{name}: {wanted}");
    }
}

/// One thread changes what a path leads to while another has its attributes changed.
const RACES: [(&str, &str); 2] = [
    (
        "the text of the path",
        "
path = ctypes.create_string_buffer(256)
path.value = b'file'
def swap(): path.value = V.encode(); path.value = b'file'
def act(): libc.chmod(path, 0o777)
",
    ),
    (
        "the folder in the path",
        "
os.mkdir('a'); open('a/victim', 'w').close(); os.symlink(D, 'b')
def swap(): libc.syscall(316, -100, b'a', -100, b'b', 2)
def act(): libc.chmod(b'a/victim', 0o777); libc.chmod(b'b/../b/victim', 0o777)
",
    ),
];

async fn races_lead_nowhere() {
    let harness = "
import threading
stop = False
def swapping():
    while not stop: swap()
other = threading.Thread(target=swapping); other.start()
for _ in range(1500): act()
stop = True; other.join(); print('raced')
";
    for (name, lines) in RACES {
        let row = Row::new();
        next_tick(&row.place.0);
        let before = row.trace();
        let (_, said) = row.run(SandboxLevel::Rules, &["python3", "-c", &format!("{PRELUDE}{lines}{harness}")]).await;
        assert_eq!((said.as_str(), row.trace() == before), ("raced\n", true), "{name}");
    }
}

async fn all() {
    files_outside_are_out_of_reach().await;
    processes_outside_are_out_of_reach().await;
    races_lead_nowhere().await;
    programs_inside_work_as_always().await;
}

#[tokio::test]
async fn attributes_are_confined() {
    all().await;
}

#[tokio::test]
#[ignore = "a part of `attributes_are_confined_as_nobody`"]
async fn as_nobody() {
    all().await;
}

#[test]
fn attributes_are_confined_as_nobody() {
    run_as_nobody("attributes::as_nobody");
}
