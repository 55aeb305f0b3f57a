//! Grants: what a person has allowed for a session, and limits on prompts.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    deed::{CallAccess, TargetHost},
    scripts::works_elsewhere,
};
use crate::commands::{CommandRole, SimpleCommand, base_name, is_read_only_command, quote};

/// The maximum number of sessions with grants. The oldest is dropped, and its user is asked again.
const MAX_SESSIONS: usize = 1000;
/// The maximum number of grants of one session.
const MAX_GRANTS: usize = 1000;
/// The maximum number of prompts per minute. More would be approved unread.
const MAX_PROMPTS_PER_MINUTE: usize = 30;
/// How often a person is asked about an identical call after denying it.
const MAX_REPEATED_DENIALS: u8 = 2;

/// Grants of all sessions.
#[derive(Default)]
pub(super) struct Grants(Mutex<GrantTable>);

#[derive(Default)]
struct GrantTable {
    states: HashMap<String, Arc<SessionGrants>>,
    order: VecDeque<String>,
}

/// The prompts and grants of one session.
#[derive(Default)]
pub(super) struct SessionGrants {
    /// Held while a prompt is open: a person answers one at a time, and an answer may cover the next call.
    pub(super) prompt_lock: tokio::sync::Mutex<()>,
    inner: Mutex<GrantState>,
}

#[derive(Default)]
struct GrantState {
    grants: VecDeque<Grant>,
    prompt_times: VecDeque<Instant>,
    denials: HashMap<String, u8>,
}

/// One grant. It answers one kind of question: an approval required by the mode does not answer one required by a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    tool: String,
    rule: Option<String>,
    scope: GrantScope,
    /// The directory and project scripts of a command. In other directories or for other scripts the person is asked
    /// again.
    place: Option<(PathBuf, String)>,
}

/// The scope of an approval for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GrantScope {
    /// Every call of the tool.
    Tool,
    /// Calls of the tool to this host.
    Host(String),
    /// Commands like this one.
    SimilarCommand(CommandPattern),
    /// Exactly this command line, in this directory.
    ExactCommand(String),
}

/// A pattern for similar commands: the same first words, and no additional option.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandPattern {
    first_words: Vec<String>,
    /// `None` where all words must be the same.
    options: Option<Vec<String>>,
}

/// Programs with subcommands, and the subcommands whose arguments may vary. Programs that fetch code are omitted.
#[rustfmt::skip]
const SUBCOMMAND_PROGRAMS: &[(&str, &[&str])] = &[
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "nextest", "test", "tree"]),
    ("git", &["add", "blame", "branch", "commit", "diff", "log", "restore", "show", "status", "switch"]),
    ("go", &["build", "fmt", "list", "test", "vet"]),
    ("npm", &["ls", "test"]),
    ("pnpm", &["list", "test"]),
    ("yarn", &["test"]),
    ("dotnet", &["build", "test"]),
    ("mvn", &["compile", "package", "test"]),
];

/// Whether these words begin with a program and one of its usual subcommands.
pub(super) fn is_known_command(words: &[String]) -> bool {
    let [program, subcommand, ..] = words else { return false };
    SUBCOMMAND_PROGRAMS.iter().any(|(name, subcommands)| name == program && subcommands.contains(&subcommand.as_str()))
}

impl CommandPattern {
    fn new(command: &SimpleCommand) -> Option<Self> {
        let argv = command.argv()?;
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        if works_elsewhere(command) {
            return Some(Self { first_words: own(&argv), options: None });
        }
        let family = SUBCOMMAND_PROGRAMS.iter().find(|(name, _)| argv.first() == Some(name));
        let known = family.is_some_and(|(_, subcommands)| argv.get(1).is_some_and(|it| subcommands.contains(it)));
        if known && command.role == CommandRole::Program {
            let options: Vec<_> = argv[2..].iter().copied().filter(|word| word.starts_with('-')).collect();
            return Some(Self { first_words: own(&argv[..2]), options: Some(own(&options)) });
        }
        Some(Self { first_words: own(&argv), options: None })
    }

    fn covers(&self, command: &SimpleCommand) -> bool {
        let Some(argv) = command.argv() else { return false };
        match &self.options {
            None => argv == self.first_words,
            Some(options) => {
                argv.len() >= self.first_words.len()
                    && argv.iter().zip(&self.first_words).all(|(word, head)| word == head)
                    && argv[self.first_words.len()..]
                        .iter()
                        .all(|word| !word.starts_with('-') || options.iter().any(|option| option == word))
            }
        }
    }

    fn display(&self) -> String {
        let head = quote(self.first_words.iter().map(String::as_str));
        match &self.options {
            None => format!("`{head}` exactly"),
            Some(options) if options.is_empty() => format!("`{head}` with any names, without options"),
            Some(options) => format!("`{head}` with any names, and the options {}", options.join(" ")),
        }
    }
}

/// The scope of an approval for the session of this call.
fn scopes(deed: &CallAccess<'_>) -> Vec<GrantScope> {
    if let Some(reading) = &deed.parsed
        && reading.is_fully_understood()
        && let Some(likes) =
            commands_needing_approval(&reading.commands).map(CommandPattern::new).collect::<Option<Vec<_>>>()
    {
        return likes.into_iter().map(GrantScope::SimilarCommand).collect();
    }
    match (&deed.command, &deed.host) {
        (Some(command), _) => vec![GrantScope::ExactCommand(format!("{}\n{command}", deed.start_dir().display()))],
        (None, Some(TargetHost::Host(host))) => vec![GrantScope::Host(host.clone())],
        (None, Some(TargetHost::Ambiguous)) => vec![GrantScope::ExactCommand(deed.args.to_string())],
        (None, None) => vec![GrantScope::Tool],
    }
}

/// What an approval of a command is bound to: its start directory and the project scripts that it runs.
fn place(deed: &CallAccess<'_>) -> Option<(PathBuf, String)> {
    deed.command.as_ref()?;
    let commands = deed.parsed.as_ref().map(|reading| reading.commands.as_slice()).unwrap_or_default();
    let scripts = deed.scripts.as_ref().map(|manifests| manifests.lines(commands)).unwrap_or_default();
    Some((deed.start_dir(), scripts))
}

/// The commands of a line that need approval: neither read-only nor mere wrappers.
pub(super) fn commands_needing_approval(commands: &[SimpleCommand]) -> impl Iterator<Item = &SimpleCommand> {
    commands.iter().filter(|command| command.role != CommandRole::Wrapper && !is_read_only_command(command))
}

/// What an approval for the session would allow, as text.
pub(super) fn describe_grant(deed: &CallAccess<'_>) -> String {
    let tool = &deed.spec.name;
    let words: Vec<_> = scopes(deed)
        .iter()
        .map(|scope| match scope {
            GrantScope::Tool => format!("every call of {tool}"),
            GrantScope::Host(host) => format!("every call of {tool} to {host}"),
            GrantScope::SimilarCommand(like) => like.display(),
            GrantScope::ExactCommand(_) => "exactly this call".to_owned(),
        })
        .collect();
    let words = words.join(", ");
    crate::commands::escape_invisible(&match place(deed) {
        Some((folder, scripts)) if scripts.is_empty() => format!("{words}, in {}", folder.display()),
        Some((folder, _)) => {
            format!("{words}, in {}, until the project's script for it changes", folder.display())
        }
        None => words,
    })
}

impl Grants {
    /// The state of a session; a new one if it is not known.
    pub(super) fn for_session(&self, session: &str) -> Arc<SessionGrants> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = sessions.states.get(session) {
            return state.clone();
        }
        if sessions.order.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.order.pop_front()
        {
            sessions.states.remove(&oldest);
        }
        let state = Arc::<SessionGrants>::default();
        sessions.order.push_back(session.to_owned());
        sessions.states.insert(session.to_owned(), state.clone());
        state
    }
}

impl SessionGrants {
    fn state(&self) -> std::sync::MutexGuard<'_, GrantState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether earlier grants cover this call for the same question.
    pub(super) fn covers(&self, deed: &CallAccess<'_>, rule: Option<&str>) -> bool {
        let inner = self.state();
        let here = place(deed);
        let same =
            |grant: &&Grant| grant.tool == deed.spec.name && grant.rule.as_deref() == rule && grant.place == here;
        let mut grants = inner.grants.iter().filter(same);
        match &deed.parsed {
            Some(reading) if reading.is_fully_understood() => {
                let likes: Vec<_> = grants
                    .filter_map(|it| if let GrantScope::SimilarCommand(like) = &it.scope { Some(like) } else { None })
                    .collect();
                !likes.is_empty()
                    && commands_needing_approval(&reading.commands)
                        .all(|command| likes.iter().any(|like| like.covers(command)))
            }
            _ => {
                let wanted = scopes(deed);
                grants.any(|grant| wanted.contains(&grant.scope))
            }
        }
    }

    /// Records an approval for the session.
    pub(super) fn add_grant(&self, deed: &CallAccess<'_>, rule: Option<&str>) {
        let mut inner = self.state();
        for scope in scopes(deed) {
            if inner.grants.len() >= MAX_GRANTS {
                inner.grants.pop_front();
            }
            inner.grants.push_back(Grant {
                tool: deed.spec.name.clone(),
                rule: rule.map(str::to_owned),
                scope,
                place: place(deed),
            });
        }
    }

    /// Counts a prompt, or returns why it is not shown.
    pub(super) fn check_prompt_limits(&self, deed: &CallAccess<'_>) -> Result<(), String> {
        let mut inner = self.state();
        if inner.denials.get(&call_key(deed)).is_some_and(|times| *times >= MAX_REPEATED_DENIALS) {
            return Err("the user refused this same call before and is not asked again; do something else, or end your turn and explain what you need".into());
        }
        let now = Instant::now();
        while inner.prompt_times.front().is_some_and(|then| now.duration_since(*then) > Duration::from_secs(60)) {
            inner.prompt_times.pop_front();
        }
        if inner.prompt_times.len() >= MAX_PROMPTS_PER_MINUTE {
            return Err(format!(
                "the user was asked {MAX_PROMPTS_PER_MINUTE} questions within a minute and is not asked more; wait, or do several things in one call"
            ));
        }
        inner.prompt_times.push_back(now);
        Ok(())
    }

    /// Records a denial.
    pub(super) fn record_denial(&self, deed: &CallAccess<'_>) {
        let mut inner = self.state();
        if inner.denials.len() < MAX_GRANTS {
            *inner.denials.entry(call_key(deed)).or_default() += 1;
        }
    }
}

/// The key of identical calls.
fn call_key(deed: &CallAccess<'_>) -> String {
    let args = deed.args.to_string();
    // A long call is identified by its length and beginning: this only affects repeated denials.
    let head: String = args.chars().take(4096).collect();
    format!("{}\n{}\n{head}", base_name(&deed.spec.name), args.len())
}
