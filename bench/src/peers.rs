//! Other MCP servers, as `bench/peers` installs them: how each is started, and its tool names for the measured work.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::wire::PeerProcess;

/// Where `bench/peers` puts them.
pub(crate) fn cache() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    folder("HELVE_PEERS").or_else(|| {
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
        Some(cache.join("helve-peers"))
    })
}

/// A file of the cache, if it is there.
pub(crate) fn cached(path: &str) -> Option<PathBuf> {
    cache().map(|it| it.join(path)).filter(|it| it.is_file())
}

/// What is done by one call of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerWork<'a> {
    /// The least that it can do.
    Noop,
    /// A whole file.
    Read(&'a Path),
    /// Lines of a file, from one on; and the same in bytes, for who counts those.
    Page { path: &'a Path, from: usize, lines: usize, byte: usize, bytes: usize },
    /// A whole file anew.
    Write(&'a Path, &'a str),
    /// One text for another.
    Edit(&'a Path, &'a str, &'a str),
    /// The entries of a directory.
    List(&'a Path),
    /// All files with this ending.
    Glob(&'a Path, &'a str),
    /// Lines that a pattern is in.
    Grep(&'a Path, &'a str),
    /// A command.
    Run(&'a str),
}

/// The words of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    Helve,
    Floor,
    ServerFilesystem,
    RustFilesystem,
    DesktopCommander,
    JustBash,
}

impl PeerKind {
    /// The tool and its arguments for some work; `None` where it has no tool for it.
    pub(crate) fn call(self, work: PeerWork<'_>) -> Option<(&'static str, Value)> {
        use PeerWork::{Edit, Glob, Grep, List, Noop, Page, Read, Run, Write};
        Some(match (self, work) {
            (Self::Helve, Read(path)) => ("read", json!({ "path": path })),
            (Self::Helve, Page { path, from, lines, .. }) => {
                ("read", json!({ "path": path, "offset": from - 1, "limit": lines }))
            }
            (Self::Helve, Write(path, text)) => ("write", json!({ "path": path, "content": text })),
            (Self::Helve, Edit(path, old, new)) => ("edit", json!({ "path": path, "old_text": old, "new_text": new })),
            (Self::Helve, List(path)) => ("ls", json!({ "path": path })),
            (Self::Helve, Glob(path, ending)) => ("glob", json!({ "path": path, "pattern": format!("**/*.{ending}") })),
            (Self::Helve, Grep(path, pattern)) => ("grep", json!({ "path": path, "pattern": pattern })),
            (Self::Helve, Run(command)) => ("exec", json!({ "command": command })),
            (Self::Helve, Noop) => return None,

            (Self::Floor, Noop) => ("echo", json!({ "message": "x" })),
            (Self::Floor, Read(path)) => ("read", json!({ "path": path })),
            (Self::Floor, Page { path, byte, bytes, .. }) => {
                ("read", json!({ "path": path, "offset": byte, "limit": bytes }))
            }
            (Self::Floor, Write(path, text)) => ("write", json!({ "path": path, "content": text })),
            (Self::Floor, Edit(path, old, new)) => ("edit", json!({ "path": path, "old": old, "new": new })),
            (Self::Floor, List(path)) => ("ls", json!({ "path": path })),
            (Self::Floor, Glob(path, ending)) => ("glob", json!({ "path": path, "suffix": format!(".{ending}") })),
            (Self::Floor, Run(command)) => ("sh", json!({ "command": command })),
            (Self::Floor, Grep(..)) => return None,

            (Self::ServerFilesystem | Self::RustFilesystem, Noop) => ("list_allowed_directories", json!({})),
            (Self::ServerFilesystem | Self::RustFilesystem, Read(path)) => ("read_text_file", json!({ "path": path })),
            (Self::RustFilesystem, Page { path, from, lines, .. }) => {
                ("read_file_lines", json!({ "path": path, "offset": from - 1, "limit": lines }))
            }
            (Self::ServerFilesystem | Self::RustFilesystem, Write(path, text)) => {
                ("write_file", json!({ "path": path, "content": text }))
            }
            (Self::ServerFilesystem | Self::RustFilesystem, Edit(path, old, new)) => {
                ("edit_file", json!({ "path": path, "edits": [{ "oldText": old, "newText": new }] }))
            }
            (Self::ServerFilesystem | Self::RustFilesystem, List(path)) => ("list_directory", json!({ "path": path })),
            (Self::ServerFilesystem | Self::RustFilesystem, Glob(path, ending)) => {
                ("search_files", json!({ "path": path, "pattern": format!("**/*.{ending}") }))
            }
            (Self::RustFilesystem, Grep(path, pattern)) => {
                let args = json!({ "path": path, "pattern": "**/*", "query": pattern, "is_regex": true });
                ("search_files_content", args)
            }
            (Self::ServerFilesystem, Page { .. } | Grep(..)) => return None,
            (Self::ServerFilesystem | Self::RustFilesystem, Run(_)) => return None,

            (Self::DesktopCommander, Noop) => ("list_sessions", json!({})),
            (Self::DesktopCommander, Read(path)) => ("read_file", json!({ "path": path })),
            (Self::DesktopCommander, Page { path, from, lines, .. }) => {
                ("read_file", json!({ "path": path, "offset": from - 1, "length": lines }))
            }
            (Self::DesktopCommander, Write(path, text)) => ("write_file", json!({ "path": path, "content": text })),
            (Self::DesktopCommander, Edit(path, old, new)) => {
                ("edit_block", json!({ "file_path": path, "old_string": old, "new_string": new }))
            }
            (Self::DesktopCommander, List(path)) => ("list_directory", json!({ "path": path, "depth": 1 })),
            (Self::DesktopCommander, Run(command)) => {
                ("start_process", json!({ "command": command, "timeout_ms": 5000 }))
            }
            // It searches in the background and must be polled, which is not comparable.
            (Self::DesktopCommander, Glob(..) | Grep(..)) => return None,

            (Self::JustBash, work) => ("bash", json!({ "commands": work.to_shell()? })),
        })
    }
}

impl PeerWork<'_> {
    /// For a shell that has nothing else.
    fn to_shell(self) -> Option<String> {
        Some(match self {
            Self::Noop => ":".to_owned(),
            Self::Read(path) => format!("cat {}", path.display()),
            Self::Page { path, from, lines, .. } => format!("sed -n '{from},{}p' {}", from + lines - 1, path.display()),
            Self::List(path) => format!("ls {}", path.display()),
            Self::Glob(path, ending) => format!("find {} -name '*.{ending}'", path.display()),
            Self::Grep(path, pattern) => format!("grep -rnE '{pattern}' {}", path.display()),
            Self::Run(command) => command.to_owned(),
            // It would write to its copy in memory, without a disk.
            Self::Write(..) | Self::Edit(..) => return None,
        })
    }
}

/// A server that can be started.
pub(crate) struct PeerServer {
    /// Its name in the tables.
    pub(crate) name: &'static str,
    /// Its words.
    pub(crate) kind: PeerKind,
    program: PathBuf,
    args: Vec<PathBuf>,
    home: Option<PathBuf>,
}

impl PeerServer {
    /// Starts it.
    pub(crate) fn start(&self) -> Result<PeerProcess> {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if let Some(home) = &self.home {
            std::fs::create_dir_all(home)?;
            command.env("HOME", home).env("HELVE_STATE_DIR", home.join("state"));
        }
        PeerProcess::start(&mut command).with_context(|| self.name.to_owned())
    }

    /// `helve mcp` with one of its dialects.
    pub(crate) fn helve(helve: &Path, dialect: &str, home: &Path, root: &Path) -> Self {
        let mut args: Vec<PathBuf> = ["mcp", "--dialect", dialect, "--workspace"].map(PathBuf::from).to_vec();
        args.push(root.to_owned());
        Self { name: "helve mcp", kind: PeerKind::Helve, program: helve.to_owned(), args, home: Some(home.to_owned()) }
    }

    /// The baseline, which is built with this program.
    pub(crate) fn floor() -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("helve-floor");
        Ok(Self { name: "floor", kind: PeerKind::Floor, program, args: Vec::new(), home: None })
    }

    /// Those that are installed, and the names of those that are not.
    pub(crate) fn installed(home: &Path, root: &Path) -> (Vec<Self>, Vec<&'static str>) {
        let node = |name, words, file: &str, args: &[&Path]| {
            let script = cached(&format!("node/{name}/node_modules/{file}"));
            let args = |script| std::iter::once(script).chain(args.iter().map(|it| it.to_path_buf())).collect();
            let home = Some(home.join(name));
            (name, script.map(|it| Self { name, kind: words, program: "node".into(), args: args(it), home }))
        };
        let rust = cached("rust/bin/rust-mcp-filesystem").map(|program| Self {
            name: "rust-mcp-filesystem",
            kind: PeerKind::RustFilesystem,
            program,
            args: vec!["-w".into(), root.to_owned()],
            home: Some(home.join("rust-mcp-filesystem")),
        });
        let server = "@modelcontextprotocol/server-filesystem/dist/index.js";
        let commander = "@wonderwhy-er/desktop-commander/dist/index.js";
        let all = [
            ("rust-mcp-filesystem", rust),
            node("server-filesystem", PeerKind::ServerFilesystem, server, &[root]),
            node("desktop-commander", PeerKind::DesktopCommander, commander, &[]),
        ];
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for (name, server) in all {
            match server {
                Some(server) => there.push(server),
                None => missing.push(name),
            }
        }
        (there, missing)
    }

    /// just-bash behind a minimal server, over a directory that it reads.
    pub(crate) fn just_bash(home: &Path, root: &Path) -> Result<Option<Self>> {
        let Some(module) = cached("node/just-bash/node_modules/just-bash/dist/bundle/index.js") else {
            return Ok(None);
        };
        let shim = home.join("just-bash.mjs");
        std::fs::create_dir_all(home)?;
        std::fs::write(&shim, include_str!("just-bash.mjs"))?;
        let args = vec![shim, module, root.to_owned()];
        let (name, words) = ("just-bash", PeerKind::JustBash);
        Ok(Some(Self { name, kind: words, program: "node".into(), args, home: Some(home.to_owned()) }))
    }
}
