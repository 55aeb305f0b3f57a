//! `sessions_history`: the messages of a session, one per line.

use helve_contract::{
    Call, Effects, Port, PortSet, Reply, Result, Tool, TruncateSide,
    ports::{Message, MessagePart, MessageRole},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{find_visible, single_line, unknown_session_error};

/// Characters of a part that a line shows: a tool may have answered with a whole file.
const MAX_PART_CHARS: usize = 2_000;

/// Shows what was said in a conversation, the end of it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct SessionsHistoryTool {
    /// Which conversation.
    pub id: String,
    /// How many messages at most (50).
    #[serde(default)]
    pub limit: Option<usize>,
}

/// The end of a session.
#[derive(Clone, Debug)]
pub struct SessionsHistoryOutput {
    /// Its last messages, in order.
    pub messages: Vec<Message>,
    /// How many came before them.
    pub earlier: u64,
}

impl Tool for SessionsHistoryTool {
    const NAME: &'static str = "sessions_history";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Sessions]);
    type Output = SessionsHistoryOutput;

    async fn run(self, call: &Call) -> Result<SessionsHistoryOutput> {
        if find_visible(call, &self.id).await?.is_none() {
            return Err(unknown_session_error(&self.id));
        }
        let most = self.limit.filter(|&limit| limit > 0).unwrap_or(50).min(500);
        let messages = call.store().messages(&self.id, None, most).await?;
        let earlier = messages.first().map_or(0, |first| first.seq.saturating_sub(1));
        Ok(SessionsHistoryOutput { messages, earlier })
    }
}

impl From<SessionsHistoryOutput> for Reply {
    /// 000's lines: `role`, a tab, the parts with ` | ` between.
    fn from(SessionsHistoryOutput { messages, earlier }: SessionsHistoryOutput) -> Self {
        if messages.is_empty() {
            return "No messages yet".into();
        }
        let note = (earlier > 0).then(|| format!("[{earlier} earlier messages are not shown]"));
        let lines: Vec<_> = note.into_iter().chain(messages.iter().map(line)).collect();
        let data = messages.iter().map(|it| json!({ "seq": it.seq, "role": role_label(it.role), "text": parts(it) }));
        let data = json!({ "messages": data.collect::<Value>(), "earlier": earlier });
        // The latest messages matter most.
        Self { text: lines.join("\n"), data: Some(data), truncate_side: TruncateSide::KeepTail, ..Self::default() }
    }
}

fn line(message: &Message) -> String {
    format!("{}\t{}", role_label(message.role), parts(message))
}

fn parts(message: &Message) -> String {
    message.parts.iter().filter_map(part).collect::<Vec<_>>().join(" | ")
}

fn part(part: &MessagePart) -> Option<String> {
    Some(match part {
        MessagePart::Text { text } => truncate(text),
        MessagePart::Reasoning { thinking } => format!("[reasoning] {}", truncate(thinking)),
        MessagePart::ToolCall { name, input, .. } => format!("[call {name}] {}", truncate(input)),
        MessagePart::ToolResult { name, content, is_error: false, .. } => {
            format!("[result {name}] {}", truncate(content))
        }
        MessagePart::ToolResult { name, content, .. } => format!("[error {name}] {}", truncate(content)),
        MessagePart::Binary { path, mime_type, .. } => format!("[{mime_type}] {}", truncate(path)),
        // Only the provider can read it.
        MessagePart::Opaque { .. } => return None,
        // Only unusual finish reasons are shown.
        MessagePart::Finish { reason } if reason.is_usual() => return None,
        MessagePart::Finish { reason } => format!("[{}]", truncate(reason.as_str())),
    })
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_PART_CHARS) {
        Some((end, _)) => {
            let left = text[end..].chars().count();
            format!("{}… ({left} more characters)", single_line(&text[..end]))
        }
        None => single_line(text),
    }
}

fn role_label(role: MessageRole) -> &'static str {
    match role {
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
        MessageRole::System => "system",
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{
        Reply,
        jiff::Timestamp,
        ports::{Message, MessagePart, MessageRole},
    };

    use super::SessionsHistoryOutput;

    fn said(role: MessageRole, parts: Vec<MessagePart>) -> Message {
        Message { seq: 1, role, parts, created: Timestamp::UNIX_EPOCH }
    }

    fn text(text: &str) -> MessagePart {
        MessagePart::Text { text: text.into() }
    }

    #[test]
    fn a_message_is_one_line_whatever_is_in_it() {
        let call = MessagePart::ToolCall {
            id: "1".into(),
            name: "ls".into(),
            input: "{\"path\":\".\"}".into(),
            finished: true,
        };
        let result = |is_error| MessagePart::ToolResult {
            tool_call_id: "1".into(),
            name: "ls".into(),
            content: "a\tb\nc".into(),
            is_error,
        };
        let picture = MessagePart::Binary { path: "a.png".into(), mime_type: "image/png".into(), data: "AAAA".into() };
        let finish = |reason: &str| MessagePart::Finish { reason: reason.to_owned().into() };
        let messages = vec![
            said(MessageRole::User, vec![text("one\ntwo"), picture]),
            said(MessageRole::Assistant, vec![text("Let me see."), call, finish("tool_use")]),
            said(MessageRole::Tool, vec![result(false), result(true)]),
            said(MessageRole::Assistant, vec![MessagePart::Reasoning { thinking: "hm".into() }, finish("canceled")]),
        ];
        let reply: Reply = SessionsHistoryOutput { messages, earlier: 4 }.into();
        assert_eq!(
            reply.text,
            "[4 earlier messages are not shown]\n\
             user\tone\\ntwo | [image/png] a.png\n\
             assistant\tLet me see. | [call ls] {\"path\":\".\"}\n\
             tool\t[result ls] a\\tb\\nc | [error ls] a\\tb\\nc\n\
             assistant\t[reasoning] hm | [canceled]"
        );
    }

    #[test]
    fn a_long_part_is_cut_between_characters() {
        let reply: Reply = SessionsHistoryOutput {
            messages: vec![said(MessageRole::User, vec![text(&"ü".repeat(2005))])],
            earlier: 0,
        }
        .into();
        assert_eq!(reply.text, format!("user\t{}… (5 more characters)", "ü".repeat(2000)));
    }
}
