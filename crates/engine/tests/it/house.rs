//! Test support: a dialect with three tools, a session without ports, and an event listener.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use helve_contract::{
    Call, Effects, Entry, Error, PathRules, PathStyle, PortSet, Ports, Reply, Session, Spec, TruncateSide, Workspace,
    events::EventRecord, ports::NoHost,
};
use helve_engine::{Dialect, Engine, EngineBuilder, EventLog, Limit, MessageTemplates, Mode, OutputLimits, Role};
use serde_json::{Value, json};

/// The received events, in order.
#[derive(Clone, Default)]
pub(crate) struct Ear(Arc<Mutex<Vec<Value>>>);

impl Ear {
    pub(crate) fn events(&self) -> EventLog {
        let heard = self.0.clone();
        EventLog::callback(
            "run-1",
            Arc::new(move |event: &EventRecord| heard.lock().unwrap().push(serde_json::to_value(event).unwrap())),
        )
    }

    pub(crate) fn heard(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }
}

/// `Say` is read-only, `Put` changes things, `Run` executes.
pub(crate) fn dialect() -> Dialect {
    Dialect {
        name: "tiny",
        description: "three tools",
        tools: vec![say(), put(), run()],
        external: &[],
        roles: &[
            Role { name: "quiet", tools: &["Say"], imports: true },
            Role { name: "all", tools: &["*"], imports: true },
        ],
        default_role: None,
        path_style: PathStyle::Relative,
        limits: OutputLimits {
            general: Limit::bytes(2000).lines(5),
            by_tool: const { &[("Put", Limit::bytes(400).lines(5))] },
            paged: &[],
            ranges: &[],
        },
        templates: MessageTemplates {
            error: |tool, error| match error {
                Error::UnknownTool(text) => Reply::error(format!("Tool not found: {text}")),
                error => Reply::error(format!("{tool}: {error}")),
            },
            notice: |notice| format!("[{} of {} bytes]", notice.kept_size.unwrap_or_default(), notice.truncation.bytes),
            error_prefix: "",
            cancelled: "Cancelled",
        },
        mode: Mode::Open,
    }
}

pub(crate) fn spec(name: &str, effects: Effects, schema: Value) -> Spec {
    Spec {
        name: name.into(),
        aliases: Vec::new(),
        rule_names: Vec::new(),
        annotations: None,
        description: String::new(),
        input_schema: schema,
        output_schema: None,
        effects,
        tier: None,
        timeout: Duration::from_secs(60),
        needs: PortSet::NONE,
        profile: None,
        access: None,
    }
}

fn say() -> Entry {
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string" }, "times": { "type": "integer", "minimum": 1 } },
        "required": ["text"]
    });
    Entry::dynamic(spec("Say", Effects::READS, schema), |args, call| {
        async move {
            let text = args["text"].as_str().unwrap_or_default();
            match text {
                "panic" => panic!("at the disco"),
                "break" => Err(Error::Internal(anyhow::anyhow!("the disk /dev/sda is on fire"))),
                "fail" => Err(Error::failed("it did not work; try another word")),
                "wait" => std::future::pending().await,
                "give up" => {
                    call.cancel.cancel();
                    std::future::pending().await
                }
                text => Ok(Reply::from(vec![text; args["times"].as_u64().unwrap_or(1) as usize].join("\n"))),
            }
        }
        .boxed()
    })
    .with_aliases(&["Speak"])
}

fn put() -> Entry {
    let schema = json!({
        "type": "object",
        "properties": { "file_path": { "type": "string" }, "content": { "type": "string" } },
        "required": ["file_path", "content"]
    });
    Entry::dynamic(spec("Put", Effects::READS | Effects::WRITES, schema), |args, _| {
        async move { Ok(Reply::json(args)) }.boxed()
    })
}

fn run() -> Entry {
    let schema =
        json!({ "type": "object", "properties": { "command": { "type": "string" } }, "required": ["command"] });
    Entry::dynamic(spec("Run", Effects::EXECUTES, schema), |args, _| {
        async move {
            Ok(Reply {
                truncate_side: TruncateSide::KeepTail,
                exit_code: Some(0),
                ..Reply::from(args["command"].as_str().unwrap_or_default())
            })
        }
        .boxed()
    })
}

pub(crate) fn builder() -> EngineBuilder {
    Engine::builder(dialect())
}

pub(crate) fn engine() -> Engine {
    builder().build().unwrap()
}

pub(crate) fn call() -> Call {
    let ports = Ports::new(Arc::new(NoHost));
    let workspace = Workspace::new([], PathRules::default(), PathStyle::Relative);
    Call::new("call-1", Arc::new(Session::new("s", workspace, ports)))
}
