//! Assembles tool calls from stream chunks, in whatever order and shape they arrive.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ToolCall, wire::EXTRA_CONTENT};

/// Calls in the making.
#[derive(Debug, Default)]
pub struct Accumulator {
    known: BTreeSet<String>,
    slots: Vec<PartialCall>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    input: String,
    /// What the provider attached to the call.
    extra: Option<Value>,
    /// The arguments are a complete object; whatever follows is a repetition.
    closed: bool,
}

impl Accumulator {
    /// Calls of these tools. The names tell a name that is repeated from one that goes on.
    pub fn new<'a>(known: impl IntoIterator<Item = &'a str>) -> Self {
        Self { known: known.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Takes one item of `tool_calls`.
    pub fn push(&mut self, delta: &Value) {
        let id = delta["id"].as_str().unwrap_or_default();
        let name = delta["function"]["name"].as_str().unwrap_or_default();
        let input = match &delta["function"]["arguments"] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            whole => Some(whole.to_string()),
        };
        self.bytes += id.len() + name.len() + input.as_ref().map_or(0, String::len);
        let at = self.find_or_add(delta["index"].as_u64(), id, name);
        let known = &self.known;
        let slot = &mut self.slots[at];
        if slot.id.is_empty() {
            id.clone_into(&mut slot.id);
        }
        if let Some(extra) = delta.get("extra_content").filter(|it| !it.is_null()) {
            slot.extra = Some(extra.clone());
        }
        if !name.is_empty() && slot.input.is_empty() && extends_name(known, &slot.name, name) {
            slot.name.push_str(name);
        }
        if let Some(input) = input.filter(|it| !it.is_empty()) {
            slot.append_arguments(&input);
        }
    }

    /// Bytes taken so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing came.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The calls, in the order in which they began. Ids that are missing or used twice are made.
    pub fn calls(self) -> Vec<ToolCall> {
        let mut ids = BTreeSet::new();
        let named = self.slots.into_iter().filter(|it| !it.name.is_empty() || !it.input.is_empty());
        let calls = named.map(|slot| {
            let id = if slot.id.is_empty() || ids.contains(&slot.id) { generate_call_id() } else { slot.id };
            ids.insert(id.clone());
            let opaque = slot.extra.map(|it| json!({ EXTRA_CONTENT: it }));
            ToolCall { id, name: slot.name, input: slot.input, opaque }
        });
        calls.collect()
    }

    /// The place of the call that a piece belongs to.
    fn find_or_add(&mut self, index: Option<u64>, id: &str, name: &str) -> usize {
        // Some endpoints number every call 0 and distinguish them only by id.
        let other_id = |slot: &PartialCall| !id.is_empty() && !slot.id.is_empty() && slot.id != id;
        let same_id = |slot: &PartialCall| !id.is_empty() && slot.id == id;
        let found = match index {
            Some(_) => {
                let here = |slot: &&PartialCall| slot.index == index;
                let by_id = self.slots.iter().rposition(|slot| here(&slot) && same_id(slot));
                by_id.or_else(|| self.slots.iter().rposition(|slot| here(&slot) && !other_id(slot))).or_else(|| {
                    // A piece that has an id, but no name, is not the beginning of a call.
                    let last = self.slots.iter().rposition(|slot| here(&slot));
                    last.filter(|_| name.is_empty())
                })
            }
            None if !id.is_empty() => {
                let last = self.slots.last().filter(|slot| slot.id.is_empty() && slot.input.is_empty());
                let unnamed = last.map(|_| self.slots.len() - 1);
                self.slots.iter().rposition(same_id).or(unnamed)
            }
            None => {
                let last = self.slots.last().filter(|slot| self.continues_last(slot, name));
                last.map(|_| self.slots.len() - 1)
            }
        };
        found.unwrap_or_else(|| {
            self.slots.push(PartialCall { index, ..PartialCall::default() });
            self.slots.len() - 1
        })
    }

    /// Whether a piece without number and id belongs to the last call.
    fn continues_last(&self, slot: &PartialCall, name: &str) -> bool {
        name.is_empty() || (slot.input.is_empty() && slot.name != name && extends_name(&self.known, &slot.name, name))
    }
}

impl PartialCall {
    fn append_arguments(&mut self, input: &str) {
        if !self.closed && self.input.trim_end().ends_with('}') {
            self.closed = is_object(&self.input);
        }
        if !self.closed {
            self.input.push_str(input);
        }
    }
}

/// Whether a piece makes a name longer, and does not only say it again.
fn extends_name(known: &BTreeSet<String>, name: &str, piece: &str) -> bool {
    let longer = format!("{name}{piece}");
    let leads = known.range(longer.clone()..).next().is_some_and(|it| it.starts_with(&longer));
    leads || (!known.contains(name) && name != piece)
}

/// Whether a text is one whole JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// An id that every provider takes: nine letters and digits.
pub(crate) fn generate_call_id() -> String {
    const ID_ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut bytes = [0_u8; 9];
    if getrandom::fill(&mut bytes).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes[..8].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
    }
    bytes.iter().map(|it| char::from(ID_ALPHABET[usize::from(*it) % ID_ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rebuilt(known: &[&str], deltas: &[Value]) -> Vec<(String, String)> {
        let mut calls = Accumulator::new(known.iter().copied());
        for it in deltas {
            calls.push(it);
        }
        calls.calls().into_iter().map(|it| (it.name, it.input)).collect()
    }

    #[test]
    fn two_calls_may_share_a_number_when_their_ids_differ() {
        let deltas = [
            json!({ "index": 0, "id": "a", "function": { "name": "Read", "arguments": "{\"p\":1}" } }),
            json!({ "index": 0, "id": "b", "function": { "name": "Read", "arguments": "{\"p\":2}" } }),
        ];
        let calls = rebuilt(&["Read"], &deltas);
        assert_eq!(calls, [("Read".into(), "{\"p\":1}".into()), ("Read".into(), "{\"p\":2}".into())]);
    }

    #[test]
    fn a_call_that_is_said_again_is_one_call() {
        let whole = json!({ "index": 0, "id": "a", "function": { "name": "Read", "arguments": "{\"p\":1}" } });
        assert_eq!(rebuilt(&[], &[whole.clone(), whole]), [("Read".into(), "{\"p\":1}".into())]);
    }

    #[test]
    fn arguments_may_be_an_object_and_ids_are_made() {
        let mut calls = Accumulator::new(["Read"]);
        calls.push(&json!({ "function": { "name": "Read", "arguments": { "p": 1 } } }));
        calls.push(&json!({ "function": { "name": "Read", "arguments": { "p": 2 } } }));
        let calls = calls.calls();
        assert_eq!(calls.iter().map(|it| it.input.as_str()).collect::<Vec<_>>(), ["{\"p\":1}", "{\"p\":2}"]);
        assert!(calls.iter().all(|it| it.id.len() == 9));
    }

    #[test]
    fn the_same_id_for_two_calls_becomes_two_ids() {
        let mut calls = Accumulator::new([]);
        calls.push(&json!({ "index": 0, "id": "x", "function": { "name": "A", "arguments": "{}" } }));
        calls.push(&json!({ "index": 1, "id": "x", "function": { "name": "B", "arguments": "{}" } }));
        let calls = calls.calls();
        assert_eq!((calls[0].id.as_str(), calls[1].id != "x"), ("x", true));
    }

    /// How a stream may cut the calls of one answer.
    #[derive(Clone, Debug)]
    struct Cutting {
        sizes: Vec<usize>,
        ids: u8,
        index: bool,
        split_names: bool,
        again: bool,
        order: Vec<usize>,
    }

    fn cutting() -> impl Strategy<Value = Cutting> {
        let sizes = prop::collection::vec(1..9_usize, 1..6);
        let order = prop::collection::vec(0..8_usize, 0..60);
        (sizes, 0..3_u8, any::<bool>(), any::<bool>(), any::<bool>(), order).prop_map(
            |(sizes, ids, index, split_names, again, order)| Cutting { sizes, ids, index, split_names, again, order },
        )
    }

    fn cut(calls: &[(String, String)], how: &Cutting) -> Vec<Value> {
        let mut queues: Vec<std::collections::VecDeque<Value>> = Vec::new();
        for (at, (name, input)) in calls.iter().enumerate() {
            let mut first = true;
            let mut piece = |name: Option<&str>, input: Option<&str>| {
                let mut delta = json!({ "function": {} });
                if how.index {
                    delta["index"] = at.into();
                }
                if how.ids == 2 || (how.ids == 1 && first) {
                    delta["id"] = format!("id{at}").into();
                }
                if let Some(name) = name {
                    delta["function"]["name"] = name.into();
                }
                if let Some(input) = input {
                    delta["function"]["arguments"] = input.into();
                }
                first = false;
                delta
            };
            let mut queue = std::collections::VecDeque::new();
            if how.split_names {
                let (left, right) = name.split_at(name.len() / 2);
                queue.push_back(piece(Some(left), None));
                queue.push_back(piece(Some(right), None));
            } else {
                queue.push_back(piece(Some(name), Some("")));
            }
            let letters: Vec<char> = input.chars().collect();
            let mut rest = letters.as_slice();
            let mut sizes = how.sizes.iter().cycle();
            while !rest.is_empty() {
                let size = (*sizes.next().unwrap()).min(rest.len());
                queue.push_back(piece(None, Some(&rest[..size].iter().collect::<String>())));
                rest = &rest[size..];
            }
            // Without a number or an id a repetition cannot be told from a second call.
            if how.again && (how.index || how.ids == 2) {
                queue.push_back(piece(Some(name), Some(input)));
            }
            queues.push(queue);
        }
        let mut deltas = Vec::new();
        // Pieces that do not say whose they are can only come one call after the other. The calls begin in order.
        if how.index || how.ids == 2 {
            for queue in &mut queues {
                deltas.extend(queue.pop_front());
            }
            for at in &how.order {
                let at = at % queues.len();
                deltas.extend(queues[at].pop_front());
            }
        }
        deltas.extend(queues.into_iter().flatten());
        deltas
    }

    proptest! {
        #[test]
        fn any_cut_of_any_calls_gives_the_same_calls(
            calls in prop::collection::vec(
                (prop::sample::select(vec!["Read", "ReadMany", "web_fetch", "tool_one", "mcp__a__b"]),
                 prop::collection::vec(("[a-z]{1,4}", "[ -~äß}{\"\\\\]{0,12}"), 0..4)),
                1..5),
            how in cutting(),
        ) {
            let calls: Vec<(String, String)> = calls.into_iter().map(|(name, fields)| {
                let args: serde_json::Map<String, Value> = fields.into_iter().map(|(k, v)| (k, v.into())).collect();
                (name.to_owned(), Value::Object(args).to_string())
            }).collect();
            let known = ["Read", "ReadMany", "web_fetch", "tool_one", "mcp__a__b"];
            prop_assert_eq!(rebuilt(&known, &cut(&calls, &how)), calls);
        }

        #[test]
        fn nonsense_does_no_harm(deltas in prop::collection::vec(
            (prop::option::of(0..3_u64), "[ab]{0,2}", "[xy]{0,2}", prop::option::of("[{}\"a:1]{0,6}")), 0..20)) {
            let mut calls = Accumulator::new(["x", "xy"]);
            for (index, id, name, args) in deltas {
                calls.push(&json!({ "index": index, "id": id, "function": { "name": name, "arguments": args } }));
            }
            let calls = calls.calls();
            let ids: BTreeSet<&str> = calls.iter().map(|it| it.id.as_str()).collect();
            prop_assert_eq!(ids.len(), calls.len());
        }
    }
}
