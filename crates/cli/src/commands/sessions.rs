//! `helve sessions`: the stored sessions.

use std::{process::ExitCode, sync::Arc};

use helve_contract::ports::{Message, MessagePart, MessageRole, SessionFilter, SessionRecord, Store};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::json;

use super::{SettingsArgs, chat};
use crate::{
    fault::{CliError, CommandResult},
    print::{TextStyle, escape_for_terminal, styled, write_stdout},
    remark, say, setup, talk,
    terminal::{format_call, format_count, one_line},
};

/// How many messages are read at once.
const PAGE_SIZE: usize = 500;

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
    command: SessionsCommand,
}

#[derive(clap::Subcommand)]
enum SessionsCommand {
    /// List conversations, the last used first.
    List {
        #[command(flatten)]
        choice: SettingsArgs,
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
        choice: SettingsArgs,
        /// The conversation; the beginning of its id is enough.
        id: String,
    },
    /// Go on with a conversation, as `helve chat` does.
    Resume {
        #[command(flatten)]
        chat: chat::ChatArgs,
        /// The conversation; the beginning of its id is enough.
        id: String,
    },
    /// Print a conversation with everything in it.
    Export {
        #[command(flatten)]
        choice: SettingsArgs,
        /// The conversation; the beginning of its id is enough.
        id: String,
        /// One line for what is known of it and one for each message, instead of one JSON document.
        #[arg(long)]
        jsonl: bool,
    },
    /// Delete a conversation and those that it started.
    Delete {
        #[command(flatten)]
        choice: SettingsArgs,
        /// The conversation; the beginning of its id is enough.
        id: String,
    },
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        match self.command {
            SessionsCommand::List { choice, here, children, most, json } => {
                let settings = choice.load_and_warn()?;
                let workspace = here.then(|| settings.workspace.to_string_lossy().into_owned());
                let user = Some(setup::user(&settings));
                let which = SessionFilter {
                    user,
                    workspace,
                    top_level_only: !children,
                    limit: most,
                    ..SessionFilter::default()
                };
                let found = with_store(&choice, async |store, _| Ok(store.list_sessions(&which).await?))?;
                print_list(&found.0, found.1, json);
            }
            SessionsCommand::Show { choice, id } => {
                with_store(&choice, async |store, user| print_session(store, &id, user).await)?;
            }
            SessionsCommand::Resume { chat, id } => return chat.run(Some(id)),
            SessionsCommand::Export { choice, id, jsonl } => {
                with_store(&choice, async |store, user| export_session(store, &id, user, jsonl).await)?;
            }
            SessionsCommand::Delete { choice, id } => {
                let record = with_store(&choice, async |store, user| {
                    let record = talk::named(store, &id, user).await?;
                    store.delete_session(&record.id).await?;
                    Ok(record)
                })?;
                say!("deleted {} ({})", record.id, one_line(&record.title, 80));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Does something with what is kept, for the user of the settings.
fn with_store<T>(
    choice: &SettingsArgs,
    work: impl AsyncFnOnce(&dyn Store, &str) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let settings = choice.load_and_warn()?;
    let (state, _) = crate::state::open(&settings)?;
    let store: Arc<dyn Store> = setup::open_store(&settings, &state);
    setup::runtime()?.block_on(work(&*store, &setup::user(&settings)))
}

fn print_list(records: &[SessionRecord], total: u64, as_json: bool) {
    if as_json {
        say!("{}", json!({ "total": total, "sessions": records }));
        return;
    }
    say!("{}", styled(TextStyle::Bold, TABLE_HEADER));
    for record in records {
        say!("{}", format_row(record));
    }
    let more = total.saturating_sub(records.len() as u64);
    if more > 0 {
        remark!("{more} more; --most shows them");
    } else if total == 0 {
        remark!("no conversations yet; `helve chat` begins one");
    }
}

/// The heads of the columns of a list.
pub(crate) const TABLE_HEADER: &str =
    "ID                                    LAST USED         MESSAGES  TOKENS     COST  TITLE";

/// A session on one line of a list.
pub(crate) fn format_row(record: &SessionRecord) -> String {
    let tokens = record.spent.prompt_tokens + record.spent.completion_tokens;
    let cost = if record.spent.cost > 0.0 { format!("${:.4}", record.spent.cost) } else { "-".to_owned() };
    format!(
        "{:36}  {}  {:>8}  {:>6}  {cost:>7}  {}",
        escape_for_terminal(&record.id),
        format_local_time(record.updated),
        record.messages,
        format_count(tokens),
        one_line(&record.title, 60)
    )
}

fn format_local_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Passes every message to the callback in order, one page at a time.
async fn for_each_message(store: &dyn Store, id: &str, mut hand: impl FnMut(&Message)) -> Result<(), CliError> {
    // Pages are read from the end; only their start positions are kept.
    let (mut starts, mut before) = (Vec::new(), None);
    loop {
        let page = store.messages(id, before, PAGE_SIZE).await?;
        let Some(first) = page.first() else { break };
        starts.push(before);
        before = Some(first.seq);
    }
    for before in starts.into_iter().rev() {
        store.messages(id, before, PAGE_SIZE).await?.iter().for_each(&mut hand);
    }
    Ok(())
}

async fn print_session(store: &dyn Store, id: &str, user: &str) -> Result<(), CliError> {
    let record = talk::named(store, id, user).await?;
    say!("{}", styled(TextStyle::Bold, &one_line(&record.title, 200)));
    say!(
        "{}",
        styled(
            TextStyle::Dim,
            &format!("{} · {} · {} · {}", record.id, record.model, record.dialect, record.workspace)
        )
    );
    for_each_message(store, &record.id, |message| {
        let who = match message.role {
            MessageRole::User => "user",
            MessageRole::Assistant => "assistant",
            MessageRole::Tool => "tool",
            MessageRole::System => "helve",
        };
        for text in message.parts.iter().filter_map(part_text) {
            say!(
                "\n{} {}",
                styled(TextStyle::Yellow, who),
                styled(TextStyle::Dim, &format_local_time(message.created))
            );
            say!("{}", escape_for_terminal(text.trim_end()));
        }
    })
    .await
}

/// A part in words.
fn part_text(part: &MessagePart) -> Option<String> {
    Some(match part {
        MessagePart::Text { text } => text.clone(),
        MessagePart::Reasoning { .. } | MessagePart::Opaque { .. } => return None,
        MessagePart::ToolCall { name, input, .. } => format!("→ {}", format_call(name, input)),
        MessagePart::ToolResult { name, content, is_error, .. } => {
            let shown: Vec<&str> = content.lines().take(12).collect();
            let more = content.lines().count().saturating_sub(shown.len());
            let more = if more > 0 { format!("\n⟨{more} more lines⟩") } else { String::new() };
            format!("{} {name}\n{}{more}", if *is_error { "✗" } else { "✓" }, shown.join("\n"))
        }
        MessagePart::Finish { reason } if reason.is_usual() => return None,
        MessagePart::Finish { reason } => format!("⟨{reason}⟩"),
        MessagePart::Binary { path, mime_type, .. } => format!("[{mime_type} {path}]"),
    })
}

async fn export_session(store: &dyn Store, id: &str, user: &str, lines: bool) -> Result<(), CliError> {
    let record = talk::named(store, id, user).await?;
    if lines {
        say!("{}", json!({ "type": "session", "session": record }));
        return for_each_message(store, &record.id, |message| {
            say!("{}", json!({ "type": "message", "message": message }));
        })
        .await;
    }
    let mut first = true;
    write_stdout(format!("{{\"session\":{},\"messages\":[", json!(record)).as_bytes());
    for_each_message(store, &record.id, |message| {
        write_stdout(if first { b"\n" } else { b",\n" });
        first = false;
        write_stdout(json!(message).to_string().as_bytes());
    })
    .await?;
    say!("\n]}}");
    Ok(())
}
