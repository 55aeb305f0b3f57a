//! `helve memory`: the notes that are kept, and those that wait for a yes.

use std::process::ExitCode;

use helve_contract::{
    ids::{self, Named},
    ports::Note,
};
use serde_json::json;

use super::Choice;
use crate::{
    fault::{Fault, Outcome},
    print::{Ink, harmless, ink},
    say, setup, state,
};

/// How many notes are looked at.
const MOST: u64 = 100_000;

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
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List notes, the newest first.
    #[command(after_help = "Example:\n  helve memory list --most 50")]
    List(Listing),
    /// List the notes that are held back, with where the words before them came from.
    #[command(after_help = "Example:\n  helve memory held")]
    Held(Listing),
    /// Let a note that is held back be found from now on.
    #[command(after_help = "Example:\n  helve memory release note-3f2a…")]
    Release(One),
    /// Forget a note for good.
    #[command(after_help = "Example:\n  helve memory forget note-3f2a…")]
    Forget(One),
}

#[derive(clap::Args)]
struct Listing {
    #[command(flatten)]
    choice: Choice,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct One {
    #[command(flatten)]
    choice: Choice,
    /// The note's id.
    id: String,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self.command {
            Command::List(listing) => list(&listing, |_| true)?,
            Command::Held(listing) => list(&listing, |note| note.held)?,
            Command::Release(One { choice, id }) => {
                let (id, freed) = with_notes(&choice, async |store, user| {
                    let id = whole_id(store, user, id).await?;
                    let freed = store.release_note(user, &id).await?;
                    Ok((id, freed))
                })?;
                if !freed {
                    return Err(Fault::failed(format!(
                        "no note {} is held back; `helve memory held` lists those that are",
                        harmless(&id)
                    )));
                }
                say!("{id} is found from now on");
            }
            Command::Forget(One { choice, id }) => {
                let (id, gone) = with_notes(&choice, async |store, user| {
                    let id = whole_id(store, user, id).await?;
                    let gone = store.forget_note(user, &id).await?;
                    Ok((id, gone))
                })?;
                if !gone {
                    return Err(Fault::failed(format!(
                        "there is no note {}; `helve memory list` lists them",
                        harmless(&id)
                    )));
                }
                say!("{id} is forgotten");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(listing: &Listing, wanted: fn(&Note) -> bool) -> Result<(), Fault> {
    let (notes, _) = with_notes(&listing.choice, async |store, user| Ok(store.notes(user, 0, MOST).await?))?;
    let notes: Vec<&Note> = notes.iter().filter(|note| wanted(note)).take(listing.most).collect();
    if listing.json {
        let rows = notes.iter().map(|note| {
            json!({
                "id": note.id, "text": note.text, "tags": note.tags, "origin": note.origin.to_string(), "held": note.held,
                "created": note.created, "updated": note.updated,
            })
        });
        say!("{}", serde_json::Value::Array(rows.collect()));
        return Ok(());
    }
    for note in notes {
        let held = if note.held { ", held back" } else { "" };
        let tags = if note.tags.is_empty() { String::new() } else { format!(" [{}]", note.tags.join(", ")) };
        say!("{}", ink(Ink::Bold, &harmless(&format!("{} ({}{held}){tags}", note.id, note.origin))));
        say!("  {}", harmless(&note.text).replace('\n', "\n  "));
    }
    Ok(())
}

/// The id of the note that a text names by its id, or by the beginning or end of it; else the text itself.
async fn whole_id(store: &dyn helve_contract::ports::Store, user: &str, text: String) -> Result<String, Fault> {
    let (notes, _) = store.notes(user, 0, MOST).await?;
    match ids::find(&text, notes.iter().map(|note| (note.id.as_str(), note.id.strip_prefix("note-"), note))) {
        Named::One(note) => Ok(note.id.clone()),
        Named::Nothing => Ok(text),
        Named::Several => Err(Fault::usage(format!(
            "several notes have an id that begins or ends with {}; write more of it, best its end",
            harmless(&text)
        ))),
    }
}

fn with_notes<T>(
    choice: &Choice,
    work: impl AsyncFnOnce(&dyn helve_contract::ports::Store, &str) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let settings = choice.settings()?;
    let (state, _) = state::open(&settings)?;
    let store = setup::store(&settings, &state);
    setup::runtime()?.block_on(work(&*store, &setup::user(&settings)))
}
