//! The model of a session: each request goes to the model that the session's settings name at that moment.

use std::sync::{Arc, Weak};

use helve_agent::model::{Model, ModelError, ModelRequest, ModelResponse, StreamSink};
use helve_contract::async_trait;

use crate::workshop::HelveRuntime;

/// A model that follows the setting `model.name` of one session.
pub(crate) struct SessionModel {
    bench: Weak<HelveRuntime>,
    session: String,
    /// The model until the setting changes.
    initial: Arc<dyn Model>,
}

impl SessionModel {
    pub(crate) fn new(bench: Weak<HelveRuntime>, session: &str, initial: Arc<dyn Model>) -> Self {
        Self { bench, session: session.to_owned(), initial }
    }

    /// The model that answers the next request.
    fn current(&self) -> Arc<dyn Model> {
        let changed = || {
            let bench = self.bench.upgrade()?;
            let name = bench.knobs().changed(&self.session, "model.name")?;
            bench.model_named(name.as_str()).ok()
        };
        changed().unwrap_or_else(|| self.initial.clone())
    }
}

#[async_trait]
impl Model for SessionModel {
    fn name(&self) -> String {
        self.current().name()
    }

    fn context_window(&self) -> Option<u64> {
        self.current().context_window()
    }

    fn api(&self) -> &'static str {
        self.current().api()
    }

    async fn complete(&self, ask: &ModelRequest<'_>, ear: &StreamSink<'_>) -> Result<ModelResponse, ModelError> {
        self.current().complete(ask, ear).await
    }
}
