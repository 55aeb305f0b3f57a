//! Prepares a call: parses, repairs, coerces and validates the arguments.

use helve_contract::{ArgumentProblem, Error, Result};
use serde_json::{Map, Value};

use crate::{
    CallArgs, ParameterRange,
    builder::RegisteredTool,
    coerce,
    repair::{self, Repaired, Risk},
    table::ToolRegistry,
};

/// A prepared call: the tool, the parsed arguments, and the reason against running it.
pub(crate) struct PreparedCall<'a> {
    pub(crate) tool: Option<&'a RegisteredTool>,
    pub(crate) args: Value,
    pub(crate) notes: Vec<String>,
    /// Those of the notes that the model gets.
    pub(crate) model_notes: Vec<String>,
    pub(crate) refused: Option<Error>,
}

impl<'a> PreparedCall<'a> {
    /// The tool and its arguments, if nothing is against it.
    pub(crate) fn into_valid(self) -> Result<(&'a RegisteredTool, Value)> {
        match (self.refused, self.tool) {
            (Some(error), _) => Err(error),
            (None, Some(slot)) => Ok((slot, self.args)),
            (None, None) => Err(Error::UnknownTool(String::new())),
        }
    }
}

impl ToolRegistry {
    /// Finds the tool and coerces the arguments without changing their meaning. Clamps numbers to `ranges` and notes it
    /// for the model. This precedes validation, because the schema may have the same range.
    pub(crate) fn prepare(&self, name: &str, args: CallArgs, ranges: &[ParameterRange]) -> PreparedCall<'_> {
        let mut ready = PreparedCall {
            tool: self.find(name),
            args: Value::Null,
            notes: Vec::new(),
            model_notes: Vec::new(),
            refused: None,
        };
        let Some(slot) = ready.tool else {
            ready.refused = Some(self.unknown_tool_error(name));
            ready.args = match args {
                CallArgs::Value(value) => value,
                CallArgs::Text(text) => repair::repair_json(&text).map_or(Value::String(text), |mended| mended.value),
            };
            return ready;
        };
        let spec = &slot.entry.spec;
        if name != spec.name && !spec.has_name(name) {
            ready.notes.push(format!("`{name}` was taken for `{}`", spec.name));
            // The model need not know about another spelling of the same name.
            if coerce::normalize_name(name) != coerce::normalize_name(&spec.name) {
                ready.model_notes.extend(ready.notes.last().cloned());
            }
        }
        ready.refused = parse_args(args, &mut ready, slot).err();
        if ready.refused.is_some() {
            return ready;
        }
        let is_built_in = slot.entry.tool_name().is_some() && slot.entry.untrusted_origin().is_none();
        let zero = if is_built_in { coerce::Zero::Unset } else { coerce::Zero::Kept };
        let changes = coerce::coerce_args(&spec.input_schema, &mut ready.args, zero);
        ready.notes.extend(changes.notes);
        ready.model_notes.extend(changes.model_notes);
        for range in ranges.iter().filter(|it| it.tool == spec.name) {
            if let Some(note) = range.apply(&mut ready.args) {
                ready.notes.push(note.clone());
                ready.model_notes.push(note);
            }
        }
        ready.refused = slot.schema.check(&spec.input_schema, &ready.args, &changes.unknown).err();
        ready
    }
}

/// Parses the arguments. Invalid arguments are kept as sent.
fn parse_args(args: CallArgs, ready: &mut PreparedCall<'_>, slot: &RegisteredTool) -> Result<()> {
    let PreparedCall { args: into, notes, model_notes, .. } = &mut *ready;
    let text = match args {
        CallArgs::Value(Value::Object(map)) => {
            *into = Value::Object(map);
            unwrap_envelope(into, notes, slot);
            return Ok(());
        }
        CallArgs::Value(Value::String(text)) => {
            notes.push("the arguments were JSON inside a string".into());
            text
        }
        CallArgs::Value(value) => return require_object(value, into, notes, slot),
        CallArgs::Text(text) => text,
    };
    let Repaired { value, repairs: mends } = match repair::repair_json(&text) {
        Ok(mended) => mended,
        Err(why) => {
            *into = Value::String(text);
            return Err(Error::invalid_argument(
                "",
                format!("the arguments are not JSON: {why}. Send one JSON object."),
            ));
        }
    };
    let risk = mends.iter().map(|mend| mend.risk).max().unwrap_or(Risk::Harmless);
    notes.extend(mends.iter().map(|mend| format!("mended the arguments: {}", mend.what)));
    if risk != Risk::Harmless {
        let guesses = mends.iter().filter(|mend| mend.risk != Risk::Harmless);
        model_notes
            .extend(guesses.map(|mend| format!("the arguments were not valid JSON and were mended: {}", mend.what)));
    }
    let trusted = risk == Risk::Harmless || (risk == Risk::Guess && slot.entry.spec.effects.is_read_only());
    if let Value::String(inner) = &value
        && trusted
        && inner != &text
        && inner.trim_start().starts_with('{')
    {
        notes.push("the arguments were JSON inside a string".into());
        let inner = inner.clone();
        return parse_args(CallArgs::Text(inner), ready, slot);
    }
    if trusted {
        return require_object(value, into, notes, slot);
    }
    let guesses: Vec<&str> = mends.iter().filter(|it| it.risk == risk).map(|it| &*it.what).collect();
    *into = Value::String(text);
    Err(Error::invalid_argument("", repair_refusal(risk, &guesses.join(", "), &value)))
}

/// Why a repaired call does not run.
fn repair_refusal(risk: Risk, guesses: &str, value: &Value) -> String {
    if risk == Risk::Truncated {
        return format!(
            "the arguments were cut off ({guesses}), so nothing was run. \
             Send the whole call again; if it is long, in smaller parts."
        );
    }
    format!(
        "the arguments are not valid JSON ({guesses}), and this tool changes things, so nothing was run on a guess. \
         They were understood as {}. Send them again as valid JSON.",
        crate::validate::display_value(value, 400)
    )
}

/// Arguments are an object; nothing becomes an empty one, and a list of one object becomes that object.
fn require_object(value: Value, into: &mut Value, notes: &mut Vec<String>, slot: &RegisteredTool) -> Result<()> {
    *into = match value {
        Value::Object(map) => Value::Object(map),
        Value::Null => Value::Object(Map::new()),
        Value::Array(mut items) if matches!(items.as_slice(), [Value::Object(_)]) => {
            notes.push("took the one object out of a list".into());
            items.swap_remove(0)
        }
        other => {
            let sent = crate::validate::display_value(&other, 80);
            *into = other;
            let problem = ArgumentProblem::Other {
                path: String::new(),
                text: format!("the arguments must be one JSON object, not {sent}"),
            };
            return Err(Error::InvalidArgs(vec![problem]));
        }
    };
    unwrap_envelope(into, notes, slot);
    Ok(())
}

/// Some models send the whole call, `{"name": …, "arguments": {…}}`, or nest the arguments one level too deep.
fn unwrap_envelope(args: &mut Value, notes: &mut Vec<String>, slot: &RegisteredTool) {
    const ENVELOPE_KEYS: [&str; 4] = ["arguments", "parameters", "args", "input"];
    let Value::Object(map) = &mut *args else { return };
    if map.is_empty() || map.len() > 2 {
        return;
    }
    let spec = &slot.entry.spec;
    let Some(properties) = spec.input_schema.get("properties").and_then(Value::as_object) else { return };
    let Some(key) = ENVELOPE_KEYS.into_iter().find(|key| map.contains_key(*key) && !properties.contains_key(*key))
    else {
        return;
    };
    let named = map.get("name").or_else(|| map.get("tool")).and_then(Value::as_str);
    if map.len() == 2 && !named.is_some_and(|name| spec.has_name(name)) {
        return;
    }
    let inner = match map.get_mut(key) {
        Some(inner @ Value::Object(_)) => inner.take(),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(inner @ Value::Object(_)) => inner,
            _ => return,
        },
        _ => return,
    };
    notes.push(format!("took the arguments out of `{key}`"));
    *args = inner;
}
