//! Identities: UUIDs as keys, labels for people.

use uuid::Uuid;

/// The tenant of a store that one person uses on one machine.
pub const DEFAULT_TENANT: &str = "default";

/// A new identity: a UUID of version 7, so that later ones sort after earlier ones.
#[must_use]
pub fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// The identity of the session that has this label in a workspace: a UUID of version 8 from a hash of all four.
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

/// Whether a text is an identity in its usual form: 36 characters, lower-case.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok_and(|id| id.to_string() == text)
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
