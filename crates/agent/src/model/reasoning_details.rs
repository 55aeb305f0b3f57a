//! Reasoning items of the chat completions API that go back to the provider unchanged: `reasoning_details` of an answer,
//! collected from the pieces of a stream, with signatures and encrypted content.

use serde_json::{Map, Value};

/// The items of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct ReasoningDetails {
    items: Vec<Map<String, Value>>,
    bytes: usize,
}

impl ReasoningDetails {
    /// Adds the items of one piece. Pieces of one item are joined: their texts are concatenated, other fields are set once.
    pub(crate) fn push(&mut self, piece: &Value) {
        for item in piece.as_array().into_iter().flatten().filter_map(Value::as_object) {
            self.bytes += item.values().filter_map(Value::as_str).map(str::len).sum::<usize>();
            match self.items.iter_mut().rev().find(|it| is_same(it, item)) {
                Some(begun) => join(begun, item),
                None => self.items.push(item.clone()),
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All items as the API takes them back; none when there are none.
    pub(crate) fn finish(self) -> Option<Value> {
        (!self.items.is_empty()).then(|| self.items.into_iter().map(Value::Object).collect())
    }
}

/// Whether `piece` continues `begun`: the type is the same, and so is the number, or the id where there is no number.
fn is_same(begun: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let same = |field: &str| begun.get(field) == piece.get(field);
    let is_continued = |field: &str| piece.get(field).is_none_or(Value::is_null) || same(field);
    // Encrypted items arrive whole; two of them without a number are two items.
    let is_text = piece.get("type").and_then(Value::as_str) != Some("reasoning.encrypted");
    same("type") && same("index") && (begun.contains_key("index") || is_text) && is_continued("id")
}

fn join(begun: &mut Map<String, Value>, piece: &Map<String, Value>) {
    for (field, value) in piece {
        let is_growing = ["text", "summary", "data"].contains(&field.as_str());
        match (begun.get_mut(field), value) {
            (Some(Value::String(text)), Value::String(more)) if is_growing => text.push_str(more),
            (Some(kept), value) if kept.is_null() => *kept = value.clone(),
            (None, value) => _ = begun.insert(field.clone(), value.clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn joined(pieces: &[Value]) -> Option<Value> {
        let mut details = ReasoningDetails::default();
        for piece in pieces {
            details.push(piece);
        }
        details.finish()
    }

    #[test]
    fn pieces_of_one_item_are_joined_and_keep_the_signature() {
        let pieces = [
            json!([{ "type": "reasoning.text", "index": 0, "text": "First ", "signature": null }]),
            json!([{ "type": "reasoning.text", "index": 0, "text": "think." }]),
            json!([{ "type": "reasoning.text", "index": 0, "signature": "sig==", "format": "anthropic-claude-v1" }]),
            json!([{ "type": "reasoning.encrypted", "index": 1, "data": "abc", "id": "rs_1" }]),
        ];
        let first = json!({ "type": "reasoning.text", "index": 0, "text": "First think.", "signature": "sig==",
            "format": "anthropic-claude-v1" });
        let second = json!({ "type": "reasoning.encrypted", "index": 1, "data": "abc", "id": "rs_1" });
        assert_eq!(joined(&pieces), Some(json!([first, second])));
    }

    #[test]
    fn encrypted_items_without_a_number_stay_apart() {
        let item = |data: &str| json!({ "type": "reasoning.encrypted", "data": data });
        assert_eq!(joined(&[json!([item("a")]), json!([item("b")])]), Some(json!([item("a"), item("b")])));
    }

    #[test]
    fn nothing_stays_nothing() {
        assert_eq!(joined(&[Value::Null, json!([]), json!(["x"]), json!({})]), None);
    }
}
