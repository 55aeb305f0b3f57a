//! Truncates replies and adds truncation notices.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
};

use helve_contract::{
    Limit, Reply, ReplyFormat, SavedText, SizeUnit, TruncateSide, Truncated, TruncatedBy, Truncation, Workspace,
};
use serde_json::{Map, Value};

use crate::{MessageTemplates, Spill, TruncationNotice, unseen};

/// The maximum size of a text in every dialect.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// The maximum size of all images of a reply together.
const MAX_MEDIA_BYTES: usize = 20 << 20;
/// The maximum number and length of remarks.
const MAX_NOTES: (usize, usize) = (40, 500);

/// The maximum size of the parts before and after a text, which are not truncated with it.
const MAX_FRAME: usize = 8 << 10;

/// Where the full text of a truncated reply is saved, and how it is named.
#[derive(Clone, Copy)]
pub(crate) struct SpillContext<'a> {
    /// The directory for spill files.
    pub(crate) spill: &'a Spill,
    /// The session's roots: a file beneath one gets the path that its model uses.
    pub(crate) workspace: &'a Workspace,
    /// The original text, if the reply shows it in another form.
    pub(crate) raw: Option<&'a str>,
}

/// The markers around untrusted text. They are added after truncation.
type Marks = [String; 2];

/// Truncates a reply and joins its parts. Saves the whole text to a file first, if there is a directory for it.
///
/// The limit is the call's, else the dialect's, and never above `most`.
pub(crate) fn truncate_reply(
    reply: &mut Reply,
    (limit, most): (Limit, Option<Limit>),
    words: &MessageTemplates,
    marks: Option<&Marks>,
    spill: Option<SpillContext<'_>>,
) {
    limit_media(reply);
    limit_notes(reply);
    save_beside(reply, spill);
    record_origin(reply, spill);
    let at_most = |limit: Limit| {
        let limit = Limit { size: limit.size.min(MAX_TEXT_BYTES), ..limit };
        most.map_or(limit, |most| limit.at_most(most))
    };
    let limit = at_most(limit);
    if reply.format == ReplyFormat::Json && reply.data.is_some() {
        truncate_json(reply, limit, words, spill);
    } else {
        truncate_text(reply, reply.limit.map_or(limit, at_most), words, marks, spill);
        if let Some(data) = &mut reply.data
            && !fits_json(data, limit.size.max(4096))
        {
            *data = shrink_value(data, limit.size.max(4096), reply.truncate_side);
        }
    }
}

fn truncate_text(
    reply: &mut Reply,
    limit: Limit,
    words: &MessageTemplates,
    marks: Option<&Marks>,
    spill: Option<SpillContext<'_>>,
) {
    let part = truncate(&reply.text, limit, reply.truncate_side);
    let notice = if part.by.is_none() && reply.truncation.is_none() {
        String::new()
    } else {
        let by = part.by;
        let body = part.text.strip_suffix('\n').unwrap_or(part.text).to_owned();
        // Sizes refer to the original output, not to the text with escaped characters.
        let raw = spill.and_then(|it| it.raw).unwrap_or(&reply.text);
        let shown = match reply.truncate_side {
            TruncateSide::KeepHead => &raw[..unseen::raw_offset(raw, body.len())],
            TruncateSide::KeepTail => &raw[unseen::raw_offset(raw, reply.text.len() - part.text.len())..],
        };
        let is_whole = reply.truncation.is_none() && reply.source_bytes.is_none();
        // For parts that the tool omitted itself, only the byte size is known.
        let unit = if is_whole { limit.unit } else { SizeUnit::Bytes };
        let cut = whole_size(reply, raw);
        let total = if is_whole { unit.measure(raw) as u64 } else { cut.bytes };
        let kept = reply.source_bytes.is_none();
        let kept = kept.then(|| unit.measure(shown.strip_suffix('\n').unwrap_or(shown)) as u64);
        let file =
            if by.is_some() { spill_path(reply, marks, spill) } else { reply.spill_file.clone().map(PathBuf::from) };
        reply.text = body;
        reply.truncation = Some(cut);
        (words.notice)(&TruncationNotice {
            truncation: cut,
            kept_size: kept,
            total,
            unit,
            by,
            side: reply.truncate_side,
            limit,
            file,
        })
    };
    if let Some([opening, closing]) = marks {
        reply.text = format!("{opening}\n{}\n{closing}", reply.text.trim_end());
    }
    push_line(&mut reply.text, &notice);
    push_line(&mut reply.text, frame(&reply.after));
    if !reply.before.is_empty() {
        reply.text.insert_str(0, frame(&reply.before));
    }
    (reply.before, reply.after) = (String::new(), String::new());
}

/// The size of the whole output: from the tool, else of its text.
fn whole_size(reply: &Reply, text: &str) -> Truncation {
    let cut = reply.truncation.unwrap_or(Truncation::of(text));
    Truncation { bytes: reply.source_bytes.unwrap_or(cut.bytes), ..cut }
}

/// Saves `Reply::saved` to a file and names the file in the reply.
fn save_beside(reply: &mut Reply, spill: Option<SpillContext<'_>>) {
    let (Some(SavedText { what, text }), Some(SpillContext { spill, workspace, .. })) = (reply.saved.take(), spill)
    else {
        return;
    };
    match spill.write(&[&text], reply.origin.as_ref().map(|it| it.name.as_str())) {
        Ok(path) => push_line(&mut reply.after, &format!("[{what}: {}]", workspace.display_path(&path))),
        Err(error) => reply.notes.push(format!("the file beside the reply could not be saved: {error}")),
    }
}

/// Records that the file written by the tool contains untrusted text.
fn record_origin(reply: &mut Reply, spill: Option<SpillContext<'_>>) {
    if let (Some(file), Some(origin), Some(SpillContext { spill, .. })) = (&reply.spill_file, &reply.origin, spill)
        && let Err(error) = spill.record_origin(Path::new(file), &origin.name)
    {
        reply.notes.push(format!("the origin of the saved output could not be recorded: {error}"));
    }
}

fn truncate(text: &str, limit: Limit, keep: TruncateSide) -> Truncated<'_> {
    match keep {
        TruncateSide::KeepHead => limit.head(text),
        TruncateSide::KeepTail => limit.tail(text),
    }
}

fn frame(text: &str) -> &str {
    Limit::bytes(MAX_FRAME).head(text).text
}

fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') && !line.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

fn truncate_json(reply: &mut Reply, limit: Limit, words: &MessageTemplates, spill: Option<SpillContext<'_>>) {
    let data = reply.data.take().unwrap_or(Value::Null);
    let longest = longest_string(&data);
    let asked = reply.limit.filter(|own| longest.is_some_and(|text| !own.admits(text)));
    if asked.is_none() && limit.admits(&reply.text) {
        reply.data = Some(data);
        return;
    }
    let cut = whole_size(reply, &reply.text);
    let file = spill_path(reply, None, spill);
    let has_source = reply.source_bytes.is_some();
    let notice = |kept: usize| {
        let (kept, total, by) = ((!has_source).then_some(kept as u64), cut.bytes, Some(TruncatedBy::Size));
        let unit = SizeUnit::Bytes;
        (words.notice)(&TruncationNotice {
            truncation: cut,
            kept_size: kept,
            total,
            unit,
            by,
            side: reply.truncate_side,
            limit,
            file: file.clone(),
        })
    };
    // The notice is inside the data, so its size counts against the limit.
    let room = limit.size.saturating_sub(notice(limit.size).len() + 64).max(128);
    let asked = longest.zip(asked);
    let mut smaller = smaller_than(&data, Limit { size: room, ..limit }, reply.truncate_side, asked);
    let notice = notice(smaller.to_string().len());
    if !insert_notice(&mut smaller, &notice)
        && let Value::Object(map) = &mut smaller
    {
        map.insert("notice".into(), notice.into());
    }
    reply.text = smaller.to_string();
    reply.data = Some(smaller);
    reply.truncation = Some(cut);
}

fn longest_string(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(items) => items.iter().filter_map(longest_string).max_by_key(|it| it.len()),
        Value::Object(map) => map.values().filter_map(longest_string).max_by_key(|it| it.len()),
        _ => None,
    }
}

/// The file with the whole text: the tool's, or a new one. A tool that omitted something and has no file has no whole
/// text to save.
fn spill_path(reply: &mut Reply, marks: Option<&Marks>, spill: Option<SpillContext<'_>>) -> Option<PathBuf> {
    if reply.spill_file.is_none()
        && reply.truncation.is_none()
        && let Some(SpillContext { spill, workspace, raw }) = spill
    {
        let text = raw.unwrap_or(&reply.text);
        let parts = match marks {
            Some([opening, closing]) => [opening.as_str(), "\n", text, "\n", closing.as_str()],
            None => [text, "", "", "", ""],
        };
        match spill.write(&parts, reply.origin.as_ref().map(|it| it.name.as_str())) {
            Ok(path) => reply.spill_file = Some(workspace.display_path(&path)),
            Err(error) => reply.notes.push(format!("the full output could not be saved: {error}")),
        }
    }
    reply.spill_file.clone().map(PathBuf::from)
}

/// Whether the JSON of a value has at most so many bytes.
pub(crate) fn fits_json(value: &Value, bytes: usize) -> bool {
    serde_json::to_writer(LimitedWriter { left: bytes }, value).is_ok()
}

/// A writer that fails after a number of bytes.
struct LimitedWriter {
    left: usize,
}

impl io::Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text, or a part of it that has at most so many bytes.
pub(crate) fn truncate_str(text: &str, bytes: usize, keep: TruncateSide) -> Cow<'_, str> {
    if text.len() <= bytes { text.into() } else { shorten_text(text, Limit::bytes(bytes), keep).into() }
}

/// Shortens the longest texts of a value until its JSON fits, then its lists.
pub(crate) fn shrink_value(value: &Value, bytes: usize, keep: TruncateSide) -> Value {
    smaller_than(value, Limit::bytes(bytes), keep, None)
}

/// The same for a limit in any unit. The text in `asked` has its own limit and is truncated once, to the smaller one.
fn smaller_than(value: &Value, limit: Limit, keep: TruncateSide, asked: Option<(&str, Limit)>) -> Value {
    let is_small = |value: &Value| match limit.unit {
        SizeUnit::Bytes => fits_json(value, limit.size),
        SizeUnit::Chars => limit.unit.measure(&value.to_string()) <= limit.size,
    };
    let copied = |longest, items| Shortening { longest, items, keep, asked }.copy(value);
    let untouched = copied(usize::MAX, usize::MAX);
    if is_small(&untouched) {
        return untouched;
    }
    let (mut low, mut high) = (0, longest_string(value).map_or(0, str::len).min(limit.size.saturating_mul(4)));
    let mut best = None;
    while high - low > high / 16 + 8 {
        let middle = low.midpoint(high);
        match Some(copied(middle, usize::MAX)).filter(is_small) {
            Some(found) => (best, low) = (Some(found), middle),
            None => high = middle,
        }
    }
    if let Some(best) = best {
        return best;
    }
    let lists = std::iter::successors(Some(1024_usize), |items| (*items > 1).then_some(items / 2));
    lists
        .map(|items| copied(64, items))
        .find(is_small)
        .unwrap_or_else(|| Value::Object(Map::from_iter([("cut".into(), Value::Bool(true))])))
}

const OMITTED_SUFFIX: &str = " bytes left out]";

/// The part of a text within a limit, with the omitted size.
fn shorten_text(text: &str, limit: Limit, keep: TruncateSide) -> String {
    with_mark(text, truncate(text, limit, keep).text, keep)
}

fn with_mark(text: &str, part: &str, keep: TruncateSide) -> String {
    let mark = format!("[{}{OMITTED_SUFFIX}", text.len() - part.len());
    if keep == TruncateSide::KeepHead { format!("{part}…{mark}") } else { format!("{mark}…{part}") }
}

/// How to shorten the texts and lists of a value.
struct Shortening<'a> {
    /// The maximum bytes of a text.
    longest: usize,
    /// The maximum items of a list.
    items: usize,
    keep: TruncateSide,
    asked: Option<(&'a str, Limit)>,
}

impl Shortening<'_> {
    fn copy(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(list) => list.iter().take(self.items).map(|it| self.copy(it)).collect(),
            Value::Object(map) => {
                let pairs = map.iter().take(self.items.max(16));
                Value::Object(pairs.map(|(key, it)| (key.clone(), self.copy(it))).collect())
            }
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut part = text;
        if let Some((_, limit)) = self.asked.filter(|(longest, _)| *longest == text) {
            part = truncate(part, limit, self.keep).text;
        }
        if part.len() > self.longest {
            part = truncate(part, Limit::bytes(self.longest), self.keep).text;
        }
        if part.len() == text.len() { text.to_owned() } else { with_mark(text, part, self.keep) }
    }
}

/// Inserts the notice next to the first shortened text.
fn insert_notice(value: &mut Value, notice: &str) -> bool {
    match value {
        Value::String(text) if text.ends_with(OMITTED_SUFFIX) => {
            *text = format!("{text}\n{notice}");
            true
        }
        Value::String(text) if text.starts_with('[') && text.find(OMITTED_SUFFIX).is_some_and(|at| at < 24) => {
            *text = format!("{notice}\n{text}");
            true
        }
        Value::Array(list) => list.iter_mut().any(|it| insert_notice(it, notice)),
        Value::Object(map) => map.values_mut().any(|it| insert_notice(it, notice)),
        _ => false,
    }
}

fn limit_media(reply: &mut Reply) {
    let mut room = MAX_MEDIA_BYTES;
    let before = reply.media.len();
    reply.media.retain(|media| {
        let fits = media.bytes.len() <= room;
        room -= if fits { media.bytes.len() } else { 0 };
        fits
    });
    let left_out = before - reply.media.len();
    if left_out > 0 {
        reply.notes.push(format!("left out {left_out} pictures or files: a reply holds at most 20 MB of them"));
        if reply.format == ReplyFormat::Text {
            let line = format!("[{left_out} of {before} pictures left out: together they are over 20 MB]");
            push_line(&mut reply.after, &line);
        }
    }
}

fn limit_notes(reply: &mut Reply) {
    reply.notes.truncate(MAX_NOTES.0);
    reply.repairs.truncate(MAX_NOTES.0);
    for note in reply.notes.iter_mut().chain(&mut reply.repairs) {
        if note.len() > MAX_NOTES.1 {
            note.truncate(note.floor_char_boundary(MAX_NOTES.1));
            note.push('…');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helve_contract::Media;
    use proptest::prelude::*;
    use serde_json::json;

    const WORDS: MessageTemplates = MessageTemplates {
        error: |_, error| Reply::error(error.to_string()),
        error_prefix: "",
        notice: |it| {
            format!(
                "[{} of {} bytes, {} lines]",
                it.kept_size.unwrap_or_default(),
                it.truncation.bytes,
                it.truncation.lines
            )
        },
        cancelled: "Cancelled",
    };

    fn bounded(text: &str, keep: TruncateSide, bytes: usize, lines: usize) -> String {
        let mut reply = Reply { truncate_side: keep, ..Reply::from(text) };
        truncate_reply(&mut reply, (Limit::bytes(bytes).lines(lines), None), &WORDS, None, None);
        reply.text
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        assert_eq!(bounded("a\nb\n", TruncateSide::KeepHead, 4, 2), "a\nb\n");
    }

    #[test]
    fn the_notice_stands_after_the_text_at_either_end() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(bounded(text, TruncateSide::KeepHead, 100, 2), "one\ntwo\n[7 of 14 bytes, 3 lines]");
        assert_eq!(bounded(text, TruncateSide::KeepHead, 9, 100), "one\ntwo\n[7 of 14 bytes, 3 lines]");
        assert_eq!(bounded(text, TruncateSide::KeepTail, 100, 2), "two\nthree\n[9 of 14 bytes, 3 lines]");
        assert_eq!(bounded("ééééé", TruncateSide::KeepHead, 5, 9), "éé\n[4 of 10 bytes, 1 lines]");
        assert_eq!(bounded("ééééé", TruncateSide::KeepTail, 5, 9), "éé\n[4 of 10 bytes, 1 lines]");
    }

    #[test]
    fn what_stands_around_a_text_is_not_cut_away() {
        let mut reply = Reply {
            before: "exit code: 3\n".into(),
            after: "[120 lines in all]".into(),
            ..Reply::from("x".repeat(5000))
        };
        let marks = ["[begins]".to_owned(), "[ends]".to_owned()];
        truncate_reply(&mut reply, (Limit::bytes(10), None), &WORDS, Some(&marks), None);
        assert_eq!(
            reply.text,
            "exit code: 3\n[begins]\nxxxxxxxxxx\n[ends]\n[10 of 5000 bytes, 1 lines]\n[120 lines in all]"
        );
    }

    #[test]
    fn a_call_may_ask_for_more_or_less_than_the_dialect_gives() {
        for (asked, kept) in [(20, 20), (200, 200), (MAX_TEXT_BYTES + 1, 300)] {
            let mut reply = Reply { limit: Some(Limit::bytes(asked)), ..Reply::from("x".repeat(300)) };
            truncate_reply(&mut reply, (Limit::bytes(100), None), &WORDS, None, None);
            assert_eq!(reply.text.bytes().filter(|it| *it == b'x').count(), kept);
        }
    }

    #[test]
    fn json_stays_json() {
        let mut reply = Reply::json(json!({ "id": 7, "out": "x".repeat(5000), "tags": ["a"] }));
        truncate_reply(&mut reply, (Limit::bytes(600).lines(2), None), &WORDS, None, None);
        let data: Value = serde_json::from_str(&reply.text).unwrap();
        assert_eq!(Some(&data), reply.data.as_ref());
        assert!(reply.text.len() <= 600 && reply.text.len() > 400, "{}", reply.text.len());
        assert_eq!((&data["id"], &data["tags"]), (&json!(7), &json!(["a"])));
        assert!(data["out"].as_str().unwrap().ends_with(" of 5030 bytes, 1 lines]"), "{data}");
    }

    #[test]
    fn a_long_line_after_a_short_one_is_kept_in_json_too() {
        let text = format!("/* licence */\n{}", "x".repeat(100_000));
        let mut reply = Reply::json(json!({ "body": text }));
        truncate_reply(&mut reply, (Limit::bytes(16_384), None), &WORDS, None, None);
        assert!(reply.text.len() > 8_192 && reply.text.len() <= 16_384, "{}", reply.text.len());
    }

    #[test]
    fn the_longest_string_of_json_is_cut_to_what_the_call_asked_for() {
        let data = json!({ "url": "https://a.example/", "body": "y".repeat(50) });
        let mut reply = Reply { limit: Some(Limit::chars(5)), ..Reply::json(data) };
        truncate_reply(&mut reply, (Limit::bytes(1000), None), &WORDS, None, None);
        let data: Value = serde_json::from_str(&reply.text).unwrap();
        assert_eq!(data["url"], "https://a.example/");
        assert!(data["body"].as_str().unwrap().starts_with("yyyyy…[45 bytes left out]\n["), "{data}");
    }

    #[test]
    fn a_string_of_json_that_two_limits_cut_is_cut_once() {
        let data = json!({ "body": "y".repeat(5000) });
        let mut reply = Reply { limit: Some(Limit::chars(2000)), ..Reply::json(data) };
        truncate_reply(&mut reply, (Limit::bytes(1000), None), &WORDS, None, None);
        let data: Value = serde_json::from_str(&reply.text).unwrap();
        let body = data["body"].as_str().unwrap();
        let shown = body.split('…').next().unwrap().len();
        assert!(body.contains(&format!("…[{} bytes left out]", 5000 - shown)), "{body}");
        assert_eq!(body.matches("left out").count(), 1);
    }

    #[test]
    fn sizes_are_those_of_the_output_and_not_of_its_escapes() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::new(folder.path().join("spill"), std::time::Duration::from_secs(60));
        let workspace = Workspace::new([], helve_contract::PathRules::default(), helve_contract::PathStyle::Absolute);
        for keep in [TruncateSide::KeepHead, TruncateSide::KeepTail] {
            let mut reply = Reply { truncate_side: keep, ..Reply::from("\u{1}".repeat(1000)) };
            let raw = unseen::escape_invisible(&mut reply);
            assert_eq!(reply.text.len(), 4000);
            let kept = SpillContext { spill: &spill, workspace: &workspace, raw: raw.as_deref() };
            truncate_reply(&mut reply, (Limit::bytes(400), None), &WORDS, None, Some(kept));
            assert!(reply.text.ends_with("[100 of 1000 bytes, 1 lines]"), "{}", reply.text);
        }
    }

    #[test]
    fn a_notice_has_one_unit() {
        const UNITS: MessageTemplates = MessageTemplates {
            notice: |it| format!("[{} of {} {}]", it.kept_size.unwrap_or_default(), it.total, it.unit),
            ..WORDS
        };
        let mut reply = Reply::from("é".repeat(30));
        truncate_reply(&mut reply, (Limit::chars(10), None), &UNITS, None, None);
        assert!(reply.text.ends_with("[10 of 30 characters]"), "{}", reply.text);
        let mut reply = Reply { truncation: Some(Truncation { bytes: 900, lines: 1 }), ..Reply::from("é".repeat(30)) };
        truncate_reply(&mut reply, (Limit::chars(10), None), &UNITS, None, None);
        assert!(reply.text.ends_with("[20 of 900 bytes]"), "{}", reply.text);
    }

    #[test]
    fn the_caller_may_take_less_than_the_dialect_gives() {
        for form in [ReplyFormat::Text, ReplyFormat::Json] {
            let mut reply = Reply { limit: Some(Limit::bytes(9000)), ..Reply::from("x".repeat(9000)) };
            if form == ReplyFormat::Json {
                reply = Reply { limit: reply.limit, ..Reply::json(json!({ "a": reply.text })) };
            }
            truncate_reply(&mut reply, (Limit::bytes(1 << 20), Some(Limit::chars(1000))), &WORDS, None, None);
            assert!((800..1100).contains(&reply.text.len()), "{}", reply.text.len());
            assert!(reply.text.contains("of 90"), "{}", reply.text);
        }
    }

    #[test]
    fn a_long_list_of_short_things_is_shortened_too() {
        let mut reply = Reply::json(json!({ "all": (0..5000).collect::<Vec<_>>() }));
        truncate_reply(&mut reply, (Limit::bytes(1000).lines(2), None), &WORDS, None, None);
        assert!(reply.text.len() <= 1000);
        let notice = reply.data.unwrap()["notice"].as_str().unwrap().to_owned();
        assert!(notice.ends_with(" of 23899 bytes, 1 lines]"), "{notice}");
    }

    #[test]
    fn what_a_tool_left_out_itself_is_told() {
        let mut reply = Reply { truncation: Some(Truncation { bytes: 9000, lines: 300 }), ..Reply::from("the end") };
        truncate_reply(&mut reply, (Limit::bytes(100).lines(100), None), &WORDS, None, None);
        assert_eq!(reply.text, "the end\n[7 of 9000 bytes, 300 lines]");
    }

    #[test]
    fn a_long_text_is_shortened_to_whole_lines_where_they_fill_half() {
        let text = "line of text\n".repeat(50);
        assert_eq!(truncate_str(&text, 650, TruncateSide::KeepHead), text);
        assert_eq!(
            truncate_str(&text, 30, TruncateSide::KeepHead),
            "line of text\nline of text\n…[624 bytes left out]"
        );
        assert_eq!(
            truncate_str(&text, 30, TruncateSide::KeepTail),
            "[624 bytes left out]…line of text\nline of text\n"
        );
    }

    #[test]
    fn pictures_have_a_limit() {
        let media = |bytes| Media { mime: "image/png".into(), bytes: vec![0; bytes] };
        let mut reply = Reply { media: vec![media(MAX_MEDIA_BYTES - 1), media(2)], ..Reply::from("two") };
        truncate_reply(&mut reply, (Limit::bytes(1000).lines(10), None), &WORDS, None, None);
        assert_eq!(reply.media.len(), 1);
        assert_eq!(reply.text, "two\n[1 of 2 pictures left out: together they are over 20 MB]");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_file_of_a_cut_reply_holds_all_of_it(
            text in prop_oneof!["[a-zü雪\n]{0,300}", "(?s).{0,300}"],
            size in 0_usize..200,
            chars in any::<bool>(),
            tail in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let spill = Spill::new(folder.path().join("spill"), std::time::Duration::from_secs(60));
            let workspace = Workspace::new([], helve_contract::PathRules::default(), helve_contract::PathStyle::Absolute);
            let keep = if tail { TruncateSide::KeepTail } else { TruncateSide::KeepHead };
            let limit = if chars { Limit::chars(size) } else { Limit::bytes(size) };
            let mut reply = Reply { truncate_side: keep, ..Reply::from(text.as_str()) };
            let kept = SpillContext { spill: &spill, workspace: &workspace, raw: None };
            truncate_reply(&mut reply, (limit, None), &WORDS, None, Some(kept));
            prop_assert_eq!(reply.spill_file.is_some(), !limit.admits(&text));
            match &reply.spill_file {
                None => prop_assert_eq!(&reply.text, &text),
                Some(file) => {
                    prop_assert_eq!(&std::fs::read_to_string(file).unwrap(), &text);
                    let notice = reply.text.rfind('[').unwrap();
                    prop_assert!(limit.unit.measure(&reply.text[..notice]) <= size + 1);
                }
            }
        }
    }
}
