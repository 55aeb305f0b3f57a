//! Property tests: bytes outside the matched text never change.

use encoding_rs::{BIG5, EUC_KR, GBK, ISO_8859_2, SHIFT_JIS, WINDOWS_1251, WINDOWS_1252};
use proptest::prelude::*;

use super::*;

/// How a file may be written: a way to encode it, with a mark or without, and letters that it has.
fn formats() -> impl Strategy<Value = (TextFormat, &'static str)> {
    let plain = |charset, letters| (TextFormat { charset, bom: 0, damaged: false }, letters);
    let marked = |charset, bom, letters| (TextFormat { charset, bom, damaged: false }, letters);
    prop::sample::select(vec![
        plain(Charset::Utf8, "abé日😀 \t“”"),
        marked(Charset::Utf8, 3, "abé日😀 \t"),
        marked(Charset::Utf16Le, 2, "abé日😀 \t"),
        marked(Charset::Utf16Be, 2, "abé日😀 \t"),
        plain(Charset::Legacy(WINDOWS_1252), "abéÿ€ \t"),
        plain(Charset::Legacy(ISO_8859_2), "abőł \t"),
        plain(Charset::Legacy(WINDOWS_1251), "abжя \t"),
        plain(Charset::Legacy(SHIFT_JIS), "ab\\表ソｱ \t"),
        plain(Charset::Legacy(GBK), "ab中文 \t"),
        plain(Charset::Legacy(BIG5), "ab中功 \t"),
        plain(Charset::Legacy(EUC_KR), "ab한글 \t"),
    ])
}

fn mark(format: TextFormat) -> &'static [u8] {
    match (format.charset, format.bom) {
        (Charset::Utf8, 3) => b"\xef\xbb\xbf",
        (Charset::Utf16Le, 2) => b"\xff\xfe",
        (Charset::Utf16Be, 2) => b"\xfe\xff",
        _ => b"",
    }
}

fn file(format: TextFormat, text: &str) -> Vec<u8> {
    [mark(format), &text::encode(text, format.charset).unwrap()].concat()
}

fn words(letters: &'static str, most: usize) -> impl Strategy<Value = String> {
    let letters: Vec<_> = letters.chars().collect();
    prop::collection::vec(prop::sample::select(letters), 0..most).prop_map(|it| it.into_iter().collect())
}

/// A text of lines with any ends.
fn lines(letters: &'static str, most: usize) -> impl Strategy<Value = String> {
    ended(letters, most, &["\n", "\r\n", "\n", "\r\n", "\r"])
}

fn ended(letters: &'static str, most: usize, ends: &'static [&'static str]) -> impl Strategy<Value = String> {
    let line = (words(letters, 6), prop::sample::select(ends));
    prop::collection::vec(line, 0..most).prop_map(|it| it.into_iter().map(|(line, end)| line + end).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_outside_of_the_match_are_identical(
        (format, before, old, after, new) in formats().prop_flat_map(|(format, letters)| {
            (Just(format), lines(letters, 5), lines(letters, 3), lines(letters, 5), ended(letters, 3, &["\n", "\r\n"]))
        })
    ) {
        // Marks that stand nowhere else make the place known.
        let matched = format!("<{old}>");
        let bytes = file(format, &format!("{before}{matched}{after}"));
        let sent = matched.replace("\r\n", "\n");
        let wanted = Replacement { old: &sent, new: &format!("<{new}!>"), all: false, tolerance: Tolerance::Exact };
        match replace(&bytes, format, &wanted) {
            Ok(made) => {
                let (head, tail) = (file(format, &before), text::encode(&after, format.charset).unwrap());
                prop_assert!(made.bytes.starts_with(&head));
                prop_assert!(made.bytes.ends_with(&tail));
                let decoded = DecodedText::new(&made.bytes, format);
                let middle = decoded.text.strip_prefix(&*before).unwrap().strip_suffix(&*after).unwrap();
                let plain = |it: &str| it.replace("\r\n", "\n").replace('\r', "\n");
                prop_assert_eq!(plain(middle), plain(&format!("<{new}!>")));
            }
            // A lone return in a file of newlines is no line end, and cannot always be told from one that was sent.
            Err(ReplaceError::Missing(_)) => prop_assert!(matched.contains('\r')),
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn nothing_that_comes_in_makes_it_fall_over(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        old in ".{0,8}", new in ".{0,8}", all: bool, tolerant: bool, cut in (0_usize..200, 0_usize..200),
    ) {
        let Ok(format) = text::detect(&bytes, true) else { return Ok(()) };
        let tolerance = if tolerant { Tolerance::Tolerant } else { Tolerance::Exact };
        _ = replace(&bytes, format, &Replacement { old: &old, new: &new, all, tolerance });
        // And with a text that is there.
        let text = DecodedText::new(&bytes, format).text.into_owned();
        let chars: Vec<_> = text.chars().collect();
        let (from, to) = (cut.0.min(chars.len()), cut.1.min(chars.len()));
        let old: String = chars[from.min(to)..from.max(to)].iter().collect();
        if let Ok(made) = replace(&bytes, format, &Replacement { old: &old, new: &new, all, tolerance }) {
            prop_assert!(made.count > 0);
        }
    }

    #[test]
    fn the_ladder_changes_only_the_lines_it_found(
        before in lines("ab “", 4), body in "[a-z“’]{1,5}( [a-z]{1,3}){0,2}", after in lines("ab “", 4), indent in 0_usize..4,
    ) {
        let text = format!("{before}  <{body}>  \n{after}");
        let old = format!("{}<{}>", " ".repeat(indent), body.replace('“', "\"").replace('’', "'"));
        let wanted = Replacement { old: &old, new: &old.replace('>', "!>"), all: false, tolerance: Tolerance::Tolerant };
        if let Ok(made) = replace(text.as_bytes(), TextFormat::UTF8, &wanted) {
            let made = String::from_utf8(made.bytes).unwrap();
            prop_assert!(made.starts_with(&before), "{:?} {:?}", text, made);
            prop_assert!(made.ends_with(&after));
            prop_assert!(made.contains("!>"));
            let same = format!("<{body}!>");
            prop_assert!(made.contains(&same), "{:?} {:?}", text, made);
        }
    }
}

#[test]
fn a_proof_fails_where_another_byte_changed() {
    let made = VerifiedResult { bytes: b"aXcd".to_vec(), parts: vec!["a", "X", "cd"], changes: vec![(1..2, 1..2)] };
    assert!(made.verify(b"abcd", TextFormat::UTF8));
    assert!(!made.verify(b"abce", TextFormat::UTF8));
    assert!(!made.verify(b"Abcd", TextFormat::UTF8));
    assert!(!made.verify(b"abcd?", TextFormat::UTF8));
}

#[test]
fn a_flood_of_matches_stays_small() {
    let file = vec![b'a'; 1 << 20];
    let wanted = |all| Replacement { old: "a", new: "a long text instead", all, tolerance: Tolerance::Exact };
    let several = replace(&file, TextFormat::UTF8, &wanted(false)).unwrap_err();
    assert_eq!(several, ReplaceError::Ambiguous(1 << 20, vec![1; 10]));
    let flood = "x".repeat(1 << 10);
    let all = Replacement { new: &flood, ..wanted(true) };
    assert_eq!(replace(&file, TextFormat::UTF8, &all).unwrap_err(), ReplaceError::TooLarge);
}
