//! Files and a shell in memory: what every host promises, what a script may do, and where it ends.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use helve_contract::{
    Access, FileErrorKind, PathGlob, PathRule, PathRules, PathStyle, Root, Workspace,
    ports::{
        Expect, FileChange, Host as _, NetworkAccess, ProcessEvent, ProcessSpec, Signal, Span, StdinSource, Streams,
    },
};
use helve_hosts::memory::{HOME_DIR, MemoryHost, Script, ScriptOutput};
use proptest::prelude::*;

use crate::{
    folder::{Folder, fault},
    suite,
};

/// All of the files in memory.
struct Ground(Workspace);

impl Ground {
    fn workspace(&self) -> Workspace {
        self.0.clone()
    }
}

suite::stories!(MemoryHost::new(), Ground(MemoryHost::workspace()));

async fn sh(memory: &MemoryHost, script: &str) -> (String, String, i32) {
    let ScriptOutput { stdout, stderr, code } = memory.run(Script::new(script)).await.unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), code)
}

async fn out(script: &str) -> String {
    let (stdout, stderr, code) = sh(&MemoryHost::new(), script).await;
    assert_eq!((stderr.as_str(), code), ("", 0), "{script}");
    stdout
}

#[tokio::test]
async fn files_last_and_the_rest_does_not() {
    let memory = MemoryHost::new();
    let first = "x=1; f() { echo f; }; cd /tmp; echo one > /tmp/a; echo two > ~/b; export y=2";
    assert_eq!(sh(&memory, first).await, (String::new(), String::new(), 0));
    let second = "pwd; cat /tmp/a b; echo \"[$x$y]\"; type f >/dev/null 2>&1 || echo no f";
    assert_eq!(sh(&memory, second).await.0, format!("{HOME_DIR}\none\ntwo\n[]\nno f\n"));
}

#[tokio::test]
async fn the_shell_and_the_file_tools_see_the_same_files() {
    let (memory, workspace) = (MemoryHost::new(), MemoryHost::workspace());
    let path = workspace.check(Path::new("plan/a.md"), Access::Write, None).unwrap();
    memory.write(&path, b"one\n", Expect::Absent).await.unwrap();
    assert_eq!(sh(&memory, "cat plan/a.md; echo two >> plan/a.md; ln -s plan/a.md link").await.0, "one\n");
    let link = workspace.check(Path::new("link"), Access::Read, None).unwrap();
    assert_eq!(memory.read(&link, Span::first(100)).await.unwrap().bytes, b"one\ntwo\n");
    let absolute = workspace.check(Path::new("/tmp/x"), Access::Write, None).unwrap();
    memory.write(&absolute, b"", Expect::Anything).await.unwrap();
    assert_eq!(sh(&memory, "ls /tmp").await.0, "x\n");
}

#[tokio::test]
async fn everyday_scripts_work() {
    assert_eq!(out("cat <<EOF\n$((1 + 2)) $HOME\nEOF\ncat <<'EOF'\n$HOME\nEOF").await, "3 /home/user\n$HOME\n");
    assert_eq!(
        out("a=(x y z); echo ${a[1]} ${#a[@]} \"${a[@]:1}\"; declare -A m=([k]=v); echo ${m[k]}").await,
        "y 3 y z\nv\n"
    );
    assert_eq!(out("f() { local n=$1; echo $((n * 2)); }; f 21").await, "42\n");
    assert_eq!(out("printf 'a\\nb\\n' | xargs -n1 echo got").await, "got a\ngot b\n");
    assert_eq!(out("echo hi | tee x y | tr a-z A-Z; cat x y").await, "HI\nhi\nhi\n");
    assert_eq!(out("printf '1\\n2\\n' > a; printf '1\\n3\\n' > b; diff a b || true").await, "2c2\n< 2\n---\n> 3\n");
    assert_eq!(out("printf 'b 2\\na 10\\nc 1\\n' | sort -k2,2n").await, "c 1\nb 2\na 10\n");
    assert_eq!(out("printf '%05.1f|%-4s|%x\\n' 3.14159 ab 255").await, "003.1|ab  |ff\n");
    assert_eq!(out("touch f; test -f f && [ ! -d f ] && [[ f == f* ]] && echo yes").await, "yes\n");
    assert_eq!(out("mkdir -p d/e; echo x > d/e/f.md; find d -name '*.md' -exec grep -l x {} +").await, "d/e/f.md\n");
    assert_eq!(out("echo '{\"a\":[1,2]}' | jq -c '.a | map(. + 1)'").await, "[2,3]\n");
    assert_eq!(out("printf 'a,1\\nb,2\\n' | awk -F, '{ s += $2 } END { print s }'").await, "3\n");
    assert_eq!(out("echo one two | sed -E 's/(\\w+) (\\w+)/\\2 \\1/'").await, "two one\n");
    let replaced = "d=/w/a.md; r=/w; e=.md; echo ${d/${r}/R} \"${d//${e}/${r}x}\" ${d/${d%.md}/b}";
    assert_eq!(out(replaced).await, "R/a.md /w/a/wx b.md\n");
    assert_eq!(out("(cd /tmp; pwd); pwd; echo $(echo $(echo deep))").await, format!("/tmp\n{HOME_DIR}\ndeep\n"));
}

#[tokio::test]
async fn real_programs_are_not_there() {
    let (_, stderr, code) = sh(&MemoryHost::new(), "git status").await;
    assert!(stderr.contains("git: command not found"), "{stderr}");
    assert_eq!(code, 127);
}

#[tokio::test]
async fn nothing_of_this_machine_can_be_reached() {
    let real = Folder::new();
    let here = real.workspace().roots()[0].dir.clone();
    let file = here.join("secret");
    std::fs::write(&file, "the secret").unwrap();
    let (path, folder) = (file.display(), here.display());
    for script in [
        format!("cat {path}; cat < {path}; source {path}; ls {folder}; find {folder}"),
        format!("ln -s {folder} d; cat d/secret; cd d && cat secret; readlink -f d/secret | xargs cat"),
        format!("mkdir -p {folder}; echo gone > {path}; echo new > {folder}/new; rm -rf {folder}"),
        "cat /proc/self/environ /proc/1/cmdline; exec 3<>/dev/tcp/127.0.0.1/80; /bin/sh -c 'echo $PPID'".to_owned(),
        "kill -9 1; python3 -c 'print(1)'; curl http://127.0.0.1/; exec /usr/bin/id".to_owned(),
    ] {
        let (stdout, stderr, _) = sh(&MemoryHost::new(), &script).await;
        assert!(!stdout.contains("the secret") && !stderr.contains("the secret"), "{script}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the secret");
    assert!(!here.join("new").exists());
    // The environment of this process is not the script's.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    assert_eq!(out("echo \"[$CARGO_MANIFEST_DIR]\"; env | grep -c CARGO || true").await, "[]\n0\n");
}

#[tokio::test]
async fn every_runaway_ends() {
    for script in [
        "while :; do :; done",
        "f() { f | f & }; f; wait",
        "f() { f; }; f",
        "yes",
        "head -c 10G /dev/zero | wc -c",
        "printf '%0100000000d' 1",
        "x=a; while :; do x=$x$x; done",
        "echo {1..100000000}",
        "awk 'BEGIN { while (1) x = x \"aaaaaaaa\" }'",
        "sed ':a; s/^/x/; ba' <<< x",
        "seq 1 1000000000 | sort -n | tail -1",
        "jq -n '[limit(100000000; repeat(1))] | length'",
        "echo 'source /tmp/s' > /tmp/s; source /tmp/s",
        "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx >> f; cat f f > g; mv g f; done",
        "eval \"$(printf '(%.0s' {1..5000})\"",
        "a='b'; b='a'; echo $((a))",
    ] {
        let memory = MemoryHost::new();
        let script = Script { limit: Duration::from_secs(2), ..Script::new(script) };
        let ended = memory.run(script.clone()).await.unwrap();
        assert!(ended.stdout.len() <= 16 << 20, "{}", script.text);
        // The next script is none the worse for it.
        assert_eq!(sh(&memory, "echo ok").await.0, "ok\n", "{}", script.text);
    }
}

#[tokio::test]
async fn a_limit_is_told_and_what_was_written_is_kept() {
    let (stdout, stderr, code) = sh(&MemoryHost::new(), "echo first; f() { f; }; f").await;
    assert_eq!((stdout.as_str(), code), ("first\n", 137));
    assert!(
        stderr.starts_with("bash: the script was ended at a limit of the shell in memory: maximum function depth"),
        "{stderr}"
    );
}

#[tokio::test]
async fn time_runs_out() {
    let script = Script { limit: Duration::from_millis(100), ..Script::new("echo a; sleep 1000") };
    let ended = MemoryHost::new().run(script).await.unwrap();
    assert_eq!((ended.stdout.as_slice(), ended.code), (&b"a\n"[..], 124));
    assert_eq!(
        String::from_utf8(ended.stderr).unwrap(),
        "bash: ended after 0.1 s, which is the most a script may take\n"
    );
}

#[tokio::test]
async fn a_script_can_be_ended_from_outside() {
    let memory = MemoryHost::new();
    let dir = MemoryHost::workspace().primary_root(Access::Read).unwrap();
    let command = ProcessSpec {
        script: Some("sleep 1000".into()),
        argv: Vec::new(),
        cwd: dir.clone(),
        roots: vec![dir],
        env: Vec::new(),
        stdin: StdinSource::Closed,
        network: NetworkAccess::Configured,
        terminal: None,
        report_cwd: false,
        streams: Streams::Separate,
    };
    let mut process = memory.spawn(&command).await.unwrap();
    process.signal(Signal::Terminate).await.unwrap();
    let ProcessEvent::Exit(exit) = process.next().await else { panic!("it went on") };
    assert_eq!((exit.code, exit.signal), (143, Some(15)));
    assert_eq!(process.next().await, ProcessEvent::Exit(exit));
}

#[tokio::test]
async fn a_script_reads_what_it_is_given() {
    let input = StdinSource::Bytes(b"one\ntwo\n".to_vec());
    let env = vec![("NAME".to_owned(), "value".to_owned())];
    let script = Script { input, env, dir: "/tmp".into(), ..Script::new("pwd; echo $NAME; cat") };
    let ended = MemoryHost::new().run(script).await.unwrap();
    assert_eq!(ended.stdout, b"/tmp\nvalue\none\ntwo\n");
    let lost = MemoryHost::new().run(Script { dir: "/nowhere".into(), ..Script::new("pwd") }).await.unwrap_err();
    assert_eq!(lost.to_string(), "/nowhere: there is no such folder in memory to start in");
}

#[tokio::test]
async fn two_writers_lose_nothing() {
    let (memory, workspace) = (Arc::new(MemoryHost::new()), MemoryHost::workspace());
    let path = workspace.check(Path::new("n"), Access::Write, None).unwrap();
    memory.write(&path, b"", Expect::Absent).await.unwrap();
    let add = async |mark: u8| {
        for _ in 0..50 {
            loop {
                let mut bytes = memory.read(&path, Span::first(1000)).await.unwrap().bytes;
                let expect = Expect::bytes(&bytes);
                bytes.push(mark);
                if memory.write(&path, &bytes, expect).await.is_ok() {
                    break;
                }
            }
        }
    };
    tokio::join!(add(b'a'), add(b'b'));
    assert_eq!(memory.read(&path, Span::first(1000)).await.unwrap().bytes.len(), 100);
}

#[tokio::test]
async fn a_full_memory_takes_back_what_it_began() {
    let (memory, workspace) = (MemoryHost::new(), MemoryHost::workspace());
    let path = |name: &str| workspace.check(Path::new(name), Access::Write, None).unwrap();
    let write = |name: &str, bytes: Vec<u8>| FileChange::Write {
        path: path(name),
        bytes,
        expect: Expect::Anything,
        like: None,
    };
    memory.write(&path("a"), b"old", Expect::Absent).await.unwrap();
    for n in 0..3 {
        memory.write(&path(&format!("big{n}")), &vec![b'x'; 64 << 20], Expect::Absent).await.unwrap();
    }
    let changes = vec![write("a", b"new".to_vec()), write("deep/b", vec![b'y'; 64 << 20])];
    assert_eq!(fault(memory.apply_changes(changes).await), FileErrorKind::DiskFull);
    assert_eq!(sh(&memory, "cat a; ls").await.0, "olda\nbig0\nbig1\nbig2\n");
}

#[tokio::test]
async fn what_is_kept_comes_back() {
    let memory = MemoryHost::new();
    let script = "mkdir -p p/q; printf 'one' > p/a; printf '\\xff' > p/q/b; ln -s a p/l; chmod 755 p/a";
    assert_eq!(sh(&memory, script).await.2, 0);
    let kept = memory.snapshot().unwrap();
    assert_eq!(memory.clone().snapshot().unwrap(), kept);

    let other = MemoryHost::new();
    sh(&other, "echo old > old").await;
    other.restore(&kept).await.unwrap();
    let seen = sh(&other, "ls; cat p/l; stat -c %a p/a; wc -c < p/q/b; readlink p/l").await.0;
    assert_eq!(seen, "p\none755\n1\na\n");
    assert_eq!(other.snapshot().unwrap(), kept);
}

#[tokio::test]
async fn what_is_broken_is_not_put_back() {
    let memory = MemoryHost::new();
    sh(&memory, "echo mine > mine").await;
    let kept = memory.snapshot().unwrap();
    for bytes in [&b""[..], b"helvemm1", b"helvemm1\xff\xff\xff\xff\xff\xff", &kept[..kept.len() - 3]] {
        let error = memory.restore(bytes).await.unwrap_err().to_string();
        assert!(error.starts_with("these files in memory cannot be put back: "), "{error}");
    }
    assert_eq!(sh(&memory, "cat mine").await.0, "mine\n");
}

#[tokio::test]
async fn a_draft_is_written_out() {
    let (memory, other) = (MemoryHost::new(), MemoryHost::new());
    sh(&memory, "mkdir -p plan/deep; echo a > plan/a; echo b > plan/deep/b; ln -s a plan/l; echo no > no").await;
    let to = MemoryHost::workspace().check(Path::new("out"), Access::Write, None).unwrap();
    let from = Path::new(HOME_DIR).join("plan");
    assert_eq!(memory.export(&from, &other, &to, Expect::Absent).await.unwrap(), 2);
    assert_eq!(sh(&other, "cat out/a out/deep/b; ls").await.0, "a\nb\nout\n");
}

/// A workspace on a disk, with a secret beside it and links that lead there.
fn project(name: &str) -> (PathBuf, MemoryHost) {
    let top =
        std::fs::canonicalize(std::env::temp_dir()).unwrap().join(format!("helve-over-{name}-{}", std::process::id()));
    let root = top.join("work");
    std::fs::create_dir_all(root.join("src/deep")).unwrap();
    std::fs::create_dir_all(top.join("outside")).unwrap();
    for (path, text) in [
        ("work/README", "read me\n"),
        ("work/src/a.rs", "fn a() {}\n"),
        ("work/src/deep/b.rs", "fn b() {}\n"),
        ("work/keys.pem", "hidden\n"),
        ("outside/secret", "secret\n"),
    ] {
        std::fs::write(top.join(path), text).unwrap();
    }
    for (name, to) in [
        ("out", top.join("outside/secret")),
        ("outdir", top.join("outside")),
        ("inner", "README".into()),
        ("round", ".".into()),
    ] {
        std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    }
    let deny = PathRule::new(PathGlob::new("*.pem"), Access::Read, "it is a key");
    let workspace = Workspace::new([Root::writable(&root)], PathRules::new([deny]), PathStyle::Relative);
    (top, MemoryHost::over_workspace(Arc::new(helve_hosts::LocalHost::new()), workspace))
}

/// All files beneath a directory of the disk, with what is in them.
fn on_disk(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(on_disk(&entry.path())),
            kind if kind.is_file() => _ = all.insert(entry.path(), std::fs::read(entry.path()).unwrap()),
            _ => _ = all.insert(entry.path(), Vec::new()),
        }
    }
    all
}

#[tokio::test]
async fn a_workspace_is_seen_and_never_changed() {
    let (top, memory) = project("seen");
    let before = on_disk(&top);
    let script = "cd project; cat README inner; find . -type f | sort; grep -rl 'fn b' .";
    let (stdout, stderr, _) = sh(&memory, script).await;
    assert_eq!(
        stdout, "read me\nread me\n./README\n./inner\n./src/a.rs\n./src/deep/b.rs\n./src/deep/b.rs\n",
        "{stderr}"
    );
    let script = "cd project; echo more >> README; rm src/a.rs; mkdir new; echo x > new/x; mv src/deep/b.rs b.rs; cat README; \
                  ls src; ls new; cat b.rs; rm -r src; ls";
    let (stdout, stderr, _) = sh(&memory, script).await;
    assert_eq!(stdout, "read me\nmore\ndeep\nx\nfn b() {}\nREADME\nb.rs\ninner\nnew\n", "{stderr}");
    assert_eq!(on_disk(&top), before);

    // The file tools see the same, and what is kept is what was changed.
    let path = MemoryHost::workspace().check(Path::new("project/README"), Access::Write, None).unwrap();
    assert_eq!(memory.read(&path, Span::first(100)).await.unwrap().bytes, b"read me\nmore\n");
    memory.write(&path, b"mine\n", Expect::Anything).await.unwrap();
    let other = MemoryHost::new();
    other.restore(&memory.snapshot().unwrap()).await.unwrap();
    assert_eq!(sh(&other, "cat project/README; ls project").await.0, "mine\nREADME\nb.rs\nnew\n");
    assert_eq!(on_disk(&top), before);
    std::fs::remove_dir_all(top).unwrap();
}

#[tokio::test]
async fn what_may_not_be_read_is_not_there() {
    let (top, memory) = project("denied");
    for path in ["out", "outdir/secret", "keys.pem", "../outside/secret", "round/../../outside/secret"] {
        let (stdout, stderr, code) = sh(&memory, &format!("cat project/{path}")).await;
        assert_eq!((stdout.as_str(), code), ("", 1), "{path}: {stderr}");
    }
    let real = top.join("outside/secret");
    assert_eq!(sh(&memory, &format!("cat {}", real.display())).await.2, 1);
    let (stdout, ..) =
        sh(&memory, "ls project; ln -s /etc/shadow project/p; cat project/p; test -e project/keys.pem; echo $?").await;
    assert_eq!(stdout, "README\ninner\nsrc\n1\n");
    let path = MemoryHost::workspace().check(Path::new("project/out"), Access::Read, None).unwrap();
    assert!(memory.read(&path, Span::first(100)).await.is_err());
    std::fs::remove_dir_all(top).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is written, the shell answers and lives on.
    #[test]
    fn no_text_breaks_it(words in prop::collection::vec(word(), 0..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let script = Script { limit: Duration::from_secs(10), ..Script::new(words.concat()) };
        let ended = runtime.block_on(MemoryHost::new().run(script)).unwrap();
        prop_assert!(ended.code != 134, "{:?}", ended);
    }
}

/// Pieces of scripts, and any other text.
fn word() -> impl Strategy<Value = String> {
    let pieces = [
        "$(",
        ")",
        "((",
        "))",
        "${",
        "}",
        "`",
        "\"",
        "'",
        "\\",
        "|",
        "&",
        ";",
        "\n",
        " ",
        "<<E\n",
        "E\n",
        ">",
        "<",
        "a=",
        "b[1]=",
        "for i in ",
        "; do ",
        "done",
        "if ",
        "then ",
        "fi",
        "case x in ",
        "esac",
        "*",
        "?",
        "[",
        "]",
        "{1..3}",
        "é",
        "\u{202e}",
        "😀",
        "\0",
        "\r",
        "printf '%d' ",
        "echo ",
        "awk '",
        "sed 's/",
        "jq '",
        "grep -E '",
        "[[ ",
        "]] ",
        "! ",
        "#",
        "~",
        "$'\\x",
        "%s",
        "-n ",
        "99999999999999999999",
        "-1",
    ];
    prop_oneof![prop::sample::select(pieces.to_vec()).prop_map(str::to_owned), ".{0,6}"]
}
