//! `/api`: tools, calls and the state of the machine as JSON.

use helve_engine::Dialect;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    calls::CallConsent,
    routes::{QueryParams, parse_body},
    say::ApiError,
    site::AppState,
};
use crate::{
    commands::{call, doctor},
    setup,
    wire::{self, DefinitionFormat},
};

/// A call as it comes in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallBody {
    dialect: Option<String>,
    tool: String,
    #[serde(default)]
    args: Map<String, Value>,
    /// Whether the call needs approval in the web UI, if the mode says so.
    #[serde(default)]
    ask: bool,
}

impl AppState {
    /// The tool definitions and their token counts: of one dialect, or of all.
    pub(super) fn tools(&self, query: &QueryParams) -> Result<Value, ApiError> {
        let dialects = match query.get("dialect") {
            Some(name) => vec![find_dialect(name)?],
            None => helve_dialects::all(),
        };
        let settings = self.runtime.settings();
        let listed = dialects.into_iter().map(|dialect| {
            let name = dialect.name;
            let engine = setup::listing_engine(settings, dialect).map_err(ApiError::internal)?;
            let tools = engine.specs().map(|spec| {
                let mut tool = wire::definition(&spec, DefinitionFormat::Json);
                tool["tokens"] = wire::definition_tokens(&spec, DefinitionFormat::Openai).into();
                tool
            });
            let tools: Vec<_> = tools.collect();
            let sum: u64 = tools.iter().filter_map(|it| it["tokens"].as_u64()).sum();
            Ok(json!({ "dialect": name, "tokens": sum, "tools": tools }))
        });
        let listed: Vec<_> = listed.collect::<Result<_, ApiError>>()?;
        Ok(json!({ "default": settings.dialect(), "encoding": "o200k_base", "dialects": listed }))
    }

    /// Runs one call. A failed tool is a normal response.
    pub(super) async fn call(&self, body: &[u8]) -> Result<Value, ApiError> {
        let order: CallBody = parse_body(body)?;
        let dialect = match &order.dialect {
            Some(name) => find_dialect(name)?.name,
            None => self.runtime.settings().dialect(),
        };
        if self.shutdown.is_cancelled() {
            return Err(ApiError::unavailable("the server is about to end"));
        }
        let consent = if order.ask { CallConsent::Required } else { CallConsent::Implied };
        let reply = self.calls.call(dialect, consent, &order.tool, Value::Object(order.args)).await?;
        let mut told = call::reply_json(&reply);
        told["dialect"] = dialect.into();
        told["tool"] = order.tool.into();
        Ok(told)
    }

    /// Runs the checks of `helve doctor`.
    pub(super) async fn doctor_report(&self) -> Result<Value, ApiError> {
        let _turn = self.doctor_permit.acquire().await.map_err(ApiError::internal)?;
        let bench = self.runtime.clone();
        tokio::task::spawn_blocking(move || doctor::report(bench.settings())).await.map_err(ApiError::internal)
    }
}

/// A dialect by its name.
pub(super) fn find_dialect(name: &str) -> Result<Dialect, ApiError> {
    helve_dialects::by_name(name).ok_or_else(|| {
        let all: Vec<_> = helve_dialects::all().iter().map(|it| it.name).collect();
        ApiError::bad_request(format!("there is no such dialect; there are {}", all.join(", ")))
    })
}
