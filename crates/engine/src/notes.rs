//! Notes for the model about its arguments, in a form that fits the reply.

use helve_contract::{Reply, ReplyFormat};
use serde_json::Value;

use crate::strangers::allows_extra_field;

/// The maximum number and length of notes in one reply.
const MAX_NOTES: usize = 8;
const MAX_NOTE_LEN: usize = 400;

/// Moves the notes for the model into a field `notes` of a JSON object, so that the reply stays valid JSON. Other
/// replies keep them separate.
pub(crate) fn into_data(reply: &mut Reply, output: Option<&Value>) {
    reply.model_notes.truncate(MAX_NOTES);
    for note in &mut reply.model_notes {
        if note.len() > MAX_NOTE_LEN {
            note.truncate(note.floor_char_boundary(MAX_NOTE_LEN));
            note.push('…');
        }
    }
    if reply.model_notes.is_empty() || reply.format != ReplyFormat::Json || !allows_extra_field(output) {
        return;
    }
    let Some(Value::Object(data)) = &mut reply.data else { return };
    let notes = reply.model_notes.drain(..).map(Value::String);
    match data.entry("notes").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(items) => items.extend(notes),
        other => {
            let first = other.take();
            *other = std::iter::once(first).chain(notes).collect();
        }
    }
    if let Some(data) = &reply.data {
        reply.text = data.to_string();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn noted(reply: Reply, output: Option<&Value>) -> Reply {
        let mut reply = Reply { model_notes: vec!["ignored".into()], ..reply };
        into_data(&mut reply, output);
        reply
    }

    #[test]
    fn json_objects_get_a_field() {
        let reply = noted(Reply::json(json!({ "a": 1 })), None);
        assert_eq!(reply.text, r#"{"a":1,"notes":["ignored"]}"#);
        assert_eq!((reply.data, reply.model_notes.len()), (Some(json!({ "a": 1, "notes": ["ignored"] })), 0));
        let reply = noted(Reply::json(json!({ "notes": ["first"] })), None);
        assert_eq!(reply.text, r#"{"notes":["first","ignored"]}"#);
        let reply = noted(Reply::json(json!({ "notes": "first" })), None);
        assert_eq!(reply.text, r#"{"notes":["first","ignored"]}"#);
    }

    #[test]
    fn other_replies_keep_them_beside_the_text() {
        let closed = json!({ "additionalProperties": false });
        for (reply, output) in [
            (Reply::from("text"), None),
            (Reply::json(json!([1])), None),
            (Reply::json(json!({ "a": 1 })), Some(&closed)),
        ] {
            let text = reply.text.clone();
            let reply = noted(reply, output);
            assert_eq!((reply.text, reply.model_notes), (text, vec!["ignored".to_owned()]));
        }
    }
}
