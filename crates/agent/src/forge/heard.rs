//! What was heard of an agent, and what it is worth.

use helve_contract::{Error, Reply, Result};

use crate::Ended;

/// What was heard of an agent that has ended.
pub(super) struct Heard {
    pub(super) ended: Ended,
    pub(super) calls: Calls,
}

impl Heard {
    /// What is known of one that somebody else started.
    pub(super) fn nothing() -> Self {
        Self { ended: Ended::Cancelled, calls: Calls::default() }
    }
}

/// How the calls of an agent went. What it says of its work is worth no more than that.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: usize,
    well: usize,
    commands: usize,
    /// Commands that ran, whatever came of them.
    ran: usize,
    /// The words that a call failed with; a command's where there is one.
    why: String,
}

impl Calls {
    pub(super) fn count(&mut self, name: &str, reply: &Reply) {
        // To tell of one's work is no work.
        if name == "emit_walkthrough" {
            return;
        }
        let is_command = matches!(name, "bash" | "run_tests");
        if reply.is_error && (self.why.is_empty() || is_command) {
            self.why = reply.text.chars().take(300).collect();
        }
        self.all += 1;
        self.well += usize::from(!reply.is_error);
        self.commands += usize::from(is_command);
        self.ran += usize::from(is_command && !reply.is_error);
    }

    /// An agent that says it is done must have done something.
    pub(super) fn must_have_done_something(&self) -> Result<()> {
        let Self { all, well, why, .. } = self;
        if *all == 0 || *well > 0 {
            return Ok(());
        }
        Err(Error::failed(format!("the agent says that it is done, but none of its calls ({all}) went well: {why}")))
    }

    /// What speaks against work that is done.
    pub(super) fn doubt(&self) -> Option<String> {
        let Self { commands, ran, why, .. } = self;
        (*commands > 0 && *ran == 0)
            .then(|| format!("none of its commands ({commands}) could run, so nothing was tried: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::Reply;

    use super::Calls;

    fn after(calls: &[(&str, bool)]) -> Calls {
        let mut seen = Calls::default();
        for (name, well) in calls {
            let reply = if *well { Reply::from("fine") } else { Reply::failed(format!("{name} is denied")) };
            seen.count(name, &reply);
        }
        seen
    }

    #[test]
    fn whoever_could_do_nothing_is_not_believed() {
        let nothing = after(&[("read", false), ("bash", false), ("emit_walkthrough", true)]);
        let why = nothing.must_have_done_something().unwrap_err().to_string();
        assert_eq!(why, "the agent says that it is done, but none of its calls (2) went well: bash is denied");
        // There may be nothing to do.
        assert!(after(&[("emit_walkthrough", true)]).must_have_done_something().is_ok());
        assert!(after(&[("bash", false), ("write", true)]).must_have_done_something().is_ok());
    }

    #[test]
    fn work_that_nothing_was_tried_of_is_in_doubt() {
        let doubt = after(&[("write", true), ("bash", false), ("bash", false)]).doubt();
        assert_eq!(doubt.as_deref(), Some("none of its commands (2) could run, so nothing was tried: bash is denied"));
        assert_eq!(after(&[("bash", false), ("bash", true)]).doubt(), None);
        assert_eq!(after(&[("write", true)]).doubt(), None);
    }
}
