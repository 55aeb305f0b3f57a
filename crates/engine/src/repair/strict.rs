//! Valid JSON, as it is; a key that is there twice is noticed.

use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{RepairLog, Repaired, Risk};

/// Reads valid JSON; nothing if it is not valid.
pub(super) fn parse_strict(text: &str) -> Option<Repaired> {
    let twice = RefCell::new(None);
    let mut source = serde_json::Deserializer::from_str(text);
    let value = DuplicateKeyVisitor(&twice).deserialize(&mut source).ok()?;
    source.end().ok()?;
    let mut mends = RepairLog(Vec::new());
    if let Some(key) = twice.into_inner() {
        note_duplicate_key(&mut mends, &key);
    }
    Some(Repaired { value, repairs: mends.0 })
}

/// The last of two different values under one key is taken, as everywhere; but which was meant is a guess.
pub(super) fn note_duplicate_key(mends: &mut RepairLog, key: &str) {
    let key: String = key.chars().take(40).collect();
    mends.add(Risk::Guess, format!("the key \"{key}\" is there twice with different values; the last one was taken"));
}

#[derive(Clone, Copy)]
struct DuplicateKeyVisitor<'a>(&'a RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for DuplicateKeyVisitor<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateKeyVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(Value::Bool(it))
    }
    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(it.into())
    }
    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(it.into())
    }
    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(Number::from_f64(it).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }
    fn visit_string<E>(self, it: String) -> Result<Value, E> {
        Ok(Value::String(it))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            let value = pairs.next_value_seed(self)?;
            if map.get(&key).is_some_and(|before| *before != value) {
                *self.0.borrow_mut() = Some(key.clone());
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
