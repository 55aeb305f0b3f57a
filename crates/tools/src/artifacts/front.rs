//! Markdown with YAML front matter: the format of tasks, walkthroughs, change requests and subtasks.

use helve_contract::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};

/// The largest document that is taken.
pub(super) const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// A document: its front matter and the Markdown body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontMatterDocument<T> {
    /// The front matter.
    pub front: T,
    /// The Markdown.
    pub body: String,
}

impl<T: DeserializeOwned> FrontMatterDocument<T> {
    /// Reads a document. `what` names its kind in errors: "task".
    pub fn parse(text: &str, what: &str) -> Result<Self> {
        if text.len() > MAX_DOCUMENT_BYTES {
            let text = format!(
                "a {what} document of {} bytes is more than the {MAX_DOCUMENT_BYTES} that are taken",
                text.len()
            );
            return Err(Error::failed(text));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
        let (front, body) = split(&text).ok_or_else(|| {
            Error::failed(format!(
                "a {what} document begins with YAML front matter: `---` on the first line, the fields, `---`, then Markdown"
            ))
        })?;
        let front = serde_norway::from_str(front)
            .map_err(|error| Error::failed(format!("Invalid {what} frontmatter: {error}")))?;
        Ok(Self { front, body: body.to_owned() })
    }
}

impl<T: Serialize> FrontMatterDocument<T> {
    /// Renders the document.
    pub fn to_markdown(&self) -> Result<String> {
        let front = serde_norway::to_string(&self.front).map_err(|error| Error::Internal(error.into()))?;
        Ok(format!("---\n{front}---\n\n{}\n", self.body.trim()))
    }
}

/// The front matter and what follows it.
fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("---\n")?;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if matches!(line.trim_end(), "---" | "...") {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// The second-level headings that a body lacks.
pub(super) fn missing_headings<'a>(body: &str, wanted: &[&'a str]) -> Vec<&'a str> {
    let has = |heading: &str| body.lines().any(|line| line.trim_end().strip_prefix("## ") == Some(heading));
    wanted.iter().copied().filter(|heading| !has(heading)).collect()
}

/// The text beneath a second-level heading.
pub(super) fn section<'a>(body: &'a str, heading: &str) -> Option<&'a str> {
    let mut start = None;
    let mut at = 0;
    let mut fenced = false;
    for line in body.split_inclusive('\n') {
        let plain = line.trim_end();
        if plain.starts_with("```") {
            fenced = !fenced;
        } else if let Some(title) = plain.strip_prefix("## ").filter(|_| !fenced) {
            match start {
                Some(start) => return Some(body[start..at].trim()),
                None if title == heading => start = Some(at + line.len()),
                None => {}
            }
        }
        at += line.len();
    }
    start.map(|start| body[start..].trim())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Fields = BTreeMap<String, serde_json::Value>;

    #[test]
    fn takes_windows_files_and_both_ends() {
        for text in ["\u{feff}---\r\na: 1\r\n---\r\nbody\r\n", "---\na: 1\n...\nbody\n"] {
            let document: FrontMatterDocument<Fields> = FrontMatterDocument::parse(text, "task").unwrap();
            assert_eq!((document.front["a"].as_i64(), document.body.as_str()), (Some(1), "body\n"));
        }
    }

    #[test]
    fn says_what_a_document_looks_like() {
        let said = FrontMatterDocument::<Fields>::parse("# no front matter", "task").unwrap_err().to_string();
        assert!(said.starts_with("a task document begins with YAML front matter"), "{said}");
    }

    #[test]
    fn finds_sections_outside_of_code() {
        let body = "## A\none\n```\n## B\n```\n## B\ntwo\n";
        assert_eq!(section(body, "B"), Some("two"));
    }

    proptest! {
        #[test]
        fn no_text_brings_it_down(text in ".{0,400}") {
            _ = FrontMatterDocument::<Fields>::parse(&text, "task");
            _ = FrontMatterDocument::<Fields>::parse(&format!("---\n{text}\n---\nx"), "task");
        }
    }
}
