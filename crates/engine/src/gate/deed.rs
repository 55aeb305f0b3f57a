//! `CallAccess`: what a call would access, from its arguments: the command, the files, the host.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{Access, AccessRequest, Call, CommandLine, Effects, RequestedCommand, SafePath, Spec, Tier};
use serde_json::Value;

use super::{
    rule,
    scripts::{self, Manifests},
};
use crate::commands::{ParsedCommandLine, is_read_only_command as command_only_looks, parse_argv, parse_line};

/// What a call would access, according to its arguments.
pub(super) struct CallAccess<'a> {
    pub(super) spec: &'a Spec,
    pub(super) args: &'a Value,
    pub(super) call: &'a Call,
    /// The command line, if the tool runs one.
    pub(super) command: Option<String>,
    /// The parsed command line, after [`parse_command`](Self::parse_command).
    pub(super) parsed: Option<ParsedCommandLine>,
    /// Lines that it may run or pass to a shell; only deny and ask rules check them.
    pub(super) candidates: Vec<ParsedCommandLine>,
    /// The files it names.
    pub(super) targets: Vec<PathTarget>,
    /// The access to each of them.
    accesses: Vec<Access>,
    /// The targets of links in them, after [`look`](Self::look).
    linked: Vec<(PathTarget, Access)>,
    /// The targets of links that words and redirections of the command name, after [`look`](Self::look).
    linked_words: Vec<PathTarget>,
    /// The host that it connects to, if the tool takes an address.
    pub(super) host: Option<TargetHost>,
    /// The project scripts that its command runs, after [`look`](Self::look).
    pub(super) scripts: Option<Manifests>,
    /// The same scripts at the time of the first call in the workspace.
    pub(super) first_scripts: Option<Arc<Manifests>>,
    looked: bool,
    request: AccessRequest,
}

/// The host that a call connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetHost {
    /// This host.
    Host(String),
    /// An address that parsers may interpret differently.
    Ambiguous,
}

/// A file that a call names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// Beneath a root.
    Inside { relative: PathBuf, whole: PathBuf },
    /// Outside all roots.
    Outside(PathBuf),
}

impl PathTarget {
    /// The path for people.
    pub(super) fn display(&self) -> String {
        let (Self::Inside { whole: path, .. } | Self::Outside(path)) = self;
        crate::commands::escape_invisible(&path.to_string_lossy())
    }
}

/// The maximum number of file names derived from one word of a command.
const MAX_NAMES_IN_WORD: usize = 32;
/// Parameters in which tools known only at run time take paths.
const PATH_PARAMETERS: &[&str] =
    &["file_path", "path", "notebook_path", "source_path", "destination_path", "source", "destination", "paths"];

impl<'a> CallAccess<'a> {
    /// Uses the tool's access request, or guesses from the argument names of a tool without one.
    pub(super) fn new(spec: &'a Spec, args: &'a Value, call: &'a Call) -> Self {
        let request = spec.access.and_then(|access| access(args)).unwrap_or_else(|| guessed(spec, args));
        let workspace = &call.session.workspace;
        let located = |paths: &[String], access| -> Vec<(PathTarget, Access)> {
            paths.iter().map(|path| (rule::resolve_target(workspace, None, path), access)).collect()
        };
        let mut named = located(&request.reads, Access::Read);
        named.extend(located(&request.writes, Access::Write));
        named.dedup();
        let (targets, accesses) = named.into_iter().unzip();
        let address = request.url.as_deref().map(|url| url_host(url).map_or(TargetHost::Ambiguous, TargetHost::Host));
        let command = request.command.as_ref().and_then(|command| match &command.line {
            CommandLine::Script(script) => Some(script.clone()),
            CommandLine::Words(words) => Some(crate::commands::quote(words.iter().map(String::as_str))),
            CommandLine::OneOf(_) | CommandLine::Unknown => None,
        });
        Self {
            spec,
            args,
            call,
            command,
            parsed: None,
            candidates: Vec::new(),
            targets,
            accesses,
            linked: Vec::new(),
            linked_words: Vec::new(),
            host: address,
            scripts: None,
            first_scripts: None,
            looked: false,
            request,
        }
    }

    /// Resolves links in its paths, and reads the project scripts that its command runs.
    pub(super) async fn look(&mut self, links: bool) {
        let workspace = &self.call.session.workspace;
        for (target, access) in self.targets.iter().zip(&self.accesses).filter(|_| links) {
            let PathTarget::Inside { whole, .. } = target else { continue };
            let Some(path) = rule::locate(workspace, whole) else { continue };
            let Ok(real) = self.call.host().real_path(&path).await else { continue };
            if real != path.relative() {
                let whole = path.root().dir.join(&real);
                self.linked.push((PathTarget::Inside { relative: real, whole }, *access));
            }
        }
        let named = if links { self.named_by_words(false) } else { Vec::new() };
        for target in named.iter().chain(&self.redirected_from()).filter(|_| links) {
            let PathTarget::Inside { whole, .. } = target else { continue };
            let Some(path) = rule::locate(workspace, whole) else { continue };
            let Ok(real) = self.call.host().real_path(&path).await else { continue };
            if real != path.relative() {
                let whole = path.root().dir.join(&real);
                self.linked_words.push(PathTarget::Inside { relative: real, whole });
            }
        }
        self.scripts = scripts::current(self).await;
        self.looked = true;
    }

    /// Whether the links in its paths are resolved.
    pub(super) fn has_looked(&self) -> bool {
        self.looked
    }

    /// Whether its command runs the same project scripts that allow rules were made for.
    pub(super) fn runs_first_scripts(&self) -> bool {
        let (Some(now), Some(reading)) = (&self.scripts, &self.parsed) else { return self.looked };
        let first = self.first_scripts.as_ref().map(|first| first.lines(&reading.commands));
        self.looked && first.is_some_and(|first| first == now.lines(&reading.commands))
    }

    /// The address as written.
    pub(super) fn url(&self) -> Option<&str> {
        self.request.url.as_deref()
    }

    /// Its paths and the targets of links in them, with the access to each.
    pub(super) fn places(&self) -> impl Iterator<Item = (&PathTarget, Access)> {
        let named = self.targets.iter().zip(self.accesses.iter().copied());
        named.chain(self.linked.iter().map(|(target, access)| (target, *access)))
    }

    /// Parses the command line; the error names the exceeded limit.
    pub(super) fn parse_command(&mut self) -> Result<(), String> {
        let Some(command) = &self.request.command else { return Ok(()) };
        let mut reading = match &command.line {
            CommandLine::Script(script) => parse_line(script)?,
            CommandLine::Words(words) => parse_argv(&words.iter().map(String::as_str).collect::<Vec<_>>())?,
            CommandLine::OneOf(scripts) => {
                self.candidates = scripts.iter().map(|script| parse_line(script)).collect::<Result<_, _>>()?;
                return Ok(());
            }
            CommandLine::Unknown => return Ok(()),
        };
        reading.note_environment(command.variables.iter());
        self.parsed = Some(reading);
        Ok(())
    }

    /// The files that redirections write, for every possible working directory.
    pub(super) fn redirect_targets(&self) -> Vec<PathTarget> {
        let Some(reading) = &self.parsed else { return Vec::new() };
        let files = reading.redirect_targets.iter().flatten().map(String::as_str);
        self.in_every_folder(reading, files)
    }

    /// The command lines that it runs or may run.
    pub(super) fn readings(&self) -> impl Iterator<Item = &ParsedCommandLine> {
        self.parsed.iter().chain(&self.candidates)
    }

    /// The files that redirections read, for every possible working directory.
    pub(super) fn redirected_from(&self) -> Vec<PathTarget> {
        let files = |reading: &ParsedCommandLine| {
            self.in_every_folder(reading, reading.reads.iter().flatten().map(String::as_str))
        };
        self.readings().flat_map(files).collect()
    }

    /// The targets of links that words and redirections of the command name.
    pub(super) fn linked_words(&self) -> &[PathTarget] {
        &self.linked_words
    }

    /// The files that words of the command name, for every possible working directory. With `changing`, only for
    /// programs that are not read-only.
    pub(super) fn named_by_words(&self, changing: bool) -> Vec<PathTarget> {
        let named = |reading: &ParsedCommandLine| {
            let commands = reading.commands.iter().filter(|command| !changing || !command_only_looks(command));
            let words = commands.flat_map(|command| command.words.iter().skip(1)).filter_map(|word| word.as_literal());
            self.in_every_folder(reading, words.flat_map(file_names))
        };
        self.readings().flat_map(named).collect()
    }

    fn in_every_folder<'b>(
        &self,
        reading: &ParsedCommandLine,
        files: impl Iterator<Item = &'b str>,
    ) -> Vec<PathTarget> {
        let mut dirs = vec![self.start_dir()];
        for step in &reading.cd_targets {
            let last = dirs.last().cloned().unwrap_or_default();
            dirs.push(last.join(step));
        }
        let workspace = &self.call.session.workspace;
        files
            .flat_map(|file| {
                dirs.iter().map(|dir| rule::resolve_target(workspace, Some(dir), file)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The directory in which a command starts, as the tool resolves it.
    pub(super) fn start_dir(&self) -> PathBuf {
        if let Some(path) = self.start_path() {
            return path.host_path();
        }
        let given = self.request.command.as_ref().and_then(|command| command.dir.as_deref());
        let dir = self.call.session.cwd().map(|dir| dir.host_path()).unwrap_or_default();
        given.map_or(dir.clone(), |given| dir.join(given))
    }

    /// The start directory, if a command may start there.
    pub(super) fn start_path(&self) -> Option<SafePath> {
        let session = &self.call.session;
        let here = session.cwd().ok()?;
        match self.request.command.as_ref().and_then(|command| command.dir.as_deref()) {
            Some(dir) => session.workspace.check(Path::new(dir), Access::Read, Some(&here)).ok(),
            None => Some(here),
        }
    }

    /// Whether its command starts at the top of the workspace. Allow rules apply only there.
    pub(super) fn starts_at_top(&self) -> bool {
        let top = self.call.workspace_root().map(|top| top.host_path());
        self.start_path().is_some_and(|start| top.is_ok_and(|top| top == start.host_path()))
    }

    /// A protected file that a redirection would write, with the reason.
    pub(super) fn protected_redirect(&self) -> Option<(String, String)> {
        let rules = self.call.session.workspace.rules();
        self.redirect_targets().iter().find_map(|target| match target {
            PathTarget::Inside { relative, .. } => {
                rules.denial_reason(relative, Access::Write).map(|why| (target.display(), why.to_owned()))
            }
            PathTarget::Outside(_) => None,
        })
    }

    /// Whether the tool is read-only.
    pub(super) fn is_read_only(&self) -> bool {
        is_read_only_tool(self.spec)
    }
}

/// Whether a tool is read-only. A tier can be stricter than the effects, never weaker.
pub(super) fn is_read_only_tool(spec: &Spec) -> bool {
    let grave = [Effects::WRITES, Effects::NETWORK, Effects::EXECUTES, Effects::SPAWNS, Effects::DESTROYS];
    let raised = spec.tier.is_some_and(|tier| tier > Tier::ReadOnly);
    !raised && !grave.iter().any(|effect| spec.effects.contains(*effect))
}

/// The command and paths that a call names.
pub(crate) struct NamedPlaces {
    /// The command line that it runs.
    pub(crate) command: Option<String>,
    /// The directory that the command starts in.
    pub(crate) start: PathBuf,
    /// The paths that lie beneath a root, relative to it.
    pub(crate) paths: Vec<PathBuf>,
    /// The same paths on the host.
    pub(crate) on_host: Vec<PathBuf>,
}

/// The command line and the paths that a call names.
pub(crate) fn command_and_paths(spec: &Spec, args: &Value, call: &Call) -> NamedPlaces {
    let deed = CallAccess::new(spec, args, call);
    let start = if deed.command.is_some() { deed.start_dir() } else { PathBuf::new() };
    let inside = |target: PathTarget| match target {
        PathTarget::Inside { relative, whole } => Some((relative, whole)),
        PathTarget::Outside(_) => None,
    };
    let (paths, on_host) = deed.targets.into_iter().filter_map(inside).unzip();
    NamedPlaces { command: deed.command, start, paths, on_host }
}

/// The access of a tool known only at run time, guessed from usual argument names.
fn guessed(spec: &Spec, args: &Value) -> AccessRequest {
    let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
    let url = if spec.effects.contains(Effects::NETWORK) { text("url") } else { None };
    if spec.effects.contains(Effects::EXECUTES) {
        let line = ["command", "cmd"].into_iter().find_map(|name| command_line(args.get(name)?)).unwrap_or_default();
        let dir = ["workdir", "cwd", "working_directory"].into_iter().find_map(text);
        let variables = args.get("env").and_then(Value::as_object).into_iter().flat_map(|env| env.keys().cloned());
        let command = RequestedCommand { line, dir, variables: variables.collect() };
        return AccessRequest { command: Some(command), url, ..AccessRequest::default() };
    }
    let named = PATH_PARAMETERS.iter().filter_map(|name| args.get(*name));
    let each = named.flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    let mut paths: Vec<String> = each.filter_map(Value::as_str).map(str::to_owned).collect();
    if paths.is_empty() && has_path_parameter(spec) {
        paths.push(".".to_owned());
    }
    let request =
        if spec.effects.contains(Effects::WRITES) { AccessRequest::writes(paths) } else { AccessRequest::reads(paths) };
    AccessRequest { url, ..request }
}

/// Whether a tool has a parameter for files.
fn has_path_parameter(spec: &Spec) -> bool {
    let properties = spec.input_schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|it| PATH_PARAMETERS.iter().any(|name| it.contains_key(*name)))
}

/// The file names that a word of a command may contain: itself, and the parts after an option or separator. Examples:
/// `if=key.pem`, `--file=key.pem`, `-fkey.pem`, `@key.pem`, `-d@key.pem`, `HEAD:key.pem`, `file:///w/key.pem`.
fn file_names(word: &str) -> impl Iterator<Item = &str> {
    let behind_signs = word.match_indices(['=', ':', '@', ',']).map(|(at, sign)| &word[at + sign.len()..]);
    let short = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    let behind_option = short.and_then(|rest| rest.chars().next().map(|first| &rest[first.len_utf8()..]));
    let names = std::iter::once(word).chain(behind_signs).chain(behind_option);
    names.take(MAX_NAMES_IN_WORD).filter(|it| !it.is_empty() && !it.starts_with('-'))
}

/// A command in arguments: a script, or a list of words.
fn command_line(value: &Value) -> Option<CommandLine> {
    match value {
        Value::String(text) => Some(CommandLine::Script(text.clone())),
        Value::Array(words) => {
            let words: Option<Vec<_>> = words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
            words.map(CommandLine::Words)
        }
        _ => None,
    }
}

/// The host of an address in lower case; `None` if parsers may interpret the address differently.
fn url_host(url: &str) -> Option<String> {
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
            assert_eq!(url_host(url).as_deref(), wanted, "{url}");
        }
    }
}
