//! `helve sessions`: the conversations that are kept.

use std::{process::ExitCode, sync::Arc};

use helve_contract::ports::{Message, Part, SessionRecord, Speaker, Store, Which};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::json;

use super::{Choice, chat};
use crate::{
    fault::{Fault, Outcome},
    print::{Ink, bytes, harmless, ink},
    remark, say, setup, talk,
    terminal::{calling, count, short},
};

/// How many messages are read at once.
const PAGE: usize = 500;

/// Conversations: list, read, resume, export, delete.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve sessions list
  helve sessions show 3f2a               the beginning of an id is enough
  helve sessions resume 3f2a
  helve sessions export 3f2a --jsonl > talk.jsonl")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List conversations, the last used first.
    List {
        #[command(flatten)]
        choice: Choice,
        /// Those of this workspace only.
        #[arg(long)]
        here: bool,
        /// Those too that another conversation started.
        #[arg(long)]
        children: bool,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 20)]
        most: u64,
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a conversation for people.
    Show {
        #[command(flatten)]
        choice: Choice,
        /// The conversation; the beginning of its id is enough.
        id: String,
    },
    /// Go on with a conversation, as `helve chat` does.
    Resume {
        #[command(flatten)]
        chat: chat::Flags,
        /// The conversation; the beginning of its id is enough.
        id: String,
    },
    /// Print a conversation with everything in it.
    Export {
        #[command(flatten)]
        choice: Choice,
        /// The conversation; the beginning of its id is enough.
        id: String,
        /// One line for what is known of it and one for each message, instead of one JSON document.
        #[arg(long)]
        jsonl: bool,
    },
    /// Delete a conversation and those that it started.
    Delete {
        #[command(flatten)]
        choice: Choice,
        /// The conversation; the beginning of its id is enough.
        id: String,
    },
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self.command {
            Command::List { choice, here, children, most, json } => {
                let settings = choice.settings()?;
                let workspace = here.then(|| settings.workspace.to_string_lossy().into_owned());
                let user = Some(setup::user(&settings));
                let which = Which { user, workspace, top_only: !children, most, ..Which::default() };
                let found = with_store(&choice, async |store, _| Ok(store.conversations(&which).await?))?;
                list(&found.0, found.1, json);
            }
            Command::Show { choice, id } => with_store(&choice, async |store, user| show(store, &id, user).await)?,
            Command::Resume { chat, id } => return chat.run(Some(id)),
            Command::Export { choice, id, jsonl } => {
                with_store(&choice, async |store, user| export(store, &id, user, jsonl).await)?;
            }
            Command::Delete { choice, id } => {
                let record = with_store(&choice, async |store, user| {
                    let record = talk::named(store, &id, user).await?;
                    store.discard(&record.id).await?;
                    Ok(record)
                })?;
                say!("deleted {} ({})", record.id, short(&record.title, 80));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Does something with what is kept, for the user of the settings.
fn with_store<T>(choice: &Choice, work: impl AsyncFnOnce(&dyn Store, &str) -> Result<T, Fault>) -> Result<T, Fault> {
    let settings = choice.settings()?;
    let (state, _) = crate::state::open(&settings)?;
    let store: Arc<dyn Store> = setup::store(&settings, &state);
    setup::runtime()?.block_on(work(&*store, &setup::user(&settings)))
}

fn list(records: &[SessionRecord], total: u64, as_json: bool) {
    if as_json {
        say!("{}", json!({ "total": total, "sessions": records }));
        return;
    }
    say!("{}", ink(Ink::Bold, HEADS));
    for record in records {
        say!("{}", row(record));
    }
    let more = total.saturating_sub(records.len() as u64);
    if more > 0 {
        remark!("{more} more; --most shows them");
    } else if total == 0 {
        remark!("no conversations yet; `helve chat` begins one");
    }
}

/// The heads of the columns of a list.
pub(crate) const HEADS: &str =
    "ID                                    LAST USED         MESSAGES  TOKENS     COST  TITLE";

/// A conversation on one line of a list.
pub(crate) fn row(record: &SessionRecord) -> String {
    let tokens = record.spent.prompt_tokens + record.spent.completion_tokens;
    let cost = if record.spent.cost > 0.0 { format!("${:.4}", record.spent.cost) } else { "-".to_owned() };
    format!(
        "{:36}  {}  {:>8}  {:>6}  {cost:>7}  {}",
        harmless(&record.id),
        local(record.updated),
        record.messages,
        count(tokens),
        short(&record.title, 60)
    )
}

fn local(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Hands every message over in order, a page at a time.
async fn each(store: &dyn Store, id: &str, mut hand: impl FnMut(&Message)) -> Result<(), Fault> {
    // Pages come from the end; only where they begin is remembered.
    let (mut starts, mut before) = (Vec::new(), None);
    loop {
        let page = store.messages(id, before, PAGE).await?;
        let Some(first) = page.first() else { break };
        starts.push(before);
        before = Some(first.seq);
    }
    for before in starts.into_iter().rev() {
        store.messages(id, before, PAGE).await?.iter().for_each(&mut hand);
    }
    Ok(())
}

async fn show(store: &dyn Store, id: &str, user: &str) -> Result<(), Fault> {
    let record = talk::named(store, id, user).await?;
    say!("{}", ink(Ink::Bold, &short(&record.title, 200)));
    say!("{}", ink(Ink::Dim, &format!("{} · {} · {} · {}", record.id, record.model, record.dialect, record.workspace)));
    each(store, &record.id, |message| {
        let who = match message.role {
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
            Speaker::Tool => "tool",
            Speaker::System => "helve",
        };
        for text in message.parts.iter().filter_map(words) {
            say!("\n{} {}", ink(Ink::Yellow, who), ink(Ink::Dim, &local(message.created)));
            say!("{}", harmless(text.trim_end()));
        }
    })
    .await
}

/// A part in words.
fn words(part: &Part) -> Option<String> {
    Some(match part {
        Part::Text { text } => text.clone(),
        Part::Reasoning { .. } | Part::Opaque { .. } => return None,
        Part::ToolCall { name, input, .. } => format!("→ {}", calling(name, input)),
        Part::ToolResult { name, content, is_error, .. } => {
            let shown: Vec<&str> = content.lines().take(12).collect();
            let more = content.lines().count().saturating_sub(shown.len());
            let more = if more > 0 { format!("\n⟨{more} more lines⟩") } else { String::new() };
            format!("{} {name}\n{}{more}", if *is_error { "✗" } else { "✓" }, shown.join("\n"))
        }
        Part::Finish { reason } if reason.is_usual() => return None,
        Part::Finish { reason } => format!("⟨{reason}⟩"),
        Part::Binary { path, mime_type, .. } => format!("[{mime_type} {path}]"),
    })
}

async fn export(store: &dyn Store, id: &str, user: &str, lines: bool) -> Result<(), Fault> {
    let record = talk::named(store, id, user).await?;
    if lines {
        say!("{}", json!({ "type": "session", "session": record }));
        return each(store, &record.id, |message| {
            say!("{}", json!({ "type": "message", "message": message }));
        })
        .await;
    }
    let mut first = true;
    bytes(format!("{{\"session\":{},\"messages\":[", json!(record)).as_bytes());
    each(store, &record.id, |message| {
        bytes(if first { b"\n" } else { b",\n" });
        first = false;
        bytes(json!(message).to_string().as_bytes());
    })
    .await?;
    say!("\n]}}");
    Ok(())
}
