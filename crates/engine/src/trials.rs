//! Properties that hold for any input bytes, for tests and fuzzers.

use std::{fs, path::Path};

use helve_contract::events::ForgeStarted;
use serde_json::Value;

use crate::{Rule, coerce, commands, events::EventLog, repair, validate::CompiledSchema};

/// Repaired input is JSON, and a second repair changes nothing.
pub fn repair_is_idempotent(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mended) = repair::repair_json(text) else { return };
    let again = mended.value.to_string();
    let twice = repair::repair_json(&again).unwrap_or_else(|why| panic!("{again}: {why}"));
    assert_eq!(twice.value, mended.value);
    assert!(twice.repairs.is_empty(), "{again}: {:?}", twice.repairs);
}

/// A schema and arguments, separated by a zero byte: coercion is deterministic, and validation ends.
pub fn coerce_and_validate(data: &[u8]) {
    let Some(at) = data.iter().position(|byte| *byte == 0) else { return };
    let Ok(schema) = serde_json::from_slice::<Value>(&data[..at]) else { return };
    let Ok(mut args) = serde_json::from_slice::<Value>(&data[at + 1..]) else { return };
    let unknown = coerce::coerce_args(&schema, &mut args, coerce::Zero::Unset).unknown;
    if let Ok(compiled) = CompiledSchema::compile(&schema) {
        _ = compiled.check(&schema, &args, &unknown);
    }
}

/// A command is parsed or refused; a quoted word parses to itself.
pub fn parse_command(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(reading) = commands::parse_line(text) {
        _ = commands::display_command(text, Some(&reading));
        _ = reading.commands.iter().filter(|it| commands::is_read_only_command(it)).count();
    }
    let words: Vec<&str> = text.split('\n').filter(|it| !it.contains(['\0', '\r'])).collect();
    let line = commands::quote(words.iter().copied());
    if let Some(read) = commands::plain_words(&line) {
        let read: Vec<&str> = read.iter().flatten().map(String::as_str).collect();
        assert_eq!(read, words, "{line}");
    }
}

/// A rule is parsed or refused; a parsed rule keeps its source and parses again to the same rule.
pub fn rule(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        let Ok(rule) = Rule::parse(line) else { continue };
        assert_eq!(rule.source(), line.trim());
        assert_eq!(Rule::parse(rule.source()).as_ref(), Ok(&rule));
        _ = (rule.names_a_command(), rule.names_a_known_command());
    }
}

/// An event file with any content: appends write whole lines and lose no complete one.
pub fn open_event_file(data: &[u8], folder: &Path) {
    let file = folder.join("events.ndjson");
    if fs::write(&file, data).is_err() {
        return;
    }
    let before: Vec<Vec<u8>> = whole_lines(data);
    let Ok(events) = EventLog::file(&file, "run") else { return };
    if events.emit(ForgeStarted { run: "trial".into() }).is_err() {
        return;
    }
    drop(events);
    let after = fs::read(&file).unwrap_or_default();
    let lines = whole_lines(&after);
    assert!(after.ends_with(b"\n"), "the last line has an end");
    assert!(lines.len() > before.len() && lines[..before.len()] == before, "whole lines stay");
    let last: Value = lines.last().map(|it| serde_json::from_slice(it).unwrap_or_default()).unwrap_or_default();
    assert_eq!(last["data"]["run"], "trial");
}

fn whole_lines(data: &[u8]) -> Vec<Vec<u8>> {
    let end = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    data[..end].split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod corpus {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/replay.rs"));

    #[test]
    fn is_replayed() {
        replay("arguments", super::repair_is_idempotent);
        replay("schema", super::coerce_and_validate);
        replay("command", super::parse_command);
        replay("rule", super::rule);
        replay("events", |data| super::open_event_file(data, tempfile::tempdir().unwrap().path()));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::prelude::*;

    /// Every input of the command fuzzer's corpus and every prefix of it: the grammar is C, and most of its bugs are at
    /// the end of the input.
    #[test]
    fn the_corpus_of_commands_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/command");
        let inputs: Vec<_> = fs::read_dir(folder).unwrap().map(|it| fs::read(it.unwrap().path()).unwrap()).collect();
        assert!(inputs.len() >= 5, "the corpus is too small to say anything");
        for input in &inputs {
            for end in 0..=input.len() {
                super::parse_command(&input[..end]);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_falls_over(data in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,200}") {
            for data in [&data[..], text.as_bytes()] {
                super::repair_is_idempotent(data);
                super::coerce_and_validate(data);
                super::parse_command(data);
                super::rule(data);
                super::open_event_file(data, tempfile::tempdir().unwrap().path());
            }
        }
    }
}
