//! A scripted model, served on a separate thread.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use anyhow::Context as _;
use helve_script::{MockModelServer, ModelScript, ScriptStep};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{ArtifactWorkload, TestEnv, deeds::CaptainScript};

/// What a script and a test both know.
pub(crate) type Shared<T> = Arc<Mutex<T>>;

/// One look at it.
pub(crate) fn locked<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A scripted model that answers as long as this lives.
#[derive(Debug)]
pub struct MockModelThread {
    url: String,
    asks: UnboundedSender<mpsc::Sender<(Vec<Value>, Vec<String>)>>,
}

impl MockModelThread {
    /// Serves a script.
    pub fn start(script: ModelScript) -> anyhow::Result<Self> {
        let ((tell, told), (asks, mut asked)) =
            (mpsc::channel(), unbounded_channel::<mpsc::Sender<(Vec<Value>, Vec<String>)>>());
        thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                let Ok(server): Result<MockModelServer, _> = script.serve().await else { return };
                _ = tell.send(server.url());
                while let Some(back) = asked.recv().await {
                    _ = back.send((server.requests(), server.violations()));
                }
            });
        });
        Ok(Self { url: told.recv().context("the scripted model does not start")?, asks })
    }

    /// A model for sessions and planned runs: it answers every `say N` with `heard N`, after a tool call if N is odd,
    /// and `round N` with recorded orders.
    pub fn for_workloads() -> anyhow::Result<(Self, ArtifactWorkload)> {
        let orders = Shared::<CaptainScript>::default();
        let book = orders.clone();
        let script = ModelScript::new([ScriptStep::computed(move |request| respond(request, &book)).repeat(u32::MAX)]);
        Ok((Self::start(script)?, ArtifactWorkload::new(orders)))
    }

    /// The same environment, with settings that name this model.
    pub fn configure(&self, desk: TestEnv) -> TestEnv {
        desk.env("HELVE_MODEL_BASE_URL", &self.url).env("HELVE_MODEL_NAME", "scripted")
    }

    /// What it was asked, and what was wrong with that.
    pub fn requests(&self) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
        let (back, answer) = mpsc::channel();
        self.asks.send(back)?;
        answer.recv().context("the scripted model is gone")
    }
}

/// What the model of all work says to a request.
fn respond(request: &Value, orders: &Shared<CaptainScript>) -> ScriptStep {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asked = messages.iter().rposition(|it| it["role"] == "user").unwrap_or_default();
    let words = messages.get(asked).map(|it| it["content"].to_string()).unwrap_or_default();
    let told: Vec<String> = messages
        .iter()
        .skip(asked)
        .filter(|it| it["role"] == "tool")
        .map(|it| it["content"].as_str().map_or_else(|| it["content"].to_string(), str::to_owned))
        .collect();
    if let Some(round) = last_number_after(&words, "round ") {
        return match locked(orders).next(round, &told) {
            Some((tool, args)) => ScriptStep::call(tool, args),
            None => ScriptStep::text("All of it is written."),
        };
    }
    match last_number_after(&words, "say ") {
        Some(number) if number % 2 == 1 && told.is_empty() => {
            ScriptStep::call("write", json!({ "path": "talk.txt", "content": format!("{number}\n") }))
        }
        Some(number) => ScriptStep::text(format!("heard {number}")),
        None => ScriptStep::text("Nothing was asked."),
    }
}

/// The number behind these words, where they stand last.
fn last_number_after(text: &str, words: &str) -> Option<u64> {
    let rest = text.rsplit_once(words)?.1;
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}
