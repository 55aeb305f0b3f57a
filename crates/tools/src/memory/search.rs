//! `memory_search`: searches notes and memory files.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Origin, Port, PortSet, Reply, Result, Tool,
    ports::{MemoryHit, MemoryQuery, MemorySource, NoteOrigin},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Looks for what memory holds about a question, by words and by meaning.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct MemorySearchTool {
    /// The question.
    pub query: String,
    /// How many hits at most.
    pub most: Option<usize>,
    /// The least score, from 0 to 1.
    pub least: Option<f32>,
    /// Also in the memory files of the workspace.
    #[serde(default)]
    pub files: bool,
    /// Also in what was said in conversations.
    #[serde(default)]
    pub conversations: bool,
    /// Only notes with all of these labels.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// The hits, best first.
#[derive(Clone, Debug)]
pub struct MemorySearchOutput(
    /// The hits.
    pub Vec<MemoryHit>,
);

impl Tool for MemorySearchTool {
    const NAME: &'static str = "memory_search";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Memory]);
    const TIMEOUT: Duration = Duration::from_secs(60);
    type Output = MemorySearchOutput;

    async fn run(self, call: &Call) -> Result<MemorySearchOutput> {
        let user = super::owner(call)?;
        let place = if self.files { Some(super::files::partition_key(call)?) } else { None };
        if let Some(place) = &place {
            super::files::sync(call, place).await?;
        }
        let question = MemoryQuery {
            text: self.query,
            user: Some(user.to_owned()),
            workspace: place,
            include_sessions: self.conversations,
            tags: super::tags::normalize_tags(&self.tags)?,
            limit: self.most.unwrap_or(6).clamp(1, 50),
            min_score: self.least.unwrap_or(0.0),
        };
        Ok(MemorySearchOutput(call.store().search_memory(&question).await?))
    }
}

impl MemorySearchOutput {
    /// The form of 000: origin, score and text of each hit.
    #[must_use]
    pub fn lines(&self) -> String {
        let line = |hit: &MemoryHit| {
            let place = match &hit.source {
                MemorySource::Note(id) => match untrusted_origin(hit) {
                    Some(place) => format!("{id}, from {place}"),
                    None => id.clone(),
                },
                MemorySource::File { path, first, last } => format!("{path}:{first}-{last}"),
                MemorySource::Session { session, seq } => format!("conversation {session}:{seq}"),
            };
            format!("[{place}] (score: {:.2})\n{}", hit.score, hit.text)
        };
        if self.0.is_empty() {
            return "Nothing in memory fits this question.".to_owned();
        }
        self.0.iter().map(line).collect::<Vec<_>>().join("\n\n")
    }

    /// Adds the untrusted origin of hits to the reply.
    #[must_use]
    pub fn with_untrusted_origin(&self, reply: Reply) -> Reply {
        let origin =
            self.0.iter().find_map(untrusted_origin).map(|place| Origin::unmarked(format!("notes from {place}")));
        Reply { origin, ..reply }
    }

    /// The form of 003: a list of objects.
    #[must_use]
    pub fn objects(&self) -> Value {
        self.0.iter().map(object).collect()
    }
}

fn object(hit: &MemoryHit) -> Value {
    let (source, id) = match &hit.source {
        MemorySource::Note(id) => ("user_memory", id.as_str()),
        MemorySource::File { path, .. } => ("file", path.as_str()),
        MemorySource::Session { .. } => ("conversation", ""),
    };
    let mut object = json!({
        "text": hit.text,
        "source": source,
        "score": (f64::from(hit.score) * 1e4).round() / 1e4,
        "note_id": id,
        "tags": hit.tags,
        "created_at": hit.created.to_string(),
        "updated_at": hit.updated.to_string(),
    });
    // A note is the agent's own unless it says otherwise.
    if let Some(origin) = hit.origin.as_ref().filter(|it| **it != NoteOrigin::Agent) {
        object["origin"] = origin.to_string().into();
    }
    object
}

/// The origin of an untrusted note.
fn untrusted_origin(hit: &MemoryHit) -> Option<&str> {
    match &hit.origin {
        Some(NoteOrigin::Untrusted(place)) => Some(place),
        _ => None,
    }
}

impl From<MemorySearchOutput> for Reply {
    fn from(hits: MemorySearchOutput) -> Self {
        let reply = Self { text: hits.lines(), data: Some(hits.objects()), ..Self::default() };
        hits.with_untrusted_origin(reply)
    }
}
