//! Which tools a session offers, and why it does not offer others. Open it to add a reason.

use std::{fmt, sync::Arc};

use helve_contract::{Call, Error, Port, PortSet, Spec};

use crate::{
    CallArgs, Engine,
    gate::{Basis, Explanation, GateDecision},
};

/// Why a session does not offer a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOffered {
    /// The role of the session does not have it.
    Role(&'static str),
    /// The list of wanted tools does not name it.
    NotSelected,
    /// The list of unwanted tools names it.
    Disabled,
    /// The session lacks these ports.
    Missing(PortSet),
}

/// The reason, and for missing ports what to configure.
impl fmt::Display for NotOffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(role) => write!(f, "the role `{role}` does not have it"),
            Self::NotSelected => f.write_str("`tools.only` does not name it"),
            Self::Disabled => f.write_str("`tools.disable` names it, or a setting turns it off"),
            Self::Missing(ports) => {
                let why: Vec<&str> = ports.iter().map(Port::why_missing).collect();
                let how: Vec<&str> = ports.iter().map(Port::how_to_get).collect();
                write!(f, "{}. {}", why.join("; "), how.join(" "))
            }
        }
    }
}

/// One row of a dialect's table, or an imported tool, and whether the session offers it.
#[derive(Clone, Debug)]
pub struct ToolStatus {
    /// The name that the model calls.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its definition; `None` for a row that another crate supplies and has not supplied.
    pub spec: Option<Arc<Spec>>,
    /// The ports that it needs.
    pub needs: PortSet,
    /// Whether it was added to the dialect: by a plugin, a module, an MCP server or a library user.
    pub imported: bool,
    /// Whether the session offers it, or why not.
    pub offered: Result<(), NotOffered>,
}

/// What would happen to a call, as far as known without a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It would run without approval.
    Allowed,
    /// The user would be asked first.
    Asked {
        /// Why.
        why: String,
    },
    /// It would be refused.
    Denied {
        /// The reason that the model would get.
        why: String,
    },
}

impl Engine {
    /// Every row of the dialect, then every imported tool, with the reason where the session does not offer one. The
    /// offered ones are those of [`Engine::specs`].
    pub fn statuses(&self) -> Vec<ToolStatus> {
        self.registry().statuses().to_vec()
    }

    /// Whether the session offers a tool of this name or alias.
    pub fn is_offered(&self, name: &str) -> bool {
        self.registry().find_exact(name).is_some()
    }

    /// Whether a call would run, need approval, or be refused. Asks nobody, runs nothing and records nothing.
    ///
    /// A call that the user already allowed for the session is [`Decision::Allowed`]. The result can change before the
    /// call: modes, earlier approvals and untrusted content are not fixed.
    pub fn decide(&self, name: &str, args: impl Into<CallArgs>, call: &Call) -> Decision {
        let table = self.registry();
        let decided =
            table.prepare(name, args.into(), self.dialect.limits.ranges).into_valid().and_then(|(slot, args)| {
                let spec = &slot.entry.spec;
                self.refuse_secrets(spec, &args).map_err(|(error, _)| error)?;
                self.gate.decide(spec, &args, call)
            });
        match decided {
            Ok(GateDecision::Pass) => Decision::Allowed,
            Ok(GateDecision::Ask { why, .. }) => Decision::Asked { why },
            Err(error) => Decision::Denied { why: (self.dialect.templates.error)(name, &error).text },
        }
    }

    /// What would happen to a call, which rule decides, and why. Asks nobody, runs nothing and records nothing.
    ///
    /// Unlike [`decide`](Self::decide) it ignores earlier approvals and assumes that an approver exists.
    pub async fn explain(&self, name: &str, args: impl Into<CallArgs>, call: &Call) -> Explanation {
        let mode = self.gate.mode().get();
        let table = self.registry();
        let refused = |basis, error: &Error| Explanation::refused(name, mode, basis, error.to_string());
        match table.prepare(name, args.into(), self.dialect.limits.ranges).into_valid() {
            Err(error) => refused(Basis::InvalidCall, &error),
            Ok((slot, args)) => match self.refuse_secrets(&slot.entry.spec, &args) {
                Err((error, _)) => refused(Basis::Secret, &error),
                Ok(()) => self.gate.explain(&slot.entry.spec, &args, call).await,
            },
        }
    }
}
