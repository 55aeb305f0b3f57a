//! Splits long texts into passages: files by lines, notes by characters.

use super::index::Passage;

/// Characters of a piece at most.
const MAX_CHUNK_CHARS: usize = 1200;
/// A blank line or heading ends a piece that has this many.
const MIN_CHUNK_CHARS: usize = 640;
/// Lines that two pieces of a file share at most, if they are short.
const FILE_OVERLAP: (usize, usize) = (2, 200);
/// Characters that two pieces of a note share.
const NOTE_OVERLAP_CHARS: usize = 96;
/// Pieces of one text at most.
const MAX_CHUNKS: usize = 10_000;

/// A note: whole if it is short.
pub(super) fn chunk_note(text: &str) -> Vec<Passage> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let whole = rest.chars().nth(MAX_CHUNK_CHARS).is_none();
        let end = if whole { rest.len() } else { break_near(rest, MIN_CHUNK_CHARS) };
        let number = pieces.len() as u64;
        pieces.push(Passage { first: number, last: number, text: rest[..end].to_owned() });
        if whole || pieces.len() == MAX_CHUNKS {
            return pieces;
        }
        let from = rest[..end].char_indices().rev().nth(NOTE_OVERLAP_CHARS).map_or(end, |(at, _)| at);
        rest = &rest[from..];
    }
}

/// Where to break after about this many characters: at a blank, if one is near.
fn break_near(text: &str, chars: usize) -> usize {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    match text[..end].rfind(char::is_whitespace) {
        Some(at) if at > end / 2 => at,
        _ => end,
    }
}

/// A file: by lines, so that every piece knows which it holds. A long line is several pieces of one number.
pub(super) fn chunk_file(text: &str) -> Vec<Passage> {
    let lines: Vec<&str> = text.lines().collect();
    let mut pieces = Vec::new();
    let mut first = 0;
    while first < lines.len() && pieces.len() < MAX_CHUNKS {
        if lines[first].trim().is_empty() {
            first += 1;
            continue;
        }
        if lines[first].chars().nth(MAX_CHUNK_CHARS).is_some() {
            let number = first as u64 + 1;
            let parts = chunk_note(lines[first]).into_iter();
            pieces.extend(parts.map(|part| Passage { first: number, last: number, ..part }));
            first += 1;
            continue;
        }
        let after = chunk_end(&lines, first);
        let last = (first..after).rev().find(|line| !lines[*line].trim().is_empty()).unwrap_or(first);
        pieces.push(Passage { first: first as u64 + 1, last: last as u64 + 1, text: lines[first..=last].join("\n") });
        first = if after < lines.len() { overlap_start(&lines, first, after) } else { after };
    }
    pieces
}

/// The line after the last one of a piece that begins here.
fn chunk_end(lines: &[&str], first: usize) -> usize {
    let mut size = 0;
    for (at, line) in lines.iter().enumerate().skip(first) {
        let more = line.chars().count() + 1;
        let section = line.trim().is_empty() || line.starts_with('#');
        if at > first && (size + more > MAX_CHUNK_CHARS || section && size >= MIN_CHUNK_CHARS) {
            return at;
        }
        size += more;
    }
    lines.len()
}

/// Where the next piece begins: a few short lines before the end of this one, unless a section ends there.
fn overlap_start(lines: &[&str], first: usize, after: usize) -> usize {
    let mut from = after;
    let mut size = 0;
    while from > first + 1 && after - from < FILE_OVERLAP.0 {
        let line = lines[from - 1];
        size += line.chars().count();
        if line.trim().is_empty() || size > FILE_OVERLAP.1 {
            break;
        }
        from -= 1;
    }
    if lines[after].trim().is_empty() || lines[after].starts_with('#') { after } else { from }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(text: &str) -> Vec<(u64, u64)> {
        chunk_file(text).into_iter().map(|it| (it.first, it.last)).collect()
    }

    #[test]
    fn every_piece_holds_the_lines_it_names() {
        let lines = (1..=200).map(|n| format!("Line {n} says that the number {n} comes here.\n\n"));
        let text = lines.collect::<Vec<_>>().concat();
        let lines: Vec<&str> = text.lines().collect();
        for piece in chunk_file(&text) {
            assert_eq!(piece.text, lines[piece.first as usize - 1..piece.last as usize].join("\n"));
            assert!(piece.text.chars().count() <= MAX_CHUNK_CHARS);
        }
    }

    #[test]
    fn short_files_are_one_piece_and_blank_ones_none() {
        assert_eq!(spans("# Me\n\nI like tea.\n"), [(1, 3)]);
        assert_eq!(spans("\n\n \n"), []);
        assert_eq!(spans(""), []);
    }

    #[test]
    fn pieces_of_a_long_passage_share_lines() {
        let text = "A line of forty characters, more or less.\n".repeat(60);
        assert_eq!(spans(&text), [(1, 28), (27, 54), (53, 60)]);
    }

    #[test]
    fn a_line_too_long_keeps_its_number() {
        let text = format!("one\n{}\nthree", "word ".repeat(500));
        let spans = spans(&text);
        assert_eq!((spans[0], spans[1], spans[spans.len() - 1]), ((1, 1), (2, 2), (3, 3)));
    }

    #[test]
    fn long_notes_are_cut_at_blanks() {
        let text = "Ünïcode words ".repeat(200);
        let pieces = chunk_note(&text);
        assert!(pieces.len() > 3 && pieces.iter().all(|it| it.text.chars().count() <= MAX_CHUNK_CHARS));
        assert!(pieces[0].text.ends_with("words") || pieces[0].text.ends_with("Ünïcode"));
        assert_eq!(chunk_note("").len(), 1);
    }
}
