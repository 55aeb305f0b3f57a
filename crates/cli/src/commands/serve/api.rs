//! `/api`: tools, calls and the machine, as JSON.

use helve_engine::Dialect;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    calls::Consent,
    routes::{Query, parsed},
    say::No,
    site::Site,
};
use crate::{
    commands::{call, doctor},
    setup,
    wire::{self, Format},
};

/// A call as it comes in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    dialect: Option<String>,
    tool: String,
    #[serde(default)]
    args: Map<String, Value>,
    /// Whether it is asked at the page first, where the mode says so.
    #[serde(default)]
    ask: bool,
}

impl Site {
    /// What a model sees, and what it costs: of one dialect, or of all.
    pub(super) fn tools(&self, query: &Query) -> Result<Value, No> {
        let dialects = match query.get("dialect") {
            Some(name) => vec![dialect(name)?],
            None => helve_dialects::all(),
        };
        let settings = self.bench.settings();
        let listed = dialects.into_iter().map(|dialect| {
            let name = dialect.name;
            let engine = setup::listing(settings, dialect).map_err(No::broken)?;
            let tools = engine.specs().map(|spec| {
                let mut tool = wire::definition(&spec, Format::Json);
                tool["tokens"] = wire::bill(&spec, Format::Openai).into();
                tool
            });
            let tools: Vec<_> = tools.collect();
            let sum: u64 = tools.iter().filter_map(|it| it["tokens"].as_u64()).sum();
            Ok(json!({ "dialect": name, "tokens": sum, "tools": tools }))
        });
        let listed: Vec<_> = listed.collect::<Result<_, No>>()?;
        Ok(json!({ "default": settings.dialect(), "encoding": "o200k_base", "dialects": listed }))
    }

    /// One call. A tool that failed is an answer like any other.
    pub(super) async fn call(&self, body: &[u8]) -> Result<Value, No> {
        let order: Order = parsed(body)?;
        let dialect = match &order.dialect {
            Some(name) => dialect(name)?.name,
            None => self.bench.settings().dialect(),
        };
        if self.closing.is_cancelled() {
            return Err(No::busy("the server is about to end"));
        }
        let consent = if order.ask { Consent::Asked } else { Consent::Given };
        let reply = self.calls.call(dialect, consent, &order.tool, Value::Object(order.args)).await?;
        let mut told = call::whole(&reply);
        told["dialect"] = dialect.into();
        told["tool"] = order.tool.into();
        Ok(told)
    }

    /// What works on this machine, found out by trying it.
    pub(super) async fn machine(&self) -> Result<Value, No> {
        let _turn = self.doctor.acquire().await.map_err(No::broken)?;
        let bench = self.bench.clone();
        tokio::task::spawn_blocking(move || doctor::report(bench.settings())).await.map_err(No::broken)
    }
}

/// A dialect by its name.
pub(super) fn dialect(name: &str) -> Result<Dialect, No> {
    helve_dialects::by_name(name).ok_or_else(|| {
        let all: Vec<_> = helve_dialects::all().iter().map(|it| it.name).collect();
        No::bad(format!("there is no such dialect; there are {}", all.join(", ")))
    })
}
