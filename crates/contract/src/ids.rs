//! Ids: UUIDs as keys, and labels for people.

use uuid::Uuid;

/// The tenant of a store with one user on one machine.
pub const DEFAULT_TENANT: &str = "default";

/// A new UUID of version 7; later ids sort after earlier ones.
#[must_use]
pub fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// The id of the session with this label in a workspace: a UUID of version 8 from a hash of all four values.
///
/// The same label in another workspace, or of another user or tenant, is another session.
#[must_use]
pub fn labelled_id(tenant: &str, user: &str, workspace: &str, label: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("helve session label");
    for part in [tenant, user, workspace, label] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    Uuid::new_v8(bytes).to_string()
}

/// Whether a text is an id in its usual form: 36 characters, lower case.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok_and(|id| id.to_string() == text)
}

/// The result of a lookup by id or label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<T> {
    /// Exactly one match.
    One(T),
    /// No match.
    Nothing,
    /// Several matches: ids with this prefix or suffix, or items with this label.
    Several,
}

/// Looks up `text`: by the whole id, then by the label, then by the prefix or suffix of an id.
pub fn find<'a, T: Copy>(text: &str, all: impl Iterator<Item = (&'a str, Option<&'a str>, T)>) -> Named<T> {
    let all: Vec<_> = all.collect();
    let is_id = |(id, _, _): &(&str, Option<&str>, T)| *id == text;
    let has_label = |(_, label, _): &(&str, Option<&str>, T)| *label == Some(text);
    let is_part =
        |(id, _, _): &(&str, Option<&str>, T)| !text.is_empty() && (id.starts_with(text) || id.ends_with(text));
    for fits in [&is_id as &dyn Fn(&_) -> bool, &has_label, &is_part] {
        let mut found = all.iter().filter(|it| fits(it));
        match (found.next(), found.next()) {
            (Some((_, _, thing)), None) => return Named::One(*thing),
            (Some(_), Some(_)) => return Named::Several,
            (None, _) => {}
        }
    }
    Named::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_sort_by_time() {
        let ids: Vec<String> = (0..100).map(|_| new_id()).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| is_id(id)), "{ids:?}");
        assert_eq!(ids[0].as_bytes()[14], b'7');
    }

    #[test]
    fn a_label_names_one_session_of_one_user_in_one_workspace() {
        let id = labelled_id("default", "ann", "/a", "plan-1");
        assert_eq!(id, labelled_id("default", "ann", "/a", "plan-1"));
        for (tenant, user, workspace, label) in [
            ("other", "ann", "/a", "plan-1"),
            ("default", "bob", "/a", "plan-1"),
            ("default", "ann", "/b", "plan-1"),
            ("default", "ann", "/a", "plan-2"),
            ("default", "an", "n/a", "plan-1"),
        ] {
            assert_ne!(id, labelled_id(tenant, user, workspace, label));
        }
        assert!(is_id(&id) && id.as_bytes()[14] == b'8');
    }

    #[test]
    fn a_text_names_an_id_a_label_or_a_part_of_an_id() {
        let all = [
            ("0199-aa", Some("plan-1"), 1),
            ("0199-ab", Some("aa"), 2),
            ("0198-bb", Some("twice"), 3),
            ("77", Some("twice"), 4),
        ];
        let find = |text| find(text, all.into_iter());
        assert_eq!(find("0199-ab"), Named::One(2));
        assert_eq!(find("plan-1"), Named::One(1));
        assert_eq!(find("aa"), Named::One(2), "a label comes before a part of an id");
        assert_eq!((find("0198"), find("bb")), (Named::One(3), Named::One(3)));
        assert_eq!((find("0199"), find("twice")), (Named::Several, Named::Several));
        assert_eq!((find(""), find("plan")), (Named::Nothing, Named::Nothing));
    }

    #[test]
    fn labels_are_not_ids() {
        for text in [
            "",
            "cli",
            "3f9a1c0b7d2e4f60",
            "6F1F0C5E-3F4B-4F56-9A53-0D1C8A2B7E11",
            "{6f1f0c5e-3f4b-4f56-9a53-0d1c8a2b7e11}",
        ] {
            assert!(!is_id(text), "{text}");
        }
    }
}
