//! A remote host passes the same tests: in this process and over a real `ssh`.

use std::{
    fs,
    ops::Deref,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use helve_contract::{
    Workspace, ports,
    ports::{Expect, Host, Span},
};
use helve_hosts::{
    CommandAllowlist, HostSettings, LevelPolicy, LocalHost, RemoteClient, Sandbox, SshConfig, SshHost, SshRoutedHost,
    serve,
};

use crate::{
    folder::Folder,
    programs::program_stories,
    sandbox::{Place, finish, settings},
    sshd::Sshd,
    suite,
};

/// A far end in this process.
async fn near(workspace: &Workspace) -> RemoteClient {
    let (here, there) = tokio::io::duplex(1 << 16);
    let (from, to) = tokio::io::split(there);
    let sandbox = Sandbox::new(settings(LevelPolicy::BestOrNone)).unwrap();
    tokio::spawn(async move { serve(Arc::new(LocalHost::with_spawner(Arc::new(sandbox))), from, to).await });
    let (from, to) = tokio::io::split(here);
    RemoteClient::connect("pipe", workspace, from, to).await.unwrap()
}

/// All stories, each in a directory of its own, over hosts that `connect` makes.
macro_rules! all_stories {
    ($connect:expr, $($story:ident)*) => {
        $({
            let ground = Folder::new();
            let host = $connect(ground.workspace()).await;
            suite::$story(&host, &ground.workspace()).await;
        })*
    };
    ($connect:expr) => {
        $crate::remote::all_stories! { $connect,
            writes_and_reads_back reads_a_part_and_knows_the_whole says_what_is_missing_and_what_is_near
            creates_the_folders_above tells_files_from_folders replaces_only_what_was_expected
            changes_all_or_nothing moves_in_one_step removes_files_and_folders keeps_the_root
            lists_by_name finds_by_name finds_by_path greps_lines_with_their_surroundings
            greps_counts_and_files limits_what_it_keeps says_why_nothing_was_found
            keeps_every_byte handles_an_empty_file
        }
    };
}

pub(crate) use all_stories;

#[tokio::test]
async fn the_stories_hold_over_a_pipe() {
    all_stories!(async |workspace: Workspace| near(&workspace).await);
    program_stories!(async |workspace: Workspace| near(&workspace).await);
}

#[tokio::test]
async fn a_file_larger_than_a_message_comes_whole() {
    let ground = Folder::new();
    let bytes: Vec<u8> = (0..=250).cycle().take(90 << 20).collect();
    ground.put("large.bin", &bytes);
    let host = near(&ground.workspace()).await;
    let chunk = host.read(&ground.path("large.bin"), Span::first(u64::MAX)).await.unwrap();
    assert!(chunk.bytes == bytes && chunk.size == bytes.len() as u64);
    // A write of that size is refused in words, and the connection lives on.
    let error = host.write(&ground.to_write("copy.bin"), &bytes, Expect::Anything).await.unwrap_err().to_string();
    assert_eq!(error, "this is too long to be sent to another machine at once");
    assert_eq!(host.stat(&ground.path("large.bin")).await.unwrap().size, bytes.len() as u64);
}

#[tokio::test]
async fn a_lost_connection_is_told_and_nothing_hangs() {
    let ground = Folder::new();
    let (here, there) = tokio::io::duplex(1 << 16);
    let (from, to) = tokio::io::split(there);
    let far = tokio::spawn(async move { serve(Arc::new(LocalHost::new()), from, to).await });
    let (from, to) = tokio::io::split(here);
    let host = RemoteClient::connect("pipe", &ground.workspace(), from, to).await.unwrap();
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
struct Server(Sshd);

impl Deref for Server {
    type Target = Sshd;
    fn deref(&self) -> &Sshd {
        &self.0
    }
}

impl Server {
    /// `None`, with the reason printed, where there is no server to start.
    fn start() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("helve-sshd-{}-{count}", std::process::id()));
        Sshd::start(folder).map(Self)
    }

    /// From now on the key can do nothing but run a command of this list.
    fn force(&self, list: &str) {
        fs::write(self.folder.join("list"), list).unwrap();
        let key = fs::read_to_string(self.folder.join("user.pub")).unwrap();
        let far = env!("CARGO_BIN_EXE_helve-far");
        let line = format!("restrict,command=\"{far} exec {}/list\" {key}", self.folder.display());
        fs::write(self.folder.join("authorized"), line).unwrap();
    }

    fn way(&self) -> SshConfig {
        SshConfig {
            host: "127.0.0.1".into(),
            port: Some(self.port),
            key: Some(self.folder.join("user")),
            known_hosts: Some(self.folder.join("known")),
            // Another far end can be tried: `HELVE_IT_FAR=…/helve`.
            program: Some(std::env::var("HELVE_IT_FAR").unwrap_or(env!("CARGO_BIN_EXE_helve-far").into())),
            ..SshConfig::default()
        }
    }
}

#[tokio::test]
async fn the_stories_hold_over_ssh() {
    let Some(server) = Server::start() else { return };
    let way = server.way();
    all_stories!(async |workspace: Workspace| way.connect(&workspace).await.unwrap());
    program_stories!(async |workspace: Workspace| way.connect(&workspace).await.unwrap());

    // A host whose key is not known is refused, and ssh's own words say why.
    fs::write(server.folder.join("known"), "").unwrap();
    let Err(error) = way.connect(&Folder::new().workspace()).await else { panic!("an unknown host was trusted") };
    assert!(error.to_string().contains("Host key verification failed"), "{error}");
}

/// A session whose workspace is on the server, and whose other root is here.
fn far_session(place: &Place) -> Workspace {
    for name in ["far", "near"] {
        fs::create_dir(place.0.join(name)).unwrap();
    }
    let roots = ["far", "near"].map(|name| helve_contract::Root::writable(place.0.join(name)));
    Workspace::new(roots, helve_contract::PathRules::default(), helve_contract::PathStyle::Relative)
}

#[tokio::test]
async fn settings_open_a_host_over_ssh() {
    let Some(server) = Server::start() else { return };
    let place = Place::new();
    let workspace = far_session(&place);
    let settings =
        |folder: &str| HostSettings::Ssh(SshHost { connection: server.way(), workspace: place.0.join(folder) });
    let facts = settings("far").probe().await.unwrap();
    assert_eq!(facts[0], "ssh 127.0.0.1 answers");
    assert_eq!(facts[1], format!("the workspace {} is there", place.0.join("far").display()));
    assert!(facts[2].starts_with("commands run there at "), "{facts:?}");
    let missing = settings("gone").probe().await.unwrap_err().to_string();
    assert!(missing.ends_with("does not exist on ssh 127.0.0.1; create it there"), "{missing}");

    let host = settings("far").open(&workspace, None).unwrap();
    assert_eq!((host.name(), settings("far").kind()), ("ssh 127.0.0.1", "ssh"));
    let at = |name: &str, file: &str| {
        workspace.resolve_in_root(&place.0.join(name), file, helve_contract::Access::Write).unwrap()
    };
    host.write(&at("far", "a.txt"), b"far", Expect::Anything).await.unwrap();
    host.write(&at("near", "b.txt"), b"near", Expect::Anything).await.unwrap();
    // Commands are over there, in the workspace, without the root that stays here.
    let command = ports::ProcessSpec {
        streams: ports::Streams::Merged,
        roots: vec![at("far", ""), at("near", "")],
        ..crate::programs::script(&workspace, "cat a.txt; echo >&2; pwd; ls")
    };
    let ran = finish(host.spawn(&command).await.unwrap()).await;
    let (out, at_far) = (ran.out, place.0.join("far"));
    assert_eq!(
        (out.as_str(), ran.exit.code),
        (format!("far\n{}\na.txt\n", at_far.display()).as_str(), 0),
        "{}",
        ran.err
    );
    let near = ports::ProcessSpec { cwd: at("near", ""), ..command };
    let Err(error) = host.spawn(&near).await else { panic!("a command started in a folder of this machine") };
    assert!(error.to_string().ends_with("commands run on ssh 127.0.0.1; start it in the workspace"), "{error}");
}

#[tokio::test]
async fn a_host_that_does_not_answer_fails_its_check() {
    let connection = SshConfig { host: "127.0.0.1".into(), port: Some(1), ..SshConfig::default() };
    let settings = HostSettings::Ssh(SshHost { connection, workspace: "/srv/work".into() });
    let error = settings.probe().await.unwrap_err().to_string();
    assert!(error.contains("ssh said"), "{error}");
    let docker =
        helve_hosts::DockerConfig { endpoint: "unix:///no/such.sock".into(), ..helve_hosts::DockerConfig::default() };
    let error = HostSettings::Docker(docker).probe().await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached"), "{error}");
    let facts = HostSettings::Local(settings_here()).probe().await.unwrap();
    assert!(facts[0].starts_with("commands run here at L"), "{facts:?}");
}

fn settings_here() -> helve_hosts::SandboxConfig {
    settings(LevelPolicy::BestOrNone)
}

/// A host whose commands `near_list` run over the server, and a place for it.
fn routed(server: &Server, near_list: &[&str]) -> (SshRoutedHost, Place) {
    let sandbox = Sandbox::new(settings(LevelPolicy::BestOrNone)).unwrap();
    let inner = Arc::new(LocalHost::with_spawner(Arc::new(sandbox)));
    (SshRoutedHost::new(inner, server.way(), CommandAllowlist::new(near_list.iter().copied()).unwrap()), Place::new())
}

#[tokio::test]
async fn a_listed_command_runs_on_the_other_machine() {
    let Some(server) = Server::start() else { return };
    server.force("printenv\nprintf\ncat\n");
    let (host, place) = routed(&server, &["printenv", "printf", "cat", "id"]);
    let run = async |script: &str| finish(host.spawn(&place.script(script)).await.unwrap()).await;

    // Over there, and by the forced command: the original one is in its environment.
    let ran = run("printenv SSH_ORIGINAL_COMMAND").await;
    assert_eq!((ran.out.as_str(), ran.exit.code), ("'printenv' 'SSH_ORIGINAL_COMMAND'\n", 0), "{}", ran.err);
    // Every word arrives as it was meant.
    let ran = run(r#"printf '<%s>' 'it is; $(not) `a` shell' "it's" '' a=b"#).await;
    assert_eq!(ran.out, "<it is; $(not) `a` shell><it's><><a=b>");
    // What is not listed stays here.
    let ran = run("echo $((6 * 7)); echo ${SSH_ORIGINAL_COMMAND-here}").await;
    assert_eq!(ran.out, "42\nhere\n");
    // The far side has the last word.
    let ran = run("id").await;
    assert_eq!((ran.exit.code, ran.out.as_str()), (1, ""));
    assert_eq!(ran.err, "denied: `id` is not in this machine's list of allowed commands\n");
    // Input and exit codes pass.
    let with_input = ports::ProcessSpec { stdin: ports::StdinSource::Bytes(b"typed".to_vec()), ..place.script("cat") };
    let ran = finish(host.spawn(&with_input).await.unwrap()).await;
    assert_eq!((ran.out.as_str(), ran.exit.code), ("typed", 0));
    assert_eq!(run("cat /no/such/file").await.exit.code, 1);
}

#[tokio::test]
async fn a_routed_command_keeps_the_order_of_its_streams() {
    let Some(server) = Server::start() else { return };
    let order: Vec<bool> = (0..500_u32).map(|at| (at * at / 3) % 2 == 0).collect();
    let (script, expected) = crate::order::interleaved(&order);
    let program = server.folder.join("alternate");
    fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    server.force(&format!("{program}\n"));
    let (host, place) = routed(&server, &[program]);
    let merged = ports::ProcessSpec { streams: ports::Streams::Merged, ..place.script(program) };
    assert_eq!(crate::order::written(host.spawn(&merged).await.unwrap()).await, expected);
    // Apart where the caller wants them apart.
    let ran = finish(host.spawn(&place.script(program)).await.unwrap()).await;
    assert!(ran.out.starts_with('o') && ran.err.starts_with('e'), "{} | {}", ran.out, ran.err);
    assert_eq!(ran.out.len() + ran.err.len(), expected.len());
}

#[tokio::test]
async fn what_cannot_be_sent_with_a_routed_command_is_refused() {
    let Some(server) = Server::start() else { return };
    server.force("printenv\n");
    let (host, place) = routed(&server, &["printenv"]);
    let with_env = ports::ProcessSpec { env: vec![("A".into(), "1".into())], ..place.script("printenv A") };
    let Err(error) = host.spawn(&with_env).await else { panic!("the variable was dropped") };
    assert_eq!(
        error.to_string(),
        "`printenv` runs on another machine (127.0.0.1), which takes no environment variables from here (A); send it \
         again without them"
    );
    fs::create_dir(place.0.join("sub")).unwrap();
    let dir = place.safe().in_same_root("sub", helve_contract::Access::Read).unwrap();
    let elsewhere = ports::ProcessSpec { cwd: dir, ..place.script("printenv HOME") };
    let Err(error) = host.spawn(&elsewhere).await else { panic!("the folder was dropped") };
    let told = error.to_string();
    assert!(told.contains("the folder sub does not exist there. Run it from the workspace's top folder"), "{told}");
}

#[tokio::test]
async fn a_script_with_a_listed_command_says_that_it_ran_here() {
    let Some(server) = Server::start() else { return };
    server.force("printenv\n");
    let (host, place) = routed(&server, &["printenv"]);
    for script in ["echo x; printenv HOME", "true && echo $(printenv HOME)"] {
        let ran = finish(host.spawn(&place.script(script)).await.unwrap()).await;
        assert_eq!(
            ran.exit.denials,
            [
                "`printenv` ran on this machine, not on 127.0.0.1: only a command without operators is sent there. Run it \
              alone to run it there."
            ],
            "{script}"
        );
    }
    let ran = finish(host.spawn(&place.script("echo printenv; true")).await.unwrap()).await;
    assert_eq!(ran.exit.denials, [""; 0]);
}

#[tokio::test]
async fn operators_do_not_reach_the_other_machine() {
    let Some(server) = Server::start() else { return };
    server.force("printenv\n");
    let (host, place) = routed(&server, &["printenv"]);
    for script in ["printenv; id", "printenv && id", "printenv | sh", "printenv > x", "printenv $(id)", "printenv *"] {
        let Err(error) = host.spawn(&place.script(script)).await else { panic!("{script} was sent") };
        let error = error.to_string();
        assert!(
            error.starts_with("`printenv` runs on another machine (127.0.0.1), where there is no shell"),
            "{error}"
        );
    }
    // A direct use of the key meets the same restriction.
    let direct = |command: &str| {
        let place = server.folder.display();
        let mut ssh = Command::new("ssh");
        ssh.args(["-o", &format!("UserKnownHostsFile={place}/known"), "-o", "BatchMode=yes", "-p"]);
        ssh.args([&server.port.to_string(), "-i", &format!("{place}/user"), "127.0.0.1"]);
        let output = ssh.arg(command).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).trim().to_owned())
    };
    assert_eq!(
        direct("printenv; id"),
        (Some(1), "denied: the command needs a shell, and there is none here".to_owned())
    );
    assert_eq!(direct("id").0, Some(1));
}

#[tokio::test]
async fn a_command_that_is_given_up_ends_on_the_other_machine() {
    let Some(server) = Server::start() else { return };
    let program = server.folder.join("beat");
    let beat = server.folder.join("beats");
    // Its child does not listen to SIGTERM; the group is killed after the grace.
    let text = format!(
        "#!/bin/sh\n(trap '' TERM; while :; do echo x >> {0}; sleep 0.05; done) &\n\
         while ! test -s {0}; do sleep 0.01; done; echo up; sleep 1000\n",
        beat.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    server.force(&format!("{}\n", program.display()));
    let (host, place) = routed(&server, &[program.to_str().unwrap()]);
    for by_signal in [true, false] {
        let mut process = host.spawn(&place.script(program.to_str().unwrap())).await.unwrap();
        assert_eq!(process.next().await, ports::ProcessEvent::Stdout(b"up\n".to_vec()));
        if by_signal {
            process.signal(ports::Signal::Terminate).await.unwrap();
            assert_eq!(finish(process).await.exit.code, 143);
        } else {
            drop(process);
        }
        let size = || fs::metadata(&beat).unwrap().len();
        let mut quiet = 0;
        for _ in 0..100 {
            let before = size();
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            quiet = if size() == before { quiet + 1 } else { 0 };
            if quiet == 3 {
                break;
            }
        }
        assert_eq!(quiet, 3, "it still runs over there");
        fs::remove_file(&beat).unwrap();
    }
}
