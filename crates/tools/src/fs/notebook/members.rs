//! A JSON object parsed one level deep: nested values keep their original text.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// The members of an object, in order, with the text of each value.
pub(super) struct RawObject<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(all)
            }
        }
        from.deserialize_map(Collect).map(RawObject)
    }
}

impl<'a> RawObject<'a> {
    /// The text of a member's value.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// A member's value; null where there is none.
    pub(super) fn value(&self, name: &str) -> Value {
        self.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}
