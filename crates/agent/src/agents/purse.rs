//! The budget tracker: what a session and its agents have spent in the current turn.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use helve_contract::ports::TokenUsage;

use crate::{AgentEvent, AgentListener, Budget};

/// What was spent of a budget. A session and its agents pay from one budget.
pub(super) struct BudgetTracker {
    budget: Budget,
    inner: Mutex<BudgetState>,
}

struct BudgetState {
    since: Instant,
    turns: u32,
    usage: TokenUsage,
}

impl BudgetTracker {
    pub(super) fn new(budget: Budget) -> Arc<Self> {
        let inner = BudgetState { since: Instant::now(), turns: 0, usage: TokenUsage::default() };
        Arc::new(Self { budget, inner: Mutex::new(inner) })
    }

    /// A listener that records the session's usage and forwards every event.
    pub(super) fn counting_listener(self: &Arc<Self>, watcher: AgentListener) -> AgentListener {
        let purse = self.clone();
        Arc::new(move |event: &AgentEvent| {
            match event {
                // A budget is for one user turn, which starts with the first model request.
                AgentEvent::ModelRequested { turn } => purse.record_turn(*turn),
                AgentEvent::Usage(spent) => purse.record(*spent),
                _ => {}
            }
            watcher(event);
        })
    }

    /// Something was spent, by the session or by an agent of it.
    pub(super) fn record(&self, spent: TokenUsage) {
        let mut inner = self.lock();
        inner.usage = inner.usage + spent;
    }

    /// Begins anew.
    pub(super) fn reset(&self) {
        *self.lock() = BudgetState { since: Instant::now(), turns: 0, usage: TokenUsage::default() };
    }

    /// What an agent may spend that is started now.
    pub(super) fn remaining(&self) -> Budget {
        let inner = self.lock();
        let tokens = inner.usage.prompt_tokens + inner.usage.completion_tokens;
        Budget {
            max_turns: self.budget.max_turns.map(|turns| turns.saturating_sub(inner.turns)),
            max_tokens: self.budget.max_tokens.map(|all| all.saturating_sub(tokens)),
            max_cost: self.budget.max_cost.map(|all| (all - inner.usage.cost).max(0.0)),
            max_time: self.budget.max_time.map(|all| all.saturating_sub(inner.since.elapsed())),
        }
    }

    /// What is used up, in words.
    pub(super) fn exhausted(&self) -> Option<&'static str> {
        let left = self.remaining();
        if left.max_tokens == Some(0) {
            Some("the tokens of the conversation are used up")
        } else if left.max_cost.is_some_and(|cost| cost <= 0.0) {
            Some("the cost limit of the conversation is reached")
        } else if left.max_time.is_some_and(|time| time.is_zero()) {
            Some("the time of the conversation is used up")
        } else {
            None
        }
    }

    fn record_turn(&self, turn: u32) {
        let mut inner = self.lock();
        if turn <= 1 {
            *inner = BudgetState { since: Instant::now(), turns: 0, usage: TokenUsage::default() };
        }
        inner.turns = turn;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BudgetState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The smaller one; what is `None` has no limit.
pub(super) fn min_limit<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_and_its_agents_pay_from_one_purse() {
        let purse = BudgetTracker::new(Budget {
            max_turns: Some(10),
            max_tokens: Some(100),
            max_cost: Some(1.0),
            max_time: None,
        });
        let watcher = purse.counting_listener(Arc::new(|_| {}));
        watcher(&AgentEvent::ModelRequested { turn: 1 });
        watcher(&AgentEvent::Usage(TokenUsage {
            prompt_tokens: 30,
            completion_tokens: 10,
            cost: 0.25,
            ..TokenUsage::default()
        }));
        watcher(&AgentEvent::ModelRequested { turn: 2 });
        purse.record(TokenUsage { prompt_tokens: 20, completion_tokens: 0, cost: 0.25, ..TokenUsage::default() });
        assert_eq!(
            purse.remaining(),
            Budget { max_turns: Some(8), max_tokens: Some(40), max_cost: Some(0.5), max_time: None }
        );
        purse.record(TokenUsage { prompt_tokens: 40, completion_tokens: 0, cost: 0.0, ..TokenUsage::default() });
        assert_eq!(purse.exhausted(), Some("the tokens of the conversation are used up"));
        watcher(&AgentEvent::ModelRequested { turn: 1 });
        assert_eq!((purse.exhausted(), purse.remaining().max_tokens), (None, Some(100)));
    }
}
