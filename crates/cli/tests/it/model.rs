//! A scripted model, served on a thread of its own.

use std::{sync::mpsc, thread};

use helve_script::{MockModelServer, ModelScript, ScriptStep};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::desk::Desk;

/// A scripted model that answers as long as this lives.
pub(crate) struct Model {
    url: String,
    asks: UnboundedSender<Ask>,
}

enum Ask {
    Requests(mpsc::Sender<Vec<Value>>),
    Violations(mpsc::Sender<Vec<String>>),
}

impl Model {
    pub(crate) fn new(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self::of(ModelScript::new(steps))
    }

    pub(crate) fn of(script: ModelScript) -> Self {
        let ((tell, told), (asks, mut asked)) = (mpsc::channel(), unbounded_channel::<Ask>());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server: MockModelServer = script.serve().await.unwrap();
                tell.send(server.url()).unwrap();
                while let Some(ask) = asked.recv().await {
                    match ask {
                        Ask::Requests(back) => _ = back.send(server.requests()),
                        Ask::Violations(back) => _ = back.send(server.violations()),
                    }
                }
            });
        });
        Self { url: told.recv().unwrap(), asks }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A desk whose settings name this model.
    pub(crate) fn desk(&self) -> Desk {
        self.at(Desk::new())
    }

    /// The same desk, with settings that name this model.
    pub(crate) fn at(&self, desk: Desk) -> Desk {
        desk.env("HELVE_MODEL_BASE_URL", &self.url).env("HELVE_MODEL_NAME", "scripted")
    }

    /// What it was asked so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let (back, answer) = mpsc::channel();
        self.asks.send(Ask::Requests(back)).unwrap();
        answer.recv().unwrap()
    }

    /// What was wrong with the requests.
    pub(crate) fn violations(&self) -> Vec<String> {
        let (back, answer) = mpsc::channel();
        self.asks.send(Ask::Violations(back)).unwrap();
        answer.recv().unwrap()
    }

    /// The tool messages of the last request: what the model saw of its calls.
    pub(crate) fn results(&self) -> Vec<String> {
        let requests = self.requests();
        let messages = requests.last().map(|it| it["messages"].clone()).unwrap_or_default();
        let tools = messages.as_array().cloned().unwrap_or_default().into_iter().filter(|it| it["role"] == "tool");
        tools.map(|it| it["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}
