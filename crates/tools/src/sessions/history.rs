//! `sessions_history`: what was said in a conversation, a line a message.

use helve_contract::{
    Call, Effects, Keep, Port, PortSet, Reply, Result, Tool,
    ports::{Message, Part, Speaker},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{field, unknown, visible};

/// Characters of a part that a line shows: a tool may have answered with a whole file.
const SHOWN: usize = 2_000;

/// Shows what was said in a conversation, the end of it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct History {
    /// Which conversation.
    pub id: String,
    /// How many messages at most (50).
    #[serde(default)]
    pub limit: Option<usize>,
}

/// The end of a conversation.
#[derive(Clone, Debug)]
pub struct HistoryOut {
    /// Its last messages, in order.
    pub messages: Vec<Message>,
    /// How many came before them.
    pub earlier: u64,
}

impl Tool for History {
    const NAME: &'static str = "sessions_history";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Sessions]);
    type Output = HistoryOut;

    async fn run(self, call: &Call) -> Result<HistoryOut> {
        if visible(call, &self.id).await?.is_none() {
            return Err(unknown(&self.id));
        }
        let most = self.limit.filter(|&limit| limit > 0).unwrap_or(50).min(500);
        let messages = call.store().messages(&self.id, None, most).await?;
        let earlier = messages.first().map_or(0, |first| first.seq.saturating_sub(1));
        Ok(HistoryOut { messages, earlier })
    }
}

impl From<HistoryOut> for Reply {
    /// 000's lines: `role`, a tab, the parts with ` | ` between.
    fn from(HistoryOut { messages, earlier }: HistoryOut) -> Self {
        if messages.is_empty() {
            return "No messages yet".into();
        }
        let note = (earlier > 0).then(|| format!("[{earlier} earlier messages are not shown]"));
        let lines: Vec<_> = note.into_iter().chain(messages.iter().map(line)).collect();
        let data = messages.iter().map(|it| json!({ "seq": it.seq, "role": word(it.role), "text": parts(it) }));
        let data = json!({ "messages": data.collect::<Value>(), "earlier": earlier });
        // The end of a conversation is what one asks for.
        Self { text: lines.join("\n"), data: Some(data), keep: Keep::Tail, ..Self::default() }
    }
}

fn line(message: &Message) -> String {
    format!("{}\t{}", word(message.role), parts(message))
}

fn parts(message: &Message) -> String {
    message.parts.iter().filter_map(part).collect::<Vec<_>>().join(" | ")
}

fn part(part: &Part) -> Option<String> {
    Some(match part {
        Part::Text { text } => short(text),
        Part::Reasoning { thinking } => format!("[reasoning] {}", short(thinking)),
        Part::ToolCall { name, input, .. } => format!("[call {name}] {}", short(input)),
        Part::ToolResult { name, content, is_error: false, .. } => format!("[result {name}] {}", short(content)),
        Part::ToolResult { name, content, .. } => format!("[error {name}] {}", short(content)),
        Part::Binary { path, mime_type, .. } => format!("[{mime_type}] {}", short(path)),
        // Only the provider can read it.
        Part::Opaque { .. } => return None,
        // How a message ends is worth a word only when it is not the usual way.
        Part::Finish { reason } if reason.is_usual() => return None,
        Part::Finish { reason } => format!("[{}]", short(reason.as_str())),
    })
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => {
            let left = text[end..].chars().count();
            format!("{}… ({left} more characters)", field(&text[..end]))
        }
        None => field(text),
    }
}

fn word(role: Speaker) -> &'static str {
    match role {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
        Speaker::Tool => "tool",
        Speaker::System => "system",
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{
        Reply,
        jiff::Timestamp,
        ports::{Message, Part, Speaker},
    };

    use super::HistoryOut;

    fn said(role: Speaker, parts: Vec<Part>) -> Message {
        Message { seq: 1, role, parts, created: Timestamp::UNIX_EPOCH }
    }

    fn text(text: &str) -> Part {
        Part::Text { text: text.into() }
    }

    #[test]
    fn a_message_is_one_line_whatever_is_in_it() {
        let call =
            Part::ToolCall { id: "1".into(), name: "ls".into(), input: "{\"path\":\".\"}".into(), finished: true };
        let result = |is_error| Part::ToolResult {
            tool_call_id: "1".into(),
            name: "ls".into(),
            content: "a\tb\nc".into(),
            is_error,
        };
        let picture = Part::Binary { path: "a.png".into(), mime_type: "image/png".into(), data: "AAAA".into() };
        let finish = |reason: &str| Part::Finish { reason: reason.to_owned().into() };
        let messages = vec![
            said(Speaker::User, vec![text("one\ntwo"), picture]),
            said(Speaker::Assistant, vec![text("Let me see."), call, finish("tool_use")]),
            said(Speaker::Tool, vec![result(false), result(true)]),
            said(Speaker::Assistant, vec![Part::Reasoning { thinking: "hm".into() }, finish("canceled")]),
        ];
        let reply: Reply = HistoryOut { messages, earlier: 4 }.into();
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
        let reply: Reply =
            HistoryOut { messages: vec![said(Speaker::User, vec![text(&"ü".repeat(2005))])], earlier: 0 }.into();
        assert_eq!(reply.text, format!("user\t{}… (5 more characters)", "ü".repeat(2000)));
    }
}
