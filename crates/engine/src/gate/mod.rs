//! The gate: whether a call is allowed, needs an approval or is denied.
//!
//! The order is fixed: deny rules, plan mode, ask rules, allow rules, mode. No later step reverts an earlier refusal.

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

pub use ask::{ApprovalDecision, ApprovalRequest, Approver, Argument, ShownSize};
pub use caution::TaintPolicy;
pub use class::{CLASS_NAMES, RuleClass};
pub use explain::{Basis, CommandView, Explanation, Outcome, PathView};
pub use rule::Rule;
pub use scripts::ScriptSnapshot;

use crate::commands::{self, ProgramAllowlist, escape_invisible, quote};
use caution::TaintDecision;
use deed::{CallAccess, TargetHost};
pub(crate) use deed::{NamedPlaces, command_and_paths};
use given::Grants;
use rule::RuleMatch;

/// The approval mode. Deny rules apply in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Reading is allowed; everything else needs approval.
    #[default]
    Default,
    /// Like `Default`, and file changes are allowed.
    AcceptEdits,
    /// Only reading is allowed: files, searches, read-only commands, web pages, and agents, which are in plan mode too.
    Plan,
    /// Like `Default`, but calls that need approval are denied.
    DontAsk,
    /// Everything is allowed that no rule denies or asks about.
    BypassPermissions,
    /// Nothing needs approval; the sandbox is the protection. For dialects without approvals.
    Open,
}

impl Mode {
    /// All modes with their names in settings.
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

    /// The stricter of two modes. A child is never less strict than its parent.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if self.permissiveness() <= other.permissiveness() { self } else { other }
    }

    /// How much is allowed without approval. `Default` can still ask, so `DontAsk` allows less.
    fn permissiveness(self) -> u8 {
        match self {
            Self::Plan => 0,
            Self::DontAsk => 1,
            Self::Default => 2,
            Self::AcceptEdits => 3,
            Self::BypassPermissions => 4,
            Self::Open => 5,
        }
    }

    fn from_index(number: u8) -> Self {
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

/// The bits of a switch with the current mode.
const CURRENT_MODE_MASK: u8 = 0xf;
/// Parameters that name the kind of an agent.
const AGENT_KINDS: [&str; 2] = ["subagent_type", "agent_name"];

/// A mode that can change between calls: by the user, or by the approval of a plan. Cheap to clone; clones share the
/// state.
#[derive(Clone, Debug)]
pub struct ModeSwitch(Arc<AtomicU8>);

impl ModeSwitch {
    /// A switch in this mode.
    pub fn new(mode: Mode) -> Self {
        Self(Arc::new(AtomicU8::new((Mode::Default as u8) << 4 | mode as u8)))
    }

    /// Sets the mode.
    pub fn set(&self, mode: Mode) {
        _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            // The upper bits keep the mode before plan mode, to restore it when the plan is approved.
            let before = if mode == Mode::Plan && old & CURRENT_MODE_MASK != Mode::Plan as u8 {
                old & CURRENT_MODE_MASK
            } else {
                old >> 4
            };
            Some(before << 4 | mode as u8)
        });
    }

    /// The mode now.
    pub fn get(&self) -> Mode {
        Mode::from_index(self.0.load(Ordering::SeqCst) & CURRENT_MODE_MASK)
    }

    /// Allows file changes from now on, unless the mode already allows more.
    pub fn accept_edits(&self) {
        _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            let now = Mode::from_index(old & CURRENT_MODE_MASK);
            let stricter = now.permissiveness() < Mode::AcceptEdits.permissiveness();
            stricter.then_some(old & !CURRENT_MODE_MASK | Mode::AcceptEdits as u8)
        });
    }

    /// Ends plan mode and restores the previous mode (`Default` if there was none). `None` if plan mode is not active.
    pub fn end_plan(&self) -> Option<Mode> {
        let ended = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            (old & CURRENT_MODE_MASK == Mode::Plan as u8).then_some(old >> 4)
        });
        ended.ok().map(|old| Mode::from_index(old >> 4))
    }
}

impl From<Mode> for ModeSwitch {
    fn from(mode: Mode) -> Self {
        Self::new(mode)
    }
}

/// Decides about calls with rules, a mode and an approver.
pub struct Gate {
    mode: ModeSwitch,
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
    names: Option<ProgramAllowlist>,
    taint_policy: TaintPolicy,
    approver: Option<Arc<dyn Approver>>,
    approval_timeout: Duration,
    grants: Grants,
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
    /// A gate without rules.
    pub fn new(mode: impl Into<ModeSwitch>) -> Self {
        Self {
            mode: mode.into(),
            allow: Vec::new(),
            ask: Vec::new(),
            deny: Vec::new(),
            names: None,
            taint_policy: TaintPolicy::default(),
            approver: None,
            approval_timeout: Duration::from_secs(600),
            grants: Grants::default(),
            scripts: ScriptSnapshot::default(),
            asks_web_in_plan: false,
        }
    }

    /// Adds an allow rule: matching calls need no approval, unless another rule asks or denies.
    pub fn allow(mut self, rule: Rule) -> Self {
        self.allow.push(rule);
        self
    }

    /// Adds an ask rule: matching calls always need approval.
    pub fn ask(mut self, rule: Rule) -> Self {
        self.ask.push(rule);
        self
    }

    /// Adds a deny rule: matching calls never run.
    pub fn deny(mut self, rule: Rule) -> Self {
        self.deny.push(rule);
        self
    }

    /// Sets the approver. Without one, calls that need approval are denied.
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Sets the programs that a command line may run.
    pub fn program_allowlist(mut self, names: ProgramAllowlist) -> Self {
        self.names = Some(names);
        self
    }

    /// Sets what happens after the session has read untrusted content.
    pub fn taint_policy(mut self, caution: TaintPolicy) -> Self {
        self.taint_policy = caution;
        self
    }

    /// Sets the timeout of approvals; a timeout is a denial.
    pub fn approval_timeout(mut self, patience: Duration) -> Self {
        self.approval_timeout = patience;
        self
    }

    /// Asks about pages and searches in plan mode as in `Default`: for an agent whose parent would be asked.
    pub fn asking_web_in_plan(mut self) -> Self {
        self.asks_web_in_plan = true;
        self
    }

    /// Sets the project scripts that allow rules apply to. An agent uses its parent's snapshot.
    pub fn scripts(mut self, scripts: ScriptSnapshot) -> Self {
        self.scripts = scripts;
        self
    }

    /// The project scripts that allow rules apply to.
    pub(crate) fn script_snapshot(&self) -> &ScriptSnapshot {
        &self.scripts
    }

    /// The switch of its mode.
    pub(crate) fn mode(&self) -> &ModeSwitch {
        &self.mode
    }

    /// Allows a call, or returns why not and what to do.
    pub(crate) async fn authorize(&self, spec: &Spec, args: &Value, call: &Call) -> Result<(), Refused> {
        if self.is_free(spec) {
            return Ok(());
        }
        let mut deed = CallAccess::new(spec, args, call);
        self.parse_command(&mut deed).map_err(Refused::by_rule)?;
        self.look(&mut deed).await;
        match self.evaluate(&deed)? {
            GateDecision::Pass => Ok(()),
            GateDecision::Ask { why, rule, refusal } => {
                let answer = self.request_approval(&deed, &why, rule.as_deref()).await;
                answer.map_err(|error| Refused { error, why: refusal })
            }
        }
    }

    /// The result of [`authorize`](Self::authorize) without a prompt. A prompt that nobody can answer is a denial.
    pub(crate) fn decide(&self, spec: &Spec, args: &Value, call: &Call) -> Result<GateDecision> {
        if self.is_free(spec) {
            return Ok(GateDecision::Pass);
        }
        let mut deed = CallAccess::new(spec, args, call);
        self.parse_command(&mut deed)?;
        // Does not wait for the host. Without its answer, links and scripts are unknown, and allow rules do not apply.
        _ = self.look(&mut deed).now_or_never();
        let verdict = self.evaluate(&deed).map_err(|refused| refused.error)?;
        let GateDecision::Ask { why, rule, refusal } = verdict else { return Ok(GateDecision::Pass) };
        self.askable(&deed, &why)?;
        let state = self.grants.for_session(&call.session.id);
        if state.covers(&deed, rule.as_deref()) {
            return Ok(GateDecision::Pass);
        }
        Ok(GateDecision::Ask { why, rule, refusal })
    }

    /// Reads what the arguments do not contain: link targets and the project scripts of a command.
    async fn look(&self, deed: &mut CallAccess<'_>) {
        let rules = !(self.allow.is_empty() && self.ask.is_empty() && self.deny.is_empty());
        let lenient = matches!(self.mode.get(), Mode::Open | Mode::BypassPermissions);
        if !rules && lenient {
            // Nothing needs approval, and no allow rule applies.
            return;
        }
        // Reads the snapshot before the first call changes anything.
        let has_plan = !deed.call.session.plan_rules().is_empty();
        if has_plan || self.allow.iter().any(Rule::runs_scripts) {
            deed.first_scripts = self.scripts.first(deed.call).await;
        }
        deed.look(rules).await;
    }

    /// Reading is allowed in every mode, unless a rule could match or the call also sends something.
    fn is_free(&self, spec: &Spec) -> bool {
        self.deny.is_empty()
            && self.ask.is_empty()
            && deed::is_read_only_tool(spec)
            && !spec.effects.contains(Effects::SENDS)
    }

    /// The approver, or the refusal if there is none.
    fn askable(&self, deed: &CallAccess<'_>, why: &str) -> Result<&Arc<dyn Approver>> {
        if self.mode.get() == Mode::DontAsk {
            return Err(Error::denied(format!(
                "not allowed, because {why}, and in this mode nobody is asked. {}",
                how_to_allow(deed)
            )));
        }
        self.approver.as_ref().ok_or_else(|| {
            Error::denied(format!(
                "not allowed, because {why}, and there is nobody to ask here. {}",
                how_to_allow(deed)
            ))
        })
    }

    /// Parses the command line if the decision depends on it. A line above the limits is then denied.
    fn parse_command(&self, deed: &mut CallAccess<'_>) -> Result<()> {
        if deed.command.as_ref().is_some_and(|command| command.contains('\0')) {
            return Err(Error::denied(
                "the command has a NUL character in it, which no shell reads as it stands; remove it",
            ));
        }
        let protects = deed.call.session.workspace.rules().iter().next().is_some();
        let rules = [&self.deny, &self.ask].into_iter().flatten().any(Rule::has_content);
        let lenient = matches!(self.mode.get(), Mode::Open | Mode::BypassPermissions);
        let cautious = matches!(self.taint_policy, TaintPolicy::Ask | TaintPolicy::Deny);
        if lenient && !rules && !cautious && self.names.is_none() {
            // Only protected names depend on the line here, and the sandbox enforces those too.
            if protects {
                _ = deed.parse_command();
            }
            return Ok(());
        }
        deed.parse_command().map_err(|why| Error::denied(format!("{why}. Split it into smaller commands.")))
    }

    /// The decision of the rules and the mode, in the order of the gate.
    fn evaluate(&self, deed: &CallAccess<'_>) -> Result<GateDecision, Refused> {
        let uncertain = self.check_deny_rules(deed).map_err(Refused::by_rule)?;
        if self.mode.get() == Mode::Plan && !looks_in_plan(deed) {
            let error = Error::denied(format!(
                "this session is in plan mode, and {}. Only reads, searches and commands that change nothing are \
                 allowed until the user has approved the plan",
                approval_reason(deed)
            ));
            return Err(Refused { error, why: Refusal::PlanMode });
        }
        if let Some(rule) = uncertain {
            let why = format!(
                "the rule {} denies some commands, and this one is not fully understood: {}",
                rule.source(),
                describe_ambiguities(deed)
            );
            return Ok(GateDecision::Ask { why, rule: Some(rule.source().to_owned()), refusal: Refusal::AskRule });
        }
        if let Some(rule) = self.ask.iter().find(|rule| rule.wants_asked(deed) > RuleMatch::No) {
            let why = format!("the rule {} wants it asked", rule.source());
            return Ok(GateDecision::Ask { why, rule: Some(rule.source().to_owned()), refusal: Refusal::AskRule });
        }
        let looks = deed.parsed.as_ref().is_some_and(commands::is_read_only_line);
        let suspect = match caution::decide(self.taint_policy, self.mode.get(), deed, self.allows_host(deed)) {
            TaintDecision::Deny(why) if !looks => {
                return Err(Refused::by_rule(Error::denied(format!(
                    "{} is denied, because {why}; tell the user what you need it for",
                    deed.spec.name
                ))));
            }
            TaintDecision::Ask(why) if !looks => {
                // The automatic policy asks in some modes only.
                let refusal = if self.taint_policy == TaintPolicy::Ask { Refusal::AskRule } else { Refusal::Approval };
                return Ok(GateDecision::Ask { why, rule: Some(caution::TAINT_GRANT_KEY.to_owned()), refusal });
            }
            TaintDecision::Annotate(why) => Some(why),
            _ => None,
        };
        if self.is_allowed_by_rules(deed) || self.is_allowed_by_mode(deed) {
            return Ok(GateDecision::Pass);
        }
        let (why, rule) = match suspect {
            Some(why) => (format!("{}; {why}", approval_reason(deed)), Some(caution::TAINT_GRANT_KEY.to_owned())),
            None => (approval_reason(deed), None),
        };
        Ok(GateDecision::Ask { why, rule, refusal: Refusal::Approval })
    }

    /// Whether an allow rule names the host of a call.
    fn allows_host(&self, deed: &CallAccess<'_>) -> bool {
        let Some(TargetHost::Host(host)) = &deed.host else { return false };
        self.allow.iter().any(|rule| rule.has_content() && rule.grants(deed) && rule.covers_host(host))
    }

    /// Refuses denied calls. Returns a rule that may match but cannot be decided.
    fn check_deny_rules(&self, deed: &CallAccess<'_>) -> Result<Option<&Rule>> {
        let mut uncertain = None;
        for rule in &self.deny {
            match rule.matches(deed) {
                RuleMatch::Yes => {
                    return Err(Error::denied(format!(
                        "{} is denied by the rule {}; do it another way, or ask the user to change the rule",
                        deed.spec.name,
                        rule.source()
                    )));
                }
                RuleMatch::Possible => uncertain = uncertain.or(Some(rule)),
                RuleMatch::No => {}
            }
        }
        if let (Some(names), Some(reading)) = (&self.names, &deed.parsed)
            && let Some(why) = names.check_parsed(reading)
        {
            return Err(Error::denied(why));
        }
        if let Some((path, why)) = deed.protected_redirect() {
            return Err(Error::denied(format!("{path}: {why}")));
        }
        Ok(uncertain)
    }

    /// Whether allow rules cover the whole call.
    fn is_allowed_by_rules(&self, deed: &CallAccess<'_>) -> bool {
        let of_plan = self.rules_of_plan(deed);
        let rules: Vec<_> = self.allow.iter().chain(&of_plan).filter(|rule| rule.grants(deed)).collect();
        if rules.is_empty() {
            return false;
        }
        if rules.iter().any(|rule| !rule.has_content()) {
            return true;
        }
        if let Some(reading) = &deed.parsed {
            return reading.is_fully_understood()
                && deed.starts_at_top()
                && deed.runs_first_scripts()
                && rule::all_commands_covered(&rules, &reading.commands);
        }
        match &deed.host {
            Some(TargetHost::Host(host)) => rules.iter().any(|rule| rule.covers_host(host)),
            Some(TargetHost::Ambiguous) => false,
            None => {
                !deed.targets.is_empty()
                    && deed.has_looked()
                    && deed.places().all(|(target, _)| rules.iter().any(|rule| rule.covers_target(target)))
            }
        }
    }

    /// Command rules that the user approved with the current plan.
    fn rules_of_plan(&self, deed: &CallAccess<'_>) -> Vec<Rule> {
        if self.mode.get() == Mode::Plan || deed.parsed.is_none() {
            return Vec::new();
        }
        let rules = deed.call.session.plan_rules();
        rules.iter().filter_map(|text| Rule::parse(text).ok()).filter(Rule::names_a_command).collect()
    }

    /// Whether the mode allows a call that no rule covers.
    fn is_allowed_by_mode(&self, deed: &CallAccess<'_>) -> bool {
        let looks = || deed.is_read_only() || deed.parsed.as_ref().is_some_and(commands::is_read_only_line);
        match self.mode.get() {
            Mode::Open | Mode::BypassPermissions => true,
            Mode::Plan => looks() || (looks_in_plan(deed) && !(self.asks_web_in_plan && reads_web(deed))),
            Mode::Default | Mode::DontAsk => looks() || starts_reader(deed),
            Mode::AcceptEdits => looks() || rule::edits_files(deed.spec) || starts_reader(deed),
        }
    }

    /// Asks the approver. A timeout, a failed approver or a missing one is a denial.
    async fn request_approval(&self, deed: &CallAccess<'_>, why: &str, rule: Option<&str>) -> Result<()> {
        let state = self.grants.for_session(&deed.call.session.id);
        let approver = self.askable(deed, why)?;
        if state.covers(deed, rule) {
            return Ok(());
        }
        let cancelled = deed.call.cancel.cancelled();
        let answer = async {
            let _turn = state.prompt_lock.lock().await;
            if state.covers(deed, rule) {
                return Ok(());
            }
            state.check_prompt_limits(deed).map_err(Error::denied)?;
            let question = ask::approval_request(deed, why);
            let answer = AssertUnwindSafe(approver.request_approval(&question, deed.call)).catch_unwind();
            match tokio::time::timeout(self.approval_timeout, answer).await {
                Ok(Ok(ApprovalDecision::AllowOnce)) => Ok(()),
                Ok(Ok(ApprovalDecision::AllowForSession)) => {
                    state.add_grant(deed, rule);
                    Ok(())
                }
                Ok(Ok(ApprovalDecision::Deny(reason))) => {
                    state.record_denial(deed);
                    Err(Error::denied(denial_message(&reason)))
                }
                Ok(Err(_)) => {
                    Err(Error::denied("the question to the user failed, so the call was not made; try something else"))
                }
                Err(_) => Err(Error::denied(format!(
                    "the user did not answer within {} s, so the call was not made",
                    self.approval_timeout.as_secs()
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

/// Whether plan mode allows a call: it changes nothing here and sends nothing.
fn looks_in_plan(deed: &CallAccess<'_>) -> bool {
    // An agent's mode is never less strict than its starter's, so it only reads.
    let starts_agent = deed.spec.effects == Effects::SPAWNS;
    let looks = deed.parsed.as_ref().is_some_and(commands::line_only_reads);
    deed.is_read_only() || looks || starts_agent || reads_web(deed)
}

/// Whether a call starts an agent with read-only tools. The agent's calls pass a gate of the same mode, which asks
/// about pages.
fn starts_reader(deed: &CallAccess<'_>) -> bool {
    // A resumed agent keeps its tools, whatever kind the call names.
    let goes_on = deed.args.get("resume").is_some_and(|it| !it.is_null());
    let raised = deed.spec.tier.is_some_and(|tier| tier > Tier::SideEffecting);
    let kind = AGENT_KINDS.iter().find_map(|name| deed.args.get(*name)?.as_str());
    deed.spec.effects == Effects::SPAWNS && !goes_on && !raised && deed.call.agents().is_read_only(deed.call, kind)
}

/// Whether a call only reads pages or searches the web.
fn reads_web(deed: &CallAccess<'_>) -> bool {
    let effects = deed.spec.effects;
    let graver = [Effects::WRITES, Effects::EXECUTES, Effects::SPAWNS, Effects::DESTROYS, Effects::SENDS];
    effects.contains(Effects::NETWORK) && !graver.iter().any(|effect| effects.contains(*effect))
}

/// The decision of the gate before a prompt.
pub(crate) enum GateDecision {
    Pass,
    Ask {
        why: String,
        rule: Option<String>,
        /// The kind of refusal if nobody approves.
        refusal: Refusal,
    },
}

fn denial_message(reason: &str) -> String {
    match reason.trim() {
        "" => "the user refused this call; do not repeat it, do something else or ask what is wanted".to_owned(),
        reason => format!("the user refused this call: {reason}"),
    }
}

/// Why the mode requires an approval.
fn approval_reason(deed: &CallAccess<'_>) -> String {
    match &deed.parsed {
        Some(reading) if !reading.ambiguities.is_empty() => {
            format!("the command is not fully understood: {}", describe_ambiguities(deed))
        }
        Some(reading) if !reading.redirect_targets.is_empty() => "the command writes a file".to_owned(),
        Some(_) => "the command may change things".to_owned(),
        None => {
            let effects: Vec<_> = deed.spec.effects.names().filter(|name| *name != "reads").collect();
            format!("{} can change things ({})", deed.spec.name, effects.join(", "))
        }
    }
}

fn describe_ambiguities(deed: &CallAccess<'_>) -> String {
    let doubts = deed.parsed.iter().flat_map(|reading| &reading.ambiguities).map(|doubt| doubt.reason.as_str());
    let text = doubts.take(3).collect::<Vec<_>>().join("; ");
    if text.is_empty() { "it may run what its arguments name".to_owned() } else { text }
}

/// How the user can allow such calls permanently.
fn how_to_allow(deed: &CallAccess<'_>) -> String {
    let name = &deed.spec.name;
    let clear = deed.parsed.as_ref().filter(|reading| reading.is_fully_understood());
    let mut rules: Vec<String> = match (clear, &deed.host) {
        (Some(reading), _) => given::commands_needing_approval(&reading.commands)
            .filter_map(|command| command.argv().map(|argv| format!("{name}({})", quote(argv))))
            .collect(),
        (None, Some(TargetHost::Host(host))) => vec![format!("{name}(domain:{host})")],
        _ => Vec::new(),
    };
    if rules.is_empty() || rules.len() > 4 {
        rules = vec![name.clone()];
    }
    let many = if rules.len() > 1 { "rules" } else { "rule" };
    format!(
        "The user can allow it with the {many} {}, or run where questions can be answered",
        escape_invisible(&rules.join(", "))
    )
}

#[cfg(test)]
mod tests;
