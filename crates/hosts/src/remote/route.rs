//! Routed commands: a listed command runs on another machine, unchanged and without a shell.
//!
//! The client sends a listed command over `ssh`. The server's `authorized_keys` forces `helve host-exec`, whose own
//! list is the security boundary. Both compare words, not text: `git status; rm x` is not `git`.

use std::{
    io,
    ops::Deref,
    os::{
        fd::AsFd,
        unix::{
            fs::DirBuilderExt,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::{
    Error, Result, SafePath,
    ports::{
        Host, HostLayer, Process, ProcessEvent, ProcessExit, ProcessSpec, SandboxLevel, Signal, StdinSource, Streams,
        TERMINATION_GRACE,
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ssh::{SshConfig, SshMultiplexing, spawn_error};

/// The commands that may run on the other machine.
///
/// A single word allows a program with any arguments; several words allow exactly that command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandAllowlist(Vec<Vec<String>>);

impl CommandAllowlist {
    /// Parses a list with one command per line.
    pub fn new<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let lines = lines.into_iter().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| split_words(line).ok_or_else(|| Error::failed(format!("`{line}` is not a plain command"))))
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Whether the list contains this command.
    pub fn contains(&self, argv: &[String]) -> bool {
        self.0.iter().any(|listed| match listed.as_slice() {
            [program] => argv.first() == Some(program),
            listed => listed == argv,
        })
    }

    /// The words of a listed command; `None` for other commands and those that need a shell.
    pub fn match_script(&self, script: &str) -> Option<Vec<String>> {
        split_words(script).filter(|argv| self.contains(argv))
    }
}

/// Splits a command into words; returns `None` if it needs a shell.
fn split_words(script: &str) -> Option<Vec<String>> {
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut letters = script.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        letter => word.push(letter),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '$' | '`' | '\\' | '!' => return None,
                        letter => word.push(letter),
                    }
                }
            }
            _ if letter.is_alphanumeric() || "-_./:,@%+=".contains(letter) => word.get_or_insert_default().push(letter),
            // Operators, expansions, globs, escapes and control characters have a meaning in a shell.
            _ => return None,
        }
    }
    words.extend(word);
    // An assignment before the program also needs a shell.
    let first = words.first()?;
    (!first.contains('=') && !first.is_empty()).then_some(words)
}

/// The simple commands of a script as words, as far as they can be split without a shell. It skips words before the
/// program, such as assignments, `if`, `then` and `sudo`.
///
/// Used only for a remark, so it may miss a program whose name results from an expansion.
fn simple_commands(script: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut letters = script.chars().peekable();
    let mut quote = None;
    while let Some(letter) = letters.next() {
        let end_of_word = |word: &mut Option<String>, commands: &mut Vec<Vec<String>>| {
            if let (Some(word), Some(last)) = (word.take(), commands.last_mut()) {
                last.push(word);
            }
        };
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some('\''), _) => word.get_or_insert_default().push(letter),
            (_, '\\') => match letters.next() {
                Some('\n') | None => {}
                Some(letter) => word.get_or_insert_default().push(letter),
            },
            // A substitution is a command, also inside double quotes.
            (_, '`') => {
                end_of_word(&mut word, &mut commands);
                commands.push(Vec::new());
                quote = None;
            }
            (_, '$') if letters.peek() == Some(&'(') => {
                end_of_word(&mut word, &mut commands);
                commands.push(Vec::new());
                quote = None;
            }
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => while letters.next_if(|it| *it != '\n').is_some() {},
            (None, ';' | '&' | '|' | '(' | ')' | '\n') => {
                end_of_word(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            (None, '<' | '>') => end_of_word(&mut word, &mut commands),
            (None, letter) if letter.is_whitespace() => end_of_word(&mut word, &mut commands),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if let (Some(word), Some(last)) = (word, commands.last_mut()) {
        last.push(word);
    }
    let is_before = |word: &String| {
        let assigns = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
        });
        assigns || BEFORE_PROGRAM.contains(&word.as_str())
    };
    let commands = commands.into_iter().map(|words| words.into_iter().skip_while(is_before).collect::<Vec<_>>());
    commands.filter(|words| !words.is_empty()).collect()
}

/// Words that precede a program.
const BEFORE_PROGRAM: [&str; 18] = [
    "!", "{", "if", "then", "elif", "else", "while", "until", "do", "time", "exec", "command", "builtin", "sudo",
    "env", "nohup", "xargs", "nice",
];

/// Quotes one argument for the shell on the other machine.
fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r#"'"'"'"#))
}

/// Requests merged streams; a remote shell interprets it the same way.
const MERGE: &str = " 2>&1";

/// A command that [`check_forced_command`] has accepted. It dereferences to its program and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedCommand {
    argv: Vec<String>,
    streams: Streams,
}

impl Deref for ForcedCommand {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.argv
    }
}

/// Checks a forced command on the server: returns what to run, or why it is refused.
pub fn check_forced_command(original: Option<&str>, allowed: &CommandAllowlist) -> Result<ForcedCommand> {
    let original = original.map(str::trim).filter(|it| !it.is_empty());
    let original = original.ok_or_else(|| Error::denied("denied: no command was sent; there is no shell here"))?;
    let (original, streams) = match original.strip_suffix(MERGE) {
        Some(command) => (command, Streams::Merged),
        None => (original, Streams::Separate),
    };
    // The client quotes every word, so that the user's shell restores them.
    let argv = split_words(original)
        .ok_or_else(|| Error::denied("denied: the command needs a shell, and there is none here"))?;
    if allowed.contains(&argv) {
        return Ok(ForcedCommand { argv, streams });
    }
    Err(Error::denied(format!("denied: `{}` is not in this machine's list of allowed commands", argv.join(" "))))
}

/// Runs the command in a new process group with this process's input and output. Returns the exit code.
///
/// When the output closes (connection lost, timeout), it kills the group. It also kills processes that the command
/// leaves in its group, because they would keep the connection open.
pub fn exec_forced_command(forced: &ForcedCommand) -> io::Result<i32> {
    let (program, arguments) = forced.argv.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let mut command = std::process::Command::new(program);
    command.args(arguments).process_group(0);
    if forced.streams == Streams::Merged {
        command.stderr(io::stdout().as_fd().try_clone_to_owned()?);
    }
    let mut child = command.spawn()?;
    let group = process::Pid::from_child(&child);
    let ended = process::pidfd_open(group, process::PidfdFlags::empty())?;
    let out = io::stdout();
    loop {
        let mut watched = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&out, PollFlags::empty())];
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if watched[0].revents().contains(PollFlags::IN) {
            break;
        }
        if watched[1].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            _ = process::kill_process_group(group, process::Signal::TERM);
            let grace = Timespec::try_from(TERMINATION_GRACE).map_err(io::Error::other)?;
            _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&grace));
            break;
        }
    }
    // The group's id cannot be reused before its leader is waited for.
    _ = process::kill_process_group(group, process::Signal::KILL);
    let status = child.wait()?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// A host whose listed commands run on another machine. Files and all other commands stay on the inner host.
///
/// The other machine has its own directories and environment: a routed command starts in its user's home. A command
/// with variables or a working directory is refused, because neither can be sent. A script that contains a listed
/// command among others runs locally and ends with a remark. All routed commands share one connection, which the
/// first one opens.
pub struct SshRoutedHost {
    inner: Arc<dyn Host>,
    ssh: SshConfig,
    allowed: CommandAllowlist,
    master: tokio::sync::Mutex<Option<SshMaster>>,
}

impl SshRoutedHost {
    /// Routes the commands of this list over `ssh`, the rest to `inner`.
    pub fn new(inner: Arc<dyn Host>, ssh: SshConfig, allowed: CommandAllowlist) -> Self {
        Self { inner, ssh, allowed, master: tokio::sync::Mutex::default() }
    }

    /// The words of a routed command; `None` if it runs locally.
    fn route(&self, command: &ProcessSpec) -> Result<Option<Vec<String>>> {
        let Some(script) = &command.script else { return Ok(None) };
        if let Some(argv) = self.allowed.match_script(script) {
            return Ok(Some(argv));
        }
        // It would run locally instead, which contradicts the list.
        match script.split_ascii_whitespace().next().map(|first| first.trim_end_matches([';', '&', '|'])) {
            Some(first) if split_words(script).is_none() && self.allowed.contains(&[first.to_owned()]) => {
                Err(Error::denied(format!(
                    "`{first}` runs on another machine ({}), where there is no shell: send it alone, without operators, \
                     redirections, expansions or globs, and quote special characters with '…'",
                    self.ssh.host
                )))
            }
            _ => Ok(None),
        }
    }

    /// Refuses variables and working directories. Dropping either would run another command than the requested one.
    fn refuse_what_is_not_sent(&self, program: &str, command: &ProcessSpec) -> Result<()> {
        let there = format!("`{program}` runs on another machine ({})", self.ssh.host);
        if command.terminal.is_some() {
            return Err(Error::denied(format!("{there}, where it gets no terminal")));
        }
        if !command.env.is_empty() {
            let names: Vec<_> = command.env.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::denied(format!(
                "{there}, which takes no environment variables from here ({}); send it again without them",
                names.join(", ")
            )));
        }
        let top = command.roots.first().map(SafePath::host_path);
        if top.is_some_and(|top| top != command.cwd.host_path()) {
            return Err(Error::denied(format!(
                "{there}, where it starts in its user's own folder: the folder {} does not exist there. Run it from the \
                 workspace's top folder, without another working directory",
                command.cwd
            )));
        }
        Ok(())
    }

    /// A remark for a script that contains a listed command and runs locally.
    fn stays_here(&self, command: &ProcessSpec) -> Option<String> {
        let script = command.script.as_deref()?;
        let listed = simple_commands(script).into_iter().find(|argv| self.allowed.contains(argv))?;
        Some(format!(
            "`{}` ran on this machine, not on {}: only a command without operators is sent there. Run it alone to run it \
             there.",
            listed.first().map_or("", String::as_str),
            self.ssh.host
        ))
    }

    /// The socket of the shared connection; connects if there is none.
    async fn socket(&self) -> Result<PathBuf> {
        let mut line = self.master.lock().await;
        if !line.as_mut().is_some_and(SshMaster::is_alive) {
            *line = None;
            *line = Some(SshMaster::open(&self.ssh).await?);
        }
        Ok(line.as_ref().map(SshMaster::socket).unwrap_or_default())
    }
}

struct SshMaster {
    child: tokio::process::Child,
    folder: PathBuf,
}

impl SshMaster {
    async fn open(ssh: &SshConfig) -> Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| Error::Internal(anyhow::anyhow!("no random numbers: {error}")))?;
        let folder = std::env::temp_dir().join(format!("helve-ssh-{:016x}", u64::from_ne_bytes(random)));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| Error::failed(format!("{}: {error}", folder.display())))?;
        let socket = folder.join("line");
        let child = ssh.command(SshMultiplexing::Master(&socket))?.stdin(Stdio::null()).spawn().map_err(spawn_error)?;
        let mut line = Self { child, folder };
        let ready = async {
            while line.is_alive() && !socket.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        _ = tokio::time::timeout(Duration::from_secs(20), ready).await;
        if socket.exists() {
            return Ok(line);
        }
        let mut said = String::new();
        if let Some(words) = line.child.stderr.take() {
            _ = line.child.start_kill();
            _ = words.take(4096).read_to_string(&mut said).await;
        }
        Err(Error::failed(format!("{} cannot be reached; ssh said: {}", ssh.host, said.trim())))
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("line")
    }
}

impl Drop for SshMaster {
    fn drop(&mut self) {
        _ = self.child.start_kill();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[async_trait]
impl HostLayer for SshRoutedHost {
    fn inner(&self) -> &dyn Host {
        &*self.inner
    }
    async fn layered_spawn(&self, command: &ProcessSpec) -> Result<Box<dyn Process>> {
        let Some(argv) = self.route(command)? else {
            let process = self.inner.spawn(command).await?;
            return Ok(match self.stays_here(command) {
                Some(remark) => Box::new(Remarked { process, remark }),
                None => process,
            });
        };
        self.refuse_what_is_not_sent(&argv[0], command)?;
        let socket = self.socket().await?;
        Ok(Box::new(SshProcess::start(self.ssh.command(SshMultiplexing::Shared(&socket))?, &argv, command)?))
    }
}

/// A process whose exit carries an additional remark.
struct Remarked {
    process: Box<dyn Process>,
    remark: String,
}

#[async_trait]
impl Process for Remarked {
    async fn next(&mut self) -> ProcessEvent {
        match self.process.next().await {
            ProcessEvent::Exit(mut exit) => {
                exit.denials.push(self.remark.clone());
                ProcessEvent::Exit(exit)
            }
            other => other,
        }
    }
    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.process.write(bytes).await
    }
    async fn close_stdin(&mut self) -> Result<()> {
        self.process.close_stdin().await
    }
    async fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal).await
    }
    fn sandbox_level(&self) -> SandboxLevel {
        self.process.sandbox_level()
    }
}

/// A command that runs on the other machine.
///
/// Ending `ssh` closes the command's output on the other machine; `helve host-exec` then kills its process group.
struct SshProcess {
    child: tokio::process::Child,
    stdin: Option<tokio::process::ChildStdin>,
    stdout: Option<tokio::process::ChildStdout>,
    stderr: Option<tokio::process::ChildStderr>,
    ended_by: Option<Signal>,
    end: Option<ProcessExit>,
}

impl SshProcess {
    fn start(mut ssh: tokio::process::Command, argv: &[String], command: &ProcessSpec) -> Result<Self> {
        let words: Vec<_> = argv.iter().map(|word| shell_quote(word)).collect();
        let merge = if command.streams == Streams::Merged { MERGE } else { "" };
        let mut child = ssh.arg(words.join(" ") + merge).spawn().map_err(spawn_error)?;
        let mut stdin = child.stdin.take();
        match &command.stdin {
            StdinSource::Closed => stdin = None,
            StdinSource::Open => {}
            StdinSource::Bytes(bytes) => {
                if let (Some(mut pipe), bytes) = (stdin.take(), bytes.clone()) {
                    tokio::spawn(async move { pipe.write_all(&bytes).await });
                }
            }
        }
        Ok(Self { stdin, stdout: child.stdout.take(), stderr: child.stderr.take(), child, ended_by: None, end: None })
    }
}

/// Reads the next chunk of a stream; `None` at its end.
async fn read_chunk(stream: &mut Option<impl AsyncReadExt + Unpin>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 16_384];
    match stream.as_mut()?.read(&mut bytes).await {
        Ok(count) if count > 0 => {
            bytes.truncate(count);
            Some(bytes)
        }
        _ => {
            *stream = None;
            None
        }
    }
}

#[async_trait]
impl Process for SshProcess {
    async fn next(&mut self) -> ProcessEvent {
        if let Some(end) = &self.end {
            return ProcessEvent::Exit(end.clone());
        }
        while self.stdout.is_some() || self.stderr.is_some() {
            tokio::select! {
                Some(bytes) = read_chunk(&mut self.stdout) => return ProcessEvent::Stdout(bytes),
                Some(bytes) = read_chunk(&mut self.stderr) => return ProcessEvent::Stderr(bytes),
                else => {}
            }
        }
        let status = self.child.wait().await.ok();
        let signal = self.ended_by.map(|it| if it == Signal::Kill { libc::SIGKILL } else { libc::SIGTERM });
        let code = status.and_then(|it| it.code()).unwrap_or(signal.map_or(255, |it| 128 + it));
        let exit = ProcessExit { code, signal, left_behind: false, denials: Vec::new(), dir: None };
        self.end = Some(exit.clone());
        ProcessEvent::Exit(exit)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let pipe = self.stdin.as_mut().ok_or_else(|| Error::failed("the command's input is closed"))?;
        pipe.write_all(bytes).await.map_err(|error| Error::failed(format!("the command takes no more input: {error}")))
    }

    async fn close_stdin(&mut self) -> Result<()> {
        self.stdin = None;
        Ok(())
    }

    async fn signal(&mut self, signal: Signal) -> Result<()> {
        match signal {
            Signal::Terminate | Signal::Kill | Signal::Interrupt | Signal::HangUp | Signal::Quit => {
                self.stdin = None;
                self.ended_by = Some(signal);
                self.child.start_kill().map_err(|error| Error::failed(error.to_string()))
            }
            other => Err(Error::failed(format!("{} cannot be sent to a command on another machine", other.name()))),
        }
    }

    fn sandbox_level(&self) -> SandboxLevel {
        SandboxLevel::External
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_leave_the_sandbox() {
        let allowed = CommandAllowlist::new(["git", "docker ps", "# a remark"]).unwrap();
        let argv = |script: &str| allowed.match_script(script).map(|argv| argv.join("|"));
        assert_eq!(argv("git log --format='%h %s'").as_deref(), Some("git|log|--format=%h %s"));
        assert_eq!(argv("docker ps").as_deref(), Some("docker|ps"));
        for script in [
            "docker ps -a",
            "git status; rm x",
            "git log | sh",
            "git log > x",
            "git $(x)",
            "git `x`",
            "git \"$x\"",
            "git *",
            "A=b git log",
            "git\nrm x",
            "/usr/bin/git log",
            "gitk",
            "git '",
            "",
        ] {
            assert_eq!(argv(script), None, "{script}");
        }
    }

    #[test]
    fn commands_inside_a_script_are_found() {
        let allowed = CommandAllowlist::new(["uname", "docker ps"]).unwrap();
        let found = |script: &str| simple_commands(script).iter().any(|argv| allowed.contains(argv));
        for script in [
            "echo x; uname",
            "cd sub && uname -a",
            "ls | uname",
            "true &\nuname",
            "x=$(uname -r)",
            "echo \"on $(uname) now\"",
            "echo `uname`",
            "(uname)",
            "{ uname; }",
            "if true; then uname; fi",
            "for i in 1 2; do uname; done",
            "A=1 B='x y' uname",
            "ls; sudo uname",
            "ls; 'uname'",
            "ls; un\\ame",
            "ls; docker ps",
        ] {
            assert!(found(script), "{script}");
        }
        for script in
            ["echo uname", "ls; echo 'a; uname'", "ls # uname", "ls; docker ps -a", "ls; unames", "ls; /bin/uname"]
        {
            assert!(!found(script), "{script}");
        }
    }

    #[test]
    fn the_far_side_reads_its_own_list() {
        let allowed = CommandAllowlist::new(["uptime"]).unwrap();
        let told = |text: Option<&str>| {
            check_forced_command(text, &allowed).map_or_else(|error| error.to_string(), |forced| forced.join(" "))
        };
        let streams = |text: &str| check_forced_command(Some(text), &allowed).unwrap().streams;
        assert_eq!(streams("'uptime'"), Streams::Separate);
        assert_eq!(streams("'uptime' 2>&1"), Streams::Merged);
        assert_eq!(streams("'uptime' ' 2>&1'"), Streams::Separate);
        assert_eq!(told(Some("'uptime' 2>&1 2>&1")), "denied: the command needs a shell, and there is none here");
        assert_eq!(told(Some("'uptime' '-p'")), "uptime -p");
        assert_eq!(told(Some(&format!("uptime {}", shell_quote("it's; `$x`")))), "uptime it's; `$x`");
        assert_eq!(told(Some("'rm' 'x'")), "denied: `rm x` is not in this machine's list of allowed commands");
        assert_eq!(told(Some("uptime; rm x")), "denied: the command needs a shell, and there is none here");
        assert_eq!(told(None), "denied: no command was sent; there is no shell here");
    }
}
