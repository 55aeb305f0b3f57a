//! Parses the server name in a TLS client hello.

/// What is known of a client's first message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientHello {
    /// More of it must come.
    Incomplete,
    /// It asks for this server; `None`: it does not say.
    ServerName(Option<String>),
    /// It is not the beginning of TLS.
    NotTls,
}

/// The longest first message that is waited for.
pub(super) const MAX_HELLO_BYTES: usize = 16 << 10;

/// Reads what has come so far.
pub(super) fn parse(bytes: &[u8]) -> ClientHello {
    // One record: type 22 (handshake), version 3.x, length; then type 1 (client hello) and its length.
    if bytes.iter().zip([22, 3]).any(|(have, want)| *have != want) {
        return ClientHello::NotTls;
    }
    let Some(length) = be_uint(bytes, 3, 2) else { return ClientHello::Incomplete };
    let Some(record) = bytes.get(5..5 + length) else {
        return if length + 5 > MAX_HELLO_BYTES { ClientHello::NotTls } else { ClientHello::Incomplete };
    };
    parse_record(record).unwrap_or(ClientHello::NotTls)
}

/// The name in a client hello that is all in one record; `None`: it is none.
fn parse_record(record: &[u8]) -> Option<ClientHello> {
    if record.first() != Some(&1) {
        return None;
    }
    let body = record.get(4..4 + be_uint(record, 1, 3)?)?;
    let mut at = 34;
    at += 1 + be_uint(body, at, 1)?;
    at += 2 + be_uint(body, at, 2)?;
    at += 1 + be_uint(body, at, 1)?;
    let Some(length) = be_uint(body, at, 2) else { return Some(ClientHello::ServerName(None)) };
    let mut rest = body.get(at + 2..at + 2 + length)?;
    let mut name = None;
    while !rest.is_empty() {
        let (kind, length) = (be_uint(rest, 0, 2)?, be_uint(rest, 2, 2)?);
        let inside = rest.get(4..4 + length)?;
        if kind == 0 {
            // A list of names, of which there is one, of the kind 0.
            let length = be_uint(inside, 3, 2)?;
            let text = inside.get(5..5 + length)?;
            if inside.get(2) != Some(&0) || inside.len() != 5 + length || name.is_some() {
                return None;
            }
            name = Some(String::from_utf8(text.to_vec()).ok()?.to_ascii_lowercase());
        }
        rest = rest.get(4 + length..)?;
    }
    Some(ClientHello::ServerName(name))
}

/// A number of so many bytes, the highest first.
fn be_uint(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    Some(bytes.get(at..at + count)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client hello with these extensions.
    fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        let all: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, inside)| {
                let mut one = kind.to_be_bytes().to_vec();
                one.extend((inside.len() as u16).to_be_bytes());
                one.extend(inside);
                one
            })
            .collect();
        body.extend((all.len() as u16).to_be_bytes());
        body.extend(all);
        let mut record = vec![1, 0];
        record.extend((body.len() as u16).to_be_bytes());
        record.extend(body);
        let mut whole = vec![22, 3, 1];
        whole.extend((record.len() as u16).to_be_bytes());
        whole.extend(record);
        whole
    }

    fn name(text: &str) -> (u16, Vec<u8>) {
        let mut inside = ((text.len() + 3) as u16).to_be_bytes().to_vec();
        inside.push(0);
        inside.extend((text.len() as u16).to_be_bytes());
        inside.extend(text.as_bytes());
        (0, inside)
    }

    #[test]
    fn the_name_is_found_however_it_comes() {
        let whole = message(&[(10, vec![0, 2, 0, 29]), name("Example.org")]);
        assert_eq!(parse(&whole), ClientHello::ServerName(Some("example.org".into())));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), ClientHello::Incomplete, "{end}");
        }
        assert_eq!(parse(&message(&[])), ClientHello::ServerName(None));
        assert_eq!(parse(b"SSH-2.0-OpenSSH"), ClientHello::NotTls);
        assert_eq!(parse(b"GET / HTTP/1.1"), ClientHello::NotTls);
        assert_eq!(parse(&message(&[name("a"), name("b")])), ClientHello::NotTls);
        let mut broken = whole;
        broken[43] = 255;
        assert_eq!(parse(&broken), ClientHello::NotTls);
    }
}
