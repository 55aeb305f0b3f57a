//! Coerces arguments to their schema without loss: `"5"` for 5, `filePath` for `file_path`, null for a missing value.

use helve_contract::closest_names;
use serde_json::{Map, Number, Value};

use crate::repair::{self, Risk};

/// The maximum depth of arguments that are coerced.
const MAX_DEPTH: usize = 32;

/// Names that models use for the same parameter. Used only if a required parameter is missing.
const PARAMETER_SYNONYMS: &[&[&str]] = &[
    &["path", "filepath", "filename", "file", "absolutepath", "targetfile", "relativepath", "targetpath"],
    &["command", "cmd", "script", "shellcommand"],
    &["content", "contents", "filetext", "text", "filecontent", "body"],
    &["oldstring", "oldstr", "oldtext", "search"],
    &["newstring", "newstr", "newtext", "replace", "replacement"],
    &["pattern", "regex", "searchpattern"],
    &["query", "q", "searchquery", "searchterm"],
    &["url", "uri", "link", "href"],
    &["input", "patch", "diff", "patchtext"],
    &["directory", "dir", "folder", "dirpath", "path"],
];

/// The meaning of 0 for an optional size or limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zero {
    /// Unset, as in the built-in tools.
    Unset,
    /// The value 0, as the author of an external tool may need.
    Kept,
}

/// The changes made to fit arguments to their schema.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Every change.
    pub(crate) notes: Vec<String>,
    /// The changes that the model must know: a parameter was ignored or renamed.
    pub(crate) model_notes: Vec<String>,
    /// Unknown fields that were dropped.
    pub(crate) unknown: Vec<String>,
}

/// Fits `args` to `schema` in place. Every change leaves a note.
pub(crate) fn coerce_args(schema: &Value, args: &mut Value, zero: Zero) -> Changes {
    let mut fit = Coercer { root: SchemaRoot(schema), zero, changes: Changes::default() };
    if let Value::Object(map) = args {
        fit.object(schema, map, "", 0);
    }
    fit.changes
}

struct Coercer<'a> {
    root: SchemaRoot<'a>,
    zero: Zero,
    changes: Changes,
}

impl<'a> Coercer<'a> {
    fn object(&mut self, schema: &'a Value, map: &mut Map<String, Value>, path: &str, depth: usize) {
        let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return };
        if map.keys().any(|key| !fields.contains_key(key)) {
            self.rename_fields(schema, fields, map, path);
        }
        if map.values().any(Value::is_null) {
            self.drop_nulls(schema, fields, map, path);
        }
        for (key, value) in &mut *map {
            if let Some(field) = fields.get(key) {
                self.value(field, value, &|| join_path(path, key), depth + 1);
            }
        }
        if self.zero == Zero::Unset {
            self.zeros(schema, fields, map, path);
        }
    }

    /// Drops a zero for an optional size or limit: nobody calls a tool to get nothing.
    fn zeros(&mut self, schema: &Value, fields: &Map<String, Value>, map: &mut Map<String, Value>, path: &str) {
        let is_unset = |key: &str, value: &Value| {
            value.as_f64() == Some(0.0)
                && !is_required(schema, key)
                && fields.get(key).is_some_and(|field| is_size(key) || is_below_minimum(self.root.resolve_refs(field)))
        };
        let unset: Vec<String> = map.iter().filter(|(key, it)| is_unset(key, it)).map(|(key, _)| key.clone()).collect();
        for key in unset {
            map.shift_remove(&key);
            self.note(format!("left out \"{}\", which was 0", join_path(path, &key)));
        }
    }

    /// Renames fields that are spelled differently in the schema, and drops unknown ones.
    fn rename_fields(&mut self, schema: &Value, fields: &Map<String, Value>, map: &mut Map<String, Value>, path: &str) {
        let strange: Vec<String> = map.keys().filter(|key| !fields.contains_key(*key)).cloned().collect();
        let closed = is_closed_schema(schema, fields);
        for key in &strange {
            let respelt = single(fields.keys().filter(|field| normalize_name(field) == normalize_name(key)));
            let meant = respelt.or_else(|| if closed { synonym(schema, fields, map, key, &strange) } else { None });
            if let Some(field) = meant.filter(|field| !map.contains_key(*field)) {
                if let Some(value) = map.shift_remove(key) {
                    map.insert(field.clone(), value);
                    self.tell(format!("took \"{}\" for \"{field}\"", join_path(path, key)));
                }
            } else if closed && map.get(key).is_some_and(Value::is_null) {
                map.shift_remove(key);
                self.note(format!("left out \"{}\", which was null", join_path(path, key)));
            } else if closed {
                map.shift_remove(key);
                let near = closest_names(key, fields.keys().map(String::as_str));
                let hint = near.first().map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
                self.tell(format!("ignored the unknown parameter \"{}\"{hint}", join_path(path, key)));
                self.changes.unknown.push(join_path(path, key));
            }
        }
    }

    /// Drops null for an optional parameter.
    fn drop_nulls(&mut self, schema: &Value, fields: &Map<String, Value>, map: &mut Map<String, Value>, path: &str) {
        let empty: Vec<String> = map
            .iter()
            .filter(|(key, value)| value.is_null() && !is_required(schema, key))
            .filter(|(key, _)| fields.get(*key).is_some_and(|field| self.root.accepted_types(field, 0) & NULL == 0))
            .map(|(key, _)| key.clone())
            .collect();
        for key in empty {
            map.shift_remove(&key);
            self.note(format!("left out \"{}\", which was null", join_path(path, &key)));
        }
    }

    fn value(&mut self, schema: &'a Value, value: &mut Value, path: &dyn Fn() -> String, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let schema = self.root.resolve_refs(schema);
        let wanted = self.root.accepted_types(schema, 0);
        let has = value_type_mask(value);
        if wanted & has == 0 {
            self.convert(schema, wanted, value, path);
        }
        match value {
            Value::Number(number) if wanted & NUMBER == 0 && wanted & INTEGER != 0 && number.is_f64() => {
                if let Some(whole) = number.as_f64().and_then(exact_integer) {
                    *value = whole.into();
                }
            }
            Value::String(text) => self.fix_enum_case(schema, text, path),
            Value::Object(map) => {
                let branch = self.root.matching_branch(schema, OBJECT);
                self.object(branch, map, &path(), depth);
            }
            Value::Array(items) => {
                let Some(each) = self.root.matching_branch(schema, ARRAY).get("items") else { return };
                for (at, item) in items.iter_mut().enumerate() {
                    self.value(each, item, &|| format!("{}[{at}]", path()), depth + 1);
                }
            }
            _ => {}
        }
    }

    /// Converts a value of the wrong type if an equal value of the right type exists.
    fn convert(&mut self, schema: &'a Value, wanted: u8, value: &mut Value, path: &dyn Fn() -> String) {
        let new = match &*value {
            Value::String(text) => self.root.parse_as(schema, wanted, text),
            Value::Number(number) if wanted & STRING != 0 => Some(Value::String(number.to_string())),
            Value::Bool(flag) if wanted & STRING != 0 => Some(Value::String(flag.to_string())),
            other if wanted & ARRAY != 0 && !other.is_null() && self.root.fits_item(schema, other) => {
                Some(Value::Array(vec![other.clone()]))
            }
            _ => None,
        };
        if let Some(new) = new {
            let (old, seen) = (crate::validate::display_value(value, 40), crate::validate::display_value(&new, 40));
            self.note(format!("took {old} for {seen} in \"{}\"", path()));
            *value = new;
        }
    }

    /// Corrects the case of an enum value.
    fn fix_enum_case(&mut self, schema: &Value, text: &mut String, path: &dyn Fn() -> String) {
        let Some(words) = schema.get("enum").and_then(Value::as_array) else { return };
        if words.iter().any(|word| word.as_str() == Some(text)) {
            return;
        }
        let alike = words.iter().filter_map(Value::as_str).filter(|word| normalize_name(word) == normalize_name(text));
        if let Some(word) = single(alike) {
            self.note(format!("took \"{text}\" for \"{word}\" in \"{}\"", path()));
            word.clone_into(text);
        }
    }

    fn note(&mut self, text: String) {
        if self.changes.notes.len() < 32 {
            self.changes.notes.push(text);
        }
    }

    /// Adds a note that the model also gets.
    fn tell(&mut self, text: String) {
        if self.changes.model_notes.len() < 32 {
            self.changes.model_notes.push(text.clone());
        }
        self.note(text);
    }
}

/// The whole schema, to resolve references.
#[derive(Clone, Copy)]
struct SchemaRoot<'a>(&'a Value);

impl<'a> SchemaRoot<'a> {
    fn parse_as(self, schema: &'a Value, wanted: u8, text: &str) -> Option<Value> {
        let plain = text.trim();
        if wanted & (INTEGER | NUMBER) != 0
            && plain.len() <= 40
            && let Ok(number) = serde_json::from_str::<Number>(plain)
        {
            return match number.as_f64().and_then(exact_integer) {
                _ if !number.is_f64() => Some(Value::Number(number)),
                Some(whole) if wanted & INTEGER != 0 => Some(whole.into()),
                _ if wanted & NUMBER != 0 => Some(Value::Number(number)),
                _ => None,
            };
        }
        if wanted & BOOLEAN != 0 {
            if plain.eq_ignore_ascii_case("true") {
                return Some(Value::Bool(true));
            }
            if plain.eq_ignore_ascii_case("false") {
                return Some(Value::Bool(false));
            }
        }
        if wanted & (ARRAY | OBJECT) != 0
            && plain.starts_with(['[', '{'])
            && let Ok(mended) = repair::repair_json(plain)
            && mended.repairs.iter().all(|mend| mend.risk == Risk::Harmless)
            && value_type_mask(&mended.value) & wanted != 0
        {
            return Some(mended.value);
        }
        let item = Value::String(text.to_owned());
        (wanted & ARRAY != 0 && !plain.is_empty() && self.fits_item(schema, &item)).then(|| Value::Array(vec![item]))
    }

    fn fits_item(self, schema: &'a Value, value: &Value) -> bool {
        let branch = self.matching_branch(schema, ARRAY);
        branch
            .get("items")
            .is_some_and(|each| self.accepted_types(self.resolve_refs(each), 0) & value_type_mask(value) != 0)
    }

    /// The one alternative that accepts this type of value; the schema itself without alternatives.
    fn matching_branch(self, schema: &'a Value, kind: u8) -> &'a Value {
        let Some(branches) = ["anyOf", "oneOf"].into_iter().find_map(|word| schema.get(word)?.as_array()) else {
            return schema;
        };
        let takes = branches.iter().map(|it| self.resolve_refs(it)).filter(|it| self.accepted_types(it, 0) & kind != 0);
        single(takes).unwrap_or(schema)
    }

    /// Follows references inside the schema.
    fn resolve_refs(self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..8 {
            let Some(place) = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#')) else {
                break;
            };
            match self.0.pointer(place) {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    /// The types that a schema accepts; all if it names none.
    fn accepted_types(self, schema: &'a Value, depth: usize) -> u8 {
        let schema = self.resolve_refs(schema);
        if depth > 8 {
            return ALL;
        }
        if let Some(kind) = schema.get("type") {
            return match kind {
                Value::String(name) => type_mask(name),
                Value::Array(names) => names.iter().filter_map(Value::as_str).map(type_mask).fold(0, |a, b| a | b),
                _ => ALL,
            };
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return values.iter().map(value_type_mask).fold(0, |a, b| a | b);
        }
        if let Some(value) = schema.get("const") {
            return value_type_mask(value);
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(word) {
                return branches.iter().map(|it| self.accepted_types(it, depth + 1)).fold(0, |a, b| a | b);
            }
        }
        if let Some(Value::Array(parts)) = schema.get("allOf") {
            return parts.iter().map(|it| self.accepted_types(it, depth + 1)).fold(ALL, |a, b| a & b);
        }
        ALL
    }
}

const NULL: u8 = 1;
const BOOLEAN: u8 = 2;
const INTEGER: u8 = 4;
const NUMBER: u8 = 8;
const STRING: u8 = 16;
const ARRAY: u8 = 32;
const OBJECT: u8 = 64;
const ALL: u8 = 127;

fn type_mask(name: &str) -> u8 {
    match name {
        "null" => NULL,
        "boolean" => BOOLEAN,
        "integer" => INTEGER,
        "number" => NUMBER | INTEGER,
        "string" => STRING,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => ALL,
    }
}

fn value_type_mask(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(it) if !it.is_f64() || it.as_f64().is_some_and(|it| it.fract() == 0.0) => INTEGER | NUMBER,
        Value::Number(_) => NUMBER,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// A number without a fraction, if a float represents it exactly.
fn exact_integer(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}

/// Whether a schema lists all permitted fields.
fn is_closed_schema(schema: &Value, fields: &Map<String, Value>) -> bool {
    const OPEN_KEYWORDS: [&str; 7] =
        ["patternProperties", "anyOf", "oneOf", "allOf", "if", "$ref", "unevaluatedProperties"];
    let more = schema.get("additionalProperties");
    more == Some(&Value::Bool(false))
        || (more.is_none() && !fields.is_empty() && OPEN_KEYWORDS.iter().all(|word| schema.get(word).is_none()))
}

fn is_required(schema: &Value, field: &str) -> bool {
    schema.get("required").and_then(Value::as_array).is_some_and(|all| all.iter().any(|it| it.as_str() == Some(field)))
}

/// Whether a parameter is a size or duration: `limit`, `max_results`, `timeout_ms`, `head_limit`, `topK`.
fn is_size(name: &str) -> bool {
    const SIZES: [&str; 16] = [
        "limit", "lines", "timeout", "max", "count", "size", "bytes", "chars", "results", "turns", "seconds", "secs",
        "ms", "minutes", "pages", "tokens",
    ];
    let mut words: Vec<String> = Vec::new();
    let mut was_lower = false;
    for it in name.chars() {
        let starts = !it.is_ascii_alphanumeric() || (it.is_ascii_uppercase() && was_lower);
        if starts || words.is_empty() {
            words.push(String::new());
        }
        if let Some(last) = words.last_mut().filter(|_| it.is_ascii_alphanumeric()) {
            last.push(it.to_ascii_lowercase());
        }
        was_lower = it.is_ascii_lowercase();
    }
    words.retain(|it| !it.is_empty());
    // 0 is a valid threshold in `min_score`, and a budget of 0 must not become the default budget.
    let keeps_zero = words.iter().any(|it| ["min", "cost", "budget"].contains(&it.as_str()));
    !keeps_zero && (words == ["top", "k"] || words.iter().any(|it| SIZES.contains(&it.as_str())))
}

/// Whether 0 is below the minimum of a number.
fn is_below_minimum(schema: &Value) -> bool {
    let bound = |word: &str| schema.get(word).and_then(Value::as_f64);
    bound("minimum").is_some_and(|it| it > 0.0) || bound("exclusiveMinimum").is_some_and(|it| it >= 0.0)
}

/// The missing required field for which this name is a synonym, if no other field fits.
fn synonym<'s>(
    schema: &Value,
    fields: &'s Map<String, Value>,
    map: &Map<String, Value>,
    key: &str,
    strange: &[String],
) -> Option<&'s String> {
    let alike = |a: &str, b: &str| {
        PARAMETER_SYNONYMS
            .iter()
            .any(|words| words.contains(&&*normalize_name(a)) && words.contains(&&*normalize_name(b)))
    };
    let field = single(
        fields.keys().filter(|field| !map.contains_key(*field) && is_required(schema, field) && alike(field, key)),
    )?;
    single(strange.iter().filter(|other| alike(field, other))).map(|_| field)
}

/// The only item of an iterator, if there is exactly one.
fn single<T>(mut things: impl Iterator<Item = T>) -> Option<T> {
    let first = things.next()?;
    things.next().is_none().then_some(first)
}

pub(crate) fn normalize_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).flat_map(char::to_lowercase).collect()
}

pub(crate) fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fitted(fields: Value, required: Value, mut args: Value) -> (Value, Vec<String>) {
        let schema = json!({ "type": "object", "properties": fields, "required": required });
        let notes = coerce_args(&schema, &mut args, Zero::Unset).notes;
        (args, notes)
    }

    #[test]
    fn zero_below_the_minimum_of_an_optional_number_is_dropped() {
        let fields = json!({
            "limit": { "type": "integer", "minimum": 1 },
            "must": { "type": "integer", "minimum": 1 },
            "offset": { "type": "integer", "minimum": 0 },
        });
        let (args, notes) = fitted(fields, json!(["must"]), json!({ "limit": 0, "must": 0, "offset": 0 }));
        assert_eq!((args, notes.len()), (json!({ "must": 0, "offset": 0 }), 1));
    }

    #[test]
    fn words_become_numbers_and_flags_where_they_are_wanted() {
        let fields = json!({ "n": { "type": "integer" }, "x": { "type": "number" }, "f": { "type": "boolean" }, "s": { "type": "string" } });
        let (args, notes) = fitted(fields, json!([]), json!({ "n": "5", "x": "1.5", "f": "True", "s": 7 }));
        assert_eq!(args, json!({ "n": 5, "x": 1.5, "f": true, "s": "7" }));
        assert_eq!(
            notes,
            [
                r#"took "5" for 5 in "n""#,
                r#"took "1.5" for 1.5 in "x""#,
                r#"took "True" for true in "f""#,
                r#"took 7 for "7" in "s""#
            ]
        );
    }

    #[test]
    fn what_would_lose_something_stays() {
        let fields = json!({ "n": { "type": "integer" }, "f": { "type": "boolean" } });
        let sent = json!({ "n": "5.5", "f": "yes" });
        assert_eq!(fitted(fields, json!([]), sent.clone()), (sent, vec![]));
    }

    #[test]
    fn another_spelling_is_the_same_field() {
        let fields = json!({ "file_path": { "type": "string" }, "limit": { "type": "integer" } });
        let (args, notes) =
            fitted(fields, json!(["file_path"]), json!({ "filePath": "a", "limit": null, "colour": 1 }));
        assert_eq!(args, json!({ "file_path": "a" }));
        assert_eq!(
            notes,
            [
                r#"took "filePath" for "file_path""#,
                r#"ignored the unknown parameter "colour""#,
                r#"left out "limit", which was null"#
            ]
        );
    }

    #[test]
    fn a_name_from_elsewhere_stands_for_what_is_missing() {
        let fields = json!({ "file_path": { "type": "string" }, "content": { "type": "string" } });
        let required = json!(["file_path", "content"]);
        let (args, _) = fitted(fields.clone(), required.clone(), json!({ "path": "a", "text": "b" }));
        assert_eq!(args, json!({ "file_path": "a", "content": "b" }));
        let (two, _) = fitted(fields, required, json!({ "path": "a", "file": "c", "content": "b" }));
        assert_eq!(two, json!({ "content": "b" }), "two names could be meant, so none is");
    }

    #[test]
    fn a_list_may_come_alone_or_as_text() {
        let fields = json!({ "names": { "type": "array", "items": { "type": "string" } }, "at": { "type": "object", "properties": { "line": { "type": "integer" } } } });
        let (one, _) = fitted(fields.clone(), json!([]), json!({ "names": "a" }));
        assert_eq!(one, json!({ "names": ["a"] }));
        let (text, _) = fitted(fields, json!([]), json!({ "names": "[\"a\", 'b']", "at": "{\"line\": \"3\"}" }));
        assert_eq!(text, json!({ "names": ["a", "b"], "at": { "line": 3 } }));
    }

    #[test]
    fn an_open_object_keeps_what_it_gets() {
        let schema = json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": true });
        let mut args = json!({ "a": 1, "b": 2 });
        assert_eq!(coerce_args(&schema, &mut args, Zero::Unset).unknown, [""; 0]);
        assert_eq!(args, json!({ "a": 1, "b": 2 }));
    }

    #[test]
    fn a_word_of_a_list_may_have_another_case() {
        let (args, _) = fitted(
            json!({ "mode": { "type": "string", "enum": ["files_with_matches", "count"] } }),
            json!([]),
            json!({ "mode": "Count" }),
        );
        assert_eq!(args, json!({ "mode": "count" }));
    }

    #[test]
    fn zero_is_no_size_and_no_limit() {
        let number = json!({ "type": "integer", "minimum": 0 });
        let names =
            ["limit", "lines", "timeout", "top_k", "max_results", "max_bytes", "head_limit", "count", "maxTurns"];
        let fields: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), number.clone())).collect();
        let sent: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!(0))).collect();
        assert_eq!(fitted(fields.clone().into(), json!([]), sent.clone().into()).0, json!({}));
        assert_eq!(fitted(fields.clone().into(), json!(["limit"]), sent.clone().into()).0, json!({ "limit": 0 }));
        let schema = json!({ "type": "object", "properties": fields });
        let mut args = Value::Object(sent.clone());
        assert_eq!(coerce_args(&schema, &mut args, Zero::Kept), Changes::default());
        assert_eq!(args, Value::Object(sent));
    }

    #[test]
    fn zero_stays_where_it_means_something() {
        let fields = json!({
            "offset": { "type": "integer", "minimum": 0 },
            "min_score": { "type": "number" },
            "max_cost": { "type": "number" },
            "-C": { "type": "integer" },
            "name": { "type": "string" },
            "first": { "type": "integer", "minimum": 1 },
            "ratio": { "anyOf": [{ "type": "number" }, { "type": "null" }] },
            "timeout": { "type": ["number", "null"] },
        });
        let sent = json!({ "offset": 0, "min_score": 0.0, "max_cost": 0, "-C": 0, "name": "0", "first": 0, "ratio": 0, "timeout": 0.0 });
        let (args, notes) = fitted(fields, json!([]), sent);
        assert_eq!(args, json!({ "offset": 0, "min_score": 0.0, "max_cost": 0, "-C": 0, "name": "0", "ratio": 0 }));
        assert_eq!(notes, [r#"left out "first", which was 0"#, r#"left out "timeout", which was 0"#]);
    }

    #[test]
    fn the_model_hears_of_lost_and_renamed_parameters_only() {
        let schema = json!({
            "type": "object",
            "properties": { "file_path": { "type": "string" }, "limit": { "type": "integer" } },
            "required": ["file_path"],
        });
        let mut args = json!({ "filePath": "a", "limit": "5", "limits": 3, "x": null });
        let changes = coerce_args(&schema, &mut args, Zero::Unset);
        assert_eq!(args, json!({ "file_path": "a", "limit": 5 }));
        assert_eq!(
            changes.model_notes,
            [r#"took "filePath" for "file_path""#, r#"ignored the unknown parameter "limits"; did you mean "limit"?"#]
        );
        assert_eq!(changes.notes.len(), 4);
    }
}
