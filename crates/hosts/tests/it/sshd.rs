//! A real SSH server on loopback that lets one key in. The tests of the command line use this file too.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A server with keys of its own; it ends with this value. Its directory has `user` (the key that is let in) and
/// `known` (the file of known hosts).
pub(crate) struct Sshd {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
}

impl Sshd {
    /// Starts a server whose files are in this directory, which is made. `None`, with the reason printed, where there
    /// is no server to start.
    pub(crate) fn start(folder: PathBuf) -> Option<Self> {
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].into_iter().find(|it| Path::new(it).exists());
        let Some(program) = program else {
            assert!(std::env::var_os("HELVE_CI").is_none(), "sshd is missing");
            eprintln!("SKIPPED: no sshd on this machine, so nothing was tried over ssh");
            return None;
        };
        fs::create_dir_all(&folder).unwrap();
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name)).status();
            assert!(made.unwrap().success());
        }
        fs::copy(folder.join("user.pub"), folder.join("authorized")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let host_key = fs::read_to_string(folder.join("host.pub")).unwrap();
        fs::write(folder.join("known"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
        let place = folder.display();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host\nAuthorizedKeysFile {place}/authorized\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nPermitRootLogin yes\n"
        );
        fs::write(folder.join("config"), config).unwrap();
        // The server wants this directory when it starts as root.
        _ = fs::create_dir_all("/run/sshd");
        let child = Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(folder.join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let server = Self { child, folder, port };
        server.wait();
        Some(server)
    }

    /// Waits until the port answers.
    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "sshd did not come up: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_dir_all(&self.folder);
    }
}
