//! A scripted model, served on a thread of its own.

use std::{sync::mpsc, thread};

use anyhow::Context as _;
use helve_script::{Script, Server};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::Desk;

/// A scripted model that answers as long as this lives.
#[derive(Debug)]
pub struct Model {
    url: String,
    asks: UnboundedSender<mpsc::Sender<(Vec<Value>, Vec<String>)>>,
}

impl Model {
    /// Serves a script.
    pub fn of(script: Script) -> anyhow::Result<Self> {
        let ((tell, told), (asks, mut asked)) =
            (mpsc::channel(), unbounded_channel::<mpsc::Sender<(Vec<Value>, Vec<String>)>>());
        thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                let Ok(server): Result<Server, _> = script.serve().await else { return };
                _ = tell.send(server.url());
                while let Some(back) = asked.recv().await {
                    _ = back.send((server.requests(), server.violations()));
                }
            });
        });
        Ok(Self { url: told.recv().context("the scripted model does not start")?, asks })
    }

    /// The same desk, with settings that name this model.
    pub fn at(&self, desk: Desk) -> Desk {
        desk.env("HELVE_MODEL_BASE_URL", &self.url).env("HELVE_MODEL_NAME", "scripted")
    }

    /// What it was asked, and what was wrong with that.
    pub fn heard(&self) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
        let (back, answer) = mpsc::channel();
        self.asks.send(back)?;
        answer.recv().context("the scripted model is gone")
    }
}
