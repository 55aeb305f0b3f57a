//! Selects the passages of a page that match a question, weighted by rare words.

use std::collections::{HashMap, HashSet};

/// Words that say nothing about what a question is about.
const STOP_WORDS: &[&str] = &[
    "a",
    "about",
    "all",
    "an",
    "and",
    "any",
    "are",
    "as",
    "at",
    "be",
    "by",
    "can",
    "content",
    "describe",
    "do",
    "does",
    "explain",
    "extract",
    "find",
    "for",
    "from",
    "give",
    "has",
    "have",
    "how",
    "i",
    "in",
    "information",
    "into",
    "is",
    "it",
    "its",
    "list",
    "me",
    "of",
    "on",
    "or",
    "page",
    "please",
    "say",
    "show",
    "site",
    "summarize",
    "tell",
    "that",
    "the",
    "their",
    "there",
    "this",
    "to",
    "was",
    "were",
    "what",
    "when",
    "where",
    "which",
    "who",
    "why",
    "will",
    "with",
    "you",
];

/// The passages that match a question, in the text's order and limited in bytes, or the start if nothing matches. A
/// short text is returned whole. The flag says whether something was left out.
pub(super) fn select_passages(text: &str, question: &str, most: usize) -> (String, bool) {
    if text.len() <= most {
        return (text.to_owned(), false);
    }
    let blocks: Vec<PassageBlock<'_>> = blocks(text);
    let wanted = terms(question);
    let scores = score_blocks(&blocks, &wanted);
    let mut order: Vec<usize> = (0..blocks.len()).filter(|at| scores[*at] > 0.0).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    if order.is_empty() {
        // Without a match the start describes a page best.
        order = (0..blocks.len()).collect();
    }
    let (mut chosen, mut size) = (HashSet::new(), 0);
    for at in order {
        for at in
            [blocks[at].heading, Some(at)].into_iter().flatten().filter(|at| !chosen.contains(at)).collect::<Vec<_>>()
        {
            let length = blocks[at].text.len() + 10;
            if size + length <= most || chosen.is_empty() {
                chosen.insert(at);
                size += length;
            }
        }
    }
    (join_blocks(&blocks, &chosen, most), true)
}

struct PassageBlock<'a> {
    text: &'a str,
    /// The heading it stands under.
    heading: Option<usize>,
}

/// What stands between blank lines; code keeps its own.
fn blocks(text: &str) -> Vec<PassageBlock<'_>> {
    let (mut out, mut heading) = (Vec::new(), None);
    for part in text.split("\n\n").map(|it| it.trim_matches('\n')).filter(|it| !it.trim().is_empty()) {
        let is_heading = part.starts_with('#');
        out.push(PassageBlock { text: part, heading: if is_heading { None } else { heading } });
        if is_heading {
            heading = Some(out.len() - 1);
        }
    }
    out
}

/// Words that count, without their endings: `prices` and `price` are the same.
fn terms(text: &str) -> HashSet<String> {
    text.split(|it: char| !it.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|it| it.chars().count() > 1 && !STOP_WORDS.contains(&it.as_str()))
        .map(|it| stem(&it).to_owned())
        .collect()
}

fn stem(word: &str) -> &str {
    let cut = ["ing", "ies", "ed", "es", "s"].iter().find_map(|it| word.strip_suffix(it));
    cut.filter(|it| it.chars().count() >= 3).unwrap_or(word)
}

/// How much each block has to do with the words. A heading's words count for what stands under it.
fn score_blocks(blocks: &[PassageBlock<'_>], wanted: &HashSet<String>) -> Vec<f64> {
    let found: Vec<HashSet<String>> =
        blocks.iter().map(|it| terms(it.text).into_iter().filter(|it| wanted.contains(it)).collect()).collect();
    let mut held: HashMap<&str, usize> = HashMap::new();
    for word in found.iter().flatten() {
        *held.entry(word).or_default() += 1;
    }
    let all = blocks.len() as f64;
    let weight = |words: &HashSet<String>| -> f64 {
        words.iter().map(|it| (1.0 + all / (1.0 + held.get(it.as_str()).copied().unwrap_or(0) as f64)).ln()).sum()
    };
    let own: Vec<f64> = found.iter().map(weight).collect();
    blocks.iter().enumerate().map(|(at, it)| own[at] + it.heading.map_or(0.0, |heading| 0.7 * own[heading])).collect()
}

/// The chosen blocks in order; a gap shows as `[…]`.
fn join_blocks(blocks: &[PassageBlock<'_>], chosen: &HashSet<usize>, most: usize) -> String {
    let (mut out, mut last) = (String::new(), None);
    for (at, block) in blocks.iter().enumerate().filter(|(at, _)| chosen.contains(at)) {
        if last.map_or(at > 0, |last| last + 1 < at) {
            out.push_str("[…]\n\n");
        }
        let room = most.saturating_sub(out.len());
        let end = block.text.char_indices().map(|(at, it)| at + it.len_utf8()).take_while(|end| *end <= room).last();
        out.push_str(&block.text[..end.unwrap_or(0)]);
        out.push_str("\n\n");
        last = Some(at);
    }
    if last.is_none_or(|last| last + 1 < blocks.len()) {
        out.push_str("[…]");
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_comes_whole() {
        assert_eq!(select_passages("one\n\ntwo", "anything", 100), ("one\n\ntwo".to_owned(), false));
    }

    #[test]
    fn the_passages_that_share_words_come_in_order_with_their_headings() {
        let filler = "Words about nothing in particular, again and again. ".repeat(3);
        let text = format!(
            "# Shop\n\n{filler}\n\n## Prices\n\nA lamp is 20 euros.\n\n{filler}\n\n## Opening hours\n\nWe open at nine.\n\n{filler}"
        );
        let (said, cut) = select_passages(&text, "What are the opening hours, and what is the price of a lamp?", 150);
        assert_eq!(
            said,
            "[…]\n\n## Prices\n\nA lamp is 20 euros.\n\n[…]\n\n## Opening hours\n\nWe open at nine.\n\n[…]"
        );
        assert!(cut);
    }

    #[test]
    fn without_anything_to_go_by_the_beginning_comes() {
        let text = format!("Start.\n\n{}", "Words, words.\n\n".repeat(50));
        let (said, _) = select_passages(&text, "Summarize this page", 65);
        assert_eq!(said, "Start.\n\nWords, words.\n\nWords, words.\n\n[…]");
        assert!(select_passages(&"é".repeat(1000), "x", 101).0.len() <= 110);
    }
}
