//! A conversation in the store, and the part of it that the model sees.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use helve_contract::{
    Error, Result, Session,
    jiff::SignedDuration,
    ports::{HeldLease, Lease, Message, Part, Retitle, SessionRecord, Speaker, Spent},
};

use crate::{Agent, model::INTERRUPTED, prompt};

/// How the summary of older messages begins.
pub(crate) const SUMMARY: &str = "[Summary of";

/// After a pause of this length between two messages the model is told the time again.
const PAUSE: SignedDuration = SignedDuration::from_mins(10);
/// Messages of one look into the store.
const PAGE: usize = 512;
/// Messages that a model's view has at most; older ones than these are left out with a word.
const MOST: usize = 16_384;

/// A conversation in the store.
pub(crate) struct History {
    session: Arc<Session>,
    /// What the model sees, oldest first; a summary of what is left out stands first.
    pub(crate) view: Vec<Message>,
    record: Option<SessionRecord>,
    /// The right to write; a history without it is only read.
    held: Option<Arc<HeldLease>>,
}

impl History {
    /// What is kept of an agent's conversation.
    pub(crate) async fn load(agent: &Agent) -> Result<Self> {
        let session = agent.session.clone();
        let record = session.ports.store.conversation(&session.id).await?;
        let mut history = Self { session, view: Vec::new(), record, held: None };
        history.read().await?;
        history.recall_taint(&history.view);
        Ok(history)
    }

    /// The same, to be written to while this lease is held.
    pub(crate) fn holding(self, held: Arc<HeldLease>) -> Self {
        Self { held: Some(held), ..self }
    }

    /// Reads what the model sees.
    async fn read(&mut self) -> Result<()> {
        let Some(record) = &self.record else { return Ok(()) };
        let from = record.view_from.unwrap_or(0);
        self.view = self.since(from).await?;
        if self.view.is_empty() && from > 0 {
            // What was kept in view was taken back; the older messages are all there is.
            self.view = self.since(0).await?;
        }
        Ok(())
    }

    fn recall_taint(&self, messages: &[Message]) {
        for message in messages {
            for part in &message.parts {
                match part {
                    Part::ToolResult { content, .. } => self.session.taint.recalls(content),
                    // The text of a file that was attached. The name of an image tells nothing about its content.
                    Part::Text { text } if message.role == Speaker::User => self.session.taint.recalls(text),
                    _ => {}
                }
            }
        }
    }

    fn lease(&self) -> Result<Lease> {
        let held = self.held.as_ref().ok_or_else(|| Error::LeaseLost(self.session.id.clone()))?;
        Ok(held.get())
    }

    /// Moves messages that others left for this conversation to its end.
    pub(crate) async fn take_inbox(&mut self) -> Result<()> {
        let moved = self.session.ports.store.take_inbox(&self.lease()?).await?;
        self.recall_taint(&moved.messages);
        if moved.undone {
            self.record = self.session.ports.store.conversation(&self.session.id).await?;
            return self.read().await;
        }
        self.view.extend(moved.messages);
        Ok(())
    }

    async fn since(&self, from: u64) -> Result<Vec<Message>> {
        let mut pages: Vec<Vec<Message>> = Vec::new();
        let mut before = None;
        let mut count = 0;
        loop {
            let mut page = self.session.ports.store.messages(&self.session.id, before, PAGE).await?;
            let more = page.len() == PAGE;
            page.retain(|it| it.seq >= from);
            let whole = more && page.len() == PAGE;
            before = page.first().map(|it| it.seq);
            count += page.len();
            pages.push(page);
            if !whole || count >= MOST {
                break;
            }
        }
        let mut view: Vec<Message> = pages.into_iter().rev().flatten().collect();
        if count >= MOST {
            let first = view.iter().position(|it| it.role != Speaker::Tool).unwrap_or(0);
            view.drain(..first);
            let words = "[Older messages than these are left out here; they are kept with the conversation.]";
            view.insert(0, self.message(Speaker::System, vec![Part::Text { text: words.into() }]));
        }
        Ok(summary_first(view))
    }

    /// Begins the conversation, if it is new.
    pub(crate) async fn begin(&mut self, agent: &Agent, words: &[Part]) -> Result<()> {
        let model = agent.model.name();
        if let Some(record) = &self.record {
            if record.model != model {
                let change = Retitle { model: Some(model), ..Retitle::default() };
                self.session.ports.store.retitle(&self.lease()?, &change).await?;
            }
            return Ok(());
        }
        let session = &self.session;
        let now = session.ports.clock.now();
        let folder = session.workspace.roots().first().map_or_else(PathBuf::new, |it| it.dir.clone());
        let record = SessionRecord {
            id: session.id.clone(),
            label: session.label.clone(),
            parent: agent.parent.clone(),
            user: session.user.clone(),
            agent: session.agent.clone(),
            title: agent.title.clone().unwrap_or_else(|| title(words)),
            dialect: agent.engine.dialect().name.to_owned(),
            model,
            workspace: folder.display().to_string(),
            messages: 0,
            spent: Spent::default(),
            view_from: None,
            created: now,
            updated: now,
        };
        self.record = Some(session.ports.store.begin(&self.lease()?, &record).await?);
        Ok(())
    }

    /// Whether the last note that begins with one of these two begins with the first.
    pub(crate) fn last_note_is(&self, wanted: &str, other: &str) -> bool {
        let notes = self.view.iter().rev().filter(|it| it.role == Speaker::System).filter_map(|it| it.parts.first());
        let mut texts =
            notes.filter_map(|part| if let Part::Text { text } = part { Some(text.as_str()) } else { None });
        texts.find(|text| text.starts_with(wanted) || text.starts_with(other)).is_some_and(|it| it.starts_with(wanted))
    }

    /// Tells the model what time it is, where a while has passed since the last message.
    pub(crate) async fn tell_time(&mut self) -> Result<()> {
        let Some(last) = self.view.last() else { return Ok(()) };
        if self.session.ports.clock.now().duration_since(last.created) < PAUSE {
            return Ok(());
        }
        let text = format!("Time has passed since the last message. {}", prompt::time(&self.session));
        self.add(Speaker::System, vec![Part::Text { text }], Spent::default()).await?;
        Ok(())
    }

    /// A message of now.
    pub(crate) fn message(&self, role: Speaker, parts: Vec<Part>) -> Message {
        Message { seq: 0, role, parts, created: self.session.ports.clock.now() }
    }

    /// Adds a message. When this returns it is kept.
    pub(crate) async fn add(&mut self, role: Speaker, parts: Vec<Part>, spent: Spent) -> Result<u64> {
        let mut message = self.message(role, parts);
        let lease = self.lease()?;
        let added = self.session.ports.store.append(&lease, std::slice::from_ref(&message), spent).await?;
        (message.seq, message.created) = (added.last, added.at);
        self.view.push(message);
        Ok(added.last)
    }

    /// Answers calls whose results were never kept: it is not known whether they ran, so they do not run again.
    pub(crate) async fn mend(&mut self) -> Result<usize> {
        let open = open_calls(&self.view);
        if open.is_empty() {
            return Ok(0);
        }
        let count = open.len();
        let parts = open.into_iter().map(|(id, name)| Part::ToolResult {
            tool_call_id: id,
            name,
            content: INTERRUPTED.to_owned(),
            is_error: true,
        });
        self.add(Speaker::Tool, parts.collect(), Spent::default()).await?;
        Ok(count)
    }

    /// Puts a summary in the place of the first messages of the view.
    pub(crate) async fn sum_up(&mut self, older: usize, summary: String, spent: Spent) -> Result<()> {
        let kept_from = self.view.get(older).map(|it| it.seq);
        let seq = self.add(Speaker::System, vec![Part::Text { text: summary }], spent).await?;
        let change = Retitle { view_from: Some(kept_from.unwrap_or(seq)), ..Retitle::default() };
        self.session.ports.store.retitle(&self.lease()?, &change).await?;
        if let Some(summary) = self.view.pop() {
            self.view.splice(..older, [summary]);
        }
        Ok(())
    }

    /// The ids of all calls in view.
    pub(crate) fn ids(&self) -> BTreeSet<String> {
        let parts = self.view.iter().flat_map(|it| &it.parts);
        parts.filter_map(|it| if let Part::ToolCall { id, .. } = it { Some(id.clone()) } else { None }).collect()
    }
}

/// The last summary stands first, those before it are in it.
fn summary_first(view: Vec<Message>) -> Vec<Message> {
    let (mut summaries, rest): (Vec<_>, Vec<_>) = view.into_iter().partition(is_summary);
    summaries.pop().into_iter().chain(rest).collect()
}

pub(crate) fn is_summary(message: &Message) -> bool {
    message.role == Speaker::System
        && matches!(message.parts.first(), Some(Part::Text { text }) if text.starts_with(SUMMARY))
}

/// Calls of the last answer that have no result: id and name.
fn open_calls(view: &[Message]) -> Vec<(String, String)> {
    let mut open: Vec<(String, String)> = Vec::new();
    for message in view {
        match message.role {
            Speaker::Assistant => {
                open = message.parts.iter().filter_map(called).collect();
            }
            Speaker::Tool => {
                for part in &message.parts {
                    if let Part::ToolResult { tool_call_id, .. } = part {
                        open.retain(|(id, _)| id != tool_call_id);
                    }
                }
            }
            Speaker::User | Speaker::System => open.clear(),
        }
    }
    open
}

fn called(part: &Part) -> Option<(String, String)> {
    match part {
        Part::ToolCall { id, name, finished: true, .. } => Some((id.clone(), name.clone())),
        _ => None,
    }
}

/// The first line of what the user said, not too long.
fn title(words: &[Part]) -> String {
    let line = words.iter().find_map(|it| match it {
        Part::Text { text } => text.lines().map(str::trim).find(|it| !it.is_empty()),
        _ => None,
    });
    let line = line.unwrap_or("A conversation");
    let short: String = line.chars().take(80).collect();
    if short.len() < line.len() { format!("{short}…") } else { short }
}
