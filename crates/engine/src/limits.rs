//! Bounding what goes to the model, and saying what was left out.

use std::{borrow::Cow, io, path::PathBuf};

use helve_contract::{Cut, Form, Keep, Reply, Workspace};
use serde_json::{Map, Value};

use crate::{Limit, Notice, Spill, Words};

/// No text is longer than this, whatever a dialect allows.
const HARD: usize = 4 << 20;
/// All pictures of a reply together.
const MEDIA: usize = 20 << 20;
/// Remarks: how many, and how long each.
const NOTES: (usize, usize) = (40, 500);

/// Where the whole of a cut reply is kept, and for whom it is named.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    /// The folder.
    pub(crate) spill: &'a Spill,
    /// The session's roots: a file beneath one is named as its model knows it.
    pub(crate) workspace: &'a Workspace,
    /// The text as it came, where it is shown otherwise.
    pub(crate) raw: Option<&'a str>,
}

/// Bounds a reply. The whole text goes into a file first, where there is a place for it.
pub(crate) fn bound(reply: &mut Reply, limit: Limit, words: &Words, spill: Option<Kept<'_>>) {
    bound_media(reply);
    bound_notes(reply);
    let limit = Limit { bytes: limit.bytes.min(HARD), lines: limit.lines };
    if reply.form == Form::Json && reply.data.is_some() {
        bound_json(reply, limit, words, spill);
    } else {
        bound_text(reply, limit, words, spill);
        if let Some(data) = &mut reply.data
            && !fits(data, limit.bytes.max(4096))
        {
            *data = smaller(data, limit.bytes.max(4096), reply.keep);
        }
    }
}

fn bound_text(reply: &mut Reply, limit: Limit, words: &Words, spill: Option<Kept<'_>>) {
    let few = reply.text.len() <= limit.bytes && (reply.text.len() <= limit.lines || lines(&reply.text) <= limit.lines);
    if few && reply.cut.is_none() {
        return;
    }
    let cut = reply.cut.unwrap_or_else(|| measured(&reply.text));
    let file = if few { reply.spill.clone().map(PathBuf::from) } else { kept_in(reply, spill) };
    let part = match reply.keep {
        _ if few => reply.text.as_str(),
        Keep::Head => head(&reply.text, limit),
        Keep::Tail => tail(&reply.text, limit),
    };
    let part = part.strip_suffix('\n').unwrap_or(part);
    let notice = (words.notice)(&Notice { cut, kept: (part.len(), lines(part)), keep: reply.keep, limit, file });
    reply.text = match reply.keep {
        _ if notice.is_empty() => part.to_owned(),
        Keep::Head if part.is_empty() => notice,
        Keep::Head => format!("{part}\n{notice}"),
        Keep::Tail => format!("{notice}\n{part}"),
    };
    reply.cut = Some(cut);
}

fn bound_json(reply: &mut Reply, limit: Limit, words: &Words, spill: Option<Kept<'_>>) {
    if reply.text.len() <= limit.bytes {
        return;
    }
    let cut = reply.cut.unwrap_or_else(|| measured(&reply.text));
    let file = kept_in(reply, spill);
    let notice =
        |kept: usize| (words.notice)(&Notice { cut, kept: (kept, 1), keep: reply.keep, limit, file: file.clone() });
    // The notice stands inside the data, so its room comes off the limit.
    let room = limit.bytes.saturating_sub(notice(limit.bytes).len() + 64).max(128);
    let mut data = smaller(reply.data.as_ref().unwrap_or(&Value::Null), room, reply.keep);
    let notice = notice(data.to_string().len());
    if !remark(&mut data, &notice)
        && let Value::Object(map) = &mut data
    {
        map.insert("notice".into(), notice.into());
    }
    reply.text = data.to_string();
    reply.data = Some(data);
    reply.cut = Some(cut);
}

/// The file with the whole text: the tool's own, or one that is written now.
fn kept_in(reply: &mut Reply, spill: Option<Kept<'_>>) -> Option<PathBuf> {
    if reply.spill.is_none()
        && let Some(Kept { spill, workspace, raw }) = spill
    {
        match spill.write(raw.unwrap_or(&reply.text)) {
            Ok(path) => reply.spill = Some(workspace.shown(&path)),
            Err(error) => reply.notes.push(format!("the whole output could not be kept: {error}")),
        }
    }
    reply.spill.clone().map(PathBuf::from)
}

fn measured(text: &str) -> Cut {
    Cut { bytes: text.len() as u64, lines: lines(text) as u64 }
}

/// Lines of a text; a newline at the end begins no other.
fn lines(text: &str) -> usize {
    text.matches('\n').count() + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// Whole lines from the beginning. A first line that is too long is cut inside.
fn head(text: &str, limit: Limit) -> &str {
    let by_lines = match limit.lines {
        0 => 0,
        usize::MAX => text.len(),
        many => text.match_indices('\n').nth(many - 1).map_or(text.len(), |(at, _)| at + 1),
    };
    if by_lines <= limit.bytes {
        return &text[..by_lines];
    }
    let room = &text[..text.floor_char_boundary(limit.bytes)];
    match room.rfind('\n') {
        Some(at) => &text[..=at],
        None => room,
    }
}

/// Whole lines from the end. A last line that is too long is cut inside.
fn tail(text: &str, limit: Limit) -> &str {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let by_lines = match limit.lines {
        0 => text.len(),
        usize::MAX => 0,
        many => body.rmatch_indices('\n').nth(many - 1).map_or(0, |(at, _)| at + 1),
    };
    if text.len() - by_lines <= limit.bytes {
        return &text[by_lines..];
    }
    let from = text.ceil_char_boundary(text.len() - limit.bytes);
    let room = &text[from..];
    let starts_line = from == 0 || text.as_bytes()[from - 1] == b'\n';
    match room.find('\n') {
        _ if starts_line => room,
        Some(at) if at + 1 < room.len() => &room[at + 1..],
        _ => room,
    }
}

/// Whether the JSON of a value has at most so many bytes.
pub(crate) fn fits(value: &Value, bytes: usize) -> bool {
    serde_json::to_writer(Room { left: bytes, kept: None }, value).is_ok()
}

/// The JSON of a value, if it has at most so many bytes.
pub(crate) fn json_within(value: &Value, bytes: usize) -> Option<Vec<u8>> {
    let mut room = Room { left: bytes, kept: Some(Vec::with_capacity(256)) };
    serde_json::to_writer(&mut room, value).ok()?;
    room.kept
}

/// Takes so many bytes and no more.
struct Room {
    left: usize,
    kept: Option<Vec<u8>>,
}

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.kept.iter_mut().for_each(|kept| kept.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text, or as many of its lines as have at most so many bytes.
pub(crate) fn short_text(text: &str, bytes: usize, keep: Keep) -> Cow<'_, str> {
    if text.len() <= bytes { text.into() } else { shortened(text, bytes, keep).into() }
}

/// The value with its longest texts shortened, until its JSON has at most so many bytes; then with shorter lists.
pub(crate) fn smaller(value: &Value, bytes: usize, keep: Keep) -> Value {
    let try_texts = |longest: usize| Some(copy(value, longest, usize::MAX, keep)).filter(|it| fits(it, bytes));
    let (mut low, mut high) = (0, bytes);
    let mut best = None;
    while high - low > high / 16 + 8 {
        let middle = low.midpoint(high);
        match try_texts(middle) {
            Some(found) => (best, low) = (Some(found), middle),
            None => high = middle,
        }
    }
    if let Some(best) = best {
        return best;
    }
    let lists = std::iter::successors(Some(1024_usize), |items| (*items > 1).then_some(items / 2));
    lists
        .map(|items| copy(value, 64, items, keep))
        .find(|it| fits(it, bytes))
        .unwrap_or_else(|| Value::Object(Map::from_iter([("cut".into(), Value::Bool(true))])))
}

const MARK: &str = " bytes left out]";

/// Whole lines of a text that have at most so many bytes, and how much is left out.
fn shortened(text: &str, longest: usize, keep: Keep) -> String {
    let limit = Limit { bytes: longest, lines: usize::MAX };
    let part = if keep == Keep::Head { head(text, limit) } else { tail(text, limit) };
    let mark = format!("[{}{MARK}", text.len() - part.len());
    if keep == Keep::Head { format!("{part}…{mark}") } else { format!("{mark}…{part}") }
}

fn copy(value: &Value, longest: usize, items: usize, keep: Keep) -> Value {
    match value {
        Value::String(text) if text.len() > longest => shortened(text, longest, keep).into(),
        Value::Array(list) => list.iter().take(items).map(|it| copy(it, longest, items, keep)).collect(),
        Value::Object(map) => {
            let pairs = map.iter().take(items.max(16));
            Value::Object(pairs.map(|(key, it)| (key.clone(), copy(it, longest, items, keep))).collect())
        }
        other => other.clone(),
    }
}

/// Puts the notice beside the first text that was shortened.
fn remark(value: &mut Value, notice: &str) -> bool {
    match value {
        Value::String(text) if text.ends_with(MARK) => {
            *text = format!("{text}\n{notice}");
            true
        }
        Value::String(text) if text.starts_with('[') && text.find(MARK).is_some_and(|at| at < 24) => {
            *text = format!("{notice}\n{text}");
            true
        }
        Value::Array(list) => list.iter_mut().any(|it| remark(it, notice)),
        Value::Object(map) => map.values_mut().any(|it| remark(it, notice)),
        _ => false,
    }
}

fn bound_media(reply: &mut Reply) {
    let mut room = MEDIA;
    let before = reply.media.len();
    reply.media.retain(|media| {
        let fits = media.bytes.len() <= room;
        room -= if fits { media.bytes.len() } else { 0 };
        fits
    });
    let left_out = before - reply.media.len();
    if left_out > 0 {
        reply.notes.push(format!("left out {left_out} pictures or files: a reply holds at most 20 MB of them"));
        if reply.form == Form::Text {
            reply.text.push_str(&format!("\n[{left_out} of {before} pictures left out: together they are over 20 MB]"));
        }
    }
}

fn bound_notes(reply: &mut Reply) {
    reply.notes.truncate(NOTES.0);
    for note in &mut reply.notes {
        if note.len() > NOTES.1 {
            note.truncate(note.floor_char_boundary(NOTES.1));
            note.push('…');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helve_contract::Media;
    use serde_json::json;

    const WORDS: Words = Words {
        error: |_, error| Reply::failed(error.to_string()),
        notice: |it| format!("[{} of {} lines, {} bytes]", it.kept.1, it.cut.lines, it.cut.bytes),
        cancelled: "Cancelled",
    };

    fn bounded(text: &str, keep: Keep, bytes: usize, lines: usize) -> String {
        let mut reply = Reply { keep, ..Reply::from(text) };
        bound(&mut reply, Limit { bytes, lines }, &WORDS, None);
        reply.text
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        assert_eq!(bounded("a\nb\n", Keep::Head, 4, 2), "a\nb\n");
    }

    #[test]
    fn keeps_whole_lines_of_the_head() {
        assert_eq!(bounded("one\ntwo\nthree\n", Keep::Head, 100, 2), "one\ntwo\n[2 of 3 lines, 14 bytes]");
        assert_eq!(bounded("one\ntwo\nthree\n", Keep::Head, 9, 100), "one\ntwo\n[2 of 3 lines, 14 bytes]");
    }

    #[test]
    fn keeps_whole_lines_of_the_tail_and_tells_first() {
        assert_eq!(bounded("one\ntwo\nthree\n", Keep::Tail, 100, 2), "[2 of 3 lines, 14 bytes]\ntwo\nthree");
        assert_eq!(bounded("one\ntwo\nthree\n", Keep::Tail, 11, 100), "[2 of 3 lines, 14 bytes]\ntwo\nthree");
        assert_eq!(bounded("one\ntwo\nthree\n", Keep::Tail, 10, 100), "[2 of 3 lines, 14 bytes]\ntwo\nthree");
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        assert_eq!(bounded("ééééé", Keep::Head, 5, 9), "éé\n[1 of 1 lines, 10 bytes]");
        assert_eq!(bounded("ééééé", Keep::Tail, 5, 9), "[1 of 1 lines, 10 bytes]\néé");
    }

    #[test]
    fn json_stays_json() {
        let mut reply = Reply::json(json!({ "id": 7, "out": "x".repeat(5000), "tags": ["a"] }));
        bound(&mut reply, Limit { bytes: 600, lines: 2 }, &WORDS, None);
        let data: Value = serde_json::from_str(&reply.text).unwrap();
        assert_eq!(Some(&data), reply.data.as_ref());
        assert!(reply.text.len() <= 600 && reply.text.len() > 400, "{}", reply.text.len());
        assert_eq!((&data["id"], &data["tags"]), (&json!(7), &json!(["a"])));
        assert!(data["out"].as_str().unwrap().ends_with("bytes left out]\n[1 of 1 lines, 5030 bytes]"));
    }

    #[test]
    fn a_long_list_of_short_things_is_shortened_too() {
        let mut reply = Reply::json(json!({ "all": (0..5000).collect::<Vec<_>>() }));
        bound(&mut reply, Limit { bytes: 1000, lines: 2 }, &WORDS, None);
        assert!(reply.text.len() <= 1000);
        assert_eq!(reply.data.unwrap()["notice"], json!("[1 of 1 lines, 23899 bytes]"));
    }

    #[test]
    fn what_a_tool_left_out_itself_is_told() {
        let mut reply = Reply { cut: Some(Cut { bytes: 9000, lines: 300 }), ..Reply::from("the end") };
        bound(&mut reply, Limit { bytes: 100, lines: 100 }, &WORDS, None);
        assert_eq!(reply.text, "the end\n[1 of 300 lines, 9000 bytes]");
    }

    #[test]
    fn a_long_text_is_shortened_to_whole_lines() {
        let text = "line of text\n".repeat(50);
        assert_eq!(short_text(&text, 650, Keep::Head), text);
        assert_eq!(short_text(&text, 30, Keep::Head), "line of text\nline of text\n…[624 bytes left out]");
        assert_eq!(short_text(&text, 30, Keep::Tail), "[624 bytes left out]…line of text\nline of text\n");
    }

    #[test]
    fn pictures_have_a_limit() {
        let media = |bytes| Media { mime: "image/png".into(), bytes: vec![0; bytes] };
        let mut reply = Reply { media: vec![media(MEDIA - 1), media(2)], ..Reply::from("two") };
        bound(&mut reply, Limit { bytes: 1000, lines: 10 }, &WORDS, None);
        assert_eq!(reply.media.len(), 1);
        assert_eq!(reply.text, "two\n[1 of 2 pictures left out: together they are over 20 MB]");
    }
}
