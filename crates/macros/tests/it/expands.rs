//! Functions that become tools.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::executor::block_on;
use helve_contract::{
    Call, Effects, Entry, Error, Result, Tool,
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
        call.say(&format!("hello {name}"));
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

fn run<T: Tool>(args: Value, call: Call) -> String {
    block_on(Entry::of::<T>().run(args, call)).map_or_else(|error| format!("error: {error}"), |reply| reply.text)
}

#[test]
fn a_function_becomes_a_tool() {
    let spec = Entry::of::<GreetAll>().spec;
    assert_eq!(spec.name, "hello");
    assert_eq!(spec.description, "Greets people.\nSays how many there were.");
    assert_eq!((spec.effects, spec.timeout), (Effects::READS | Effects::NETWORK, Duration::from_secs(30)));
    assert_eq!(
        spec.schema,
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
    let types: Vec<Value> = Entry::of::<EveryType>().spec.schema["properties"]
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
