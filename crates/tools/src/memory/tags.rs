//! Normalises tags: trimmed, lower-case, unique.

use helve_contract::{Error, Result};

/// Tags of a note at most; more are left out.
const MAX_TAGS: usize = 16;
/// Characters of a tag at most.
const MAX_TAG_CHARS: usize = 64;

/// Normalises tags. A tag that is too long is an error, because a truncated tag is another tag.
pub fn normalize_tags(tags: &[String]) -> Result<Vec<String>> {
    let mut kept: Vec<String> = Vec::new();
    for tag in tags {
        let tag = tag.trim().to_lowercase();
        if tag.chars().count() > MAX_TAG_CHARS {
            return Err(Error::failed(format!("a tag has at most {MAX_TAG_CHARS} characters; shorten `{tag:.20}…`")));
        }
        if !tag.is_empty() && kept.len() < MAX_TAGS && !kept.contains(&tag) {
            kept.push(tag);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::normalize_tags;

    fn told(tags: &[&str]) -> String {
        let tags: Vec<String> = tags.iter().map(|&it| it.to_owned()).collect();
        normalize_tags(&tags).map_or_else(|error| error.to_string(), |tags| tags.join("|"))
    }

    #[test]
    fn are_trimmed_lower_case_and_once() {
        assert_eq!(told(&[" Work ", "work", "", "a,b", "Ärger"]), "work|a,b|ärger");
    }

    #[test]
    fn are_sixteen_at_most_and_counted_in_characters() {
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert_eq!(normalize_tags(&many).unwrap().len(), 16);
        assert_eq!(told(&[&"é".repeat(64)]), "é".repeat(64));
        assert!(told(&[&"x".repeat(65)]).starts_with("a tag has at most 64 characters"));
    }
}
