//! What models send, and what is read from it.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The value and the gravest risk of reading it.
fn read(text: &str) -> (Value, Risk) {
    let mended = repair_json(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    let risk = mended.risk();
    (mended.value, risk)
}

#[test]
fn spelling_is_mended_without_a_guess() {
    let wanted = json!({ "a": "b", "n": 1, "t": true });
    for text in [
        r#"{"a":"b","n":1,"t":true}"#,
        "```json\n{\"a\":\"b\",\"n\":1,\"t\":true}\n```",
        "```{\"a\":\"b\",\"n\":1,\"t\":true}```",
        "Here it is:\n```json\n{\"a\":\"b\",\"n\":1,\"t\":true}\n```\nDone.",
        "Sure! {\"a\":\"b\",\"n\":1,\"t\":true} That is all.",
        r#"{"a":"b","n":1,"t":true,}"#,
        r"{'a':'b','n':1,'t':true}",
        r#"{a:"b",n:1,t:true}"#,
        r#"{"a":"b","n":1,"t":True}"#,
        "{\"a\":\"b\", // the first\n\"n\":1, /* the second */ \"t\":true # the third\n}",
        "{“a”:“b”,“n”:1,“t”:true}",
        r#"{"a":"b","n":+1,"t":true}"#,
        r#"{"a":"b","n":1,"t":true}}"#,
        r#"{\"a\":\"b\",\"n\":1,\"t\":true}"#,
        "callback_1({\"a\":\"b\",\"n\":1,\"t\":true});",
        "\u{feff}{\"a\":\u{a0}\"b\",\"n\":1,\"t\":true}",
    ] {
        assert_eq!(read(text), (wanted.clone(), Risk::Harmless), "{text}");
    }
}

#[test]
fn content_stays_what_it_was() {
    for (text, wanted) in [
        ("{\"a\": \"one\ntwo\tthree\"}", json!({ "a": "one\ntwo\tthree" })),
        ("{\"a\": \"x\"", json!({ "a": "x" })),
        ("{\"a\": [1, {\"b\": \"c\"", json!({ "a": [1, { "b": "c" }] })),
        ("{'a': 'say \"hi\"'}", json!({ "a": "say \"hi\"" })),
        (r"{'a': 'it\'s'}", json!({ "a": "it's" })),
        ("{\"a\": \"```{}```\",}", json!({ "a": "```{}```" })),
        ("{\"a\": \"// no comment, # neither\",}", json!({ "a": "// no comment, # neither" })),
        ("{\"u\": \"\\ud83d\\ude00\",}", json!({ "u": "😀" })),
        (r#""{"a": "x\\n", "b": 1}""#, json!({ "a": "x\\n", "b": 1 })),
        (r#"'{"a": "it's \n"}'"#, json!({ "a": "it's \n" })),
        ("{\"a\": .5, \"b\": 1_000}", json!({ "a": 0.5, "b": 1000 })),
        ("", json!({})),
        (" \n", json!({})),
    ] {
        assert_eq!(read(text), (wanted, Risk::Harmless), "{text}");
    }
}

#[test]
fn a_guess_is_called_a_guess() {
    for (text, wanted) in [
        (r#"{"a": "say "hi" to all"}"#, json!({ "a": "say \"hi\" to all" })),
        (r#"{"a": hello world}"#, json!({ "a": "hello world" })),
        (r#"{"a": [1, 2, ...]}"#, json!({ "a": [1, 2] })),
        (r#"{"a": 12"#, json!({ "a": 12 })),
        (r#"{"a": 1,"#, json!({ "a": 1 })),
        ("{", json!({})),
        (r#"{"a": 1 "b": 2}"#, json!({ "a": 1, "b": 2 })),
        (r#"{"a": 007}"#, json!({ "a": "007" })),
        (r#"{"a": NaN}"#, json!({ "a": "NaN" })),
        (r#"{"a": "\d+"}"#, json!({ "a": "\\d+" })),
        (r#"{"a": "\ud83d"}"#, json!({ "a": "\u{fffd}" })),
        (r#"{"a": 1, "a": 2}"#, json!({ "a": 2 })),
        (r#"{"a": 1, "a": 2,}"#, json!({ "a": 2 })),
        (r#"{"a":}"#, json!({ "a": null })),
        (r#"{"a":2]"#, json!({ "a": 2 })),
        (r#"{"a" 2}"#, json!({ "a": 2 })),
    ] {
        let (value, risk) = read(text);
        assert_eq!(risk, Risk::Guess, "{text}");
        assert_eq!(value, wanted, "{text}");
    }
}

#[test]
fn the_same_key_twice_with_the_same_value_is_no_guess() {
    assert_eq!(read(r#"{"a": 1, "a": 1}"#), (json!({ "a": 1 }), Risk::Harmless));
}

#[test]
fn a_cut_is_called_a_cut() {
    for text in [r#"{"a": "b", "c": "half of it"#, r#"{"a": "#, r#"{"a"#, "{\"a\": [\"b"] {
        assert_eq!(read(text).1, Risk::Truncated, "{text}");
    }
}

#[test]
fn says_why_there_is_nothing_to_read() {
    let deep = format!("{}1{},", "[".repeat(200), "]".repeat(200));
    let seen =
        ["hello", "{\"a\":1}, {\"a\":2}", "{\"a\": 1}{\"b\": 2}", &deep].map(|text| repair_json(text).unwrap_err());
    assert_eq!(
        seen,
        [
            "there is no JSON object in it",
            "there is more than one JSON value in it",
            "there is more than one JSON value in it",
            "it is nested deeper than 128 levels"
        ]
    );
}

#[test]
fn tells_what_was_mended_once() {
    let mended = repair_json("{'a': 'b', 'c': True,}").unwrap();
    let told: Vec<&str> = mended.repairs.iter().map(|it| &*it.what).collect();
    assert_eq!(
        told,
        ["quotes that are not JSON's", "a word that JSON writes in another way, such as True", "a comma too many"]
    );
}

/// Inputs on which the well-known repair libraries agree; facts about behaviour, in the form of a table.
#[test]
fn reads_as_the_known_repairers_agree() {
    for (text, wanted) in [
        ("[truee", json!(["truee"])),
        ("{\nmessage: hello world\n}", json!({ "message": "hello world" })),
        ("{true: 2}", json!({ "true": 2 })),
        ("[https://www.example.com/,2]", json!(["https://www.example.com/", 2])),
        ("{\"date\":2024-10-18T18:35:22.229Z}", json!({ "date": "2024-10-18T18:35:22.229Z" })),
        ("{\"message\": \"with, several, comma's, you see?", json!({ "message": "with, several, comma's, you see?" })),
        ("{\"a\":2,\"b\":3, ... }", json!({ "a": 2, "b": 3 })),
        ("[a\",\"b\"]", json!(["a", "b"])),
        ("[\"a\" 2", json!(["a", 2])),
        ("{```\n{\"a\":\"b\"}\n```}", json!({ "a": "b" })),
        ("{\\\"s\\\": \\\"hello \\\\\"world\\\\\"\\\"}", json!({ "s": "hello \"world\"" })),
        ("[,1,2,3]", json!([1, 2, 3])),
        ("[{\"i\":1,{\"i\":2}]", json!([{ "i": 1 }, { "i": 2 }])),
        ("{]", json!({})),
        ("{\n\"values\":[1,2,3\n", json!({ "values": [1, 2, 3] })),
        ("[\"This is C(2)\", This is F(3)]", json!(["This is C(2)", "This is F(3)"])),
        ("[0.0.1,2]", json!(["0.0.1", 2])),
        ("{\"array\": [\n\"a\"\n\"b\"\n]}", json!({ "array": ["a", "b"] })),
        ("{\"a\":2\n\"b\":3\nc:4}", json!({ "a": 2, "b": 3, "c": 4 })),
        ("{\n  \"first\": \"John\"\n  last: Smith", json!({ "first": "John", "last": "Smith" })),
        ("[\"a\" \"b\" \"c\" 1", json!(["a", "b", "c", 1])),
        ("{\"key\": [\"value]}", json!({ "key": ["value"] })),
        ("{\"key\": [\"value\" \"value1\" \"value2\"]}", json!({ "key": ["value", "value1", "value2"] })),
        ("{\"key\": 1e }", json!({ "key": 1 })),
        ("{\"key\": value \"key2\" : \"value2\" ", json!({ "key": "value", "key2": "value2" })),
        ("{\"key\t_\": \"value\"}", json!({ "key\t_": "value" })),
        ("{\"text\": \"despre „x\" și y\"}", json!({ "text": "despre „x\" și y" })),
    ] {
        assert_eq!(read(text).0, wanted, "{text}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC*".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn valid_json_passes_unchanged(value in any_json()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            prop_assert_eq!(read(&text), (value.clone(), Risk::Harmless));
        }
    }

    #[test]
    fn valid_objects_survive_a_fence_and_a_comma(value in any_json()) {
        let object = json!({ "a": value });
        let text = object.to_string();
        let spoilt = format!("```json\n{},}}\n```", &text[..text.len() - 1]);
        prop_assert_eq!(read(&spoilt), (object, Risk::Harmless));
    }

    #[test]
    fn no_text_is_too_strange(text in any::<String>(), json in "[\\[\\]{}:,\"'\\\\a1 \n`#/.“”ud-]{0,60}") {
        let _ = repair_json(&text);
        let _ = repair_json(&json);
    }
}
