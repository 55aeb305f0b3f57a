//! Validates arguments against their schema and describes every problem.

use std::sync::OnceLock;

use anyhow::anyhow;
use helve_contract::{ArgumentProblem, Error, Result, closest_names};
use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
    paths::{Location, LocationSegment},
};
use serde_json::{Map, Value};

use crate::coerce::join_path;

/// The maximum number of reported problems.
const MAX_PROBLEMS: usize = 20;

/// A schema that is compiled once: at registration for external tools, on first use for built-in ones.
pub(crate) struct CompiledSchema {
    compiled: OnceLock<Result<Validator, String>>,
    simple: OnceLock<bool>,
}

impl CompiledSchema {
    /// A schema that is known to compile.
    pub(crate) fn lazy() -> Self {
        Self { compiled: OnceLock::new(), simple: OnceLock::new() }
    }

    /// Compiles a schema of an external tool.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        let compiled = build_validator(schema)?;
        Ok(Self { compiled: OnceLock::from(Ok(compiled)), simple: OnceLock::new() })
    }

    /// Validates arguments and returns all problems. `unknown` are fields that were already dropped.
    pub(crate) fn check(&self, schema: &Value, args: &Value, unknown: &[String]) -> Result<()> {
        if *self.simple.get_or_init(|| is_simple(schema)) && matches_simple(schema, args) {
            return Ok(());
        }
        let compiled = self.compiled.get_or_init(|| build_validator(schema)).as_ref();
        let compiled = compiled.map_err(|why| anyhow!("the schema of this tool does not compile: {why}"))?;
        if compiled.is_valid(args) {
            return integer_overflow(schema, args).map_or(Ok(()), |problem| Err(Error::InvalidArgs(vec![problem])));
        }
        let mut problems: Vec<ArgumentProblem> =
            compiled.iter_errors(args).take(MAX_PROBLEMS).flat_map(|error| to_problems(schema, &error)).collect();
        match_unknown_fields(&mut problems, unknown);
        Err(Error::InvalidArgs(problems))
    }
}

/// Compiles a schema. References outside the schema do not resolve.
fn build_validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::options().offline().build(schema).map_err(|error| error.to_string())
}

/// An integer that does not fit into 64 bits: the schema accepts it, a tool cannot.
fn integer_overflow(schema: &Value, args: &Value) -> Option<ArgumentProblem> {
    let fields = schema.get("properties")?.as_object()?;
    let (path, value) = args.as_object()?.iter().find(|(name, value)| {
        value.is_f64() && fields.get(*name).and_then(|field| field.get("type")) == Some(&Value::from("integer"))
    })?;
    Some(ArgumentProblem::Mismatch {
        path: path.clone(),
        wanted: "a smaller number".into(),
        sent: display_value(value, 80),
    })
}

/// A dropped field may be the misspelled missing one.
fn match_unknown_fields(problems: &mut Vec<ArgumentProblem>, unknown: &[String]) {
    let missing: Vec<String> = problems
        .iter()
        .filter_map(|it| if let ArgumentProblem::Missing { path, .. } = it { Some(path.clone()) } else { None })
        .collect();
    for path in unknown {
        if let Some(near) = closest_names(path, missing.iter().map(String::as_str)).first() {
            problems.push(ArgumentProblem::Unknown { path: path.clone(), near: Some((*near).to_owned()) });
        }
    }
}

fn to_problems(schema: &Value, error: &ValidationError<'_>) -> Vec<ArgumentProblem> {
    let path = format_location(error.instance_path());
    let misfit = |wanted: String| {
        vec![ArgumentProblem::Mismatch { path: path.clone(), wanted, sent: display_value(error.instance(), 80) }]
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let wanted = sibling_schema(schema, error.schema_path(), name).map(describe_schema).unwrap_or_default();
            vec![ArgumentProblem::Missing { path: join_path(&path, name), wanted }]
        }
        ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => misfit(article(&kind.to_string())),
        ValidationErrorKind::Type { kind: TypeKind::Multiple(kinds) } => {
            let kinds: Vec<String> = kinds.iter().map(|kind| article(&kind.to_string())).collect();
            misfit(kinds.join(" or "))
        }
        ValidationErrorKind::Enum { options } => misfit(one_of(options)),
        ValidationErrorKind::Constant { expected_value } => misfit(display_value(expected_value, 80)),
        ValidationErrorKind::Minimum { limit } => misfit(format!("at least {limit}")),
        ValidationErrorKind::Maximum { limit } => misfit(format!("at most {limit}")),
        ValidationErrorKind::ExclusiveMinimum { limit } => misfit(format!("more than {limit}")),
        ValidationErrorKind::ExclusiveMaximum { limit } => misfit(format!("less than {limit}")),
        ValidationErrorKind::MinLength { limit: 1 } => misfit("a text that is not empty".into()),
        ValidationErrorKind::MinLength { limit } => misfit(format!("at least {limit} characters long")),
        ValidationErrorKind::MaxLength { limit } => misfit(format!("at most {limit} characters long")),
        ValidationErrorKind::MinItems { limit } => misfit(format!("a list of at least {limit}")),
        ValidationErrorKind::MaxItems { limit } => misfit(format!("a list of at most {limit}")),
        ValidationErrorKind::UniqueItems => misfit("a list without the same thing twice".into()),
        ValidationErrorKind::Pattern { pattern } => misfit(format!("a text that matches {pattern}")),
        ValidationErrorKind::Format { format } => misfit(format!("a valid {format}")),
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = fields_at(schema, error.schema_path());
            let strange = |name: &String| {
                let near = known.and_then(|all| {
                    closest_names(name, all.keys().map(String::as_str)).first().map(|it| join_path(&path, it))
                });
                ArgumentProblem::Unknown { path: join_path(&path, name), near }
            };
            unexpected.iter().map(strange).collect()
        }
        ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. } => misfit(
            schema
                .pointer(error.schema_path().as_str())
                .map_or_else(|| "one of the forms in the schema".into(), alternatives),
        ),
        _ => vec![ArgumentProblem::Other { path, text: error.masked_with("the value").to_string() }],
    }
}

/// A place in the arguments: `questions[0].header`.
fn format_location(location: &Location) -> String {
    let mut path = String::new();
    for part in location {
        match part {
            LocationSegment::Property(name) => path = join_path(&path, &name),
            LocationSegment::Index(at) => path.push_str(&format!("[{at}]")),
        }
    }
    path
}

/// The fields of the object whose keyword failed.
fn fields_at<'s>(schema: &'s Value, keyword: &Location) -> Option<&'s Map<String, Value>> {
    let (parent, _) = keyword.as_str().rsplit_once('/')?;
    schema.pointer(parent)?.get("properties")?.as_object()
}

fn sibling_schema<'s>(schema: &'s Value, keyword: &Location, field: &str) -> Option<&'s Value> {
    fields_at(schema, keyword)?.get(field)
}

/// What a schema expects, in a few words.
fn describe_schema(schema: &Value) -> String {
    if let Some(words) = schema.get("enum") {
        return one_of(words);
    }
    match schema.get("type") {
        Some(Value::String(kind)) => article(kind),
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).map(article).collect::<Vec<_>>().join(" or ")
        }
        _ => ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word)).map(alternatives).unwrap_or_default(),
    }
}

fn alternatives(branches: &Value) -> String {
    let mut words: Vec<String> =
        branches.as_array().into_iter().flatten().map(describe_schema).filter(|it| !it.is_empty()).collect();
    words.dedup();
    if words.is_empty() { "one of the forms in the schema".into() } else { words.join(" or ") }
}

fn one_of(words: &Value) -> String {
    let words: Vec<String> =
        words.as_array().into_iter().flatten().take(30).map(|word| display_value(word, 40)).collect();
    match words.as_slice() {
        [only] => only.clone(),
        _ => format!("one of {}", words.join(", ")),
    }
}

fn article(kind: &str) -> String {
    match kind {
        "boolean" => "true or false".into(),
        "array" => "a list".into(),
        "integer" => "a whole number".into(),
        "object" => "an object".into(),
        "null" => "null".into(),
        other => format!("a {other}"),
    }
}

/// A value as JSON, shortened to about `max` bytes.
pub(crate) fn display_value(value: &Value, max: usize) -> String {
    let mut text = match value {
        // Avoids the JSON of a long text that would be truncated anyway.
        Value::String(it) if it.len() > max => Value::from(&it[..it.floor_char_boundary(max)]).to_string(),
        _ => value.to_string(),
    };
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push('…');
    }
    text
}

/// Whether a schema has no constraints beyond those that [`matches_simple`] checks.
fn is_simple(schema: &Value) -> bool {
    let Some(map) = schema.as_object() else { return false };
    let root = map.iter().all(|(word, value)| match word.as_str() {
        "type" => value == "object",
        "properties" => value.as_object().is_some_and(|fields| fields.values().all(is_simple_field)),
        "required" => value.as_array().is_some_and(|names| names.iter().all(Value::is_string)),
        "additionalProperties" => value.is_boolean(),
        word => is_annotation(word),
    });
    root && map.contains_key("type")
}

fn is_simple_field(schema: &Value) -> bool {
    schema.as_object().is_some_and(|map| {
        map.iter().all(|(word, value)| match word.as_str() {
            "type" => value.as_str().is_some_and(|kind| KINDS.contains(&kind)),
            "enum" => value.as_array().is_some_and(|words| words.iter().all(Value::is_string)),
            "items" => is_simple_field(value),
            word => is_annotation(word),
        })
    })
}

const KINDS: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// Keywords of a schema without effect on validation.
fn is_annotation(word: &str) -> bool {
    matches!(word, "description" | "title" | "default" | "examples" | "$comment" | "deprecated")
}

/// The same result as the compiled schema, for simple schemas.
fn matches_simple(schema: &Value, args: &Value) -> bool {
    let Some(map) = args.as_object() else { return false };
    let fields = schema.get("properties").and_then(Value::as_object);
    let open = schema.get("additionalProperties") != Some(&Value::Bool(false));
    let required = schema.get("required").and_then(Value::as_array);
    required.is_none_or(|names| names.iter().all(|name| name.as_str().is_some_and(|name| map.contains_key(name))))
        && map.iter().all(|(key, value)| {
            fields.and_then(|it| it.get(key)).map_or(open, |field| matches_simple_field(field, value))
        })
}

fn matches_simple_field(schema: &Value, value: &Value) -> bool {
    let right = match schema.get("type").and_then(Value::as_str) {
        None => true,
        Some("string") => value.is_string(),
        Some("integer") => value.as_i64().is_some() || value.as_u64().is_some(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some(_) => value.is_object(),
    };
    right
        && schema.get("enum").and_then(Value::as_array).is_none_or(|words| words.contains(value))
        && match (schema.get("items"), value) {
            (Some(each), Value::Array(items)) => items.iter().all(|item| matches_simple_field(each, item)),
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(schema: &Value, args: &Value, unknown: &[&str]) -> Vec<String> {
        let unknown: Vec<String> = unknown.iter().map(|it| (*it).to_owned()).collect();
        match CompiledSchema::compile(schema).unwrap().check(schema, args, &unknown) {
            Ok(()) => Vec::new(),
            Err(Error::InvalidArgs(problems)) => problems.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    #[test]
    fn tells_everything_at_once() {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": { "type": "string" },
                "days": { "type": "integer", "minimum": 1 },
                "unit": { "enum": ["C", "F"] },
                "stops": { "type": "array", "items": { "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] } }
            },
            "required": ["city"]
        });
        let args = json!({ "days": 0, "unit": "K", "stops": [{}, { "name": 4 }] });
        let mut told = told(&schema, &args, &["town_city"]);
        told.sort();
        assert_eq!(
            told,
            [
                r#"missing required parameter "city" (a string)"#,
                r#"missing required parameter "stops[0].name" (a string)"#,
                r#"parameter "days" must be at least 1, not 0"#,
                r#"parameter "stops[1].name" must be a string, not 4"#,
                r#"parameter "unit" must be one of "C", "F", not "K""#,
                r#"unknown parameter "town_city"; did you mean "city"?"#,
            ]
        );
    }

    #[test]
    fn words_alternatives() {
        let schema = json!({ "type": "object", "properties": { "to": { "anyOf": [{ "type": "string" }, { "type": "array" }] } } });
        assert_eq!(told(&schema, &json!({ "to": 4 }), &[]), [r#"parameter "to" must be a string or a list, not 4"#]);
    }

    #[test]
    fn no_reference_is_fetched() {
        assert!(CompiledSchema::compile(&json!({ "$ref": "https://example.com/x.json" })).is_err());
        assert!(CompiledSchema::compile(&json!({ "$ref": "file:///etc/passwd" })).is_err());
    }

    #[test]
    fn the_short_way_says_what_the_long_way_says() {
        let schema = json!({
            "type": "object",
            "properties": {
                "s": { "type": "string", "enum": ["a", "b"], "description": "…" },
                "n": { "type": "integer" },
                "l": { "type": "array", "items": { "type": "string" } }
            },
            "required": ["s"], "additionalProperties": false
        });
        assert!(is_simple(&schema));
        let compiled = build_validator(&schema).unwrap();
        for args in [
            json!({}),
            json!({ "s": "a" }),
            json!({ "s": "c" }),
            json!({ "s": "a", "n": 1 }),
            json!({ "s": "a", "n": 1.5 }),
            json!({ "s": "a", "n": "1" }),
            json!({ "s": "a", "l": ["x", 1] }),
            json!({ "s": "a", "l": ["x"] }),
            json!({ "s": "a", "more": 1 }),
            json!([]),
        ] {
            assert_eq!(matches_simple(&schema, &args), compiled.is_valid(&args), "{args}");
        }
        assert!(!is_simple(&json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } } })));
    }

    #[test]
    fn a_number_that_no_integer_holds_is_named() {
        let schema = json!({ "type": "object", "properties": { "offset": { "type": "integer" } } });
        assert_eq!(
            told(&schema, &json!({ "offset": 1e20 }), &[]),
            ["parameter \"offset\" must be a smaller number, not 1e+20"]
        );
    }
}
