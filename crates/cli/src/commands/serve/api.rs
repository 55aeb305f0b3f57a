//! `/api`: tools, calls, conversations, schedules, memory and the machine, as JSON.

use helve_contract::ports::{Recall, Recalled, Source, Which};
use helve_engine::Dialect;
use helve_mcp::HttpReply;
use helve_tools::schedule::shown;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    say::{self, No},
    site::{Query, Site, number},
};
use crate::{
    commands::{call, doctor, schedule},
    setup,
    wire::{self, Format},
};

/// How many conversations and messages are told at once.
const MOST: u64 = 500;
/// How many passages of memory.
const PASSAGES: usize = 20;
/// Whose notes are looked for: those of the one user.
const USER: &str = "user";

/// A call as it comes in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    dialect: Option<String>,
    tool: String,
    #[serde(default)]
    args: Map<String, Value>,
}

impl Site {
    /// What a model sees, and what it costs: of one dialect, or of all.
    pub(super) fn tools(&self, query: &Query) -> Result<Value, No> {
        let dialects = match query.get("dialect") {
            Some(name) => vec![named(name)?],
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
    pub(super) async fn call(&self, body: &[u8]) -> Result<HttpReply, No> {
        let asked: Asked = serde_json::from_slice(body).map_err(|error| No::bad(format!("the body: {error}")))?;
        let dialect = match &asked.dialect {
            Some(name) => named(name)?.name,
            None => self.bench.settings().dialect(),
        };
        if self.closing.is_cancelled() {
            return Err(No::busy("the server is about to end"));
        }
        let reply = self.calls.call(dialect, &asked.tool, Value::Object(asked.args)).await?;
        let mut told = call::whole(&reply);
        told["dialect"] = dialect.into();
        told["tool"] = asked.tool.into();
        Ok(say::json(StatusCode::OK, &told))
    }

    /// Conversations, the last used first.
    pub(super) async fn sessions(&self, query: &Query) -> Result<Value, No> {
        let which = Which {
            parent: query.get("parent").cloned(),
            top_only: !query.contains_key("parent"),
            offset: number(query, "offset", 0)?.min(i64::MAX as u64),
            most: number(query, "most", 50)?.min(MOST),
            ..Which::default()
        };
        let (sessions, total) = self.bench.store().conversations(&which).await?;
        Ok(json!({ "total": total, "sessions": sessions }))
    }

    /// A conversation with its last messages, or with those before one of them.
    pub(super) async fn session(&self, id: &str, query: &Query) -> Result<Value, No> {
        let store = self.bench.store();
        let found = store.conversation(id).await?;
        let found = found.ok_or_else(|| No::missing("there is no such conversation; /api/sessions lists them"))?;
        let before = number(query, "before", i64::MAX as u64)?.min(i64::MAX as u64);
        let most = number(query, "most", 200)?.min(MOST) as usize;
        let messages = store.messages(id, Some(before), most).await?;
        Ok(json!({ "session": found, "messages": messages }))
    }

    /// Schedules, newest first.
    pub(super) async fn schedules(&self) -> Result<Value, No> {
        let all = schedule::all(&**self.bench.store()).await.map_err(No::broken)?;
        Ok(json!({ "schedules": all.iter().map(shown).collect::<Vec<_>>() }))
    }

    /// What fits a question; without one, the newest notes.
    pub(super) async fn memory(&self, query: &Query) -> Result<Value, No> {
        let store = self.bench.store();
        let question = query.get("q").map(|it| it.trim()).unwrap_or_default();
        if question.is_empty() {
            let (notes, total) = store.notes(USER, 0, PASSAGES as u64).await?;
            let notes = notes.iter().map(|note| {
                json!({
                    "source": { "note": note.id }, "text": note.text, "tags": note.tags, "score": null,
                    "created": note.created, "updated": note.updated,
                })
            });
            return Ok(json!({ "total": total, "found": notes.collect::<Vec<_>>() }));
        }
        if question.len() > 2000 {
            return Err(No::bad("q has 2000 bytes at most"));
        }
        let recall = Recall {
            text: question.to_owned(),
            user: Some(USER.to_owned()),
            conversations: true,
            most: PASSAGES,
            ..Recall::default()
        };
        let found: Vec<_> = store.recall(&recall).await?.iter().map(passage).collect();
        Ok(json!({ "total": found.len(), "found": found }))
    }

    /// What works on this machine, found out by trying it.
    pub(super) async fn machine(&self) -> Result<Value, No> {
        let _turn = self.doctor.acquire().await.map_err(No::broken)?;
        let bench = self.bench.clone();
        tokio::task::spawn_blocking(move || doctor::report(bench.settings())).await.map_err(No::broken)
    }
}

fn named(name: &str) -> Result<Dialect, No> {
    helve_dialects::by_name(name).ok_or_else(|| {
        let all: Vec<_> = helve_dialects::all().iter().map(|it| it.name).collect();
        No::bad(format!("there is no such dialect; there are {}", all.join(", ")))
    })
}

fn passage(found: &Recalled) -> Value {
    let source = match &found.source {
        Source::Note(id) => json!({ "note": id }),
        Source::File { path, first, last } => json!({ "file": path, "first": first, "last": last }),
        Source::Conversation { session, seq } => json!({ "session": session, "seq": seq }),
    };
    json!({
        "source": source, "text": found.text, "tags": found.tags, "score": found.score,
        "created": found.created, "updated": found.updated,
    })
}
