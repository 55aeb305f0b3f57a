//! What a conversation and its agents have spent of its budget, in the turn that runs.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use helve_contract::ports::Spent;

use crate::{Budget, Event, Watcher};

/// What was spent of a budget. A conversation and its agents pay from one purse.
pub(super) struct Purse {
    budget: Budget,
    inner: Mutex<Inner>,
}

struct Inner {
    since: Instant,
    turns: u32,
    spent: Spent,
}

impl Purse {
    pub(super) fn new(budget: Budget) -> Arc<Self> {
        let inner = Inner { since: Instant::now(), turns: 0, spent: Spent::default() };
        Arc::new(Self { budget, inner: Mutex::new(inner) })
    }

    /// A watcher that counts what the conversation takes, and passes everything on.
    pub(super) fn counting(self: &Arc<Self>, watcher: Watcher) -> Watcher {
        let purse = self.clone();
        Arc::new(move |event: &Event| {
            match event {
                // A budget is for one turn of the user, which begins with the first question to the model.
                Event::Asking { turn } => purse.asked(*turn),
                Event::Spent(spent) => purse.pay(*spent),
                _ => {}
            }
            watcher(event);
        })
    }

    /// Something was spent, by the conversation or by an agent of it.
    pub(super) fn pay(&self, spent: Spent) {
        let mut inner = self.lock();
        inner.spent = inner.spent + spent;
    }

    /// Begins anew.
    pub(super) fn reset(&self) {
        *self.lock() = Inner { since: Instant::now(), turns: 0, spent: Spent::default() };
    }

    /// What an agent may spend that is started now.
    pub(super) fn left(&self) -> Budget {
        let inner = self.lock();
        let tokens = inner.spent.prompt_tokens + inner.spent.completion_tokens;
        Budget {
            turns: self.budget.turns.map(|turns| turns.saturating_sub(inner.turns)),
            tokens: self.budget.tokens.map(|all| all.saturating_sub(tokens)),
            cost: self.budget.cost.map(|all| (all - inner.spent.cost).max(0.0)),
            time: self.budget.time.map(|all| all.saturating_sub(inner.since.elapsed())),
        }
    }

    /// What is used up, in words.
    pub(super) fn empty(&self) -> Option<&'static str> {
        let left = self.left();
        if left.tokens == Some(0) {
            Some("the tokens of the conversation are used up")
        } else if left.cost.is_some_and(|cost| cost <= 0.0) {
            Some("the cost limit of the conversation is reached")
        } else if left.time.is_some_and(|time| time.is_zero()) {
            Some("the time of the conversation is used up")
        } else {
            None
        }
    }

    fn asked(&self, turn: u32) {
        let mut inner = self.lock();
        if turn <= 1 {
            *inner = Inner { since: Instant::now(), turns: 0, spent: Spent::default() };
        }
        inner.turns = turn;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The smaller one; what is `None` has no limit.
pub(super) fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
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
        let purse = Purse::new(Budget { turns: Some(10), tokens: Some(100), cost: Some(1.0), time: None });
        let watcher = purse.counting(Arc::new(|_| {}));
        watcher(&Event::Asking { turn: 1 });
        watcher(&Event::Spent(Spent { prompt_tokens: 30, completion_tokens: 10, cost: 0.25, ..Spent::default() }));
        watcher(&Event::Asking { turn: 2 });
        purse.pay(Spent { prompt_tokens: 20, completion_tokens: 0, cost: 0.25, ..Spent::default() });
        assert_eq!(purse.left(), Budget { turns: Some(8), tokens: Some(40), cost: Some(0.5), time: None });
        purse.pay(Spent { prompt_tokens: 40, completion_tokens: 0, cost: 0.0, ..Spent::default() });
        assert_eq!(purse.empty(), Some("the tokens of the conversation are used up"));
        watcher(&Event::Asking { turn: 1 });
        assert_eq!((purse.empty(), purse.left().tokens), (None, Some(100)));
    }
}
