//! A stored session and the part of it that the model sees.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use helve_contract::{
    Error, Result, Session,
    jiff::SignedDuration,
    ports::{HeldLease, Lease, Message, MessagePart, MessageRole, SessionRecord, SessionUpdate, TokenUsage},
};

use crate::{Agent, model::INTERRUPTED_RESULT, prompt};

/// How the summary of older messages begins.
pub(crate) const SUMMARY_PREFIX: &str = "[Summary of";

/// After a pause of this length between two messages the model is told the time again.
const PAUSE: SignedDuration = SignedDuration::from_mins(10);
/// Messages of one look into the store.
const PAGE_SIZE: usize = 512;
/// Messages that a model's view has at most; older ones than these are left out with a word.
const MAX_VIEW_MESSAGES: usize = 16_384;

/// A session in the store.
pub(crate) struct History {
    session: Arc<Session>,
    /// What the model sees, oldest first; a summary of what is left out stands first.
    pub(crate) view: Vec<Message>,
    record: Option<SessionRecord>,
    /// The right to write; a history without it is only read.
    held: Option<Arc<HeldLease>>,
}

impl History {
    /// What is kept of an agent's session.
    pub(crate) async fn load(agent: &Agent) -> Result<Self> {
        let session = agent.session.clone();
        let record = session.ports.store.get_session(&session.id).await?;
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
        self.view = self.messages_from(from).await?;
        if self.view.is_empty() && from > 0 {
            // What was kept in view was taken back; the older messages are all there is.
            self.view = self.messages_from(0).await?;
        }
        Ok(())
    }

    fn recall_taint(&self, messages: &[Message]) {
        for message in messages {
            for part in &message.parts {
                match part {
                    MessagePart::ToolResult { content, .. } => self.session.taint.restore_from_reply(content),
                    // The text of a file that was attached. The name of an image tells nothing about its content.
                    MessagePart::Text { text } if message.role == MessageRole::User => {
                        self.session.taint.restore_from_reply(text);
                    }
                    _ => {}
                }
            }
        }
    }

    fn lease(&self) -> Result<Lease> {
        let held = self.held.as_ref().ok_or_else(|| Error::LeaseLost(self.session.id.clone()))?;
        Ok(held.get())
    }

    /// Moves inbox messages to the end of the session.
    pub(crate) async fn take_inbox(&mut self) -> Result<()> {
        let moved = self.session.ports.store.take_inbox(&self.lease()?).await?;
        self.recall_taint(&moved.messages);
        if moved.undone {
            self.record = self.session.ports.store.get_session(&self.session.id).await?;
            return self.read().await;
        }
        self.view.extend(moved.messages);
        Ok(())
    }

    async fn messages_from(&self, from: u64) -> Result<Vec<Message>> {
        let mut pages: Vec<Vec<Message>> = Vec::new();
        let mut before = None;
        let mut count = 0;
        loop {
            let mut page = self.session.ports.store.messages(&self.session.id, before, PAGE_SIZE).await?;
            let more = page.len() == PAGE_SIZE;
            page.retain(|it| it.seq >= from);
            let whole = more && page.len() == PAGE_SIZE;
            before = page.first().map(|it| it.seq);
            count += page.len();
            pages.push(page);
            if !whole || count >= MAX_VIEW_MESSAGES {
                break;
            }
        }
        let mut view: Vec<Message> = pages.into_iter().rev().flatten().collect();
        if count >= MAX_VIEW_MESSAGES {
            let first = view.iter().position(|it| it.role != MessageRole::Tool).unwrap_or(0);
            view.drain(..first);
            let words = "[Older messages than these are left out here; they are kept with the conversation.]";
            view.insert(0, self.new_message(MessageRole::System, vec![MessagePart::Text { text: words.into() }]));
        }
        Ok(move_summary_first(view))
    }

    /// Begins the session, if it is new.
    pub(crate) async fn create_if_new(&mut self, agent: &Agent, words: &[MessagePart]) -> Result<()> {
        let model = agent.model.name();
        if let Some(record) = &self.record {
            if record.model != model {
                let change = SessionUpdate { model: Some(model), ..SessionUpdate::default() };
                self.session.ports.store.update_session(&self.lease()?, &change).await?;
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
            title: agent.title.clone().unwrap_or_else(|| derive_title(words)),
            dialect: agent.engine.dialect().name.to_owned(),
            model,
            workspace: folder.display().to_string(),
            messages: 0,
            spent: TokenUsage::default(),
            view_from: None,
            created: now,
            updated: now,
        };
        self.record = Some(session.ports.store.create_session(&self.lease()?, &record).await?);
        Ok(())
    }

    /// Whether the last note that begins with one of these two begins with the first.
    pub(crate) fn last_note_is(&self, wanted: &str, other: &str) -> bool {
        let notes =
            self.view.iter().rev().filter(|it| it.role == MessageRole::System).filter_map(|it| it.parts.first());
        let mut texts =
            notes.filter_map(|part| if let MessagePart::Text { text } = part { Some(text.as_str()) } else { None });
        texts.find(|text| text.starts_with(wanted) || text.starts_with(other)).is_some_and(|it| it.starts_with(wanted))
    }

    /// Tells the model what time it is, where a while has passed since the last message.
    pub(crate) async fn tell_time(&mut self) -> Result<()> {
        let Some(last) = self.view.last() else { return Ok(()) };
        if self.session.ports.clock.now().duration_since(last.created) < PAUSE {
            return Ok(());
        }
        let text = format!("Time has passed since the last message. {}", prompt::time(&self.session));
        self.add(MessageRole::System, vec![MessagePart::Text { text }], TokenUsage::default()).await?;
        Ok(())
    }

    /// A message of now.
    pub(crate) fn new_message(&self, role: MessageRole, parts: Vec<MessagePart>) -> Message {
        Message { seq: 0, role, parts, created: self.session.ports.clock.now() }
    }

    /// Adds a message. When this returns it is kept.
    pub(crate) async fn add(&mut self, role: MessageRole, parts: Vec<MessagePart>, spent: TokenUsage) -> Result<u64> {
        let mut message = self.new_message(role, parts);
        let lease = self.lease()?;
        let added = self.session.ports.store.append_messages(&lease, std::slice::from_ref(&message), spent).await?;
        (message.seq, message.created) = (added.last, added.at);
        self.view.push(message);
        Ok(added.last)
    }

    /// Answers calls without stored results: it is unknown whether they ran, so they do not run again.
    pub(crate) async fn close_open_calls(&mut self) -> Result<usize> {
        let open = unanswered_calls(&self.view);
        if open.is_empty() {
            return Ok(0);
        }
        let count = open.len();
        let parts = open.into_iter().map(|(id, name)| MessagePart::ToolResult {
            tool_call_id: id,
            name,
            content: INTERRUPTED_RESULT.to_owned(),
            is_error: true,
        });
        self.add(MessageRole::Tool, parts.collect(), TokenUsage::default()).await?;
        Ok(count)
    }

    /// Puts a summary in the place of the first messages of the view.
    pub(crate) async fn replace_with_summary(
        &mut self,
        older: usize,
        summary: String,
        spent: TokenUsage,
    ) -> Result<()> {
        let kept_from = self.view.get(older).map(|it| it.seq);
        let seq = self.add(MessageRole::System, vec![MessagePart::Text { text: summary }], spent).await?;
        let change = SessionUpdate { view_from: Some(kept_from.unwrap_or(seq)), ..SessionUpdate::default() };
        self.session.ports.store.update_session(&self.lease()?, &change).await?;
        if let Some(summary) = self.view.pop() {
            self.view.splice(..older, [summary]);
        }
        Ok(())
    }

    /// The ids of all calls in view.
    pub(crate) fn call_ids(&self) -> BTreeSet<String> {
        let parts = self.view.iter().flat_map(|it| &it.parts);
        parts.filter_map(|it| if let MessagePart::ToolCall { id, .. } = it { Some(id.clone()) } else { None }).collect()
    }
}

/// The last summary stands first, those before it are in it.
fn move_summary_first(view: Vec<Message>) -> Vec<Message> {
    let (mut summaries, rest): (Vec<_>, Vec<_>) = view.into_iter().partition(is_summary);
    summaries.pop().into_iter().chain(rest).collect()
}

pub(crate) fn is_summary(message: &Message) -> bool {
    message.role == MessageRole::System
        && matches!(message.parts.first(), Some(MessagePart::Text { text }) if text.starts_with(SUMMARY_PREFIX))
}

/// Calls of the last answer that have no result: id and name.
fn unanswered_calls(view: &[Message]) -> Vec<(String, String)> {
    let mut open: Vec<(String, String)> = Vec::new();
    for message in view {
        match message.role {
            MessageRole::Assistant => {
                open = message.parts.iter().filter_map(tool_call_of).collect();
            }
            MessageRole::Tool => {
                for part in &message.parts {
                    if let MessagePart::ToolResult { tool_call_id, .. } = part {
                        open.retain(|(id, _)| id != tool_call_id);
                    }
                }
            }
            MessageRole::User | MessageRole::System => open.clear(),
        }
    }
    open
}

fn tool_call_of(part: &MessagePart) -> Option<(String, String)> {
    match part {
        MessagePart::ToolCall { id, name, finished: true, .. } => Some((id.clone(), name.clone())),
        _ => None,
    }
}

/// The first line of what the user said, not too long.
fn derive_title(words: &[MessagePart]) -> String {
    let line = words.iter().find_map(|it| match it {
        MessagePart::Text { text } => text.lines().map(str::trim).find(|it| !it.is_empty()),
        _ => None,
    });
    let line = line.unwrap_or("A conversation");
    let short: String = line.chars().take(80).collect();
    if short.len() < line.len() { format!("{short}…") } else { short }
}
