//! After a stranger's words have come in: what is asked then, although it would pass.
//!
//! What a page says may become what a model does. By default only what leaves the machine is looked at: an address that
//! was put together here, a question that the user said yes to before. Where the operator wants more, everything but
//! looking is asked or denied.

use std::str::FromStr;

use helve_contract::Effects;

use super::{Mode, deed::CallAccess};

/// What follows from a stranger's words in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaintPolicy {
    /// In modes that ask: addresses that did not come in with those words are asked about unless a rule names their
    /// host, and a yes from before no longer holds for what goes out. In other modes nothing.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// In every mode, whatever can change something or goes out is asked, whatever rules allow.
    Ask,
    /// In every mode, whatever can change something or goes out is denied.
    Deny,
}

impl TaintPolicy {
    /// Every kind with its name in configuration.
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

/// The name under which a yes to such a question is kept: it is none to another question.
pub(super) const TAINT_GRANT_KEY: &str = "text from outside";

/// How a call stands after a stranger's words.
pub(super) enum TaintDecision {
    /// As without them.
    Unaffected,
    /// If it is asked, it is asked for this reason.
    Annotate(String),
    /// It is asked for this reason.
    Ask(String),
    /// It is denied for this reason.
    Deny(String),
}

/// How a call stands. `by_host`: a rule names the host that it goes to.
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

/// Whether a call can carry something out of the machine.
pub(super) fn is_egress(deed: &CallAccess<'_>) -> bool {
    deed.spec.effects.contains(Effects::NETWORK) || deed.spec.effects.contains(Effects::SENDS)
}
