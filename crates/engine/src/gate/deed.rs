//! What a call means to do: the command it runs, the files it touches, the host it speaks to.

use std::path::PathBuf;

use helve_contract::{Access, Call, Effects, Spec, Tier};
use serde_json::Value;

use super::rule;
use crate::commands::{Reading, read, single};

/// What a call means to do, as far as its arguments say.
pub(super) struct Deed<'a> {
    pub(super) spec: &'a Spec,
    pub(super) args: &'a Value,
    pub(super) call: &'a Call,
    /// The command line, where the tool runs one.
    pub(super) command: Option<String>,
    /// The same, read. Only once [`read`](Self::read) was asked for.
    pub(super) reading: Option<Reading>,
    /// The files it names.
    pub(super) targets: Vec<Target>,
    /// Where it speaks to, where the tool takes an address.
    pub(super) address: Option<Address>,
}

/// Where a call speaks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// This host.
    Host(String),
    /// An address that readers may understand differently.
    Unclear,
}

/// A file that a call names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Beneath a root.
    Inside { relative: PathBuf, whole: PathBuf },
    /// Beneath none.
    Outside(PathBuf),
}

impl Target {
    /// The path for people.
    pub(super) fn shown(&self) -> String {
        let (Self::Inside { whole: path, .. } | Self::Outside(path)) = self;
        crate::commands::visible(&path.to_string_lossy())
    }
}

/// Where tools take paths.
const PATHS: &[&str] = &["file_path", "path", "notebook_path", "source_path", "destination_path"];
/// Where tools take patches, whose files stand in the text.
const PATCHES: &[&str] = &["patch", "input", "diff"];

impl<'a> Deed<'a> {
    /// Looks at the arguments.
    pub(super) fn of(spec: &'a Spec, args: &'a Value, call: &'a Call) -> Self {
        let text = |name: &str| args.get(name).and_then(Value::as_str);
        let executes = spec.effects.has(Effects::EXECUTES);
        let command =
            if executes { ["command", "cmd"].into_iter().find_map(|name| line(args.get(name)?)) } else { None };
        let mut named: Vec<&str> = Vec::new();
        if !executes {
            named.extend(PATHS.iter().filter_map(|name| text(name)));
            named.extend(PATCHES.iter().filter_map(|name| text(name)).flat_map(patched));
        }
        let workspace = &call.session.workspace;
        let mut targets: Vec<_> = named.into_iter().map(|path| rule::target(workspace, None, path)).collect();
        if targets.is_empty() && !executes && takes_files(spec) {
            targets.push(rule::target(workspace, None, "."));
        }
        targets.dedup();
        let url = if spec.effects.has(Effects::NETWORK) { text("url") } else { None };
        let address = url.map(|url| host(url).map_or(Address::Unclear, Address::Host));
        Self { spec, args, call, command, reading: None, targets, address }
    }

    /// The address it takes, as it was written.
    pub(super) fn url(&self) -> Option<&str> {
        self.address.as_ref().and_then(|_| self.args.get("url")).and_then(Value::as_str)
    }

    /// Reads the command line; the error says which limit it reached.
    pub(super) fn read(&mut self) -> Result<(), String> {
        let Some(command) = &self.command else { return Ok(()) };
        let argv = ["command", "cmd"].into_iter().find_map(|name| self.args.get(name)?.as_array());
        let mut reading = match argv {
            Some(words) => single(&words.iter().filter_map(Value::as_str).collect::<Vec<_>>())?,
            None => read(command)?,
        };
        reading
            .note_environment(self.args.get("env").and_then(Value::as_object).into_iter().flat_map(|env| env.keys()));
        self.reading = Some(reading);
        Ok(())
    }

    /// The files that redirections of the command write, from every folder it may be in by then.
    pub(super) fn written(&self) -> Vec<Target> {
        let Some(reading) = &self.reading else { return Vec::new() };
        let mut dirs = vec![self.start()];
        for step in &reading.moves {
            let last = dirs.last().cloned().unwrap_or_default();
            dirs.push(last.join(step));
        }
        let workspace = &self.call.session.workspace;
        let files = reading.writes.iter().flatten();
        files
            .flat_map(|file| dirs.iter().map(|dir| rule::target(workspace, Some(dir), file)).collect::<Vec<_>>())
            .collect()
    }

    /// The folder that a command starts in.
    pub(super) fn start(&self) -> PathBuf {
        let given = ["workdir", "cwd", "working_directory"].into_iter().find_map(|name| self.args.get(name)?.as_str());
        let dir = self.call.session.dir().map(|dir| dir.on_host()).unwrap_or_default();
        given.map_or(dir.clone(), |given| dir.join(given))
    }

    /// A file that a redirection would write although the workspace protects it, with the reason.
    pub(super) fn protected(&self) -> Option<(String, String)> {
        let rules = self.call.session.workspace.rules();
        self.written().iter().find_map(|target| match target {
            Target::Inside { relative, .. } => {
                rules.denial(relative, Access::Write).map(|why| (target.shown(), why.to_owned()))
            }
            Target::Outside(_) => None,
        })
    }

    /// Whether the tool only looks.
    pub(super) fn only_looks(&self) -> bool {
        only_looks(self.spec)
    }
}

/// Whether a tool only looks. A tier can make a tool graver than its effects say, never lighter.
pub(super) fn only_looks(spec: &Spec) -> bool {
    let grave = [Effects::WRITES, Effects::NETWORK, Effects::EXECUTES, Effects::SPAWNS, Effects::DESTROYS];
    let raised = spec.tier.is_some_and(|tier| tier > Tier::ReadOnly);
    !raised && !grave.iter().any(|effect| spec.effects.has(*effect))
}

/// The command line that a call runs, and the paths beneath a root that it names.
pub(crate) fn named_in(spec: &Spec, args: &Value, call: &Call) -> (Option<String>, Vec<PathBuf>) {
    let deed = Deed::of(spec, args, call);
    let inside = |target: Target| match target {
        Target::Inside { relative, .. } => Some(relative),
        Target::Outside(_) => None,
    };
    (deed.command, deed.targets.into_iter().filter_map(inside).collect())
}

/// Whether a tool has a parameter for files.
pub(super) fn takes_files(spec: &Spec) -> bool {
    let properties = spec.schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|it| PATHS.iter().chain(PATCHES).any(|name| it.contains_key(*name)))
}

/// A command as one line: text as it is, a list of words quoted.
fn line(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words: Option<Vec<_>> = words.iter().map(Value::as_str).collect();
            words.map(crate::commands::quote)
        }
        _ => None,
    }
}

/// The files that a patch names.
fn patched(patch: &str) -> impl Iterator<Item = &str> {
    const MARKS: &[&str] = &["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    patch.lines().filter_map(|line| {
        let line = line.trim_end();
        if let Some(path) = MARKS.iter().find_map(|mark| line.trim_start().strip_prefix(mark)) {
            return Some(path.trim());
        }
        let path = line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- "))?;
        let path = path.split('\t').next().unwrap_or(path).trim();
        let path = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path);
        (path != "/dev/null" && !path.is_empty()).then_some(path)
    })
}

/// The host of an address, in lower case; `None` when it is written so that readers may differ.
fn host(url: &str) -> Option<String> {
    if url.chars().any(|it| it.is_control() || it.is_whitespace() || it == '\\') {
        return None;
    }
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next()?,
        None => host.split(':').next()?,
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let plain = host.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._:".contains(&it));
    (plain && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_its_files() {
        let patch = "*** Begin Patch\n*** Add File: a.rs\n+x\n*** Update File: b.rs\n*** Move to: c.rs\n*** Delete File: d.rs\n*** End Patch";
        assert_eq!(patched(patch).collect::<Vec<_>>(), ["a.rs", "b.rs", "c.rs", "d.rs"]);
        let diff = "--- a/src/x.rs\t2024\n+++ b/src/y.rs\n@@ -1 +1 @@\n--- /dev/null\n";
        assert_eq!(patched(diff).collect::<Vec<_>>(), ["src/x.rs", "src/y.rs"]);
    }

    #[test]
    fn a_host_is_read_in_one_way_or_not_at_all() {
        let cases = [
            ("https://Example.com./a", Some("example.com")),
            ("https://good.com@evil.com/", Some("evil.com")),
            ("https://evil.com#@good.com", Some("evil.com")),
            ("http://[::1]:80/x", Some("::1")),
            ("https://evil.com\\@good.com", None),
            ("https://ex%61mple.com/", None),
            ("https://exámple.com/", None),
            ("example.com", None),
        ];
        for (url, wanted) in cases {
            assert_eq!(host(url).as_deref(), wanted, "{url}");
        }
    }
}
