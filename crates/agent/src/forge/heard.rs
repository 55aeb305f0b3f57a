//! The results of an agent, and whether they count.

use helve_contract::{Error, Reply, Result};

use crate::TurnStopReason;

/// What was heard of an agent that has ended.
pub(super) struct AgentOutcome {
    pub(super) stop_reason: TurnStopReason,
    pub(super) call_stats: CallStats,
}

impl AgentOutcome {
    /// What is known of one that somebody else started.
    pub(super) fn unknown() -> Self {
        Self { stop_reason: TurnStopReason::Cancelled, call_stats: CallStats::default() }
    }
}

/// Statistics of an agent's calls, to verify its claims.
#[derive(Debug, Default)]
pub(super) struct CallStats {
    total: usize,
    succeeded: usize,
    commands: usize,
    /// Commands that ran, whatever came of them.
    commands_run: usize,
    /// The words that a call failed with; a command's where there is one.
    last_failure: String,
}

impl CallStats {
    pub(super) fn record(&mut self, name: &str, reply: &Reply) {
        // Reporting is not work.
        if name == "emit_walkthrough" {
            return;
        }
        let is_command = matches!(name, "bash" | "run_tests");
        if reply.is_error && (self.last_failure.is_empty() || is_command) {
            self.last_failure = reply.text.chars().take(300).collect();
        }
        self.total += 1;
        self.succeeded += usize::from(!reply.is_error);
        self.commands += usize::from(is_command);
        self.commands_run += usize::from(is_command && !reply.is_error);
    }

    /// Requires that a finished agent has done something.
    pub(super) fn require_work(&self) -> Result<()> {
        let Self { total: all, succeeded: well, last_failure: why, .. } = self;
        if *all == 0 || *well > 0 {
            return Ok(());
        }
        Err(Error::failed(format!("the agent says that it is done, but none of its calls ({all}) went well: {why}")))
    }

    /// What speaks against work that is done.
    pub(super) fn objection(&self) -> Option<String> {
        let Self { commands, commands_run: ran, last_failure: why, .. } = self;
        (*commands > 0 && *ran == 0)
            .then(|| format!("none of its commands ({commands}) could run, so nothing was tried: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::Reply;

    use super::CallStats;

    fn after(calls: &[(&str, bool)]) -> CallStats {
        let mut seen = CallStats::default();
        for (name, well) in calls {
            let reply = if *well { Reply::from("fine") } else { Reply::error(format!("{name} is denied")) };
            seen.record(name, &reply);
        }
        seen
    }

    #[test]
    fn whoever_could_do_nothing_is_not_believed() {
        let nothing = after(&[("read", false), ("bash", false), ("emit_walkthrough", true)]);
        let why = nothing.require_work().unwrap_err().to_string();
        assert_eq!(why, "the agent says that it is done, but none of its calls (2) went well: bash is denied");
        // There may be nothing to do.
        assert!(after(&[("emit_walkthrough", true)]).require_work().is_ok());
        assert!(after(&[("bash", false), ("write", true)]).require_work().is_ok());
    }

    #[test]
    fn work_that_nothing_was_tried_of_is_in_doubt() {
        let doubt = after(&[("write", true), ("bash", false), ("bash", false)]).objection();
        assert_eq!(doubt.as_deref(), Some("none of its commands (2) could run, so nothing was tried: bash is denied"));
        assert_eq!(after(&[("bash", false), ("bash", true)]).objection(), None);
        assert_eq!(after(&[("write", true)]).objection(), None);
    }
}
