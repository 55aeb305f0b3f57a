//! The taint policy: which calls need approval after a session has read untrusted content.
//!
//! Untrusted content may influence the model. By default the gate only checks calls that send data out: addresses that
//! the session composed, and calls with an earlier approval. Stricter policies ask about or deny everything except
//! reading.

use std::str::FromStr;

use helve_contract::Effects;

use super::{Mode, deed::CallAccess};

/// What happens after a session has read untrusted content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaintPolicy {
    /// In modes that ask: addresses that did not occur in that content need approval unless a rule names their host,
    /// and earlier approvals do not cover calls that send data out. In other modes: nothing.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// In every mode, every call that can change or send something needs approval, even if rules allow it.
    Ask,
    /// In every mode, every call that can change or send something is denied.
    Deny,
}

impl TaintPolicy {
    /// All policies with their names in settings.
    pub const ALL: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("off", Self::Off), ("ask", Self::Ask), ("deny", Self::Deny)];
}

impl FromStr for TaintPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or_else(|| format!("`{text}` is none of auto, off, ask, deny"))
    }
}

/// The key of grants for this question; they do not answer other questions.
pub(super) const TAINT_GRANT_KEY: &str = "text from outside";

/// The effect of untrusted content on a call.
pub(super) enum TaintDecision {
    /// No effect.
    Unaffected,
    /// If the call needs approval, this is the reason.
    Annotate(String),
    /// The call needs approval, for this reason.
    Ask(String),
    /// The call is denied, for this reason.
    Deny(String),
}

/// The effect on a call. `by_host`: a rule names the host of the call.
pub(super) fn decide(caution: TaintPolicy, mode: Mode, deed: &CallAccess<'_>, by_host: bool) -> TaintDecision {
    if caution == TaintPolicy::Off || deed.is_read_only() && !is_egress(deed) {
        return TaintDecision::Unaffected;
    }
    let Some(told) = deed.call.session.taint.describe() else { return TaintDecision::Unaffected };
    let why = format!("{told} came in before, and may have wanted this");
    match caution {
        TaintPolicy::Deny => return TaintDecision::Deny(why),
        TaintPolicy::Ask => return TaintDecision::Ask(why),
        TaintPolicy::Auto | TaintPolicy::Off => {}
    }
    let asks = !matches!(mode, Mode::Open | Mode::BypassPermissions);
    if !asks || !is_egress(deed) {
        return TaintDecision::Unaffected;
    }
    let composed =
        deed.host.is_some() && !by_host && !deed.url().is_some_and(|url| deed.call.session.taint.has_seen_url(url));
    if composed {
        TaintDecision::Ask(format!("{why}; the address is not one that came in"))
    } else {
        TaintDecision::Annotate(why)
    }
}

/// Whether a call can send data out of the machine.
pub(super) fn is_egress(deed: &CallAccess<'_>) -> bool {
    deed.spec.effects.contains(Effects::NETWORK) || deed.spec.effects.contains(Effects::SENDS)
}
