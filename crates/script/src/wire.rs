//! Encodes an answer in OpenAI's format: complete, or as events of a stream.

use serde_json::{Value, json};

use crate::{CallIdPlacement, ScriptStep, StreamFault};

/// An action of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamAction {
    /// Sends these bytes.
    Send(String),
    /// Breaks the connection.
    Cut,
    /// Stalls forever.
    Stall,
}

/// The whole answer as JSON.
pub(crate) fn full_response(step: &ScriptStep, number: u64, model: &str) -> Value {
    let mut message = json!({ "role": "assistant", "content": step.text });
    if !step.reasoning.is_empty() {
        message["reasoning_content"] = step.reasoning.as_str().into();
    }
    if !step.calls.is_empty() {
        let calls = step.calls.iter().enumerate().map(|(at, call)| {
            let function = json!({ "name": call.name, "arguments": call.args_text() });
            json!({ "id": id(step, number, at), "type": "function", "function": function })
        });
        message["tool_calls"] = calls.collect();
    }
    let mut answer = json!({
        "id": format!("chatcmpl-{number}"),
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish(step) }],
    });
    if let Some(usage) = usage(step) {
        answer["usage"] = usage;
    }
    answer
}

/// The answer as a stream.
pub(crate) fn stream_actions(step: &ScriptStep, number: u64, model: &str) -> Vec<StreamAction> {
    let end = if step.split.crlf { "\r\n" } else { "\n" };
    let line = |data: &str| StreamAction::Send(format!("data: {data}{end}{end}"));
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        json!({ "id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice] })
    };
    let mut beats = vec![
        StreamAction::Send(format!(": a comment{end}{end}")),
        line(&chunk(json!({ "role": "assistant", "content": "" }), Value::Null).to_string()),
    ];
    for piece in split_chars(&step.reasoning, step.split.text) {
        beats.push(line(&chunk(json!({ "reasoning_content": piece }), Value::Null).to_string()));
    }
    for delta in &step.deltas {
        beats.push(line(&chunk(delta.clone(), Value::Null).to_string()));
    }
    for piece in split_chars(&step.text, step.split.text) {
        beats.push(line(&chunk(json!({ "content": piece }), Value::Null).to_string()));
    }
    let before_calls = beats.len();
    for delta in deltas(step, number) {
        beats.push(line(&chunk(json!({ "tool_calls": [delta] }), Value::Null).to_string()));
    }
    let middle = usize::midpoint(before_calls, beats.len());
    beats.push(line(&chunk(json!({}), finish(step).into()).to_string()));
    if let Some(usage) = usage(step) {
        beats.push(line(
            &json!({ "id": "u", "object": "chat.completion.chunk", "choices": [], "usage": usage }).to_string(),
        ));
    }
    beats.push(line("[DONE]"));

    let after = |count: usize, last: &[StreamAction]| [&beats[..count.min(beats.len())], last].concat();
    match step.fault {
        None => beats,
        Some(StreamFault::NoDone) => after(beats.len() - 1, &[]),
        Some(StreamFault::CutAfter(count)) => after(count, &[StreamAction::Cut]),
        Some(StreamFault::CutInArgument) => after(middle, &[StreamAction::Cut]),
        Some(StreamFault::EndAfter(count)) => after(count, &[]),
        Some(StreamFault::StallAfter(count)) => after(count, &[StreamAction::Stall]),
        Some(StreamFault::GarbageAfter(count)) => after(count, &[line("{\"choices\": [{")]),
        Some(StreamFault::ErrorAfter(count)) => {
            after(count, &[line(r#"{"error":{"message":"the model is overloaded","code":529}}"#)])
        }
    }
}

fn deltas(step: &ScriptStep, number: u64) -> Vec<Value> {
    let split = &step.split;
    let mut by_call: Vec<Vec<Value>> = Vec::new();
    for (at, call) in step.calls.iter().enumerate() {
        let mut list = Vec::new();
        let mut delta = |name: Option<&str>, args: Option<&str>, first: bool| {
            let mut delta = json!({ "type": "function", "function": {} });
            if !split.no_index {
                delta["index"] = at.into();
            }
            if split.ids == CallIdPlacement::Every || (split.ids == CallIdPlacement::First && first) {
                delta["id"] = id(step, number, at).into();
            }
            if first && !call.extra.is_null() {
                delta["extra_content"] = call.extra.clone();
            }
            if let Some(name) = name {
                delta["function"]["name"] = name.into();
            }
            if let Some(args) = args {
                delta["function"]["arguments"] = args.into();
            }
            list.push(delta);
        };
        let half = call.name.char_indices().nth(call.name.chars().count() / 2).map_or(0, |(at, _)| at);
        if split.names && half > 0 {
            delta(Some(&call.name[..half]), None, true);
            delta(Some(&call.name[half..]), None, false);
        } else {
            delta(Some(&call.name), Some(""), true);
        }
        let written = call.args_text();
        let length = written.chars().count().div_ceil(split.args.max(1)).max(1);
        for piece in split_chars(&written, length) {
            delta(None, Some(&piece), false);
        }
        if split.twice {
            delta(Some(&call.name), Some(&written), true);
        }
        by_call.push(list);
    }
    if !split.interleaved {
        return by_call.into_iter().flatten().collect();
    }
    let longest = by_call.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|at| by_call.iter().filter_map(move |list| list.get(at).cloned())).collect()
}

fn id(step: &ScriptStep, number: u64, at: usize) -> String {
    let id = &step.calls[at].id;
    if id.is_empty() { format!("call_{number}_{at}") } else { id.clone() }
}

fn finish(step: &ScriptStep) -> &str {
    let usual = if step.calls.is_empty() { "stop" } else { "tool_calls" };
    step.finish.as_deref().unwrap_or(usual)
}

fn usage(step: &ScriptStep) -> Option<Value> {
    step.usage.map(|(prompt, completion)| {
        json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
    })
}

fn split_chars(text: &str, length: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(length.max(1)).map(|it| it.iter().collect()).collect()
}
