//! Tests of functions that become tools.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::executor::block_on;
use helve_contract::{
    Call, Effects, Entry, Error, FunctionDecl, Result, Tier, Tool,
    schemars::{self, JsonSchema},
    serde::Deserialize,
};
use helve_macros::tool;
use serde_json::{Value, json};

use crate::nowhere;

/// Greets people.
/// Says how many there were.
#[tool(reads, network, name = "hello", timeout = 30)]
async fn greet_all(
    call: &Call,
    /// Whom to greet.
    names: Vec<String>,
    /// How.
    tone: Option<Tone>,
    r#type: Option<Size>,
) -> Result<String> {
    if names.is_empty() {
        return Err(Error::failed("nobody to greet"));
    }
    for name in &names {
        call.report_progress(&format!("hello {name}"));
    }
    Ok(format!("{} {tone:?} {}", names.len(), r#type.map_or(0, |it| it.width)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(crate = "helve_contract::serde", rename_all = "lowercase")]
enum Tone {
    Warm,
    Cold,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(crate = "helve_contract::serde")]
struct Size {
    /// In metres.
    width: u8,
}

#[tool(none)]
async fn every_type(
    text: String,
    flag: bool,
    tiny: i8,
    huge: u128,
    size: usize,
    half: f32,
    real: f64,
    map: BTreeMap<String, i64>,
) -> Value {
    json!([text, flag, tiny, huge as u64, size, half, real, map])
}

#[tool]
/// Returns the text of a file.
async fn file_read(path: String) -> String {
    format!("text of {path}")
}

#[tool]
async fn without_docs() -> String {
    "done".to_owned()
}

/// Joins texts.
#[tool(sends, session_state)]
async fn join_texts(call: &Call, left: &str, right: Option<&str>, #[serde(default)] sign: &'_ str) -> Result<String> {
    call.report_progress(left);
    Ok(format!("{left}{sign}{}", right.unwrap_or("nothing")))
}

fn run<T: Tool>(args: Value, call: Call) -> String {
    block_on(Entry::from_tool::<T>().run(args, call)).map_or_else(|error| format!("error: {error}"), |reply| reply.text)
}

#[test]
fn a_function_becomes_a_tool() {
    let spec = Entry::from_tool::<GreetAll>().spec;
    assert_eq!(spec.name, "hello");
    assert_eq!(spec.description, "Greets people.\nSays how many there were.");
    assert_eq!((spec.effects, spec.timeout), (Effects::READS | Effects::NETWORK, Duration::from_secs(30)));
    assert_eq!(
        spec.input_schema,
        json!({
            "type": "object",
            "properties": {
                "names": { "type": "array", "items": { "type": "string" }, "description": "Whom to greet." },
                "tone": { "type": "string", "enum": ["warm", "cold"], "description": "How." },
                "type": {
                    "type": "object",
                    "properties": {
                        "width": { "type": "integer", "description": "In metres.", "minimum": 0, "maximum": 255 }
                    },
                    "required": ["width"]
                }
            },
            "required": ["names"]
        })
    );
}

#[test]
fn it_runs_with_progress_and_answers() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let mut call = nowhere::call();
    call.progress = Some(Arc::new(move |text| heard.lock().unwrap().push(text.to_owned())));
    let args = json!({ "names": ["Ann", "Bo"], "tone": "warm", "type": { "width": 7 } });
    assert_eq!(run::<GreetAll>(args, call), "2 Some(Warm) 7");
    assert_eq!(*said.lock().unwrap(), ["hello Ann", "hello Bo"]);
    assert_eq!(run::<GreetAll>(json!({ "names": [] }), nowhere::call()), "error: nobody to greet");
}

#[test]
fn the_types_of_the_table_and_no_call() {
    let types: Vec<Value> = Entry::from_tool::<EveryType>().spec.input_schema["properties"]
        .as_object()
        .unwrap()
        .values()
        .map(|it| it["type"].clone())
        .collect();
    assert_eq!(types, ["string", "boolean", "integer", "integer", "integer", "number", "number", "object"]);
    assert_eq!(EveryType::TIMEOUT, Duration::from_secs(120));
    let args = json!({
        "text": "x", "flag": true, "tiny": -1, "huge": 5, "size": 3, "half": 0.5, "real": 2.0, "map": { "k": 9 }
    });
    assert_eq!(run::<EveryType>(args, nowhere::call()), r#"["x",true,-1,5,3,0.5,2.0,{"k":9}]"#);
}

#[test]
fn the_function_stays_a_function() {
    assert_eq!(
        block_on(greet_all(&nowhere::call(), vec!["Ann".into()], Some(Tone::Cold), None)).unwrap(),
        "1 Some(Cold) 0"
    );
}

#[test]
fn a_bare_attribute_makes_a_tool_of_unknown_effects() {
    let spec = Entry::from_tool::<FileRead>().spec;
    assert_eq!((spec.name.as_str(), spec.description.as_str()), ("file_read", "Returns the text of a file."));
    assert_eq!((spec.effects, spec.tier()), (Effects::UNKNOWN, Tier::Privileged));
    assert_eq!(run::<FileRead>(json!({ "path": "a.txt" }), nowhere::call()), "text of a.txt");
}

#[test]
fn a_hidden_function_declares_the_tool() {
    let decl: FunctionDecl = __tool_function_decl_file_read();
    assert_eq!((decl.name.as_str(), decl.description.as_deref()), ("file_read", Some("Returns the text of a file.")));
    assert_eq!(
        decl.parameters,
        json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] })
    );
    let bare = __tool_function_decl_without_docs();
    assert_eq!((bare.name.as_str(), bare.description), ("without_docs", None));
    assert_eq!(__tool_function_decl_greet_all().name, "hello", "under the name that the model calls");
}

#[test]
fn borrowed_texts_are_strings() {
    let spec = Entry::from_tool::<JoinTexts>().spec;
    assert_eq!(spec.effects, Effects::SENDS | Effects::SESSION_STATE);
    let types: Vec<_> =
        spec.input_schema["properties"].as_object().unwrap().values().map(|it| it["type"].clone()).collect();
    assert_eq!((types, &spec.input_schema["required"]), (vec![json!("string"); 3], &json!(["left"])));
    let args = json!({ "left": "a", "right": "b", "sign": "+" });
    assert_eq!(run::<JoinTexts>(args, nowhere::call()), "a+b");
    assert_eq!(run::<JoinTexts>(json!({ "left": "a" }), nowhere::call()), "anothing");
}
