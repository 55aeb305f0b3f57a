//! Everything that Helve records or streams: one [`Event`] enum, with the name and the fields that each event has in
//! JSON.
//!
//! Open it to add an event. Names and fields are a public format: people read them in `events.ndjson` and from
//! `/events`. `docs/events.md` is generated from the definitions here.

mod forge;
mod record;
mod session;
mod tools;
mod values;

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::{Map, Value, value::RawValue};

pub use forge::*;
pub use record::{EventOrigin, EventRecord, EventSource, NewEvent};
pub use session::*;
pub use tools::*;
pub use values::*;

/// The type of the line that a stream of events sends when nothing happens. It is not an event.
pub const KEEPALIVE: &str = "keepalive";

/// Where an event can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPlace {
    /// In `events.ndjson`, and from the server.
    Record,
    /// In `events.ndjson` of a planned run.
    ForgeRun,
    /// From the server (`GET /events`).
    Server,
}

/// What an event is, for the reader of a list.
#[derive(Clone, Copy, Debug)]
pub struct EventInfo {
    /// The name: `type` in JSON.
    pub name: &'static str,
    /// What happened.
    pub about: &'static str,
    /// Where it can be read.
    pub place: EventPlace,
    /// The fields of `data`, in the order written.
    pub fields: &'static [FieldInfo],
}

/// A field of an event.
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    /// The name in JSON.
    pub name: &'static str,
    /// The Rust type.
    pub rust_type: &'static str,
    /// What it holds.
    pub about: &'static str,
    /// Whether the field is left out where there is no value.
    pub is_optional: bool,
}

impl FieldInfo {
    /// The names that the field's values have, where they are fixed.
    pub fn names(&self) -> Option<&'static [&'static str]> {
        let inner = self.rust_type.trim_start_matches("Option<").trim_end_matches('>').trim();
        values::VALUE_TYPES.iter().find(|(name, _)| *name == inner).map(|(_, names)| *names)
    }
}

/// Defines the payload of events: a struct each, with its name and fields in JSON.
macro_rules! payloads {
    ($place:ident: $(
        $(#[doc = $about:literal])+
        $variant:ident = $name:literal {
            $( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $json:literal $([$($serde:tt)*])? ),* $(,)?
        }
    )+) => { $(
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $variant {
            $( $(#[doc = $doc])+ #[serde(rename = $json $(, $($serde)*)?)] pub $field: $type, )*
        }

        impl $variant {
            /// The name, the fields, and where the event can be read.
            pub const INFO: $crate::events::EventInfo = $crate::events::EventInfo {
                name: $name,
                about: concat!($($about),+),
                place: $crate::events::EventPlace::$place,
                fields: &[ $( $crate::events::FieldInfo {
                    name: $json,
                    rust_type: stringify!($type),
                    about: concat!($($doc),+),
                    is_optional: false $(|| !stringify!($($serde)*).is_empty())?,
                } ),* ],
            };
        }

        impl From<$variant> for $crate::events::Event {
            fn from(payload: $variant) -> Self {
                Self::$variant(payload)
            }
        }
    )+ };
}
pub(crate) use payloads;

/// Defines the enum over all payloads.
macro_rules! event_enum {
    ($($variant:ident)+) => {
        /// Something that happened. Each variant holds the fields that `data` has in JSON.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each payload has its own documentation")]
        #[allow(clippy::large_enum_variant, reason = "events are written at once and not kept in long lists")]
        pub enum Event {
            $( $variant($variant), )+
            /// An event that this version does not know, or whose fields it cannot read. It is kept as it is.
            Other(OtherEvent),
        }

        /// Every event, in the order of the documentation.
        pub const EVENTS: &[EventInfo] = &[$($variant::INFO),+];

        impl Event {
            /// The name: `type` in JSON.
            pub fn name(&self) -> &str {
                match self {
                    $( Self::$variant(_) => $variant::INFO.name, )+
                    Self::Other(other) => &other.name,
                }
            }

            /// Reads the data of an event. The map has the fields that this version does not know.
            pub fn parse(name: &str, data: &RawValue) -> (Self, Map<String, Value>) {
                $( if name == $variant::INFO.name {
                    return match read_payload::<$variant>(data, &$variant::INFO) {
                        Some((payload, unknown)) => (Self::$variant(payload), unknown),
                        None => (Self::other(name, data), Map::new()),
                    };
                } )+
                (Self::other(name, data), Map::new())
            }

            /// Writes the data as JSON.
            fn write_data(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
                match self {
                    $( Self::$variant(payload) => serde_json::to_writer(out, payload), )+
                    Self::Other(other) => {
                        out.extend_from_slice(other.data.get().as_bytes());
                        Ok(())
                    }
                }
            }
        }

        impl Serialize for Event {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut event = to.serialize_struct("Event", 2)?;
                event.serialize_field("type", self.name())?;
                match self {
                    $( Self::$variant(payload) => event.serialize_field("data", payload)?, )+
                    Self::Other(other) => event.serialize_field("data", &other.data)?,
                }
                event.end()
            }
        }
    };
}

event_enum! {
    ToolCall ToolResult SecretLeak Taint McpRoots SandboxIntegrity WasmCall EventsRecovered
    PlanFinalized CaptainMessage CaptainToolCall CaptainToolResult
    RunStarted RunPaused RunResumed RunCompleted
    TaskScheduled TaskStarted TaskHeartbeat TaskProgress TaskCompleted TaskFailed TaskStale TaskRetried TaskExhausted
    TaskRisk TaskFollowup ConflictPotential ReviewLowConfidence FollowupSpawned FollowupEnded
    ArtifactWritten BranchPushed RefineryStarted RefineryMerged CrEmitted CrRejected CrUndecided
    SessionStarted SessionMessage SessionTodos SessionSetting SessionEnded
    ApprovalAsked ApprovalDecided ForgeStarted ForgeEnded
}

/// An event that this version does not know, with its data as it was read.
#[derive(Clone, Debug)]
pub struct OtherEvent {
    name: String,
    data: Box<RawValue>,
}

impl OtherEvent {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The JSON of the data.
    pub fn data(&self) -> &str {
        self.data.get()
    }
}

impl PartialEq for OtherEvent {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.data.get() == other.data.get()
    }
}

impl Event {
    fn other(name: &str, data: &RawValue) -> Self {
        Self::Other(OtherEvent { name: name.to_owned(), data: data.to_owned() })
    }

    /// The data as JSON.
    pub fn data(&self) -> Value {
        let mut bytes = Vec::new();
        self.write_data(&mut bytes).and_then(|()| serde_json::from_slice(&bytes)).unwrap_or_default()
    }

    /// The same event with other data: for a filter over all of its text. Data that the event cannot have gives
    /// [`Event::Other`].
    #[must_use]
    pub fn with_data(&self, data: &Value) -> Self {
        serde_json::value::to_raw_value(data).map_or_else(|_| self.clone(), |data| Self::parse(self.name(), &data).0)
    }
}

/// The payload, and the fields that it does not have.
fn read_payload<T: serde::de::DeserializeOwned>(data: &RawValue, info: &EventInfo) -> Option<(T, Map<String, Value>)> {
    let payload = serde_json::from_str(data.get()).ok()?;
    let mut unknown: Map<String, Value> = serde_json::from_str(data.get()).ok()?;
    unknown.retain(|key, _| info.fields.iter().all(|field| field.name != key));
    Some((payload, unknown))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One line of each event as older versions wrote it, and at the end lines that only a newer version would write.
    const SAMPLES: &str = include_str!("../../tests/fixtures/events.ndjson");

    fn read(line: &str) -> EventRecord {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    #[test]
    fn the_old_form_of_each_event_is_read_and_written_again() {
        for line in SAMPLES.lines() {
            let record = read(line);
            assert_eq!(String::from_utf8(record.to_json()).unwrap(), line);
            assert_eq!(serde_json::to_string(&record).unwrap(), line);
            assert_eq!(read(&serde_json::to_string(&record).unwrap()), record);
        }
    }

    #[test]
    fn there_is_a_sample_of_each_event_and_each_is_known() {
        let mut seen = BTreeSet::new();
        for record in SAMPLES.lines().map(read).filter(|it| !it.stream.starts_with("newer")) {
            assert!(!matches!(record.event, Event::Other(_)), "{record:?}");
            assert!(record.unknown.is_empty(), "{record:?}");
            seen.insert(record.event.name().to_owned());
        }
        let known: BTreeSet<String> = EVENTS.iter().map(|it| it.name.to_owned()).collect();
        assert_eq!(seen, known);
        assert_eq!(known.len(), EVENTS.len(), "each name is used once");
    }

    #[test]
    fn what_a_newer_version_wrote_is_kept() {
        let newer: Vec<_> = SAMPLES.lines().map(read).filter(|it| it.stream.starts_with("newer")).collect();
        let [unknown, changed, wider] = newer.as_slice() else { panic!("{newer:?}") };
        let Event::Other(other) = &unknown.event else { panic!("{unknown:?}") };
        assert_eq!(
            (other.name(), other.data()),
            ("task.paused", r#"{"taskId":"t1","until":1e3,"big":123456789012345678901}"#)
        );
        // A known name with a field of another type.
        assert!(matches!(&changed.event, Event::Other(it) if it.name() == "task.failed"));
        // A known event with an additional field.
        assert!(matches!(&wider.event, Event::RunStarted(_)));
        assert_eq!(Value::Object(wider.unknown.clone()), serde_json::json!({ "region": "eu" }));
    }

    #[test]
    fn fields_that_are_left_out_have_a_type_that_says_so() {
        for field in EVENTS.iter().flat_map(|it| it.fields).filter(|it| it.is_optional) {
            let is_option =
                field.rust_type.starts_with("Option") || ["Vec<String>", "String", "bool"].contains(&field.rust_type);
            assert!(is_option, "{field:?}");
        }
    }
}
