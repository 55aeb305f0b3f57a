//! Texts as vectors: the small model inside the program, another one from a file, or one that a service runs.

mod builtin;
mod model2vec;
mod wordpiece;

pub use builtin::BuiltinEmbedder;
pub(crate) use builtin::{TokenVector, Vocabulary, vocabulary};
use helve_contract::{Result, async_trait};
pub use model2vec::Model2Vec;
pub use wordpiece::WordPiece;

/// Makes vectors of texts. Two texts of like meaning get vectors of like direction.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Tells models apart: vectors of another id are made anew.
    fn id(&self) -> &str;
    /// Numbers of a vector.
    fn dims(&self) -> usize;
    /// One vector a text, of any length; they are brought to unit length where they are kept.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>>;
    /// How much the likeness of whole texts says beside the likeness word by word, from 0 to 1. A model that reads
    /// words in their order says more than a sum of words does.
    fn sentence_weight(&self) -> f32 {
        0.7
    }
}

/// What a sum of word vectors is trusted with.
pub(crate) const SUM_WEIGHT: f32 = 0.3;

/// Brings a vector to unit length; one of zeros stays as it is.
pub(crate) fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length.is_finite() && length > 0.0 {
        for x in vector {
            *x /= length;
        }
    } else {
        vector.fill(0.0);
    }
}
