//! Explains which rule decides about a call. Runs nothing and asks nobody.

use helve_contract::{Access, Call, Spec};
use serde::Serialize;
use serde_json::Value;

use super::{
    ApprovalRequest, Gate, GateDecision, Mode, Refused, ask, caution,
    deed::{CallAccess, PathTarget, TargetHost},
    rule::{Rule, RuleMatch},
};
use crate::commands::{self, CommandRole, SimpleCommand, escape_invisible};

/// What would happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It would run.
    Allow,
    /// A person would be asked first.
    Ask,
    /// A rule or the mode denies it.
    Deny,
    /// The call is invalid, whatever the rules are: the arguments, a protected path, a secret.
    Refuse,
}

impl Outcome {
    /// Its name in files and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Refuse => "refuse",
        }
    }
}

/// The reason for an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Basis {
    /// A rule of `approval.deny`. `certain` is false if a part of the command is known only at run time.
    DenyRule {
        /// The rule as written.
        rule: String,
        /// Whether the rule is known to cover the call.
        certain: bool,
    },
    /// A rule of `approval.ask`.
    AskRule {
        /// The rule as written.
        rule: String,
    },
    /// Rules of `approval.allow` that cover the call together.
    AllowRules {
        /// The rules as written.
        rules: Vec<String>,
    },
    /// The program list in `tools.shell`.
    Programs,
    /// A path that is protected or outside of the workspace.
    Path {
        /// The path.
        path: String,
    },
    /// Untrusted content that the session has read (`policy.taint`).
    UntrustedContent,
    /// The call only reads.
    ReadOnly,
    /// The mode, because no rule covers the call.
    Mode,
    /// The arguments are invalid, or the command cannot be parsed.
    InvalidCall,
    /// The arguments contain a registered secret.
    Secret,
}

impl Basis {
    /// The rules that decided, as written.
    pub fn rules(&self) -> Vec<&str> {
        match self {
            Self::DenyRule { rule, .. } | Self::AskRule { rule } => vec![rule],
            Self::AllowRules { rules } => rules.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

/// One command of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandView {
    /// The command, decoded.
    pub text: String,
    /// `reads`: it is known to change nothing; `wraps`: it runs the next one; `runs`: everything else.
    pub role: &'static str,
    /// The rule of `approval.allow` that covers it.
    pub allowed_by: Option<String>,
}

/// One path that a call names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathView {
    /// The path on this machine.
    pub path: String,
    /// `read` or `write`.
    pub access: &'static str,
    /// Why it would be refused.
    pub refused: Option<String>,
}

/// What would happen to a call, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The tool's name.
    pub tool: String,
    /// What would happen.
    pub outcome: Outcome,
    /// What decided.
    pub basis: Basis,
    /// The reason, as text.
    pub why: String,
    /// The approval mode.
    pub mode: &'static str,
    /// The commands of a command line.
    pub commands: Vec<CommandView>,
    /// The ambiguities of a command line.
    pub unclear: Vec<String>,
    /// The paths that the call names or that redirections write.
    pub paths: Vec<PathView>,
    /// The host that the call connects to.
    pub host: Option<String>,
    /// The narrowest rules that would allow the call, if it needs approval.
    pub suggested_rules: Vec<String>,
    /// The approval prompt that a person would see.
    #[serde(skip)]
    pub question: Option<ApprovalRequest>,
}

impl Explanation {
    /// A call that never reaches the gate.
    pub(crate) fn refused(tool: &str, mode: Mode, basis: Basis, why: String) -> Self {
        Self {
            tool: tool.to_owned(),
            outcome: Outcome::Refuse,
            basis,
            why,
            mode: mode.name(),
            commands: Vec::new(),
            unclear: Vec::new(),
            paths: Vec::new(),
            host: None,
            suggested_rules: Vec::new(),
            question: None,
        }
    }
}

impl Gate {
    /// Explains which rule decides about a call. Earlier approvals do not count.
    pub(crate) async fn explain(&self, spec: &Spec, args: &Value, call: &Call) -> Explanation {
        let mode = self.mode.get();
        let mut deed = CallAccess::new(spec, args, call);
        if let Err(error) = self.parse_command(&mut deed) {
            return Explanation::refused(&spec.name, mode, Basis::InvalidCall, error.to_string());
        }
        // The gate parses a line only if needed; an explanation always shows it.
        if deed.parsed.is_none() {
            _ = deed.parse_command();
        }
        self.look(&mut deed).await;
        let (outcome, basis, why) = self.outcome(&deed);
        let mut explanation = Explanation {
            tool: spec.name.clone(),
            outcome,
            basis,
            why,
            mode: mode.name(),
            commands: self.command_views(&deed),
            unclear: deed.parsed.iter().flat_map(|it| &it.ambiguities).map(|it| escape_invisible(&it.reason)).collect(),
            paths: path_views(&deed),
            host: match &deed.host {
                Some(TargetHost::Host(host)) => Some(host.clone()),
                _ => None,
            },
            suggested_rules: Vec::new(),
            question: None,
        };
        let refused = explanation.paths.iter().find_map(|it| Some((it.path.clone(), it.refused.clone()?)));
        if let Some((path, why)) = refused
            && matches!(explanation.outcome, Outcome::Allow | Outcome::Ask)
        {
            explanation.outcome = Outcome::Refuse;
            explanation.why = format!("{path}: {why}");
            explanation.basis = Basis::Path { path };
        }
        if explanation.outcome == Outcome::Ask {
            let question = ask::approval_request(&deed, &explanation.why);
            explanation.suggested_rules.clone_from(&question.rules);
            explanation.question = Some(question);
        }
        explanation
    }

    fn outcome(&self, deed: &CallAccess<'_>) -> (Outcome, Basis, String) {
        let text = |rule: &Rule| rule.source().to_owned();
        if self.is_free(deed.spec) {
            return (Outcome::Allow, Basis::ReadOnly, "the tool only reads, and no rule is about it".to_owned());
        }
        match self.evaluate(deed) {
            Err(Refused { error, .. }) => {
                let (outcome, basis) = self.basis_of_refusal(deed);
                (outcome, basis, error.to_string())
            }
            Ok(GateDecision::Pass) => {
                let rules = self.covering(deed);
                if self.is_allowed_by_rules(deed) && !rules.is_empty() {
                    let rules: Vec<_> = rules.into_iter().map(text).collect();
                    return (Outcome::Allow, Basis::AllowRules { rules }, "rules allow it".to_owned());
                }
                let looks = deed.is_read_only() || deed.parsed.as_ref().is_some_and(commands::is_read_only_line);
                if looks {
                    return (Outcome::Allow, Basis::ReadOnly, "it only reads".to_owned());
                }
                let why = format!("the mode {} lets it pass, and no rule is about it", self.mode.get().name());
                (Outcome::Allow, Basis::Mode, why)
            }
            Ok(GateDecision::Ask { why, rule, .. }) => {
                let denies =
                    |rule: &str| self.deny.iter().any(|it| it.source() == rule && it.matches(deed) > RuleMatch::No);
                let basis = match rule {
                    Some(rule) if rule == caution::TAINT_GRANT_KEY => Basis::UntrustedContent,
                    Some(rule) if denies(&rule) => Basis::DenyRule { rule, certain: false },
                    Some(rule) => Basis::AskRule { rule },
                    None => Basis::Mode,
                };
                if self.mode.get() == Mode::DontAsk {
                    return (Outcome::Deny, basis, format!("{why}; in the mode dontAsk nobody is asked"));
                }
                (Outcome::Ask, basis, why)
            }
        }
    }

    /// The basis of a refusal, in the order of the gate.
    fn basis_of_refusal(&self, deed: &CallAccess<'_>) -> (Outcome, Basis) {
        if let Some(rule) = self.deny.iter().find(|rule| rule.matches(deed) == RuleMatch::Yes) {
            return (Outcome::Deny, Basis::DenyRule { rule: rule.source().to_owned(), certain: true });
        }
        if let (Some(names), Some(reading)) = (&self.names, &deed.parsed)
            && names.check_parsed(reading).is_some()
        {
            return (Outcome::Deny, Basis::Programs);
        }
        if let Some((path, _)) = deed.protected_redirect() {
            return (Outcome::Refuse, Basis::Path { path });
        }
        if self.mode.get() == Mode::Plan {
            return (Outcome::Deny, Basis::Mode);
        }
        (Outcome::Deny, Basis::UntrustedContent)
    }

    /// The allow rules that cover a part of the call.
    fn covering(&self, deed: &CallAccess<'_>) -> Vec<&Rule> {
        let covers = |rule: &&Rule| {
            let host = match &deed.host {
                Some(TargetHost::Host(host)) => rule.covers_host(host),
                _ => false,
            };
            let commands = deed.parsed.iter().flat_map(|it| &it.commands);
            !rule.has_content()
                || host
                || commands.into_iter().any(|command| rule.covers_command(command))
                || deed.places().any(|(target, _)| rule.covers_target(target))
        };
        self.allow.iter().filter(|rule| rule.grants(deed)).filter(covers).collect()
    }

    fn command_views(&self, deed: &CallAccess<'_>) -> Vec<CommandView> {
        let allowed_by = |command: &SimpleCommand| {
            let rule = self
                .allow
                .iter()
                .find(|rule| rule.grants(deed) && (!rule.has_content() || rule.covers_command(command)));
            rule.map(|rule| rule.source().to_owned())
        };
        let view = |command: &SimpleCommand| CommandView {
            text: escape_invisible(&command.source()),
            role: match command.role {
                _ if commands::is_read_only_command(command) && command.role == CommandRole::Program => "reads",
                CommandRole::Wrapper => "wraps",
                _ => "runs",
            },
            allowed_by: allowed_by(command),
        };
        deed.parsed.iter().flat_map(|it| &it.commands).map(view).collect()
    }
}

/// The paths of a call with the workspace's decision about each.
fn path_views(deed: &CallAccess<'_>) -> Vec<PathView> {
    let rules = deed.call.session.workspace.rules();
    let named = deed.places().map(|(target, access)| (target.clone(), access));
    let redirected = deed.redirect_targets().into_iter().map(|target| (target, Access::Write));
    named
        .chain(redirected)
        .map(|(target, access)| {
            let refused = match &target {
                PathTarget::Inside { relative, .. } => rules.denial_reason(relative, access).map(str::to_owned),
                // For a command the sandbox decides; a file tool is refused.
                PathTarget::Outside(_) if deed.command.is_some() => None,
                PathTarget::Outside(_) => Some("it is outside of the workspace".to_owned()),
            };
            PathView { path: target.display(), access: if access == Access::Write { "write" } else { "read" }, refused }
        })
        .collect()
}
