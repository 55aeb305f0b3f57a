//! The gate: whether a call may run, and who is asked.
//!
//! The order is always the same: what is denied, what the plan forbids, what must be asked, what is allowed, and then
//! the mode. No later step takes back what an earlier one refused.

mod ask;
mod caution;
mod class;
mod deed;
mod explain;
mod given;
mod rule;
mod scripts;
mod suggest;

use std::{
    fmt,
    panic::AssertUnwindSafe,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use helve_contract::{Call, Effects, Error, Refusal, Result, Spec, Tier};
use serde_json::Value;

pub use ask::{Answer, Approver, Argument, Question, ShownSize};
pub use caution::Caution;
pub use class::{CLASS_NAMES, RuleClass};
pub use explain::{Basis, CommandView, Explanation, Outcome, PathView};
pub use rule::Rule;
pub use scripts::ScriptSnapshot;

use crate::commands::{self, NameList, quote, visible};
use caution::Standing;
use deed::{Address, Deed};
pub(crate) use deed::{NamedPlaces, named_in};
use given::Given;
use rule::Hit;

/// What is asked before a call. Deny rules hold in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Looking passes, everything else is asked.
    #[default]
    Default,
    /// As `Default`, and changes of files pass.
    AcceptEdits,
    /// Only looking passes: reads, searches, commands that change nothing, pages of the web, and agents, which are in
    /// plan mode too.
    Plan,
    /// As `Default`, but what would be asked is denied.
    DontAsk,
    /// Everything passes that no rule denies or wants asked.
    BypassPermissions,
    /// Nothing is asked; the sandbox is the wall. The way of dialects without approvals.
    Open,
}

impl Mode {
    /// Every mode with its name in configuration.
    pub const ALL: [(&'static str, Self); 6] = [
        ("default", Self::Default),
        ("acceptEdits", Self::AcceptEdits),
        ("plan", Self::Plan),
        ("dontAsk", Self::DontAsk),
        ("bypassPermissions", Self::BypassPermissions),
        ("open", Self::Open),
    ];

    /// Its name in configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("default", |(name, _)| name)
    }

    /// This mode, or the other one where that lets less pass: a child's is never looser than its parent's.
    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        if self.looseness() <= other.looseness() { self } else { other }
    }

    /// How much passes without anybody's yes. In `Default` a person may still be asked, so `DontAsk` lets less pass.
    fn looseness(self) -> u8 {
        match self {
            Self::Plan => 0,
            Self::DontAsk => 1,
            Self::Default => 2,
            Self::AcceptEdits => 3,
            Self::BypassPermissions => 4,
            Self::Open => 5,
        }
    }

    fn of(number: u8) -> Self {
        Self::ALL.iter().find(|(_, mode)| *mode as u8 == number).map_or(Self::Default, |(_, mode)| *mode)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, mode)| *mode).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("`{text}` is not a mode; the modes are {}", names.join(", "))
        })
    }
}

/// The half of a switch that holds the mode now.
const LOWER: u8 = 0xf;
/// Where tools take the kind of an agent.
const AGENT_KINDS: [&str; 2] = ["subagent_type", "agent_name"];

/// A mode that can be changed while calls come in: by the user, or by his approval of a plan. Cheap to clone; every
/// clone is the same switch.
#[derive(Clone, Debug)]
pub struct ModeSwitch(Arc<AtomicU8>);

impl ModeSwitch {
    /// A switch that stands at this mode.
    pub fn new(mode: Mode) -> Self {
        Self(Arc::new(AtomicU8::new((Mode::Default as u8) << 4 | mode as u8)))
    }

    /// The mode from now on.
    pub fn set(&self, mode: Mode) {
        _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            // The mode before a plan stays in the upper half, for when the plan is approved.
            let before = if mode == Mode::Plan && old & LOWER != Mode::Plan as u8 { old & LOWER } else { old >> 4 };
            Some(before << 4 | mode as u8)
        });
    }

    /// The mode now.
    pub fn get(&self) -> Mode {
        Mode::of(self.0.load(Ordering::SeqCst) & LOWER)
    }

    /// Changes of files pass from now on, unless more passes already.
    pub fn accept_edits(&self) {
        _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            let now = Mode::of(old & LOWER);
            let stricter = now.looseness() < Mode::AcceptEdits.looseness();
            stricter.then_some(old & !LOWER | Mode::AcceptEdits as u8)
        });
    }

    /// Ends plan mode: the mode is again what it was before, and `Default` if it began with the plan. `None`: there is
    /// no plan mode to end.
    pub fn end_plan(&self) -> Option<Mode> {
        let ended = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            (old & LOWER == Mode::Plan as u8).then_some(old >> 4)
        });
        ended.ok().map(|old| Mode::of(old >> 4))
    }
}

impl From<Mode> for ModeSwitch {
    fn from(mode: Mode) -> Self {
        Self::new(mode)
    }
}

/// Whether a call may run: rules, a mode, and somebody to ask.
pub struct Gate {
    mode: ModeSwitch,
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
    names: Option<NameList>,
    caution: Caution,
    approver: Option<Arc<dyn Approver>>,
    patience: Duration,
    given: Given,
    scripts: ScriptSnapshot,
    asks_web_in_plan: bool,
}

/// A call that the gate refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: Error,
    pub(crate) why: Refusal,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Refused {
    fn by_rule(error: Error) -> Self {
        Self { error, why: Refusal::Rule }
    }
}

impl Gate {
    /// A gate without rules, in a mode or at a switch.
    pub fn new(mode: impl Into<ModeSwitch>) -> Self {
        Self {
            mode: mode.into(),
            allow: Vec::new(),
            ask: Vec::new(),
            deny: Vec::new(),
            names: None,
            caution: Caution::default(),
            approver: None,
            patience: Duration::from_secs(600),
            given: Given::default(),
            scripts: ScriptSnapshot::default(),
            asks_web_in_plan: false,
        }
    }

    /// What matches needs no question, unless another rule asks or denies.
    pub fn allow(mut self, rule: Rule) -> Self {
        self.allow.push(rule);
        self
    }

    /// What matches is always asked.
    pub fn ask(mut self, rule: Rule) -> Self {
        self.ask.push(rule);
        self
    }

    /// What matches never runs.
    pub fn deny(mut self, rule: Rule) -> Self {
        self.deny.push(rule);
        self
    }

    /// Who is asked. Without one, what would be asked is denied.
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Which programs a command line may name.
    pub fn commands(mut self, names: NameList) -> Self {
        self.names = Some(names);
        self
    }

    /// What follows when a stranger's words have come in.
    pub fn caution(mut self, caution: Caution) -> Self {
        self.caution = caution;
        self
    }

    /// How long an answer may take; later is a no.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// In plan mode pages and searches are asked as in `Default`: for an agent whose parent would be asked.
    pub fn asking_web_in_plan(mut self) -> Self {
        self.asks_web_in_plan = true;
        self
    }

    /// The project scripts that allow rules hold for are those in this snapshot: for an agent, its parent's.
    pub fn scripts(mut self, scripts: ScriptSnapshot) -> Self {
        self.scripts = scripts;
        self
    }

    /// The project scripts that allow rules hold for.
    pub(crate) fn script_snapshot(&self) -> &ScriptSnapshot {
        &self.scripts
    }

    /// What decides its mode.
    pub(crate) fn mode(&self) -> &ModeSwitch {
        &self.mode
    }

    /// Lets a call pass, or says why not and what to do.
    pub(crate) async fn pass(&self, spec: &Spec, args: &Value, call: &Call) -> Result<(), Refused> {
        if self.is_free(spec) {
            return Ok(());
        }
        let mut deed = Deed::of(spec, args, call);
        self.read(&mut deed).map_err(Refused::by_rule)?;
        self.look(&mut deed).await;
        match self.verdict(&deed)? {
            Verdict::Pass => Ok(()),
            Verdict::Ask { why, rule, refusal } => {
                let answer = self.put(&deed, &why, rule.as_deref()).await;
                answer.map_err(|error| Refused { error, why: refusal })
            }
        }
    }

    /// What [`pass`](Self::pass) would do, without asking anybody: a question that nobody would answer is a denial.
    pub(crate) fn decide(&self, spec: &Spec, args: &Value, call: &Call) -> Result<Verdict> {
        if self.is_free(spec) {
            return Ok(Verdict::Pass);
        }
        let mut deed = Deed::of(spec, args, call);
        self.read(&mut deed)?;
        // A host that cannot answer at once is not waited for: then links and scripts count as unknown, and rules do not
        // allow the call.
        _ = self.look(&mut deed).now_or_never();
        let verdict = self.verdict(&deed).map_err(|refused| refused.error)?;
        let Verdict::Ask { why, rule, refusal } = verdict else { return Ok(Verdict::Pass) };
        self.askable(&deed, &why)?;
        let state = self.given.of(&call.session.id);
        if state.covers(&deed, rule.as_deref()) {
            return Ok(Verdict::Pass);
        }
        Ok(Verdict::Ask { why, rule, refusal })
    }

    /// Finds out what the arguments do not say: where links lead, and which project scripts a command runs.
    async fn look(&self, deed: &mut Deed<'_>) {
        let rules = !(self.allow.is_empty() && self.ask.is_empty() && self.deny.is_empty());
        let lenient = matches!(self.mode.get(), Mode::Open | Mode::BypassPermissions);
        if !rules && lenient {
            // Nothing is asked and nothing is allowed by rule.
            return;
        }
        // Before the first call changes anything.
        let has_plan = !deed.call.session.plan_rules().is_empty();
        if has_plan || self.allow.iter().any(Rule::runs_scripts) {
            deed.first_scripts = self.scripts.first(deed.call).await;
        }
        deed.look(rules).await;
    }

    /// Looking passes in every mode, unless there is a rule that might be about it or it also sends something.
    fn is_free(&self, spec: &Spec) -> bool {
        self.deny.is_empty() && self.ask.is_empty() && deed::only_looks(spec) && !spec.effects.has(Effects::SENDS)
    }

    /// Somebody to ask, or the refusal where there is nobody.
    fn askable(&self, deed: &Deed<'_>, why: &str) -> Result<&Arc<dyn Approver>> {
        if self.mode.get() == Mode::DontAsk {
            return Err(Error::denied(format!(
                "not allowed, because {why}, and in this mode nobody is asked. {}",
                remedy(deed)
            )));
        }
        self.approver.as_ref().ok_or_else(|| {
            Error::denied(format!("not allowed, because {why}, and there is nobody to ask here. {}", remedy(deed)))
        })
    }

    /// Reads the command line where something hangs on it. A line too long to be read is then denied, never asked.
    fn read(&self, deed: &mut Deed<'_>) -> Result<()> {
        if deed.command.as_ref().is_some_and(|command| command.contains('\0')) {
            return Err(Error::denied(
                "the command has a NUL character in it, which no shell reads as it stands; remove it",
            ));
        }
        let protects = deed.call.session.workspace.rules().iter().next().is_some();
        let rules = [&self.deny, &self.ask].into_iter().flatten().any(Rule::has_content);
        let lenient = matches!(self.mode.get(), Mode::Open | Mode::BypassPermissions);
        let cautious = matches!(self.caution, Caution::Ask | Caution::Deny);
        if lenient && !rules && !cautious && self.names.is_none() {
            // Nothing asks what the line says but the protected names, and those the sandbox holds as well.
            if protects {
                _ = deed.read();
            }
            return Ok(());
        }
        deed.read().map_err(|why| Error::denied(format!("{why}. Split it into smaller commands.")))
    }

    /// What the rules and the mode say, in the order of the gate.
    fn verdict(&self, deed: &Deed<'_>) -> Result<Verdict, Refused> {
        let uncertain = self.denied(deed).map_err(Refused::by_rule)?;
        if self.mode.get() == Mode::Plan && !looks_in_plan(deed) {
            let error = Error::denied(format!(
                "this session is in plan mode, and {}. Only reads, searches and commands that change nothing are \
                 allowed until the user has approved the plan",
                reason(deed)
            ));
            return Err(Refused { error, why: Refusal::PlanMode });
        }
        if let Some(rule) = uncertain {
            let why = format!(
                "the rule {} denies some commands, and this one is not fully understood: {}",
                rule.text(),
                doubts(deed)
            );
            return Ok(Verdict::Ask { why, rule: Some(rule.text().to_owned()), refusal: Refusal::AskRule });
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.wants_asked(deed) > Hit::No) {
            let why = format!("the rule {} wants it asked", rule.text());
            return Ok(Verdict::Ask { why, rule: Some(rule.text().to_owned()), refusal: Refusal::AskRule });
        }
        let looks = deed.reading.as_ref().is_some_and(commands::line_only_looks);
        let suspect = match caution::standing(self.caution, self.mode.get(), deed, self.names_host(deed)) {
            Standing::Denied(why) if !looks => {
                return Err(Refused::by_rule(Error::denied(format!(
                    "{} is denied, because {why}; tell the user what you need it for",
                    deed.spec.name
                ))));
            }
            Standing::Asked(why) if !looks => {
                // The automatic policy asks in some modes only.
                let refusal = if self.caution == Caution::Ask { Refusal::AskRule } else { Refusal::Approval };
                return Ok(Verdict::Ask { why, rule: Some(caution::RULE.to_owned()), refusal });
            }
            Standing::Suspect(why) => Some(why),
            _ => None,
        };
        if self.allowed(deed) || self.mode_passes(deed) {
            return Ok(Verdict::Pass);
        }
        let (why, rule) = match suspect {
            Some(why) => (format!("{}; {why}", reason(deed)), Some(caution::RULE.to_owned())),
            None => (reason(deed), None),
        };
        Ok(Verdict::Ask { why, rule, refusal: Refusal::Approval })
    }

    /// Whether an allow rule names the host that a call goes to.
    fn names_host(&self, deed: &Deed<'_>) -> bool {
        let Some(Address::Host(host)) = &deed.address else { return false };
        self.allow.iter().any(|rule| rule.has_content() && rule.grants(deed) && rule.covers_host(host))
    }

    /// Refuses what is denied; a rule that may be meant, but cannot be decided, comes back.
    fn denied(&self, deed: &Deed<'_>) -> Result<Option<&Rule>> {
        let mut uncertain = None;
        for rule in &self.deny {
            match rule.touches(deed) {
                Hit::Yes => {
                    return Err(Error::denied(format!(
                        "{} is denied by the rule {}; do it another way, or ask the user to change the rule",
                        deed.spec.name,
                        rule.text()
                    )));
                }
                Hit::Perhaps => uncertain = uncertain.or(Some(rule)),
                Hit::No => {}
            }
        }
        if let (Some(names), Some(reading)) = (&self.names, &deed.reading)
            && let Some(why) = names.judge(reading)
        {
            return Err(Error::denied(why));
        }
        if let Some((path, why)) = deed.protected() {
            return Err(Error::denied(format!("{path}: {why}")));
        }
        Ok(uncertain)
    }

    /// Whether allow rules cover the whole call.
    fn allowed(&self, deed: &Deed<'_>) -> bool {
        let of_plan = self.rules_of_plan(deed);
        let rules: Vec<_> = self.allow.iter().chain(&of_plan).filter(|rule| rule.grants(deed)).collect();
        if rules.is_empty() {
            return false;
        }
        if rules.iter().any(|rule| !rule.has_content()) {
            return true;
        }
        if let Some(reading) = &deed.reading {
            return reading.is_clear()
                && deed.starts_at_top()
                && deed.runs_first_scripts()
                && rule::cover_line(&rules, &reading.commands);
        }
        match &deed.address {
            Some(Address::Host(host)) => rules.iter().any(|rule| rule.covers_host(host)),
            Some(Address::Unclear) => false,
            None => {
                !deed.targets.is_empty()
                    && deed.has_looked()
                    && deed.places().all(|(target, _)| rules.iter().any(|rule| rule.covers_target(target)))
            }
        }
    }

    /// Command rules that the user approved with the plan that is carried out now.
    fn rules_of_plan(&self, deed: &Deed<'_>) -> Vec<Rule> {
        if self.mode.get() == Mode::Plan || deed.reading.is_none() {
            return Vec::new();
        }
        let rules = deed.call.session.plan_rules();
        rules.iter().filter_map(|text| Rule::parse(text).ok()).filter(Rule::names_a_command).collect()
    }

    /// What the mode lets pass when no rule speaks.
    fn mode_passes(&self, deed: &Deed<'_>) -> bool {
        let looks = || deed.only_looks() || deed.reading.as_ref().is_some_and(commands::line_only_looks);
        match self.mode.get() {
            Mode::Open | Mode::BypassPermissions => true,
            Mode::Plan => looks() || (looks_in_plan(deed) && !(self.asks_web_in_plan && reads_web(deed))),
            Mode::Default | Mode::DontAsk => looks() || starts_reader(deed),
            Mode::AcceptEdits => looks() || rule::edits_files(deed.spec) || starts_reader(deed),
        }
    }

    /// Puts the question. No answer in time, a broken approver and nobody to ask are all a no.
    async fn put(&self, deed: &Deed<'_>, why: &str, rule: Option<&str>) -> Result<()> {
        let state = self.given.of(&deed.call.session.id);
        let approver = self.askable(deed, why)?;
        if state.covers(deed, rule) {
            return Ok(());
        }
        let cancelled = deed.call.cancel.cancelled();
        let answer = async {
            let _turn = state.turn.lock().await;
            if state.covers(deed, rule) {
                return Ok(());
            }
            state.may_ask(deed).map_err(Error::denied)?;
            let question = ask::question(deed, why);
            let answer = AssertUnwindSafe(approver.ask(&question, deed.call)).catch_unwind();
            match tokio::time::timeout(self.patience, answer).await {
                Ok(Ok(Answer::Once)) => Ok(()),
                Ok(Ok(Answer::Session)) => {
                    state.keep(deed, rule);
                    Ok(())
                }
                Ok(Ok(Answer::Deny(reason))) => {
                    state.refuse(deed);
                    Err(Error::denied(refusal(&reason)))
                }
                Ok(Err(_)) => {
                    Err(Error::denied("the question to the user failed, so the call was not made; try something else"))
                }
                Err(_) => Err(Error::denied(format!(
                    "the user did not answer within {} s, so the call was not made",
                    self.patience.as_secs()
                ))),
            }
        };
        tokio::select! {
            biased;
            () = cancelled => Err(Error::Cancelled),
            answer = answer => answer,
        }
    }
}

/// Whether a call passes in plan mode: it changes nothing here and sends nothing to anybody.
fn looks_in_plan(deed: &Deed<'_>) -> bool {
    // An agent is never in a looser mode than whoever starts it, so it only looks as well.
    let starts_agent = deed.spec.effects == Effects::SPAWNS;
    let looks = deed.reading.as_ref().is_some_and(commands::line_only_reads);
    deed.only_looks() || looks || starts_agent || reads_web(deed)
}

/// Whether a call starts an agent whose tools change nothing here. The agent's own calls pass a gate of the same mode,
/// so a page that it reads is asked for there.
fn starts_reader(deed: &Deed<'_>) -> bool {
    // An agent that goes on keeps the tools that it had, whatever kind the call names.
    let goes_on = deed.args.get("resume").is_some_and(|it| !it.is_null());
    let raised = deed.spec.tier.is_some_and(|tier| tier > Tier::SideEffecting);
    let kind = AGENT_KINDS.iter().find_map(|name| deed.args.get(*name)?.as_str());
    deed.spec.effects == Effects::SPAWNS && !goes_on && !raised && deed.call.agents().is_read_only(deed.call, kind)
}

/// Whether a call reads pages or searches, and does nothing else.
fn reads_web(deed: &Deed<'_>) -> bool {
    let effects = deed.spec.effects;
    let graver = [Effects::WRITES, Effects::EXECUTES, Effects::SPAWNS, Effects::DESTROYS, Effects::SENDS];
    effects.has(Effects::NETWORK) && !graver.iter().any(|effect| effects.has(*effect))
}

/// What the gate says before anybody is asked.
pub(crate) enum Verdict {
    Pass,
    Ask {
        why: String,
        rule: Option<String>,
        /// What kind of refusal it is when nobody approves.
        refusal: Refusal,
    },
}

fn refusal(reason: &str) -> String {
    match reason.trim() {
        "" => "the user refused this call; do not repeat it, do something else or ask what is wanted".to_owned(),
        reason => format!("the user refused this call: {reason}"),
    }
}

/// Why the mode asks.
fn reason(deed: &Deed<'_>) -> String {
    match &deed.reading {
        Some(reading) if !reading.doubts.is_empty() => format!("the command is not fully understood: {}", doubts(deed)),
        Some(reading) if !reading.writes.is_empty() => "the command writes a file".to_owned(),
        Some(_) => "the command may change things".to_owned(),
        None => {
            let effects: Vec<_> = deed.spec.effects.names().filter(|name| *name != "reads").collect();
            format!("{} can change things ({})", deed.spec.name, effects.join(", "))
        }
    }
}

fn doubts(deed: &Deed<'_>) -> String {
    let doubts = deed.reading.iter().flat_map(|reading| &reading.doubts).map(|doubt| doubt.why.as_str());
    let text = doubts.take(3).collect::<Vec<_>>().join("; ");
    if text.is_empty() { "it may run what its arguments name".to_owned() } else { text }
}

/// How the user can allow it from now on.
fn remedy(deed: &Deed<'_>) -> String {
    let name = &deed.spec.name;
    let clear = deed.reading.as_ref().filter(|reading| reading.is_clear());
    let mut rules: Vec<String> = match (clear, &deed.address) {
        (Some(reading), _) => given::asked(&reading.commands)
            .filter_map(|command| command.argv().map(|argv| format!("{name}({})", quote(argv))))
            .collect(),
        (None, Some(Address::Host(host))) => vec![format!("{name}(domain:{host})")],
        _ => Vec::new(),
    };
    if rules.is_empty() || rules.len() > 4 {
        rules = vec![name.clone()];
    }
    let many = if rules.len() > 1 { "rules" } else { "rule" };
    format!(
        "The user can allow it with the {many} {}, or run where questions can be answered",
        visible(&rules.join(", "))
    )
}

#[cfg(test)]
mod tests;
