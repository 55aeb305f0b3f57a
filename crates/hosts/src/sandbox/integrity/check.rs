//! The check of one command: starts before it runs and finishes when all its processes have ended.

use std::sync::Arc;

use tokio::sync::Mutex as AsyncMutex;

use super::{Git, Integrity, State};
use crate::{
    sandbox::{integrity_notes as notes, path_rule_check::PathRuleCheck},
    supervise::Mounts,
};

/// A pending check of a running command.
#[derive(Default)]
pub(crate) struct Check {
    pub(super) pending: Option<Pending>,
    pub(super) path_rules: Option<PathRuleCheck>,
}

pub(super) struct Pending {
    pub(super) integrity: Arc<Integrity>,
    pub(super) states: Vec<Arc<AsyncMutex<State>>>,
    /// Whether files are moved or only reported.
    pub(super) is_enforced: bool,
    pub(super) git: Git,
    /// What keeps the git directories as they are.
    pub(super) mounts: Mounts,
}

impl Check {
    /// Checks what path rules are about, too.
    pub(in crate::sandbox) fn with_path_rules(mut self, path_rules: Option<PathRuleCheck>) -> Self {
        self.path_rules = path_rules;
        self
    }

    /// The mounts that keep git directories as they are while the command runs.
    pub(in crate::sandbox) fn mounts(&self) -> Mounts {
        self.pending.as_ref().map(|pending| pending.mounts.clone()).unwrap_or_default()
    }

    /// Call it when the command and all its processes have ended; returns the messages.
    ///
    /// The check continues if the caller is cancelled.
    pub(crate) async fn finish(mut self) -> Vec<String> {
        let (pending, path_rules) = (self.pending.take(), self.path_rules.take());
        if pending.is_none() && path_rules.is_none() {
            return Vec::new();
        }
        tokio::spawn(finish_both(pending, path_rules)).await.unwrap_or_default()
    }

    /// Schedules the check for a command that nobody waits for. The next command's reply contains the result; if the
    /// process ends first, the next start does the check.
    pub(crate) fn after(mut self, ended: impl Future<Output = ()> + Send + 'static) {
        let (pending, path_rules) = (self.pending.take(), self.path_rules.take());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                ended.await;
                finish_silently(pending, path_rules).await;
            });
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        // The command could not be started, or its caller was dropped.
        let (pending, path_rules) = (self.pending.take(), self.path_rules.take());
        if let (true, Ok(runtime)) = (pending.is_some(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(finish_silently(pending, path_rules));
        }
    }
}

/// Finishes the checks of a command; what to tell.
async fn finish_both(pending: Option<Pending>, path_rules: Option<PathRuleCheck>) -> Vec<String> {
    let mut notes = match pending {
        Some(pending) => pending.finish().await,
        None => Vec::new(),
    };
    if let Some(path_rules) = path_rules {
        notes.extend(path_rules.finish().await);
    }
    notes
}

/// Finishes the checks of a command. The next command's reply has what was found.
async fn finish_silently(pending: Option<Pending>, path_rules: Option<PathRuleCheck>) {
    let first = pending.as_ref().and_then(|pending| pending.states.first().cloned());
    let notes = finish_both(pending, path_rules).await;
    if let Some(state) = first {
        state.lock().await.notes.extend(notes);
    }
}

impl Pending {
    async fn finish(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for shared in &self.states {
            let state = shared.clone().lock_owned().await;
            let mut state = self.integrity.check(state, self.is_enforced, &self.git).await;
            for (git, refs) in &mut state.refs {
                refs.update(git, false);
            }
            state.running = state.running.saturating_sub(1);
            if state.running == 0 {
                state.journal = None;
            }
            if state.index.is_partial() && !state.has_told_partial {
                let note = notes::partial(&state.root);
                state.notes.push(note);
                state.has_told_partial = true;
            }
            notes.append(&mut state.notes);
        }
        notes
    }
}
