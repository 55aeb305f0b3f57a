//! A host at the other end of a pipe passes the same stories: in this process, and over a real `ssh`.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use helve_contract::{
    Workspace,
    ports::{Expect, Host, Span},
};
use helve_hosts::{Local, Remote, Ssh, serve};

use crate::{folder::Folder, suite};

/// A far end in this process.
async fn near(workspace: &Workspace) -> Remote {
    let (here, there) = tokio::io::duplex(1 << 16);
    let (from, to) = tokio::io::split(there);
    tokio::spawn(async move { serve(Arc::new(Local::new()), from, to).await });
    let (from, to) = tokio::io::split(here);
    Remote::connect("pipe", workspace, from, to).await.unwrap()
}

/// All stories, each in a folder of its own, over hosts that `connect` makes.
macro_rules! all_stories {
    ($connect:expr, $($story:ident)*) => {
        $({
            let ground = Folder::new();
            let host = $connect(ground.workspace()).await;
            suite::$story(&host, &ground.workspace()).await;
        })*
    };
    ($connect:expr) => {
        all_stories! { $connect,
            writes_and_reads_back reads_a_part_and_knows_the_whole says_what_is_missing_and_what_is_near
            creates_the_folders_above tells_files_from_folders replaces_only_what_was_expected
            changes_all_or_nothing moves_in_one_step removes_files_and_folders keeps_the_root
            lists_by_name finds_by_name finds_by_path greps_lines_with_their_surroundings
            greps_counts_and_files limits_what_it_keeps says_why_nothing_was_found
            keeps_every_byte handles_an_empty_file
        }
    };
}

#[tokio::test]
async fn the_stories_hold_over_a_pipe() {
    all_stories!(async |workspace: Workspace| near(&workspace).await);
}

#[tokio::test]
async fn a_lost_connection_is_told_and_nothing_hangs() {
    let ground = Folder::new();
    let (here, there) = tokio::io::duplex(1 << 16);
    let (from, to) = tokio::io::split(there);
    let far = tokio::spawn(async move { serve(Arc::new(Local::new()), from, to).await });
    let (from, to) = tokio::io::split(here);
    let host = Remote::connect("pipe", &ground.workspace(), from, to).await.unwrap();
    far.abort();
    _ = far.await;
    let error = host.read(&ground.path("a.txt"), Span::first(1)).await.unwrap_err().to_string();
    assert_eq!(error, "the connection to pipe is lost; nothing more was done there");
}

#[tokio::test]
async fn the_far_end_judges_paths_again() {
    let ground = Folder::with_rule("secret.txt", helve_contract::Access::Write);
    ground.put("secret.txt", "x");
    ground.link("door", "secret.txt");
    let host = near(&ground.workspace()).await;
    let error = host.write(&ground.to_write("door"), b"y", Expect::Anything).await.unwrap_err().to_string();
    assert!(error.contains("is protected"), "{error}");
}

/// A real server on loopback, with keys of its own.
struct Server {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Server {
    /// `None`, with the reason printed, where there is no server to start.
    fn start() -> Option<Self> {
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].into_iter().find(|it| Path::new(it).exists());
        let Some(program) = program else {
            println!("no sshd on this machine; the stories were not told over ssh");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("helve-sshd-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(folder.join(name))
                .status();
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
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").unwrap();
        }
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

    fn wait(&self) {
        for _ in 0..2000 {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::yield_now();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("sshd did not come up: {}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
    }

    fn way(&self) -> Ssh {
        Ssh {
            host: "127.0.0.1".into(),
            port: Some(self.port),
            key: Some(self.folder.join("user")),
            known_hosts: Some(self.folder.join("known")),
            program: Some(env!("CARGO_BIN_EXE_helve-far").into()),
            ..Ssh::default()
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn the_stories_hold_over_ssh() {
    let Some(server) = Server::start() else { return };
    let way = server.way();
    all_stories!(async |workspace: Workspace| way.connect(&workspace).await.unwrap());

    // A host whose key is not known is refused, and ssh's own words say why.
    fs::write(server.folder.join("known"), "").unwrap();
    let Err(error) = way.connect(&Folder::new().workspace()).await else { panic!("an unknown host was trusted") };
    assert!(error.to_string().contains("Host key verification failed"), "{error}");
}
