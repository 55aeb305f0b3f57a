//! `helve mcp install`: adds Helve to the settings of an MCP client.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{self, BufRead as _, ErrorKind, IsTerminal as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    config::xdg_dir,
    fault::{CliError, CommandResult},
    remark, say, state,
};

/// The name of the entry.
const ENTRY_NAME: &str = "helve";
/// The number of context lines around a change.
const DIFF_CONTEXT: usize = 3;

/// Add Helve to the settings of an agent or editor.
///
/// Shows what would change and asks first. The old file is kept beside the new one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve mcp install claude-code
  helve mcp install codex --dialect solo --yes
  helve mcp install vscode --print")]
pub(crate) struct Args {
    /// The program.
    #[arg(value_enum)]
    client: McpClientApp,
    /// Which dialect's tools it gets.
    #[arg(long, value_name = "D", value_parser = ["solo", "forge", "preset", "oxydra", "claude"])]
    dialect: Option<String>,
    /// The role or preset that decides which tools of the dialect there are.
    #[arg(long, value_name = "R")]
    role: Option<String>,
    /// The folder that tools work in; the program's own when left out.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Write into the settings of the project in the current folder, not into the user's own.
    #[arg(long)]
    project: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Only print the entry.
    #[arg(long, conflicts_with = "yes")]
    print: bool,
}

/// A program that can start MCP servers.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum McpClientApp {
    ClaudeCode,
    Codex,
    Opencode,
    Cursor,
    Vscode,
    Zed,
}

impl McpClientApp {
    /// The file that holds its servers.
    fn file(self, in_project: bool) -> Result<PathBuf, CliError> {
        let home = || std::env::home_dir().ok_or_else(|| CliError::failed("HOME is not set"));
        let config = || xdg_dir("XDG_CONFIG_HOME", ".config").ok_or_else(|| CliError::failed("HOME is not set"));
        let here = std::env::current_dir()?;
        Ok(match (self, in_project) {
            (Self::ClaudeCode, true) => here.join(".mcp.json"),
            (Self::ClaudeCode, false) => home()?.join(".claude.json"),
            (Self::Codex, true) => here.join(".codex/config.toml"),
            (Self::Codex, false) => match std::env::var_os("CODEX_HOME").filter(|it| !it.is_empty()) {
                Some(folder) => PathBuf::from(folder).join("config.toml"),
                None => home()?.join(".codex/config.toml"),
            },
            (Self::Opencode, true) => here.join("opencode.json"),
            (Self::Opencode, false) => config()?.join("opencode/opencode.json"),
            (Self::Cursor, true) => here.join(".cursor/mcp.json"),
            (Self::Cursor, false) => home()?.join(".cursor/mcp.json"),
            (Self::Vscode, _) => here.join(".vscode/mcp.json"),
            (Self::Zed, true) => here.join(".zed/settings.json"),
            (Self::Zed, false) => config()?.join("zed/settings.json"),
        })
    }

    /// The key of the servers in that file.
    fn key(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Cursor => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::Opencode => "mcp",
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
        }
    }

    /// The form of a server entry.
    fn entry(self, program: &str, args: &[String]) -> Value {
        match self {
            Self::ClaudeCode | Self::Vscode => json!({ "type": "stdio", "command": program, "args": args }),
            Self::Codex | Self::Cursor | Self::Zed => json!({ "command": program, "args": args }),
            Self::Opencode => {
                let command: Vec<_> = [program].into_iter().chain(args.iter().map(String::as_str)).collect();
                json!({ "type": "local", "command": command, "enabled": true })
            }
        }
    }

    /// The placeholder for the open directory, for clients that do not start servers there.
    fn workspace_variable(self) -> Option<&'static str> {
        matches!(self, Self::Cursor | Self::Vscode).then_some("${workspaceFolder}")
    }
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let file = self.client.file(self.project)?;
        let entry = self.entry()?;
        if self.print {
            say!("# {}", file.display());
            say!("{}", snippet(self.client, &entry));
            return Ok(ExitCode::SUCCESS);
        }
        // A settings file may be a link; its target is changed.
        let file = file.canonicalize().unwrap_or(file);
        // Without a prompt the lock is held from the first read, so that two processes run one after the other.
        let early = self.yes.then(|| lock_dir(&file)).transpose()?;
        let old = match fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(CliError::failed(format!("{}: {error}", file.display()))),
        };
        let before = old.as_deref().unwrap_or_default();
        let after = insert_entry(self.client, before, &entry).map_err(|why| {
            let shown = snippet(self.client, &entry);
            CliError::failed(format!("{}: {why}. Nothing was written. Add this by hand:\n{shown}", file.display()))
        })?;
        if after == before {
            say!("{} has this entry already", file.display());
            return Ok(ExitCode::SUCCESS);
        }
        say!("{}", diff(&file, before, &after));
        if !self.yes && !confirm()? {
            return Err(CliError::failed("nothing was written"));
        }
        let _alone = early.map_or_else(|| lock_dir(&file), Ok)?;
        let backup = old.as_ref().map(|text| back_up(&file, text)).transpose()?;
        write(&file, old.as_deref(), &after)?;
        say!("wrote {}", file.display());
        if let Some(backup) = backup {
            say!("the old one is {}", backup.display());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn entry(&self) -> Result<Value, CliError> {
        let program = std::env::current_exe()?;
        let program = program.to_str().ok_or_else(|| CliError::failed("the path of this program is not UTF-8"))?;
        let workspace = match &self.workspace {
            Some(path) => {
                let whole = path.canonicalize().map_err(|it| CliError::usage(format!("{}: {it}", path.display())))?;
                Some(whole.to_str().ok_or_else(|| CliError::usage("--workspace must be UTF-8"))?.to_owned())
            }
            None => self.client.workspace_variable().map(str::to_owned),
        };
        let flags = [("--dialect", &self.dialect), ("--role", &self.role), ("--workspace", &workspace)];
        let given = flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value.clone()?])).flatten();
        let args: Vec<_> = ["mcp".to_owned()].into_iter().chain(given).collect();
        Ok(self.client.entry(program, &args))
    }
}

/// The entry as it would stand alone in the file.
fn snippet(client: McpClientApp, entry: &Value) -> String {
    match client {
        McpClientApp::Codex => toml_table(entry),
        _ => pretty_json(&json!({ client.key(): { ENTRY_NAME: entry } }), 0),
    }
}

fn pretty_json(value: &Value, depth: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

/// The file with the entry added and everything else unchanged.
fn insert_entry(client: McpClientApp, text: &str, entry: &Value) -> Result<String, String> {
    if client == McpClientApp::Codex {
        insert_entry_toml(text, entry)
    } else {
        insert_entry_json(client.key(), text, entry)
    }
}

fn insert_entry_json(key: &str, text: &str, entry: &Value) -> Result<String, String> {
    if text.trim().is_empty() {
        return Ok(pretty_json(&json!({ key: { ENTRY_NAME: entry } }), 0) + "\n");
    }
    let plain = |error: serde_json::Error| {
        if text.contains("//") || text.contains("/*") {
            "it has comments, which would be lost".to_owned()
        } else {
            format!("it is not plain JSON ({error})")
        }
    };
    let whole: Value = serde_json::from_str(text).map_err(plain)?;
    let Value::Object(mut wanted) = whole else { return Err("it is not a JSON object".into()) };
    let servers = wanted.entry(key).or_insert_with(|| Map::new().into());
    let Value::Object(servers) = servers else { return Err(format!("`{key}` is not an object")) };
    if servers.insert(ENTRY_NAME.into(), entry.clone()).as_ref() == Some(entry) {
        return Ok(text.to_owned());
    }

    let top: HashMap<String, &RawValue> = serde_json::from_str(text).map_err(plain)?;
    let after = match top.get(key) {
        None => insert_field(text, text.trim_end().len(), key, &json!({ ENTRY_NAME: entry }), 1),
        Some(servers) => {
            let inside: HashMap<String, &RawValue> = serde_json::from_str(servers.get()).map_err(plain)?;
            match inside.get(ENTRY_NAME) {
                Some(old) => {
                    let at = substring_offset(text, old.get());
                    format!("{}{}{}", &text[..at], pretty_json(entry, 2), &text[at + old.get().len()..])
                }
                None => insert_field(
                    text,
                    substring_offset(text, servers.get()) + servers.get().len(),
                    ENTRY_NAME,
                    entry,
                    2,
                ),
            }
        }
    };
    // The edited text must parse to the intended value.
    match serde_json::from_str::<Value>(&after) {
        Ok(Value::Object(said)) if said == wanted => Ok(after),
        _ => Err("it is written in a way that cannot be changed safely".into()),
    }
}

/// Where a part of a text begins.
fn substring_offset(whole: &str, part: &str) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

/// The text with one field more in the object that ends there.
fn insert_field(text: &str, end: usize, key: &str, value: &Value, depth: usize) -> String {
    let (inside, rest) = (text[..end - 1].trim_end(), &text[end - 1..]);
    let comma = if inside.ends_with('{') { "" } else { "," };
    let (blanks, outer) = ("  ".repeat(depth), "  ".repeat(depth - 1));
    format!("{inside}{comma}\n{blanks}\"{key}\": {}\n{outer}{rest}", pretty_json(value, depth))
}

fn toml_table(entry: &Value) -> String {
    format!("[mcp_servers.{ENTRY_NAME}]\n{}", toml::to_string(entry).unwrap_or_default())
}

fn insert_entry_toml(text: &str, entry: &Value) -> Result<String, String> {
    let read =
        |text: &str| toml::from_str::<Value>(text).map_err(|error| format!("it is not TOML ({})", error.message()));
    let Value::Object(mut wanted) = read(text)? else { return Err("it is not a table".into()) };
    let servers = wanted.entry("mcp_servers").or_insert_with(|| Map::new().into());
    let Value::Object(servers) = servers else { return Err("`mcp_servers` is not a table".into()) };
    let old = servers.insert(ENTRY_NAME.into(), entry.clone());
    if old.as_ref() == Some(entry) {
        return Ok(text.to_owned());
    }
    let after = match old {
        None => {
            let gap = if text.is_empty() {
                ""
            } else if text.ends_with('\n') {
                "\n"
            } else {
                "\n\n"
            };
            format!("{text}{gap}{}", toml_table(entry))
        }
        Some(_) => {
            let header = format!("[mcp_servers.{ENTRY_NAME}]");
            let is_header = |line: &&str| line.trim() == header;
            let lines: Vec<_> = text.split_inclusive('\n').collect();
            let start = lines.iter().position(is_header).ok_or("the entry is there in another form")?;
            let length = lines[start + 1..].iter().position(|it| it.trim_start().starts_with('['));
            let end = length.map_or(lines.len(), |it| start + 1 + it);
            let gap = if end < lines.len() { "\n" } else { "" };
            format!("{}{}{gap}{}", lines[..start].concat(), toml_table(entry), lines[end..].concat())
        }
    };
    match read(&after) {
        Ok(Value::Object(said)) if said == wanted => Ok(after),
        _ => Err("it is written in a way that cannot be changed safely".into()),
    }
}

/// The lines that change, with some around them.
fn diff(file: &Path, before: &str, after: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let same = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let shown = |mark: &str, lines: &[&str]| lines.iter().fold(String::new(), |all, it| all + "\n" + mark + it);
    format!(
        "--- {}\n+++ with Helve, from line {}{}{}{}{}",
        file.display(),
        head + 1,
        shown(" ", &old[head.saturating_sub(DIFF_CONTEXT)..head]),
        shown("-", &old[head..old.len() - same]),
        shown("+", &new[head..new.len() - same]),
        shown(" ", &old[old.len() - same..][..same.min(DIFF_CONTEXT)]),
    )
}

/// Asks the user for confirmation.
fn confirm() -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        remark!("helve: nobody is here to ask; use --yes to write without asking");
        return Ok(false);
    }
    eprint!("Write it? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Keeps the old file under a free name.
fn back_up(file: &Path, text: &str) -> Result<PathBuf, CliError> {
    let mode = file.metadata()?.mode() & 0o777;
    for number in 1..1000 {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".before-helve-{number}"));
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&name) {
            Ok(mut backup) => {
                backup.write_all(text.as_bytes())?;
                backup.sync_all()?;
                return Ok(name.into());
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CliError::failed(format!("{}: {error}", Path::new(&name).display()))),
        }
    }
    Err(CliError::failed(format!("{} has too many old copies; remove some", file.display())))
}

/// A lock on this directory among all Helve processes, until dropped. File systems without locks grant it always.
fn lock_dir(file: &Path) -> Result<fs::File, CliError> {
    let folder = file.parent().ok_or_else(|| CliError::failed("the file has no folder"))?;
    fs::create_dir_all(folder)?;
    let held = fs::File::open(folder)?;
    _ = held.lock();
    Ok(held)
}

/// Replaces the file atomically.
pub(super) fn write(file: &Path, old: Option<&str>, new: &str) -> Result<(), CliError> {
    let folder = file.parent().ok_or_else(|| CliError::failed("the file has no folder"))?;
    let beside = folder.join(format!(".helve-{}", state::random_id()?));
    let written = (|| -> io::Result<()> {
        let mode = file.metadata().map_or(0o600, |it| it.mode() & 0o777);
        let mut to = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        to.set_permissions(fs::Permissions::from_mode(mode))?;
        to.write_all(new.as_bytes())?;
        to.sync_all()?;
        let now = fs::read_to_string(file).ok();
        if now.as_deref() != old {
            return Err(io::Error::other("somebody else has just changed it; try again"));
        }
        fs::rename(&beside, file)?;
        fs::File::open(folder)?.sync_all()
    })();
    written.map_err(|error| {
        _ = fs::remove_file(&beside);
        CliError::failed(format!("{}: {error}", file.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Value {
        McpClientApp::Cursor.entry("/bin/helve", &["mcp".into()])
    }

    #[test]
    fn writes_what_each_client_reads() {
        let args = ["mcp".to_owned(), "--dialect".to_owned(), "solo".to_owned()];
        let of = |client: McpClientApp| snippet(client, &client.entry("/bin/helve", &args)).replace(['\n', ' '], "");
        assert_eq!(
            [
                McpClientApp::ClaudeCode,
                McpClientApp::Cursor,
                McpClientApp::Vscode,
                McpClientApp::Zed,
                McpClientApp::Opencode,
                McpClientApp::Codex
            ]
            .map(of),
            [
                r#"{"mcpServers":{"helve":{"type":"stdio","command":"/bin/helve","args":["mcp","--dialect","solo"]}}}"#,
                r#"{"mcpServers":{"helve":{"command":"/bin/helve","args":["mcp","--dialect","solo"]}}}"#,
                r#"{"servers":{"helve":{"type":"stdio","command":"/bin/helve","args":["mcp","--dialect","solo"]}}}"#,
                r#"{"context_servers":{"helve":{"command":"/bin/helve","args":["mcp","--dialect","solo"]}}}"#,
                r#"{"mcp":{"helve":{"type":"local","command":["/bin/helve","mcp","--dialect","solo"],"enabled":true}}}"#,
                r#"[mcp_servers.helve]command="/bin/helve"args=["mcp","--dialect","solo"]"#,
            ]
        );
    }

    #[test]
    fn leaves_the_rest_of_the_file_as_it_is() {
        let new = insert_entry_json("mcpServers", "", &entry()).unwrap();
        assert_eq!(insert_entry_json("mcpServers", &new, &entry()).unwrap(), new);

        let odd = "{ \"n\": 1.50,\n\t\"mcpServers\": {\"a\": {\"command\":\"x\"}} , \"z\":[ ]}\n";
        let after = insert_entry_json("mcpServers", odd, &entry()).unwrap();
        assert_eq!(
            after,
            "{ \"n\": 1.50,\n\t\"mcpServers\": {\"a\": {\"command\":\"x\"},\n    \"helve\": {\n      \"command\": \"/bin/helve\",\n      \
             \"args\": [\n        \"mcp\"\n      ]\n    }\n  } , \"z\":[ ]}\n"
        );
        let other = McpClientApp::Cursor.entry("/opt/helve", &[]);
        let again = insert_entry_json("mcpServers", &after, &other).unwrap();
        assert!(again.starts_with("{ \"n\": 1.50,\n\t\"mcpServers\": {\"a\"") && again.contains("/opt/helve"));
        assert!(!again.contains("/bin/helve"));

        let without = insert_entry_json("servers", "{}", &entry()).unwrap();
        assert!(without.starts_with("{\n  \"servers\": {\n    \"helve\""), "{without}");
    }

    #[test]
    fn touches_no_file_that_it_does_not_understand() {
        let why = |text| insert_entry_json("mcpServers", text, &entry()).unwrap_err();
        assert_eq!(why("{\n // mine\n}"), "it has comments, which would be lost");
        assert!(why("{ \"a\": 1, }").starts_with("it is not plain JSON"));
        assert_eq!(why("[]"), "it is not a JSON object");
        assert_eq!(why(r#"{"mcpServers":[]}"#), "`mcpServers` is not an object");
        assert_eq!(
            insert_entry_toml("mcp_servers = { helve = { command = \"x\" } }\n", &entry()).unwrap_err(),
            "the entry is there in another form"
        );
    }

    #[test]
    fn keeps_the_comments_of_toml() {
        let old = "# mine\nmodel = \"m\" # this one\n\n[mcp_servers.helve]\ncommand = \"old\"\n\n[x]\ny = 1\n";
        let new = insert_entry_toml(old, &entry()).unwrap();
        assert_eq!(
            new,
            "# mine\nmodel = \"m\" # this one\n\n[mcp_servers.helve]\ncommand = \"/bin/helve\"\nargs = [\"mcp\"]\n\n[x]\ny = 1\n"
        );
        assert_eq!(insert_entry_toml(&new, &entry()).unwrap(), new);
        assert!(insert_entry_toml("a = 1", &entry()).unwrap().starts_with("a = 1\n\n[mcp_servers.helve]\n"));
    }

    #[test]
    fn shows_only_what_changes() {
        let shown = diff(Path::new("f"), "a\nb\nc\n", "a\nB\nc\n");
        assert_eq!(shown, "--- f\n+++ with Helve, from line 2\n a\n-b\n+B\n c");
    }

    #[test]
    fn writes_whole_files_and_keeps_the_old_ones() {
        let folder = tempfile::tempdir().unwrap().keep();
        let file = folder.join("deep/mcp.json");
        let _alone = lock_dir(&file).unwrap();
        write(&file, None, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let backups = [back_up(&file, "one").unwrap(), back_up(&file, "one").unwrap()];
        assert!(backups[0].ends_with("mcp.json.before-helve-1") && backups[1].ends_with("mcp.json.before-helve-2"));
        assert!(write(&file, Some("other"), "two").is_err());
        write(&file, Some("one"), "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 3);
        fs::remove_dir_all(folder).unwrap();
    }
}
