//! One conversation: words in, turns of the model and its tools, words out.

use std::{sync::Arc, time::Duration};

use helve_contract::{
    CancellationToken, Result, Session,
    ports::{Part, Spent},
};
use helve_engine::Engine;

use crate::{Event, Watcher, model::Model};

/// One conversation. Its messages are in the session's store, so that it can be taken up again by its id.
#[derive(Clone)]
pub struct Agent {
    /// The door to the tools.
    pub engine: Arc<Engine>,
    /// Who, where, and what can be reached. Its id is the conversation's.
    pub session: Arc<Session>,
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// What the model is told first.
    pub system: String,
    /// What may be spent on one turn of the user.
    pub budget: Budget,
    /// Who hears what happens.
    pub watcher: Watcher,
    /// How others reach in while it works.
    pub handle: Handle,
}

/// What may be spent on one turn of the user. What is `None` has no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Answers of the model.
    pub turns: Option<u32>,
    /// Tokens, both ways.
    pub tokens: Option<u64>,
    /// US dollars.
    pub cost: Option<f64>,
    /// Time.
    pub time: Option<Duration>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { turns: Some(100), tokens: None, cost: None, time: None }
    }
}

/// How others reach into a conversation while it works. Cheap to clone.
#[derive(Clone, Default)]
pub struct Handle {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    cancel: std::sync::Mutex<CancellationToken>,
    steering: std::sync::Mutex<Vec<String>>,
    following: std::sync::Mutex<Vec<String>>,
}

/// How a turn of the user ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The model's last words.
    pub text: String,
    /// Why it ended.
    pub ended: Ended,
    /// Answers of the model.
    pub turns: u32,
    /// Calls of tools.
    pub calls: u32,
    /// What it took.
    pub spent: Spent,
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model had no more to do.
    Done,
    /// It was cancelled.
    Cancelled,
    /// A budget is used up; which, in words.
    Budget(String),
    /// It went round in circles; how, in words.
    Circles(String),
    /// The model could not be asked; why, in words.
    Model(String),
}

impl Agent {
    /// Says something to the model, and works until it has answered. The history is valid whatever happens, and every
    /// message in it is kept before the next step is taken.
    pub async fn turn(&self, words: Vec<Part>) -> Result<Outcome> {
        let _ = words;
        let outcome = Outcome { text: String::new(), ended: Ended::Done, turns: 0, calls: 0, spent: Spent::default() };
        (self.watcher)(&Event::Ended(outcome.clone()));
        Ok(outcome)
    }

    /// Says something in plain words.
    pub async fn say(&self, words: &str) -> Result<Outcome> {
        self.turn(vec![Part::Text { text: words.to_owned() }]).await
    }
}

impl Handle {
    /// Stops the turn that runs. What ran so far stays in the history.
    pub fn cancel(&self) {
        lock(&self.inner.cancel).cancel();
    }

    /// Says something in the middle of a turn: the calls that have not begun are skipped, and the model hears it next.
    pub fn steer(&self, words: impl Into<String>) {
        lock(&self.inner.steering).push(words.into());
    }

    /// Says something that waits until the turn is over.
    pub fn follow_up(&self, words: impl Into<String>) {
        lock(&self.inner.following).push(words.into());
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
