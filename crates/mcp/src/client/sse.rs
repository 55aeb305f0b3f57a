//! Parses server-sent events from chunks.

use super::lines::MAX_LINE_BYTES;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its kind; empty is a message.
    pub(crate) kind: String,
    /// What it carries.
    pub(crate) data: Vec<u8>,
}

/// Events in the making.
#[derive(Default)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    after_return: bool,
}

/// An event was larger than is taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventTooLong;

impl SseParser {
    /// Takes a piece and gives the events that it completes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, EventTooLong> {
        let mut whole = Vec::new();
        for byte in bytes {
            let second_half = std::mem::replace(&mut self.after_return, *byte == b'\r') && *byte == b'\n';
            match byte {
                b'\n' if second_half => {}
                b'\n' | b'\r' => self.end_line(&mut whole),
                byte => self.line.push(*byte),
            }
            if self.line.len() + self.event.data.len() > MAX_LINE_BYTES {
                return Err(EventTooLong);
            }
        }
        Ok(whole)
    }

    fn end_line(&mut self, whole: &mut Vec<SseEvent>) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                whole.push(event);
            }
            return;
        }
        let (field, value) = match line.iter().position(|it| *it == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
            }
            b"event" => self.event.kind = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_were_cut() {
        let text = ": hello\r\nevent: endpoint\r\ndata: /post\r\n\r\ndata:a\ndata: b\nid: 7\n\nevent: empty\n\ndata: c";
        for size in [1, 3, 1000] {
            let mut events = SseParser::default();
            let seen: Vec<SseEvent> =
                text.as_bytes().chunks(size).flat_map(|piece| events.push(piece).unwrap()).collect();
            let event = |kind: &str, data: &str| SseEvent { kind: kind.into(), data: data.into() };
            assert_eq!(seen, [event("endpoint", "/post"), event("", "a\nb")]);
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let mut events = SseParser::default();
        assert_eq!(events.push(&vec![b'x'; MAX_LINE_BYTES + 1]), Err(EventTooLong));
    }
}
