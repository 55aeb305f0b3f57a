//! `Rule`: which calls an allow, ask or deny rule matches.

use std::path::{Path, PathBuf};

use helve_contract::{
    Access, Effects, PathGlob, PathRule, PathRules, PatternPurpose, Root, RuleScope, SafePath, Spec, Workspace,
};

use super::{
    class::RuleClass,
    deed::{CallAccess, PathTarget, TargetHost},
    scripts::{self, works_elsewhere},
};
use crate::commands::{
    CommandRole, ParsedCommandLine, ShellWord, SimpleCommand, base_name, is_read_only_command, plain_words,
};

/// The calls that an allow, ask or deny rule matches: `Bash(npm test:*)`, `Edit(src/**)`, `mcp__server__*`, `Read`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    text: String,
    tool: String,
    /// The class of its tool name, for deny and ask rules.
    class: RuleClass,
    content: Option<RuleContent>,
}

/// The text in parentheses, parsed in each possible way. The tool decides which one applies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleContent {
    /// For commands; `None` if the text cannot be words of a command.
    command: Option<CommandWords>,
    /// For paths; relative ones start at the top of a root.
    path: PathPattern,
    /// For addresses: `domain:example.com`.
    domain: Option<String>,
}

/// Words of a command. They are compared as words, never as text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandWords {
    words: Vec<String>,
    /// Whether more words may follow.
    allows_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathPattern {
    glob: PathGlob,
    absolute: bool,
}

/// Whether a rule matches a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RuleMatch {
    /// It does not.
    No,
    /// It may match: a part of the call is known only at run time.
    Possible,
    /// It does.
    Yes,
}

impl Rule {
    /// Parses `Tool` or `Tool(content)`. A `*` in the tool's name matches any characters. A deny or ask rule covers
    /// every spelling of the name (`-`, `_`, case); in an allow rule `_` also matches `-`.
    ///
    /// A deny or ask rule with content applies to every tool of the same class, in every dialect: `Bash(rm:*)` to all
    /// that run commands, `Read(*.pem)` to all that read or write files, `Edit(src/**)` to all that write them,
    /// `WebFetch(domain:a.com)` to all that fetch. An allow rule applies to the named tool; `Edit` also covers all
    /// tools that only change files, `Read` all that only read them.
    ///
    /// The content is a whole command (`npm test`) or its first words (`npm run test:*`, `git *`) for command tools, a
    /// path pattern (`src/**`) for file tools, and `domain:example.com` for web tools.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = |why: &str| Err(format!("`{text}` is not a rule: {why}"));
        let (tool, content) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => match rest.strip_suffix(')') {
                Some(content) => (tool, Some(content.trim())),
                None => return wrong("the parenthesis is not closed at the end; write Tool(content)"),
            },
        };
        let named = |it: char| it.is_ascii_alphanumeric() || "_-.*".contains(it);
        if tool.is_empty() || !tool.chars().all(named) {
            return wrong("it must begin with the name of a tool, such as Bash or mcp__server__*");
        }
        let content = match content {
            None | Some("*") => None,
            Some("") => return wrong("there is nothing between the parentheses; leave them away for the whole tool"),
            Some(content) => Some(RuleContent::parse(content)),
        };
        if let Some(why) = content.as_ref().and_then(|content| content.validation_error(text)) {
            return wrong(why);
        }
        let class = RuleClass::of_name(tool);
        if let Some(RuleContent { command: None, domain: None, .. }) = content
            && class == RuleClass::COMMAND
        {
            return wrong("write the words of one command; only a last `:*` or ` *` stands for further words");
        }
        Ok(Self { text: text.to_owned(), tool: tool.to_owned(), class, content })
    }

    /// The rule as written.
    pub fn source(&self) -> &str {
        &self.text
    }

    /// Whether the rule is about commands that begin with at least one named word.
    pub fn names_a_command(&self) -> bool {
        let words = self.content.as_ref().and_then(|content| content.command.as_ref());
        words.is_some_and(|words| words.words.first().is_some_and(|word| !word.is_empty()))
    }

    /// Whether the rule names a program and one of its usual subcommands, such as `cargo test`. A description of an
    /// action does not.
    pub fn names_a_known_command(&self) -> bool {
        let words = self.content.as_ref().and_then(|content| content.command.as_ref());
        words.is_some_and(|words| super::given::is_known_command(&words.words))
    }

    /// The name of the tool, as it was written.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether a deny or ask rule applies to a class of tools, not only to the named tool.
    pub fn has_class(&self) -> bool {
        self.content.is_some() && self.class != RuleClass::NONE
    }

    /// A deny rule on paths as the path rule that hosts and the sandbox enforce, including link targets. `None` for
    /// rules that are not about paths.
    ///
    /// `Read(secrets/**)` refuses reading and writing, `Edit(…)` writing.
    pub fn path_rule(&self) -> Option<PathRule> {
        let why = format!("is denied by the rule {}; ask the user to change it", self.text);
        self.path_rule_as(why, RuleScope { binds_commands: true, ..RuleScope::default() })
    }

    /// An ask rule on paths as the path rule that makes searches omit the files, because a search cannot ask about each
    /// file. `None` for rules that are not about reading paths.
    pub fn search_rule(&self) -> Option<PathRule> {
        let why = format!("is left out of searches by the rule {}", self.text);
        let rule = self.path_rule_as(why, RuleScope { only_searches: true, ..RuleScope::default() })?;
        (rule.denies == Access::Read).then_some(rule)
    }

    fn path_rule_as(&self, why: String, scope: RuleScope) -> Option<PathRule> {
        let denies = match self.class {
            class if class.has(RuleClass::READ) => Access::Read,
            class if class.has(RuleClass::WRITE) => Access::Write,
            _ => return None,
        };
        let content = self.content.as_ref().filter(|content| content.domain.is_none())?;
        let scope = RuleScope { is_absolute: content.path.absolute, ..scope };
        Some(PathRule::new(content.path.glob.clone(), denies, why).scoped(scope))
    }

    /// Whether the rule is about a program that runs scripts of the project.
    pub(super) fn runs_scripts(&self) -> bool {
        let words = self.content.as_ref().and_then(|content| content.command.as_ref());
        words.is_some_and(|words| words.words.first().is_some_and(|program| scripts::runs_scripts(program)))
    }

    /// Whether the rule restricts itself to a part of the calls.
    pub(super) fn has_content(&self) -> bool {
        self.content.is_some()
    }

    /// Whether an allow rule covers this tool: by name, as `Edit` (tools that change files) or as `Read` (tools that
    /// read).
    pub(super) fn grants(&self, deed: &CallAccess<'_>) -> bool {
        deed.spec.is_covered_by(&self.tool, PatternPurpose::Grant) || self.matches_tool_family(deed)
    }

    /// Whether a deny or ask rule covers this tool, in any spelling of its name.
    fn restricts(&self, deed: &CallAccess<'_>) -> bool {
        deed.spec.is_covered_by(&self.tool, PatternPurpose::Restrict) || self.matches_tool_family(deed)
    }

    fn matches_tool_family(&self, deed: &CallAccess<'_>) -> bool {
        match self.tool.to_lowercase().as_str() {
            "edit" => edits_files(deed.spec) && !deed.targets.is_empty(),
            "read" => deed.spec.effects == Effects::READS && !deed.targets.is_empty(),
            _ => false,
        }
    }

    /// Whether a deny or ask rule matches any part of a call.
    pub(super) fn matches(&self, deed: &CallAccess<'_>) -> RuleMatch {
        let by_name = self.restricts(deed);
        let Some(content) = &self.content else { return if by_name { RuleMatch::Yes } else { RuleMatch::No } };
        let is = |class: RuleClass| by_name || self.class.has(class);
        let mut hit = RuleMatch::No;
        let mut compared = false;
        if is(RuleClass::COMMAND) && (deed.parsed.is_some() || !deed.candidates.is_empty()) {
            compared = true;
            hit = hit.max(content.touch_commands(deed));
        }
        if is(RuleClass::FETCH)
            && let Some(address) = &deed.host
        {
            compared = true;
            hit = hit.max(match (&content.domain, address) {
                (Some(domain), TargetHost::Host(host)) if is_in_domain(host, domain) => RuleMatch::Yes,
                (Some(_), TargetHost::Host(_)) => RuleMatch::No,
                _ => RuleMatch::Possible,
            });
        }
        if content.domain.is_none() {
            compared |= by_name && !deed.targets.is_empty();
            hit = hit.max(self.touch_paths(&content.path, deed, by_name));
        }
        // The rule names this tool, but nothing in the call can be compared with its content.
        if by_name && !compared { RuleMatch::Possible } else { hit }
    }

    /// Whether a path rule matches a call: its files, or files that its command names.
    fn touch_paths(&self, path: &PathPattern, deed: &CallAccess<'_>, by_name: bool) -> RuleMatch {
        let reads = self.class.has(RuleClass::READ);
        let writes = reads || self.class.has(RuleClass::WRITE);
        let covers = |targets: &[PathTarget]| targets.iter().any(|target| path.covers(target));
        let speaks = |access: Access| by_name || reads || writes && access == Access::Write;
        if deed.places().any(|(target, access)| speaks(access) && path.covers(target)) {
            return RuleMatch::Yes;
        }
        if !writes || deed.readings().next().is_none() {
            return RuleMatch::No;
        }
        // For several candidate lines or text for a program, it is unknown whether a shell runs it.
        let certain = if deed.parsed.is_some() { RuleMatch::Yes } else { RuleMatch::Possible };
        let named = || [deed.named_by_words(false), deed.redirected_from(), deed.linked_words().to_vec()].concat();
        if covers(&deed.redirect_targets()) || reads && covers(&named()) {
            return certain;
        }
        let unknown = deed.readings().any(|reading| reading.redirect_targets.contains(&None)) && !reads;
        if unknown || covers(&deed.named_by_words(true)) || covers(deed.linked_words()) {
            RuleMatch::Possible
        } else {
            RuleMatch::No
        }
    }

    /// Whether an ask rule matches a call. No mount enforces such a rule, so run-time file names count as possible.
    pub(super) fn wants_asked(&self, deed: &CallAccess<'_>) -> RuleMatch {
        self.matches(deed).max(if self.may_be_named(deed) { RuleMatch::Possible } else { RuleMatch::No })
    }

    /// Whether the command may name a file of this rule: by words known only at run time, or by a parent directory.
    fn may_be_named(&self, deed: &CallAccess<'_>) -> bool {
        let reads = self.class.has(RuleClass::READ);
        let is_about_paths = reads || self.class.has(RuleClass::WRITE);
        let Some(content) = self.content.as_ref().filter(|it| is_about_paths && it.domain.is_none()) else {
            return false;
        };
        let is_made_later = |command: &SimpleCommand| {
            let words = command.words.iter().skip(1);
            command.has_runtime_args
                || words.filter_map(ShellWord::pattern).any(|pattern| content.path.may_match(pattern))
        };
        let counts = |command: &&SimpleCommand| {
            !command.program().is_some_and(|it| NAMES_NO_FILE.contains(&base_name(it)))
                && (reads || !is_read_only_command(command))
        };
        let in_line = |reading: &ParsedCommandLine| {
            let redirections = reading.redirect_targets.iter().chain(reading.reads.iter().filter(|_| reads));
            reading.may_hide_programs()
                || redirections.into_iter().any(Option::is_none)
                || reading.commands.iter().filter(counts).any(is_made_later)
        };
        deed.readings().any(in_line) || deed.named_by_words(!reads).iter().any(|it| content.path.is_beneath(it))
    }

    /// Whether an allow rule covers this target of a file tool.
    pub(super) fn covers_target(&self, target: &PathTarget) -> bool {
        self.content.as_ref().is_some_and(|content| content.path.covers(target))
    }

    /// Whether an allow rule covers this host.
    pub(super) fn covers_host(&self, host: &str) -> bool {
        let domain = self.content.as_ref().and_then(|content| content.domain.as_deref());
        domain.is_some_and(|domain| match domain.strip_prefix("*.") {
            Some(parent) => host != parent && is_in_domain(host, parent),
            None => host == domain,
        })
    }

    /// Whether an allow rule covers this command, word by word.
    pub(super) fn covers_command(&self, command: &SimpleCommand) -> bool {
        self.content.as_ref().and_then(|content| content.command.as_ref()).is_some_and(|words| words.covers(command))
    }
}

/// Programs whose words name no file that they read or write.
const NAMES_NO_FILE: [&str; 8] = ["echo", "printf", "true", "false", ":", "pwd", "sleep", "exit"];

/// Whether the rules allow a whole line: each command is read-only or covered by one of them.
pub(super) fn all_commands_covered(rules: &[&Rule], commands: &[SimpleCommand]) -> bool {
    commands.iter().all(|command| {
        command.role == CommandRole::Wrapper
            || is_read_only_command(command)
            || rules.iter().any(|rule| rule.covers_command(command))
    })
}

/// Whether a tool changes files and has no more severe effect.
pub(super) fn edits_files(spec: &Spec) -> bool {
    let graver = [Effects::EXECUTES, Effects::NETWORK, Effects::SPAWNS];
    spec.effects.contains(Effects::WRITES) && !graver.iter().any(|effect| spec.effects.contains(*effect))
}

impl RuleContent {
    fn touch_commands(&self, deed: &CallAccess<'_>) -> RuleMatch {
        let Some(words) = &self.command else { return RuleMatch::Possible };
        let touch = |reading: &ParsedCommandLine| {
            let hidden = if reading.may_hide_programs() { RuleMatch::Possible } else { RuleMatch::No };
            reading.commands.iter().map(|it| words.matches(it)).fold(hidden, RuleMatch::max)
        };
        // Only one of several candidates will run.
        let most = if deed.candidates.len() > 1 { RuleMatch::Possible } else { RuleMatch::Yes };
        let candidates = deed.candidates.iter().map(|it| touch(it).min(most));
        deed.parsed.iter().map(touch).chain(candidates).max().unwrap_or(RuleMatch::No)
    }

    fn parse(content: &str) -> Self {
        let domain = content.strip_prefix("domain:").map(|it| it.trim().trim_end_matches('.').to_ascii_lowercase());
        Self { command: CommandWords::parse(content), path: PathPattern::parse(content), domain }
    }

    /// Content that parses but never matches as intended.
    fn validation_error(&self, rule: &str) -> Option<&'static str> {
        let name = self.domain.as_ref().map(|domain| domain.strip_prefix("*.").unwrap_or(domain));
        let named = |it: char| it.is_ascii_alphanumeric() || "-._:".contains(it);
        match name {
            Some(name) if name.is_empty() || !name.chars().all(named) => {
                Some("a domain is a plain name such as example.com, or *.example.com for all beneath it")
            }
            Some(_) => None,
            None if rule.contains("(~") => Some("`~` is not expanded; write the whole path"),
            None if self.command.is_none() && rule.contains('{') && rule.contains(',') => {
                Some("`{a,b}` is not expanded; write one rule for each")
            }
            None => None,
        }
    }
}

impl CommandWords {
    fn parse(content: &str) -> Option<Self> {
        let first = content.strip_suffix(":*").or_else(|| content.strip_suffix(" *"));
        match plain_words(first.unwrap_or(content))?.as_slice() {
            [words] => Some(Self { words: words.clone(), allows_more: first.is_some() }),
            _ => None,
        }
    }

    /// Whether an allow rule covers a command: the same words, all known.
    fn covers(&self, command: &SimpleCommand) -> bool {
        let known: Option<Vec<_>> = command.words.iter().map(|word| word.as_literal()).collect();
        let Some(known) = known else { return false };
        let begins = known.len() >= self.words.len() && self.words.iter().zip(&known).all(|(rule, word)| rule == word);
        let is_whole = known.len() == self.words.len() && !command.has_runtime_args;
        // Words after a prefix must not select another directory or manifest.
        begins && (is_whole || self.allows_more && !works_elsewhere(command))
    }

    /// Whether a deny or ask rule matches a command. It ignores the program's directory and options before the
    /// subcommand: `git -C x push` is `git push`.
    fn matches(&self, command: &SimpleCommand) -> RuleMatch {
        let words: Vec<Option<&str>> = command.words.iter().map(|word| word.as_literal()).collect();
        let Some((program, rest)) = words.split_first() else { return RuleMatch::No };
        let Some(program) = program else { return RuleMatch::Possible };
        let Some((wanted, arguments)) = self.words.split_first() else { return RuleMatch::No };
        if base_name(program) != base_name(wanted) {
            let finds = ["command", "type", "which", "whereis"].contains(&base_name(program));
            let runs = command.role == CommandRole::Program && !is_read_only_command(command) && !finds;
            return if runs && mentions(command, base_name(program), &self.words) {
                RuleMatch::Possible
            } else {
                RuleMatch::No
            };
        }
        let starts = subcommand_positions(rest).into_iter();
        starts
            .map(|at| self.match_arguments(arguments, &rest[at..], command.has_runtime_args))
            .max()
            .unwrap_or(RuleMatch::No)
    }

    fn match_arguments(&self, wanted: &[String], words: &[Option<&str>], more: bool) -> RuleMatch {
        for (at, want) in wanted.iter().enumerate() {
            match words.get(at) {
                Some(Some(word)) if word == want => {}
                Some(Some(_)) => return RuleMatch::No,
                // A word known only at run time can expand to any words.
                Some(None) => return RuleMatch::Possible,
                None if more => return RuleMatch::Possible,
                None => return RuleMatch::No,
            }
        }
        let rest = &words[wanted.len()..];
        if self.allows_more || (rest.is_empty() && !more) {
            RuleMatch::Yes
        } else if more || rest.contains(&None) {
            RuleMatch::Possible
        } else {
            RuleMatch::No
        }
    }
}

/// Whether the arguments of another program contain the words of a rule, so that it may run the command: `ssh h rm x`,
/// `python3 -c 'os.system("rm x")'`, `tar --to-command='rm x'`. No list of such programs is complete.
fn mentions(command: &SimpleCommand, program: &str, wanted: &[String]) -> bool {
    /// Options whose argument is a text for people.
    const TEXTS: [&str; 7] = ["-m", "-am", "--message", "--title", "--body", "--description", "--notes"];
    let text = |word: &'_ ShellWord| word.as_literal().or(word.pattern()).unwrap_or_default().to_owned();
    let words: Vec<String> = command.words.iter().skip(1).map(text).collect();
    let is_text = |at: usize| at > 0 && TEXTS.contains(&words[at - 1].as_str());
    // Git runs programs only through settings, aliases and a few options; some subcommands share names with programs.
    let runs = |word: &str| program != "git" || word.contains(['!', '=']) || word.contains("exec");
    let parts: Vec<&str> = words
        .iter()
        .enumerate()
        .filter(|(at, word)| !is_text(*at) && runs(word))
        .flat_map(|(_, word)| word.split(|it: char| !it.is_alphanumeric() && !"_-./+".contains(it)))
        .map(base_name)
        .collect();
    let mut wanted = wanted.iter().map(|word| base_name(word));
    wanted.all(|word| parts.contains(&word))
}

/// Possible positions of the subcommand: first, or after options that may each take a value.
fn subcommand_positions(words: &[Option<&str>]) -> Vec<usize> {
    let mut starts = vec![0];
    let mut at = 0;
    while let Some(&start) = starts.get(at) {
        if words.get(start).is_some_and(|word| word.is_some_and(|word| word.starts_with('-'))) {
            let next = [start + 1, start + 2];
            starts.extend(next.into_iter().filter(|it| *it <= words.len() && !starts.contains(it)).collect::<Vec<_>>());
        }
        at += 1;
    }
    starts
}

impl PathPattern {
    fn parse(content: &str) -> Self {
        // `//etc/**` means the real root where `/` means the workspace; both are parsed as absolute.
        Self { glob: PathGlob::new(content.trim_start_matches("./")), absolute: content.starts_with('/') }
    }

    /// Whether a word that a shell expands may become a name that this pattern matches. For a word of wildcards only,
    /// just the end is known.
    fn may_match(&self, word: &str) -> bool {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-/*?".contains(it);
        let tail = |text: &str| text.rsplit(['*', '?', '/']).next().unwrap_or_default().to_ascii_lowercase();
        let pattern = self.glob.pattern();
        let (ours, other) = (tail(&pattern), tail(word));
        !word.chars().all(is_plain) || pattern.ends_with("**") || ours.ends_with(&other) || other.ends_with(&ours)
    }

    /// Whether the pattern names something in this directory, which is not the top of a root.
    fn is_beneath(&self, target: &PathTarget) -> bool {
        match target {
            PathTarget::Inside { relative, .. } if !self.absolute => self.glob.names_something_in(relative),
            PathTarget::Inside { whole, .. } | PathTarget::Outside(whole) => {
                self.absolute && self.glob.names_something_in(whole)
            }
        }
    }

    fn covers(&self, target: &PathTarget) -> bool {
        match target {
            PathTarget::Inside { relative, .. } if !self.absolute => self.glob.matches(relative),
            PathTarget::Inside { whole, .. } | PathTarget::Outside(whole) => self.absolute && self.glob.matches(whole),
        }
    }
}

/// Whether a host is the domain or a subdomain.
fn is_in_domain(host: &str, domain: &str) -> bool {
    let domain = domain.strip_prefix("*.").unwrap_or(domain);
    host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

/// Resolves a path without disk access.
pub(super) fn resolve_target(workspace: &Workspace, from: Option<&Path>, path: &str) -> PathTarget {
    let top = workspace.roots().first().map(|root| root.dir.clone()).unwrap_or_default();
    let start = from.map_or_else(|| top.clone(), |from| top.join(from));
    let checked = if from.is_none() { workspace.check(Path::new(path), Access::Read, None).ok() } else { None };
    let whole = checked.map_or_else(|| normalize_lexically(&start.join(path)), |it| it.host_path());
    let dirs = workspace.roots().iter().flat_map(|root| std::iter::once(&root.dir).chain(&root.also));
    let inside = dirs.filter_map(|dir| whole.strip_prefix(dir).ok()).min_by_key(|rest| rest.components().count());
    match inside.map(Path::to_owned) {
        Some(relative) => PathTarget::Inside { relative, whole },
        None => PathTarget::Outside(whole),
    }
}

/// The path beneath a root for a path on this machine, to resolve its links. Ignores path rules.
pub(super) fn locate(workspace: &Workspace, whole: &Path) -> Option<SafePath> {
    let dirs = workspace.roots().iter().filter_map(|root| Some((root, whole.strip_prefix(&root.dir).ok()?)));
    let (root, relative) = dirs.min_by_key(|(_, rest)| rest.components().count())?;
    let bare = Workspace::new([Root::clone(root)], PathRules::default(), workspace.path_style());
    bare.resolve_in_root(&root.dir, relative, Access::Read).ok()
}

/// The path without `.` and `..`, as text.
fn normalize_lexically(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => _ = clean.pop(),
            std::path::Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}
