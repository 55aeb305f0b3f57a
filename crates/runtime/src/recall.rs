//! Builds the memory search from the settings: weights and an embedding model.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use helve_agent::model::{ApiKey, EmbeddingsClient, Endpoint};
use helve_contract::{Error, Result, async_trait};
use helve_store::{
    MemoryConfig,
    embed::{BuiltinEmbedder, Embedder, Model2Vec},
};

use crate::{config::Settings, remark};

/// The memory search of the settings. Nothing is loaded before the first note.
pub fn memory_config(settings: &Settings) -> MemoryConfig {
    let usual = MemoryConfig::default();
    let config = settings.config.memory.clone();
    let embedder: Arc<dyn Embedder> = match (config.embeddings_url, config.model) {
        (Some(url), _) => {
            Arc::new(RemoteEmbedder::new(url, config.embeddings_model.unwrap_or_default(), config.embeddings_key_env))
        }
        (None, Some(folder)) => Arc::new(LocalEmbedder { dir: folder.to_path_buf(), model: OnceLock::new() }),
        (None, None) => Arc::new(BuiltinEmbedder),
    };
    let (meaning, words) = (config.weight_meaning as f32, config.weight_words as f32);
    // Two weights of 0 would find nothing.
    if meaning + words > 0.0 {
        MemoryConfig { embedder, semantic_weight: meaning, lexical_weight: words }
    } else {
        MemoryConfig { embedder, ..usual }
    }
}

/// A static model in a directory, read when it is first needed.
struct LocalEmbedder {
    dir: PathBuf,
    model: OnceLock<Option<Model2Vec>>,
}

impl LocalEmbedder {
    fn model(&self) -> Option<&Model2Vec> {
        let load = || {
            let loaded = Model2Vec::load(&self.dir);
            loaded.map_err(|error| remark!("helve: notes are found by their words alone: {error}")).ok()
        };
        self.model.get_or_init(load).as_ref()
    }
}

#[async_trait]
impl Embedder for LocalEmbedder {
    fn id(&self) -> &str {
        self.model().map_or("none", Embedder::id)
    }
    fn dims(&self) -> usize {
        self.model().map_or(0, Embedder::dims)
    }
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let model = self.model().ok_or_else(|| Error::failed("the embedding model cannot be read"))?;
        model.embed(texts).await
    }
    fn sentence_weight(&self) -> f32 {
        self.model().map_or(1.0, Embedder::sentence_weight)
    }
}

/// A model behind an endpoint.
struct RemoteEmbedder {
    id: String,
    endpoint: Endpoint,
    key_env: Option<String>,
    client: OnceLock<Option<EmbeddingsClient>>,
    /// The length of the first received vector; 0 before.
    dims: AtomicUsize,
}

impl RemoteEmbedder {
    fn new(url: String, model: String, key_env: Option<String>) -> Self {
        let id = format!("{url} {model}");
        Self { id, endpoint: Endpoint::new(url, model), key_env, client: OnceLock::new(), dims: AtomicUsize::new(0) }
    }

    fn client(&self) -> Option<&EmbeddingsClient> {
        let make = || {
            let made = self.connect();
            made.map_err(|why| remark!("helve: notes are found by their words alone: {why}")).ok()
        };
        self.client.get_or_init(make).as_ref()
    }

    fn connect(&self) -> Result<EmbeddingsClient, String> {
        let mut endpoint = self.endpoint.clone();
        if let Some(variable) = &self.key_env {
            let value = std::env::var(variable).ok().filter(|it| !it.trim().is_empty());
            let value = value
                .ok_or_else(|| format!("memory.embeddings_key_env names the variable {variable}, which is not set"))?;
            endpoint.key = Some(ApiKey::new(value, variable));
        }
        EmbeddingsClient::new(endpoint).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Embedder for RemoteEmbedder {
    fn id(&self) -> &str {
        &self.id
    }
    fn dims(&self) -> usize {
        self.dims.load(Ordering::Relaxed)
    }
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let client = self.client().ok_or_else(|| Error::failed("the embedding model cannot be asked"))?;
        let made = client.embed(texts).await.map_err(|error| Error::failed(error.to_string()))?;
        if let Some(first) = made.first() {
            _ = self.dims.compare_exchange(0, first.len(), Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(made)
    }
}
