//! The gate: whether a call may run, and who is asked.

mod ask;

use std::{sync::Arc, time::Duration};

pub use ask::{Answer, Approver, Question};
pub use rule::Rule;

mod rule;

use helve_contract::{Call, Result, Spec};
use serde_json::Value;

use crate::commands::NameList;

/// What is asked before a call. Deny rules hold in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Looking passes, everything else is asked.
    #[default]
    Default,
    /// As `Default`, and changes of files pass.
    AcceptEdits,
    /// Only looking passes.
    Plan,
    /// As `Default`, but what would be asked is denied.
    DontAsk,
    /// Everything passes that no rule denies or wants asked.
    BypassPermissions,
    /// Nothing is asked; the sandbox is the wall. The way of dialects without approvals.
    Open,
}

/// Whether a call may run: rules, a mode, and somebody to ask.
pub struct Gate {
    mode: Mode,
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
    names: Option<NameList>,
    approver: Option<Arc<dyn Approver>>,
    patience: Duration,
}

impl Gate {
    /// A gate without rules.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            allow: Vec::new(),
            ask: Vec::new(),
            deny: Vec::new(),
            names: None,
            approver: None,
            patience: Duration::from_secs(600),
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

    /// How long an answer may take; later is a no.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Lets a call pass, or says why not and what to do.
    #[allow(clippy::unused_async, reason = "asking is asynchronous")]
    pub(crate) async fn pass(&self, _spec: &Spec, _args: &Value, _call: &Call) -> Result<()> {
        Ok(())
    }
}
