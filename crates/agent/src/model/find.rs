//! Discovers a model: the configuration, a well-known key, or a local server.

use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use super::{ApiKey, Endpoint, ModelError, Prices, openai};

/// What is configured. What is `None` is looked for.
#[derive(Clone, Debug, Default)]
pub struct ModelConfig {
    /// The address of an endpoint.
    pub base_url: Option<String>,
    /// A key.
    pub key: Option<ApiKey>,
    /// A model by name.
    pub model: Option<String>,
    /// How many tokens fit into its window.
    pub context_window: Option<u64>,
    /// What it costs.
    pub prices: Option<Prices>,
    /// Do not look for servers on this machine.
    pub skip_local_probe: bool,
}

/// A model that was found.
#[derive(Clone, Debug)]
pub struct DiscoveredModel {
    /// Where it is.
    pub endpoint: Endpoint,
    /// How it was found, in words.
    pub source: String,
}

/// A model that an endpoint has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInfo {
    /// Its name.
    pub id: String,
    /// How many tokens fit into its window.
    pub context_window: Option<u64>,
    /// What it costs.
    pub prices: Option<Prices>,
    /// When it was made, in seconds.
    pub created: u64,
}

/// A provider whose key is known by its name.
struct ModelProvider {
    key_env: &'static str,
    /// Variables that hold another address.
    base_url_env: &'static [&'static str],
    url: &'static str,
    /// How the names of models begin that are good for work with tools, best first.
    prefer: &'static [&'static str],
}

#[rustfmt::skip]
const PROVIDERS: [ModelProvider; 9] = [
    ModelProvider { key_env: "OPENAI_API_KEY",     base_url_env: &["OPENAI_BASE_URL", "OPENAI_API_BASE"], url: "https://api.openai.com/v1",        prefer: &["gpt-5", "gpt-4.1", "gpt-4o", "gpt"] },
    ModelProvider { key_env: "OPENROUTER_API_KEY", base_url_env: &["OPENROUTER_BASE_URL"],                url: "https://openrouter.ai/api/v1",     prefer: &["anthropic/claude-sonnet", "openai/gpt-5", "openai/gpt-4.1"] },
    ModelProvider { key_env: "ANTHROPIC_API_KEY",  base_url_env: &[],                                     url: "https://api.anthropic.com/v1",     prefer: &["claude-sonnet", "claude"] },
    ModelProvider { key_env: "GEMINI_API_KEY",     base_url_env: &[],                                     url: "https://generativelanguage.googleapis.com/v1beta/openai", prefer: &["models/gemini-2.5-pro", "models/gemini", "gemini"] },
    ModelProvider { key_env: "GROQ_API_KEY",       base_url_env: &[],                                     url: "https://api.groq.com/openai/v1",   prefer: &["openai/gpt-oss", "llama-3.3", "llama"] },
    ModelProvider { key_env: "MISTRAL_API_KEY",    base_url_env: &[],                                     url: "https://api.mistral.ai/v1",        prefer: &["devstral", "mistral-medium", "mistral"] },
    ModelProvider { key_env: "DEEPSEEK_API_KEY",   base_url_env: &[],                                     url: "https://api.deepseek.com/v1",      prefer: &["deepseek-chat", "deepseek"] },
    ModelProvider { key_env: "XAI_API_KEY",        base_url_env: &[],                                     url: "https://api.x.ai/v1",              prefer: &["grok-code", "grok"] },
    ModelProvider { key_env: "LITELLM_API_KEY",    base_url_env: &["LITELLM_BASE_URL", "LITELLM_PROXY_API_BASE"], url: "http://127.0.0.1:4000/v1", prefer: &[] },
];

/// Servers that listen on this machine.
const LOCAL_SERVERS: [(&str, u16); 5] =
    [("Ollama", 11434), ("LM Studio", 1234), ("vLLM", 8000), ("LiteLLM", 4000), ("llama.cpp", 8080)];

/// How long a server on this machine has to say that it is there.
const PROBE_TIMEOUT: Duration = Duration::from_millis(700);

/// Finds a model. What is configured wins; then well-known keys; then servers on this machine.
pub async fn discover(
    env: &(dyn Fn(&str) -> Option<String> + Sync),
    wanted: &ModelConfig,
) -> Result<DiscoveredModel, ModelError> {
    let env = |name: &str| env(name).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
    if let Some(base) = &wanted.base_url {
        let key = wanted.key.clone().or_else(|| key_for(&env, base));
        return resolve_endpoint(base, key, &[], wanted, "the settings").await;
    }
    for it in &PROVIDERS {
        let Some(value) = env(it.key_env) else { continue };
        let base = it.base_url_env.iter().find_map(|name| env(name)).unwrap_or_else(|| it.url.to_owned());
        let key = wanted.key.clone().unwrap_or_else(|| ApiKey::new(value, it.key_env));
        return resolve_endpoint(&base, Some(key), it.prefer, wanted, it.key_env).await;
    }
    if let Some(base) = env("OPENAI_BASE_URL").or_else(|| env("OPENAI_API_BASE")) {
        return resolve_endpoint(&base, wanted.key.clone(), &[], wanted, "OPENAI_BASE_URL").await;
    }
    if !wanted.skip_local_probe
        && let Some(found) = probe_local_servers(&env, wanted).await
    {
        return Ok(found);
    }
    let names: Vec<&str> = PROVIDERS.iter().map(|it| it.key_env).collect();
    Err(ModelError::Refused(format!(
        "no model was found: set a base URL and a model in the settings, or one of {}, or start a server such as Ollama on this machine",
        names.join(", ")
    )))
}

/// Whether [`discover`] has an endpoint without looking for servers on this machine: one is configured, or a well-known
/// variable is set. Nothing is asked over the network.
pub fn is_configured(env: &dyn Fn(&str) -> Option<String>, wanted: &ModelConfig) -> bool {
    let is_set = |name: &str| env(name).is_some_and(|it| !it.trim().is_empty());
    wanted.base_url.is_some()
        || PROVIDERS.iter().any(|it| is_set(it.key_env))
        || is_set("OPENAI_BASE_URL")
        || is_set("OPENAI_API_BASE")
}

/// The variables whose keys [`discover`] takes by itself.
pub fn key_variables() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|it| it.key_env)
}

/// The key of a provider whose address is configured by hand.
fn key_for(env: &dyn Fn(&str) -> Option<String>, base: &str) -> Option<ApiKey> {
    let host = |url: &str| reqwest::Url::parse(url).ok().and_then(|it| it.host_str().map(str::to_owned));
    let wanted = host(base)?;
    let own = PROVIDERS.iter().find(|it| {
        host(it.url).as_ref() == Some(&wanted) || it.base_url_env.iter().any(|name| env(name).as_deref() == Some(base))
    })?;
    env(own.key_env).map(|value| ApiKey::new(value, own.key_env))
}

/// An endpoint, and a model of it.
async fn resolve_endpoint(
    base: &str,
    key: Option<ApiKey>,
    prefer: &[&str],
    wanted: &ModelConfig,
    from: &str,
) -> Result<DiscoveredModel, ModelError> {
    let mut endpoint = Endpoint::new(base, wanted.model.clone().unwrap_or_default());
    endpoint.key = key;
    endpoint.context_window = wanted.context_window;
    endpoint.prices = wanted.prices;
    if endpoint.model.is_empty() {
        let listed = list_models(&endpoint).await?;
        let chosen = choose_model(&listed, prefer)
            .ok_or_else(|| ModelError::Refused(format!("{base} lists no model; name one in the settings")))?;
        endpoint.model = chosen.id.clone();
        endpoint.context_window = endpoint.context_window.or(chosen.context_window);
        endpoint.prices = endpoint.prices.or(chosen.prices);
    }
    Ok(DiscoveredModel { endpoint, source: from.to_owned() })
}

/// A server on this machine that lists a model.
async fn probe_local_servers(
    env: &(dyn Fn(&str) -> Option<String> + Sync),
    wanted: &ModelConfig,
) -> Option<DiscoveredModel> {
    let ollama = env("OLLAMA_HOST").map(|it| if it.contains("://") { it } else { format!("http://{it}") });
    let places = LOCAL_SERVERS.iter().map(|(name, port)| match (&ollama, *port) {
        (Some(host), 11434) => (*name, format!("{}/v1", host.trim_end_matches('/').replace("0.0.0.0", "127.0.0.1"))),
        (_, port) => (*name, format!("http://127.0.0.1:{port}/v1")),
    });
    let asked = places.map(|(name, base)| async move {
        let endpoint = Endpoint::new(base, "");
        let listed = timeout(PROBE_TIMEOUT, list_models(&endpoint)).await.ok()?.ok()?;
        let chosen = match &wanted.model {
            Some(model) => listed.into_iter().find(|it| it.id == *model)?,
            None => choose_model(&listed, &[])?.clone(),
        };
        let endpoint = Endpoint {
            model: chosen.id,
            context_window: wanted.context_window.or(chosen.context_window),
            prices: wanted.prices.or(chosen.prices),
            ..endpoint
        };
        Some(DiscoveredModel { endpoint, source: format!("{name} on this machine") })
    });
    join_all(asked).await.into_iter().flatten().next()
}

/// The models that an endpoint has.
pub async fn list_models(endpoint: &Endpoint) -> Result<Vec<ModelInfo>, ModelError> {
    let url = openai::endpoint_url(endpoint, "models")?;
    let client = openai::http_client(endpoint, &url)?;
    let fault = |fault| match fault {
        super::faults::AttemptError::Fatal(error) => error,
        super::faults::AttemptError::Retry { why, .. } => ModelError::Unreachable(why),
        super::faults::AttemptError::RetryWithout(_) => {
            ModelError::Unreachable("it wants to be asked otherwise".into())
        }
    };
    let wait = Duration::from_secs(20);
    let request = client.get(url).headers(openai::headers(endpoint)?).timeout(wait).send();
    let mut response = request.await.map_err(|error| fault(super::faults::send_failed(endpoint, &error)))?;
    let mut bytes = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        bytes.extend_from_slice(&piece);
        if bytes.len() > 16 << 20 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let status = response.status().as_u16();
    if status != 200 {
        return Err(fault(super::faults::http_status(endpoint, status, &text, None)));
    }
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        return Err(fault(super::faults::invalid_json(endpoint, &text)));
    };
    let items = value["data"].as_array().or_else(|| value["models"].as_array()).or_else(|| value.as_array());
    Ok(items.map(|it| it.iter().filter_map(parse_model_info).collect()).unwrap_or_default())
}

fn parse_model_info(item: &Value) -> Option<ModelInfo> {
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let windows = ["context_length", "max_model_len", "context_window", "max_context_length", "loaded_context_length"];
    let window = windows.iter().find_map(|it| item[*it].as_u64()).or_else(|| item["meta"]["n_ctx_train"].as_u64());
    let pricing = &item["pricing"];
    let prices = number(&pricing["prompt"]).zip(number(&pricing["completion"]));
    Some(ModelInfo {
        id: item["id"].as_str().or_else(|| item["name"].as_str())?.to_owned(),
        context_window: window.filter(|it| *it > 0),
        prices: prices
            .filter(|(prompt, completion)| *prompt >= 0.0 && *completion >= 0.0)
            .map(|(prompt, completion)| Prices { prompt, completion }),
        created: item["created"].as_u64().unwrap_or(0),
    })
}

/// The model to take where none is named: of those that are preferred the newest, else the first that talks.
fn choose_model<'a>(listed: &'a [ModelInfo], prefer: &[&str]) -> Option<&'a ModelInfo> {
    const NON_CHAT_MODELS: [&str; 14] = [
        "embed",
        "whisper",
        "tts",
        "audio",
        "image",
        "dall-e",
        "moderation",
        "realtime",
        "transcribe",
        "rerank",
        "guard",
        "search",
        "sora",
        "ocr",
    ];
    const SMALL_MODELS: [&str; 4] = ["mini", "nano", "lite", "haiku"];
    let talks = |it: &&ModelInfo| !NON_CHAT_MODELS.iter().any(|word| it.id.to_lowercase().contains(word));
    let grown = |it: &&ModelInfo| !SMALL_MODELS.iter().any(|word| it.id.contains(word));
    let best = prefer.iter().find_map(|start| {
        let fits = listed.iter().filter(talks).filter(grown).filter(|it| it.id.starts_with(start));
        fits.max_by_key(|it| (it.created, std::cmp::Reverse(it.id.len())))
    });
    best.or_else(|| listed.iter().find(talks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str, created: u64) -> ModelInfo {
        ModelInfo { id: id.into(), created, ..ModelInfo::default() }
    }

    #[test]
    fn the_newest_of_the_preferred_is_taken_and_none_that_only_embeds() {
        let listed = [
            named("text-embedding-3", 9),
            named("gpt-4o", 3),
            named("gpt-5-mini", 8),
            named("gpt-5", 5),
            named("gpt-5.1", 7),
        ];
        assert_eq!(choose_model(&listed, PROVIDERS[0].prefer).map(|it| it.id.as_str()), Some("gpt-5.1"));
        assert_eq!(choose_model(&listed[..2], &[]).map(|it| it.id.as_str()), Some("gpt-4o"));
        assert_eq!(choose_model(&listed[..1], &[]), None);
    }

    #[tokio::test]
    async fn what_is_configured_wins_over_keys() {
        let env = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-1234567".to_owned());
        let wanted = ModelConfig {
            base_url: Some("http://127.0.0.1:9/v1".into()),
            model: Some("m".into()),
            ..ModelConfig::default()
        };
        let found = discover(&env, &wanted).await.unwrap();
        assert_eq!((found.source.as_str(), found.endpoint.key.is_none()), ("the settings", true));

        let wanted = ModelConfig { model: Some("m".into()), ..ModelConfig::default() };
        let found = discover(&env, &wanted).await.unwrap();
        assert_eq!(
            format!("{} {} {:?}", found.source, found.endpoint.base_url, found.endpoint.key),
            "OPENAI_API_KEY https://api.openai.com/v1 Some(Key(from OPENAI_API_KEY))"
        );
    }

    #[test]
    fn configured_means_an_address_or_a_well_known_variable() {
        let none = |_: &str| None;
        let address = ModelConfig { base_url: Some("http://127.0.0.1:9/v1".into()), ..ModelConfig::default() };
        let name = ModelConfig { model: Some("m".into()), ..ModelConfig::default() };
        assert!(is_configured(&none, &address));
        assert!(!is_configured(&none, &name), "a name says nothing about where the model is");
        for variable in key_variables().chain(["OPENAI_BASE_URL"]) {
            assert!(is_configured(&|it| (it == variable).then(|| "x".into()), &ModelConfig::default()), "{variable}");
            assert!(!is_configured(&|it| (it == variable).then(|| " ".into()), &ModelConfig::default()), "{variable}");
        }
    }

    #[tokio::test]
    async fn where_there_is_nothing_the_words_say_what_to_do() {
        let wanted = ModelConfig { skip_local_probe: true, ..ModelConfig::default() };
        let error = discover(&|_: &str| None, &wanted).await.unwrap_err().to_string();
        assert!(
            error.starts_with(
                "no model was found: set a base URL and a model in the settings, or one of OPENAI_API_KEY"
            )
        );
    }
}
