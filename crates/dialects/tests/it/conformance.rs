//! Checks `docs/conformance.md`, which lists every requirement of the seed documents. Each row names the test that
//! proves it, or the decision that replaces it; both must exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The number of requirements in each section. A row may be split, but none may vanish.
const SECTIONS: &[(&str, usize)] = &[("000", 72), ("002", 58), ("003", 117), ("004", 76)];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The sections of the page, and the rows of each: number, requirement, status, evidence.
fn sections() -> BTreeMap<String, Vec<[String; 4]>> {
    let page = fs::read_to_string(top().join("docs/conformance.md")).unwrap();
    let mut sections: BTreeMap<String, Vec<[String; 4]>> = BTreeMap::new();
    let mut section = None;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.strip_prefix("Seed ").map(|it| it.split_whitespace().next().unwrap().to_owned());
            continue;
        }
        let Some(section) = &section else { continue };
        let Some(row) = line.strip_prefix("| ").and_then(|it| it.strip_suffix(" |")) else { continue };
        let cells: Vec<String> = row.split(" | ").map(str::to_owned).collect();
        let cells: [String; 4] = cells.try_into().unwrap_or_else(|it| panic!("four cells, not {it:?}"));
        if cells[0] != "#" {
            sections.entry(section.clone()).or_default().push(cells);
        }
    }
    sections
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let plain = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = plain.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

/// Why the evidence is invalid, if it is.
fn missing(evidence: &str) -> Option<String> {
    if let Some((file, test)) = evidence.split_once("::") {
        let text = fs::read_to_string(top().join(file)).ok();
        let Some(text) = text else { return Some(format!("there is no file {file}")) };
        let is_there = text.match_indices(&format!("fn {test}(")).any(|(at, _)| {
            let before: Vec<&str> = text[..at].lines().rev().take(8).collect();
            before.iter().any(|it| it.contains("#[test]") || it.contains("::test]") || it.contains("proptest"))
                || text[..at].contains("proptest! {")
        });
        return (!is_there).then(|| format!("{file} has no test {test}"));
    }
    let (file, heading) = match evidence.split_once('#') {
        Some((file, heading)) => (file, Some(heading)),
        None => (evidence, None),
    };
    let Ok(text) = fs::read_to_string(top().join(file)) else { return Some(format!("there is no file {file}")) };
    let heading = heading?;
    let found = text.lines().filter(|it| it.starts_with('#')).any(|it| anchor(it) == heading);
    (!found).then(|| format!("{file} has no heading {heading}"))
}

/// The names of the decisions in ARCHITECTURE.md: the italic text at the start of an entry.
fn decisions() -> BTreeSet<String> {
    let text = fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap();
    let (_, settled) = text.split_once("## Settled questions").unwrap();
    let settled = settled.split("\n## ").next().unwrap();
    // An asterisk in code does not mark a title.
    let parts = settled.split('`').enumerate();
    let plain: Vec<String> =
        parts.map(|(at, it)| if at % 2 == 1 { it.replace('*', "") } else { it.to_owned() }).collect();
    let settled = plain.join("`");
    settled.split('*').skip(1).step_by(2).map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn every_requirement_names_its_test_or_its_decision() {
    let (sections, decisions) = (sections(), decisions());
    let mut wrong = Vec::new();
    for (seed, count) in SECTIONS {
        let rows = sections.get(*seed).map_or(0, Vec::len);
        if rows < *count {
            wrong.push(format!("seed {seed}: {rows} rows, {count} requirements"));
        }
    }
    for (seed, rows) in &sections {
        let mut numbers = BTreeSet::new();
        for [number, _, status, evidence] in rows {
            if !numbers.insert(number) {
                wrong.push(format!("{seed} {number}: there are two"));
            }
            let named: Vec<&str> = evidence.split('`').skip(1).step_by(2).collect();
            match status.as_str() {
                "works" if named.is_empty() => wrong.push(format!("{seed} {number}: no test is named")),
                "works" => {
                    wrong.extend(named.iter().filter_map(|it| Some(format!("{seed} {number}: {}", missing(it)?))));
                }
                "decision" => {
                    let title = evidence.split('*').nth(1).unwrap_or_default();
                    if !decisions.contains(title) {
                        wrong.push(format!("{seed} {number}: ARCHITECTURE.md settles no question *{title}*"));
                    }
                }
                "open" => {}
                other => wrong.push(format!("{seed} {number}: `{other}` is no status")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
