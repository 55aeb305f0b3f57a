//! Models: what is asked, what is answered, and who answers.

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
pub use embeddings::Embeddings;
pub use endpoint::{Endpoint, Key, Prices, Times};
pub use find::{Found, Listed, Wanted, find, is_configured, key_variables, list};
pub use openai::OpenAi;
#[cfg(any(test, fuzzing))]
pub use openai::try_stream;
pub(crate) use {accumulate::fresh_id, wire::INTERRUPTED};

use async_trait::async_trait;
use helve_contract::{
    CancellationToken,
    ports::{Message, Spent},
};
use serde_json::Value;

/// A model behind some endpoint.
#[async_trait]
pub trait Model: Send + Sync {
    /// Its name, as the endpoint knows it.
    fn name(&self) -> String;
    /// How many tokens fit into its window, where that is known.
    fn window(&self) -> Option<u64>;
    /// The API that it speaks, by which its items are known in `Part::Opaque`.
    fn api(&self) -> &'static str {
        "chat"
    }
    /// Answers. Pieces go to `ear` as they come; only a complete answer is returned. Retries are done inside, as long
    /// as nothing was said yet.
    async fn answer(&self, ask: &Ask<'_>, ear: &Ear<'_>) -> Result<Answer, ModelError>;
}

/// Takes the pieces of an answer as they come.
pub type Ear<'a> = dyn Fn(Piece<'_>) + Send + Sync + 'a;

/// What a model is asked.
pub struct Ask<'a> {
    /// The system prompt.
    pub system: &'a str,
    /// The conversation, in order.
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
pub enum Piece<'a> {
    /// Words.
    Text(&'a str),
    /// Thoughts.
    Reasoning(&'a str),
    /// The endpoint is asked again: why, and after how many milliseconds.
    Retry(&'a str, u64),
}

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Words.
    pub text: String,
    /// Thoughts.
    pub reasoning: String,
    /// The provider's own items of the whole answer, to be sent back unchanged: the data of `Part::Opaque`.
    pub opaque: Vec<Value>,
    /// Calls of tools, in order; each complete, each with an id.
    pub calls: Vec<Use>,
    /// Whether the answer was cut by a limit of the endpoint.
    pub cut: bool,
    /// Tools whose calls were being written when the answer was cut; they never run.
    pub lost: Vec<String>,
    /// What it took.
    pub spent: Spent,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
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
    /// Nobody waits any more; what was said so far.
    #[error("cancelled")]
    Cancelled {
        /// What was said so far.
        said: String,
    },
    /// The conversation does not fit into the model's window.
    #[error("{0}")]
    TooLong(String),
    /// The key is missing or wrong, the model does not exist, the request is refused: asking again does not help.
    #[error("{0}")]
    Refused(String),
    /// The endpoint cannot be reached or answers nonsense; asking again was tried.
    #[error("{0}")]
    Unreachable(String),
    /// The stream broke in the middle; what was said so far.
    #[error("{why}")]
    Broken {
        /// Why.
        why: String,
        /// What was said so far.
        said: String,
    },
}
