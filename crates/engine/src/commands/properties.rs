//! Property tests for command lines.

use proptest::prelude::*;

use super::{display_command, is_read_only_command, lex, parse::SimpleCommand, parse_line};

fn any_line() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("$(".to_owned()),
        Just("`".to_owned()),
        Just("'".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just("<<EOF\n".to_owned()),
        Just("\nEOF\n".to_owned()),
        Just("${".to_owned()),
        Just("}".to_owned()),
        Just("((".to_owned()),
        Just(")".to_owned()),
        Just(" | ".to_owned()),
        Just(" && ".to_owned()),
        Just(";".to_owned()),
        Just(" > ".to_owned()),
        Just("sh -c ".to_owned()),
        Just("env -S ".to_owned()),
        Just("find . -exec ".to_owned()),
        Just("xargs ".to_owned()),
        Just("eval ".to_owned()),
        Just("$'\\x".to_owned()),
        Just("[[ ".to_owned()),
        Just("case x in ".to_owned()),
        Just("é".to_owned()),
        "[a-z ]{0,6}",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn any_word() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9_./-]{1,8}", "[ -~]{0,12}", "[^\\x00\\r]{0,6}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_never_falls_over(line in any_line()) {
        if let Ok(reading) = parse_line(&line) {
            _ = display_command(&line, Some(&reading));
            _ = reading.commands.iter().map(is_read_only_command).count();
        }
    }

    #[test]
    fn what_is_quoted_is_read_back(program in "[a-z]{3,8}x", mut words in prop::collection::vec(any_word(), 0..6)) {
        words.insert(0, program);
        let line = lex::quote(words.iter().map(String::as_str));
        let reading = parse_line(&line).unwrap();
        let found: Vec<_> = reading.commands.iter().map(SimpleCommand::argv).collect();
        prop_assert_eq!(found, vec![Some(words.iter().map(String::as_str).collect::<Vec<_>>())]);
        prop_assert!(reading.is_fully_understood(), "{:?}", reading.ambiguities);
    }
}
