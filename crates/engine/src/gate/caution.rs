//! After a stranger's words have come in: what is asked then, although it would pass.
//!
//! What a page says may become what a model does. By default only what leaves the machine is looked at: an address that
//! was put together here, a question that the user said yes to before. Where the operator wants more, everything but
//! looking is asked or denied.

use std::str::FromStr;

use helve_contract::Effects;

use super::{Mode, deed::Deed};

/// What follows from a stranger's words in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caution {
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

impl Caution {
    /// Every kind with its name in configuration.
    pub const ALL: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("off", Self::Off), ("ask", Self::Ask), ("deny", Self::Deny)];
}

impl FromStr for Caution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or_else(|| format!("`{text}` is none of auto, off, ask, deny"))
    }
}

/// The name under which a yes to such a question is kept: it is none to another question.
pub(super) const RULE: &str = "text from outside";

/// How a call stands after a stranger's words.
pub(super) enum Standing {
    /// As without them.
    Clean,
    /// If it is asked, it is asked for this reason.
    Suspect(String),
    /// It is asked for this reason.
    Asked(String),
    /// It is denied for this reason.
    Denied(String),
}

/// How a call stands. `by_host`: a rule names the host that it goes to.
pub(super) fn standing(caution: Caution, mode: Mode, deed: &Deed<'_>, by_host: bool) -> Standing {
    if caution == Caution::Off || deed.only_looks() && !goes_out(deed) {
        return Standing::Clean;
    }
    let Some(told) = deed.call.session.taint.told() else { return Standing::Clean };
    let why = format!("{told} came in before, and may have wanted this");
    match caution {
        Caution::Deny => return Standing::Denied(why),
        Caution::Ask => return Standing::Asked(why),
        Caution::Auto | Caution::Off => {}
    }
    let asks = !matches!(mode, Mode::Open | Mode::BypassPermissions);
    if !asks || !goes_out(deed) {
        return Standing::Clean;
    }
    let composed =
        deed.address.is_some() && !by_host && !deed.url().is_some_and(|url| deed.call.session.taint.knows(url));
    if composed {
        Standing::Asked(format!("{why}; the address is not one that came in"))
    } else {
        Standing::Suspect(why)
    }
}

/// Whether a call can carry something out of the machine.
pub(super) fn goes_out(deed: &Deed<'_>) -> bool {
    deed.spec.effects.has(Effects::NETWORK) || deed.spec.effects.has(Effects::SENDS)
}
