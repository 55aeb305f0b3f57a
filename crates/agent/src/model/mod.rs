//! Models: requests, answers and the trait of model clients.

mod accumulate;
mod embeddings;
mod endpoint;
mod faults;
mod find;
mod openai;
mod reasoning_details;
mod sse;
mod wire;

pub use accumulate::Accumulator;
pub use embeddings::EmbeddingsClient;
pub use endpoint::{ApiKey, Endpoint, Prices, Timeouts};
pub use find::{DiscoveredModel, ModelConfig, ModelInfo, discover, is_configured, key_variables, list_models};
pub use openai::OpenAi;
#[cfg(any(test, fuzzing))]
pub use openai::fuzz_stream;
pub(crate) use {accumulate::generate_call_id, wire::INTERRUPTED_RESULT};

use async_trait::async_trait;
use helve_contract::{
    CancellationToken,
    ports::{Message, TokenUsage},
};
use serde_json::Value;

/// A model behind some endpoint.
#[async_trait]
pub trait Model: Send + Sync {
    /// Its name, as the endpoint knows it.
    fn name(&self) -> String;
    /// How many tokens fit into its window, where that is known.
    fn context_window(&self) -> Option<u64>;
    /// The API that it speaks, by which its items are known in `Part::Opaque`.
    fn api(&self) -> &'static str {
        "chat"
    }
    /// Completes a request. Chunks go to `ear` as they arrive; only a complete answer is returned. It retries as long
    /// as nothing was streamed.
    async fn complete(&self, ask: &ModelRequest<'_>, ear: &StreamSink<'_>) -> Result<ModelResponse, ModelError>;
}

/// Takes the pieces of an answer as they come.
pub type StreamSink<'a> = dyn Fn(StreamChunk<'_>) + Send + Sync + 'a;

/// What a model is asked.
pub struct ModelRequest<'a> {
    /// The system prompt.
    pub system_prompt: &'a str,
    /// The session, in order.
    pub messages: &'a [Message],
    /// The tools, as function definitions.
    pub tools: &'a [Value],
    /// Tokens of the answer at most.
    pub max_tokens: Option<u64>,
    /// Set when nobody waits any more.
    pub cancel: CancellationToken,
}

/// A piece of an answer.
#[derive(Clone, Copy, Debug)]
pub enum StreamChunk<'a> {
    /// Words.
    Text(&'a str),
    /// Thoughts.
    Reasoning(&'a str),
    /// The endpoint is asked again: why, and after how many milliseconds.
    Retry(&'a str, u64),
}

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelResponse {
    /// Words.
    pub text: String,
    /// Thoughts.
    pub reasoning: String,
    /// The provider's own items of the whole answer, to be sent back unchanged: the data of `Part::Opaque`.
    pub opaque: Vec<Value>,
    /// Calls of tools, in order; each complete, each with an id.
    pub calls: Vec<ToolCall>,
    /// Whether the answer was cut by a limit of the endpoint.
    pub is_truncated: bool,
    /// Tools whose calls were being written when the answer was cut; they never run.
    pub incomplete_calls: Vec<String>,
    /// What it took.
    pub usage: TokenUsage,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as the model wrote them.
    pub input: String,
    /// The provider's own item of this call, to be sent back unchanged.
    pub opaque: Option<Value>,
}

/// Why there is no answer. The words are for the user and say the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The request was cancelled; contains the text so far.
    #[error("cancelled")]
    Cancelled {
        /// What was said so far.
        said: String,
    },
    /// The session does not fit into the model's window.
    #[error("{0}")]
    ContextTooLong(String),
    /// The key is missing or wrong, the model does not exist, or the request is refused: a retry does not help.
    #[error("{0}")]
    Refused(String),
    /// The endpoint is unreachable or returns invalid data; retries failed.
    #[error("{0}")]
    Unreachable(String),
    /// The stream broke in the middle; what was said so far.
    #[error("{why}")]
    StreamBroken {
        /// Why.
        why: String,
        /// What was said so far.
        said: String,
    },
}
