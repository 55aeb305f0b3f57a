//! Test support: a home directory, a project and the binary.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

/// A user with an empty home and one project.
pub(crate) struct Desk {
    folder: tempfile::TempDir,
    env: Vec<(String, String)>,
}

/// What a run of the binary left.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("helve-cli-").tempdir().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, env: Vec::new() }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// A path beneath the desk, without links.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// Writes a file beneath the desk.
    pub(crate) fn put(&self, name: &str, text: &str) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The binary in the project, with nothing of the real environment but what it needs.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_helve"));
        command.args(args).current_dir(self.path("work")).env_clear();
        command.env("HOME", self.path("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.fed(args, "")
    }

    pub(crate) fn fed(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        let feeder = std::thread::spawn(move || _ = stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: self.plain(&output.stdout),
            err: self.plain(&output.stderr),
        }
    }

    /// Text with this desk's own directory called DESK.
    fn plain(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).replace(self.path("").to_str().unwrap().trim_end_matches('/'), "DESK")
    }
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }

    /// Code, output and errors at one glance.
    pub(crate) fn all(&self) -> (i32, &str, &str) {
        (self.code, &self.out, &self.err)
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
