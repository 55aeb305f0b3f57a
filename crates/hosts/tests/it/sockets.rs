//! Local (Unix) sockets: a command reaches those that it made, and none of a program outside.

use std::{
    fs,
    io::Write as _,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixDatagram, UnixListener},
    },
};

use helve_contract::ports::SandboxLevel;
use helve_hosts::{LevelPolicy, NetworkPolicy, Sandbox, SandboxConfig, UnixSockets};

use crate::{
    payloads::run_as_nobody,
    sandbox::{Place, levels, run, settings},
};

/// Tries every way to the sockets `s`, `d` and `q` of the workspace, and prints what it reached.
const ATTACK: &str = r"python3 - <<'END'
import os, socket, threading
here = os.getcwd()
def reach(what, work):
    try:
        if work() is not False: print('reached', what)
    except (OSError, PermissionError) as error: pass
def stream(path, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind)
    s.connect(path)
    s.sendall(b'out')
names = ['s', './s', here + '/s', '/proc/self/cwd/s', '/proc/self/root' + here + '/s', 'link', 'hard', 'sub/../s']
os.symlink('s', 'link')
try: os.link('s', 'hard')
except OSError: pass
os.mkdir('sub')
for name in names: reach(name, lambda: stream(name))
reach('seqpacket', lambda: stream('q', socket.SOCK_SEQPACKET))
def datagram(make):
    s = make()
    s.sendto(b'out', here + '/d')
reach('datagram', lambda: datagram(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
reach('datagram pair', lambda: datagram(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]))
# A name that was a socket of this command, and is that of the program outside now.
own = socket.socket(socket.AF_UNIX); own.bind('own'); own.listen()
os.rename('own', 'own2'); os.link('s', 'own')
reach('exchanged', lambda: stream('own'))
# A name that changes while it is looked at.
os.unlink('own'); os.symlink('own2', 'own')
stop = False
def flip():
    n = 0
    while not stop:
        n += 1
        target = 's' if n % 2 else 'own2'
        try:
            os.symlink(target, 'tmp'); os.rename('tmp', 'own')
        except OSError: pass
flipping = threading.Thread(target=flip); flipping.start()
for _ in range(300):
    try: stream('own')
    except OSError: pass
    own.setblocking(False)
    try: own.accept()[0].close()
    except OSError: pass
stop = True; flipping.join()
print('end')
END
";

/// Programs inside that talk to each other.
const INSIDE: &str = r"python3 - <<'END'
import os, socket, threading
def serve(listener):
    peer, _ = listener.accept()
    peer.sendall(peer.recv(10).upper()); peer.close()
def talk(family, kind, address):
    listener = socket.socket(family, kind)
    listener.bind(address); listener.listen()
    thread = threading.Thread(target=serve, args=(listener,)); thread.start()
    client = socket.socket(family, kind); client.settimeout(10)
    client.connect(listener.getsockname())
    client.sendall(b'hello'); print(client.recv(10).decode()); thread.join()
talk(socket.AF_UNIX, socket.SOCK_STREAM, 'in.sock')
talk(socket.AF_UNIX, socket.SOCK_STREAM, os.environ['TMPDIR'] + '/in.sock')
talk(socket.AF_UNIX, socket.SOCK_SEQPACKET, os.getcwd() + '/seq.sock')
talk(socket.AF_UNIX, socket.SOCK_STREAM, '\0abstract')
talk(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 0))
talk(socket.AF_INET6, socket.SOCK_STREAM, ('::1', 0))
os.mkdir('dir'); os.chdir('dir')
talk(socket.AF_UNIX, socket.SOCK_STREAM, 'relative.sock')
for address in ('nothing.sock', '/etc/hostname'):
    try: socket.socket(socket.AF_UNIX).connect(address)
    except OSError as error: print(type(error).__name__)
try: socket.create_connection(('127.0.0.1', 1), 5)
except OSError as error: print(type(error).__name__)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0))
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.connect(u.getsockname()); c.send(b'x'); print(u.recv(1).decode())
s = socket.socket(); s.setblocking(False); print(s.connect_ex(('127.0.0.1', 1)) in (111, 115))
END
";

const TALKED: &str = "HELLO\nHELLO\nHELLO\nHELLO\nHELLO\nHELLO\nHELLO\nFileNotFoundError\nConnectionRefusedError\n\
                      ConnectionRefusedError\nx\nTrue\n";

/// A workspace with sockets of a program outside.
struct Outside {
    place: Place,
    stream: UnixListener,
    datagram: UnixDatagram,
}

impl Outside {
    fn new() -> Self {
        let place = Place::new();
        let stream = UnixListener::bind(place.0.join("s")).unwrap();
        stream.set_nonblocking(true).unwrap();
        let datagram = UnixDatagram::bind(place.0.join("d")).unwrap();
        datagram.set_nonblocking(true).unwrap();
        for name in ["s", "d"] {
            fs::set_permissions(place.0.join(name), fs::Permissions::from_mode(0o777)).unwrap();
        }
        Self { place, stream, datagram }
    }
}

async fn matrix_here() {
    for level in levels() {
        for network in [NetworkPolicy::Off, NetworkPolicy::Allowlist] {
            let outside = Outside::new();
            let sandbox = Sandbox::new(SandboxConfig { network, ..settings(LevelPolicy::Exactly(level)) }).unwrap();
            let ran = run(&sandbox, &outside.place.script(ATTACK)).await.unwrap();
            assert!(!ran.out.contains("reached"), "{level:?}: {} {}", ran.out, ran.err);
            if level >= SandboxLevel::Nested {
                assert_eq!(ran.out, "end\n", "{level:?}: {}", ran.err);
            }
            assert!(outside.stream.accept().is_err(), "{level:?}: a connection came out");
            assert!(outside.datagram.recv(&mut [0; 8]).is_err(), "{level:?}: a datagram came out");
        }
    }
}

#[tokio::test]
async fn a_socket_of_a_program_outside_is_out_of_reach() {
    matrix_here().await;
}

#[tokio::test]
#[ignore = "a part of `sockets_as_nobody`"]
async fn as_nobody() {
    matrix_here().await;
    inside_here().await;
}

#[test]
fn sockets_as_nobody() {
    run_as_nobody("sockets::as_nobody");
}

async fn inside_here() {
    for level in levels().into_iter().filter(|level| *level >= SandboxLevel::Nested) {
        let place = Place::new();
        let ran =
            run(&Sandbox::new(settings(LevelPolicy::Exactly(level))).unwrap(), &place.script(INSIDE)).await.unwrap();
        assert_eq!(ran.out, TALKED, "{level:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_command_reaches_the_sockets_that_it_made() {
    inside_here().await;
}

#[tokio::test]
async fn an_operator_may_allow_sockets_of_others() {
    for level in levels().into_iter().filter(|level| *level >= SandboxLevel::Nested) {
        let outside = Outside::new();
        let given = SandboxConfig { unix_sockets: UnixSockets::Any, ..settings(LevelPolicy::Exactly(level)) };
        let script = "python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.connect('s'); s.sendall(b'hi')\"";
        let ran = run(&Sandbox::new(given).unwrap(), &outside.place.script(script)).await.unwrap();
        assert_eq!(ran.exit.code, 0, "{level:?}: {}", ran.err);
        outside.stream.accept().unwrap().0.write_all(b"").unwrap();
    }
}
