//! Five tools that do next to nothing.

use std::{path::Path, sync::Arc, time::Duration};

use futures::FutureExt;
use helve_contract::{
    Call, Effects, Entry, Error, FileErrorKind, Media, PathRules, PathStyle, PortSet, Ports, Reply, Result, Root,
    SafePath, Session, Spec, Workspace, async_trait,
    ports::{
        DirEntry, Expect, FileChange, FileChunk, FileKind, FileStamp, FindQuery, FindResult, GrepQuery, GrepResult,
        Host, Process, ProcessSpec, Span, Stat, WriteOutcome,
    },
};
use helve_engine::{Dialect, Limit, MessageTemplates, Mode, OutputLimits};
use serde_json::{Value, json};

pub(crate) fn dialect() -> Dialect {
    Dialect {
        name: "tiny",
        description: "For tests.",
        tools: tools(),
        external: &[],
        roles: &[],
        default_role: None,
        path_style: PathStyle::Absolute,
        limits: OutputLimits { general: Limit::bytes(1 << 20).lines(100_000), by_tool: &[], paged: &[], ranges: &[] },
        templates: MessageTemplates {
            error: |_, error| Reply::error(error.to_string()),
            error_prefix: "",
            notice: |_| "[cut]".into(),
            cancelled: "cancelled",
        },
        mode: Mode::Open,
    }
}

fn tools() -> Vec<Entry> {
    let text = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    let none = json!({ "type": "object", "properties": {} });
    vec![
        Entry::dynamic(spec("echo", "Says it back.", &text, Effects::READS), |args, _| {
            async move { Ok(Reply::from(word(&args))) }.boxed()
        }),
        Entry::dynamic(
            Spec {
                output_schema: Some(text.clone()),
                ..spec("shaped", "Says it back as data.", &text, Effects::READS)
            },
            |args, _| async move { Ok(Reply::json(json!({ "text": word(&args) }))) }.boxed(),
        ),
        Entry::dynamic(spec("draw", "Gives a picture.", &none, Effects::READS), |_, _| {
            async {
                Ok(Reply { media: vec![Media { mime: "image/png".into(), bytes: vec![1, 2, 3] }], ..Reply::default() })
            }
            .boxed()
        }),
        Entry::dynamic(spec("count", "Counts to three.", &none, Effects::READS), |_, call: Call| {
            async move {
                for step in ["one", "two", "three"] {
                    call.report_progress(step);
                    tokio::task::yield_now().await;
                }
                Ok("counted".into())
            }
            .boxed()
        }),
        Entry::dynamic(spec("wait", "Waits to be cancelled.", &none, Effects::READS), |_, call: Call| {
            async move {
                call.report_progress("waiting");
                call.cancel.cancelled().await;
                Err(Error::Cancelled)
            }
            .boxed()
        }),
        Entry::dynamic(spec("wipe_out", "Removes all.", &none, Effects::WRITES | Effects::DESTROYS), |_, _| {
            async { Ok("gone".into()) }.boxed()
        }),
    ]
}

fn word(args: &Value) -> String {
    args["text"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn spec(name: &str, description: &str, schema: &Value, effects: Effects) -> Spec {
    Spec {
        name: name.into(),
        aliases: Vec::new(),
        rule_names: Vec::new(),
        annotations: None,
        description: description.into(),
        input_schema: schema.clone(),
        output_schema: None,
        effects,
        tier: None,
        timeout: Duration::from_secs(60),
        needs: PortSet::NONE,
        profile: None,
        access: None,
    }
}

pub(crate) fn session() -> Arc<Session> {
    let ports = Ports::new(Arc::new(TwoFiles));
    let workspace = Workspace::new([Root::writable("/desk")], PathRules::default(), PathStyle::Absolute);
    Arc::new(Session::new("s", workspace, ports))
}

/// A host with a text and an image in its only directory.
struct TwoFiles;

const FILES: [(&str, &[u8]); 3] = [("a b.txt", b"hello\n"), ("p.png", b"\x89PNG\0\xff"), ("memory/note.md", b"note\n")];

fn nothing<T>(path: &SafePath) -> Result<T> {
    Err(Error::file(path, FileErrorKind::Missing { near: Vec::new() }))
}

fn closed<T>() -> Result<T> {
    Err(Error::failed("nothing of that here"))
}

#[async_trait]
impl Host for TwoFiles {
    fn name(&self) -> &'static str {
        "two files"
    }
    async fn stat(&self, path: &SafePath) -> Result<Stat> {
        nothing(path)
    }
    async fn read(&self, path: &SafePath, _: Span) -> Result<FileChunk> {
        match FILES.iter().find(|(name, _)| path.relative() == Path::new(name)) {
            Some((_, bytes)) => {
                Ok(FileChunk { bytes: bytes.to_vec(), size: bytes.len() as u64, stamp: FileStamp::default() })
            }
            None => nothing(path),
        }
    }
    async fn write(&self, _: &SafePath, _: &[u8], _: Expect) -> Result<WriteOutcome> {
        closed()
    }
    async fn apply_changes(&self, _: Vec<FileChange>) -> Result<Vec<String>> {
        closed()
    }
    async fn remove(&self, _: &SafePath) -> Result<FileKind> {
        closed()
    }
    async fn list(&self, path: &SafePath) -> Result<Vec<DirEntry>> {
        let item = |name: &str, kind, size| DirEntry { name: name.into(), kind, size, modified: None, target: None };
        let note = item("note.md", FileKind::File, 5);
        if path.relative() == Path::new("memory") {
            return Ok(vec![note, item("raw.bin", FileKind::File, 1), item("deep", FileKind::Folder, 0)]);
        }
        let files = FILES.iter().filter(|it| !it.0.contains('/'));
        let files = files.map(|(name, bytes)| item(name, FileKind::File, bytes.len() as u64));
        Ok(files.chain([item("memory", FileKind::Folder, 0)]).collect())
    }
    async fn find(&self, _: &SafePath, _: &FindQuery) -> Result<FindResult> {
        closed()
    }
    async fn grep(&self, _: &SafePath, _: &GrepQuery) -> Result<GrepResult> {
        closed()
    }
    async fn spawn(&self, _: &ProcessSpec) -> Result<Box<dyn Process>> {
        closed()
    }
}

/// A server's words without the frame that tells them from the user's. Words of our own have none.
pub(crate) fn unframed(mut reply: Reply) -> Reply {
    let framed = reply.text.strip_prefix("[Text of the MCP server ").and_then(|rest| {
        let (head, rest) = rest.split_once("]\n")?;
        let mark = head.rsplit(' ').next()?;
        rest.strip_suffix(&format!("\n[{mark}]"))
    });
    if let Some(inside) = framed.map(str::to_owned) {
        reply.text = inside;
    }
    reply
}
