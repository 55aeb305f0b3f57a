//! What a person has allowed for a session, and how often one was asked.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    deed::{Address, Deed},
    scripts::works_elsewhere,
};
use crate::commands::{Layer, Simple, base_name, only_looks, quote};

/// The most sessions whose grants are kept; the oldest is forgotten first, and simply asked again.
const MOST_SESSIONS: usize = 1000;
/// The most grants of one session.
const MOST_GRANTS: usize = 1000;
/// The most questions in a minute. Who answers more than this reads none of them.
const MOST_QUESTIONS: usize = 30;
/// How often the very same call is put to a person who refuses it.
const MOST_REFUSALS: u8 = 2;

/// Grants of all sessions.
#[derive(Default)]
pub(super) struct Given(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    states: HashMap<String, Arc<Asked>>,
    order: VecDeque<String>,
}

/// What one session was asked, and what was allowed.
#[derive(Default)]
pub(super) struct Asked {
    /// Held while a question is open: a person answers one at a time, and an answer may settle the next.
    pub(super) turn: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    grants: VecDeque<Grant>,
    times: VecDeque<Instant>,
    refused: HashMap<String, u8>,
}

/// One thing that was allowed. It answers the same question only: a yes to the mode's question is none to a rule's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    tool: String,
    rule: Option<String>,
    scope: Scope,
    /// The folder of a command, and the project scripts that it ran: elsewhere and for others it is asked again.
    place: Option<(PathBuf, String)>,
}

/// How far a yes for the session reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// Every call of the tool.
    Tool,
    /// Calls of the tool to this host.
    Host(String),
    /// Commands like this one.
    Like(Like),
    /// This very command line, in this folder.
    Text(String),
}

/// A command that others may be like: the same first words, and no option that it did not have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Like {
    head: Vec<String>,
    /// `None` where all words must be the same.
    options: Option<Vec<String>>,
}

/// Programs whose subcommand says what they do, with the subcommands whose names may vary. What fetches code is not here.
#[rustfmt::skip]
const FAMILIES: &[(&str, &[&str])] = &[
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
    FAMILIES.iter().any(|(name, subcommands)| name == program && subcommands.contains(&subcommand.as_str()))
}

impl Like {
    fn new(command: &Simple) -> Option<Self> {
        let argv = command.argv()?;
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        if works_elsewhere(command) {
            return Some(Self { head: own(&argv), options: None });
        }
        let family = FAMILIES.iter().find(|(name, _)| argv.first() == Some(name));
        let known = family.is_some_and(|(_, subcommands)| argv.get(1).is_some_and(|it| subcommands.contains(it)));
        if known && command.layer == Layer::Program {
            let options: Vec<_> = argv[2..].iter().copied().filter(|word| word.starts_with('-')).collect();
            return Some(Self { head: own(&argv[..2]), options: Some(own(&options)) });
        }
        Some(Self { head: own(&argv), options: None })
    }

    fn covers(&self, command: &Simple) -> bool {
        let Some(argv) = command.argv() else { return false };
        match &self.options {
            None => argv == self.head,
            Some(options) => {
                argv.len() >= self.head.len()
                    && argv.iter().zip(&self.head).all(|(word, head)| word == head)
                    && argv[self.head.len()..]
                        .iter()
                        .all(|word| !word.starts_with('-') || options.iter().any(|option| option == word))
            }
        }
    }

    fn shown(&self) -> String {
        let head = quote(self.head.iter().map(String::as_str));
        match &self.options {
            None => format!("`{head}` exactly"),
            Some(options) if options.is_empty() => format!("`{head}` with any names, without options"),
            Some(options) => format!("`{head}` with any names, and the options {}", options.join(" ")),
        }
    }
}

/// How far a yes for the session to this deed would reach.
fn scopes(deed: &Deed<'_>) -> Vec<Scope> {
    if let Some(reading) = &deed.reading
        && reading.is_clear()
        && let Some(likes) = asked(&reading.commands).map(Like::new).collect::<Option<Vec<_>>>()
    {
        return likes.into_iter().map(Scope::Like).collect();
    }
    match (&deed.command, &deed.address) {
        (Some(command), _) => vec![Scope::Text(format!("{}\n{command}", deed.start().display()))],
        (None, Some(Address::Host(host))) => vec![Scope::Host(host.clone())],
        (None, Some(Address::Unclear)) => vec![Scope::Text(deed.args.to_string())],
        (None, None) => vec![Scope::Tool],
    }
}

/// What a yes to a command is bound to: the folder that it starts in, and the scripts of the project that it runs.
fn place(deed: &Deed<'_>) -> Option<(PathBuf, String)> {
    deed.command.as_ref()?;
    let commands = deed.reading.as_ref().map(|reading| reading.commands.as_slice()).unwrap_or_default();
    let scripts = deed.scripts.as_ref().map(|manifests| manifests.lines(commands)).unwrap_or_default();
    Some((deed.start(), scripts))
}

/// The commands of a line that need a yes: not those that only look or only wrap another.
pub(super) fn asked(commands: &[Simple]) -> impl Iterator<Item = &Simple> {
    commands.iter().filter(|command| command.layer != Layer::Wrapper && !only_looks(command))
}

/// What a yes for the session would allow, in words.
pub(super) fn grant_in_words(deed: &Deed<'_>) -> String {
    let tool = &deed.spec.name;
    let words: Vec<_> = scopes(deed)
        .iter()
        .map(|scope| match scope {
            Scope::Tool => format!("every call of {tool}"),
            Scope::Host(host) => format!("every call of {tool} to {host}"),
            Scope::Like(like) => like.shown(),
            Scope::Text(_) => "exactly this call".to_owned(),
        })
        .collect();
    let words = words.join(", ");
    crate::commands::visible(&match place(deed) {
        Some((folder, scripts)) if scripts.is_empty() => format!("{words}, in {}", folder.display()),
        Some((folder, _)) => {
            format!("{words}, in {}, until the project's script for it changes", folder.display())
        }
        None => words,
    })
}

impl Given {
    /// The state of a session; a new one if it is not known.
    pub(super) fn of(&self, session: &str) -> Arc<Asked> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = sessions.states.get(session) {
            return state.clone();
        }
        if sessions.order.len() >= MOST_SESSIONS
            && let Some(oldest) = sessions.order.pop_front()
        {
            sessions.states.remove(&oldest);
        }
        let state = Arc::<Asked>::default();
        sessions.order.push_back(session.to_owned());
        sessions.states.insert(session.to_owned(), state.clone());
        state
    }
}

impl Asked {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything that this deed needs was allowed before, for the same reason to ask.
    pub(super) fn covers(&self, deed: &Deed<'_>, rule: Option<&str>) -> bool {
        let inner = self.inner();
        let here = place(deed);
        let same =
            |grant: &&Grant| grant.tool == deed.spec.name && grant.rule.as_deref() == rule && grant.place == here;
        let mut grants = inner.grants.iter().filter(same);
        match &deed.reading {
            Some(reading) if reading.is_clear() => {
                let likes: Vec<_> =
                    grants.filter_map(|it| if let Scope::Like(like) = &it.scope { Some(like) } else { None }).collect();
                !likes.is_empty()
                    && asked(&reading.commands).all(|command| likes.iter().any(|like| like.covers(command)))
            }
            _ => {
                let wanted = scopes(deed);
                grants.any(|grant| wanted.contains(&grant.scope))
            }
        }
    }

    /// Keeps a yes for the session.
    pub(super) fn keep(&self, deed: &Deed<'_>, rule: Option<&str>) {
        let mut inner = self.inner();
        for scope in scopes(deed) {
            if inner.grants.len() >= MOST_GRANTS {
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

    /// Counts a question, or says why it is not put.
    pub(super) fn may_ask(&self, deed: &Deed<'_>) -> Result<(), String> {
        let mut inner = self.inner();
        if inner.refused.get(&same_call(deed)).is_some_and(|times| *times >= MOST_REFUSALS) {
            return Err("the user refused this same call before and is not asked again; do something else, or end your turn and explain what you need".into());
        }
        let now = Instant::now();
        while inner.times.front().is_some_and(|then| now.duration_since(*then) > Duration::from_secs(60)) {
            inner.times.pop_front();
        }
        if inner.times.len() >= MOST_QUESTIONS {
            return Err(format!(
                "the user was asked {MOST_QUESTIONS} questions within a minute and is not asked more; wait, or do several things in one call"
            ));
        }
        inner.times.push_back(now);
        Ok(())
    }

    /// Remembers a no.
    pub(super) fn refuse(&self, deed: &Deed<'_>) {
        let mut inner = self.inner();
        if inner.refused.len() < MOST_GRANTS {
            *inner.refused.entry(same_call(deed)).or_default() += 1;
        }
    }
}

/// The same bytes to the same tool.
fn same_call(deed: &Deed<'_>) -> String {
    let args = deed.args.to_string();
    // A long call is told by its length and beginning: only a refusal hangs on it.
    let head: String = args.chars().take(4096).collect();
    format!("{}\n{}\n{head}", base_name(&deed.spec.name), args.len())
}
