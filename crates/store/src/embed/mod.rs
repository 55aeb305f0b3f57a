//! Text embeddings: the built-in model, a model from a file, or a service.

mod builtin;
mod model2vec;
mod wordpiece;

pub use builtin::BuiltinEmbedder;
pub(crate) use builtin::{TokenVector, Vocabulary, vocabulary};
use helve_contract::{Result, async_trait};
pub use model2vec::Model2Vec;
pub use wordpiece::WordPiece;

/// Creates vectors of texts. Texts with similar meaning get vectors with similar direction.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Identifies the model: vectors of another id are recomputed.
    fn id(&self) -> &str;
    /// Numbers of a vector.
    fn dims(&self) -> usize;
    /// One vector per text, of any length; the store normalises them.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>>;
    /// The weight of whole-text similarity against word similarity, from 0 to 1. Models that consider word order
    /// deserve more than sums of words.
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
