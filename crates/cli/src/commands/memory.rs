//! `helve memory`: stored notes, and quarantined ones that wait for release.

use std::process::ExitCode;

use helve_contract::{
    ids::{self, Named},
    ports::Note,
};
use serde_json::json;

use super::SettingsArgs;
use crate::{
    fault::{CliError, CommandResult},
    print::{TextStyle, escape_for_terminal, styled},
    say, setup, state,
};

/// The maximum number of notes to read.
const MAX_NOTES: u64 = 100_000;

/// Notes: list them, let one go that is held back, forget one.
#[derive(clap::Args)]
#[command(after_help = "\
A note that was saved after words of a stranger had come into the conversation (a page, a search, an MCP server) is
held back: searches do not find it until you let it go.

Examples:
  helve memory list
  helve memory held
  helve memory release note-3f2a…
  helve memory forget note-3f2a…")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: MemoryCommand,
}

#[derive(clap::Subcommand)]
enum MemoryCommand {
    /// List notes, the newest first.
    #[command(after_help = "Example:\n  helve memory list --most 50")]
    List(NoteListArgs),
    /// List the notes that are held back, with where the words before them came from.
    #[command(after_help = "Example:\n  helve memory held")]
    Held(NoteListArgs),
    /// Let a note that is held back be found from now on.
    #[command(after_help = "Example:\n  helve memory release note-3f2a…")]
    Release(NoteIdArgs),
    /// Forget a note for good.
    #[command(after_help = "Example:\n  helve memory forget note-3f2a…")]
    Forget(NoteIdArgs),
}

#[derive(clap::Args)]
struct NoteListArgs {
    #[command(flatten)]
    choice: SettingsArgs,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct NoteIdArgs {
    #[command(flatten)]
    choice: SettingsArgs,
    /// The note's id.
    id: String,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        match self.command {
            MemoryCommand::List(listing) => list(&listing, |_| true)?,
            MemoryCommand::Held(listing) => list(&listing, |note| note.is_quarantined)?,
            MemoryCommand::Release(NoteIdArgs { choice, id }) => {
                let (id, freed) = with_store(&choice, async |store, user| {
                    let id = whole_id(store, user, id).await?;
                    let freed = store.release_note(user, &id).await?;
                    Ok((id, freed))
                })?;
                if !freed {
                    return Err(CliError::failed(format!(
                        "no note {} is held back; `helve memory held` lists those that are",
                        escape_for_terminal(&id)
                    )));
                }
                say!("{id} is found from now on");
            }
            MemoryCommand::Forget(NoteIdArgs { choice, id }) => {
                let (id, gone) = with_store(&choice, async |store, user| {
                    let id = whole_id(store, user, id).await?;
                    let gone = store.delete_note(user, &id).await?;
                    Ok((id, gone))
                })?;
                if !gone {
                    return Err(CliError::failed(format!(
                        "there is no note {}; `helve memory list` lists them",
                        escape_for_terminal(&id)
                    )));
                }
                say!("{id} is forgotten");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(listing: &NoteListArgs, wanted: fn(&Note) -> bool) -> Result<(), CliError> {
    let (notes, _) = with_store(&listing.choice, async |store, user| Ok(store.notes(user, 0, MAX_NOTES).await?))?;
    let notes: Vec<&Note> = notes.iter().filter(|note| wanted(note)).take(listing.most).collect();
    if listing.json {
        let rows = notes.iter().map(|note| {
            json!({
                "id": note.id, "text": note.text, "tags": note.tags, "origin": note.origin.to_string(), "held": note.is_quarantined,
                "created": note.created, "updated": note.updated,
            })
        });
        say!("{}", serde_json::Value::Array(rows.collect()));
        return Ok(());
    }
    for note in notes {
        let held = if note.is_quarantined { ", held back" } else { "" };
        let tags = if note.tags.is_empty() { String::new() } else { format!(" [{}]", note.tags.join(", ")) };
        say!(
            "{}",
            styled(TextStyle::Bold, &escape_for_terminal(&format!("{} ({}{held}){tags}", note.id, note.origin)))
        );
        say!("  {}", escape_for_terminal(&note.text).replace('\n', "\n  "));
    }
    Ok(())
}

/// The id of a note from its id, or a prefix or suffix of it; else the text itself.
async fn whole_id(store: &dyn helve_contract::ports::Store, user: &str, text: String) -> Result<String, CliError> {
    let (notes, _) = store.notes(user, 0, MAX_NOTES).await?;
    match ids::find(&text, notes.iter().map(|note| (note.id.as_str(), note.id.strip_prefix("note-"), note))) {
        Named::One(note) => Ok(note.id.clone()),
        Named::Nothing => Ok(text),
        Named::Several => Err(CliError::usage(format!(
            "several notes have an id that begins or ends with {}; write more of it, best its end",
            escape_for_terminal(&text)
        ))),
    }
}

fn with_store<T>(
    choice: &SettingsArgs,
    work: impl AsyncFnOnce(&dyn helve_contract::ports::Store, &str) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let settings = choice.load_and_warn()?;
    let (state, _) = state::open(&settings)?;
    let store = setup::open_store(&settings, &state);
    setup::runtime()?.block_on(work(&*store, &setup::user(&settings)))
}
