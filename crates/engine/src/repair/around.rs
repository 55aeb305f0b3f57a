//! Text around the JSON: code fences, prose, a function call, one level of escaping too many.

use serde_json::Value;

use super::{RepairLog, is_whitespace_like, reader::LenientParser};

/// Parses the value inside a text that is not valid JSON.
pub(super) fn parse_embedded(text: &str, mends: &mut RepairLog) -> Result<Value, String> {
    if let Some(plain) = unescaped(text) {
        mends.harmless("every quote was escaped");
        let mut reader = LenientParser::new(&plain, mends);
        let value = reader.value()?;
        return check_trailing(reader, value);
    }
    let mut reader = LenientParser::new(text, mends);
    reader.skip_whitespace();
    if reader.skip_fence() {
        reader.repairs.harmless("a code fence around the JSON");
    }
    reader.skip_whitespace();
    let value = match reader.peek() {
        Some('{' | '[') => reader.value()?,
        Some(quote @ ('"' | '\'' | '`')) if is_object_in_quotes(&reader.rest()[1..]) => {
            // Parsed as a string, it would be unescaped twice.
            reader.repairs.harmless("quotes around the JSON");
            reader.advance(1);
            let value = reader.value()?;
            reader.skip_whitespace();
            reader.eat(quote);
            value
        }
        Some(quote) if super::quoted::closing_quotes(quote).is_some() => reader.value()?,
        _ => {
            let start = find_json_start(reader.rest()).ok_or("there is no JSON object in it")?;
            if !is_function_name(&reader.rest()[..start]) {
                reader.repairs.harmless("words around the JSON");
            } else {
                reader.repairs.harmless("a function call around the JSON");
            }
            reader.advance(start);
            reader.skip_fence();
            reader.skip_whitespace();
            reader.value()?
        }
    };
    check_trailing(reader, value)
}

/// Checks the text after the value. A second value makes the input ambiguous.
fn check_trailing(mut reader: LenientParser<'_, '_>, value: Value) -> Result<Value, String> {
    loop {
        reader.skip_whitespace();
        if reader.skip_fence() {
            reader.repairs.harmless("a code fence around the JSON");
        } else if matches!(reader.peek(), Some('}' | ']')) {
            reader.repairs.harmless("a closing bracket too many");
            reader.advance(1);
        } else if matches!(reader.peek(), Some(';' | ')' | '`')) {
            reader.advance(1);
        } else {
            break;
        }
    }
    let rest = reader.rest();
    if rest.starts_with([',', ':', '{', '[', '"', '\'']) && rest.len() > 1 {
        return Err("there is more than one JSON value in it".into());
    }
    if rest.contains('{') {
        reader.repairs.guess("words with braces after the JSON");
    } else if !rest.is_empty() {
        reader.repairs.harmless("words around the JSON");
    }
    Ok(value)
}

/// Where the JSON begins in a text that begins with something else: after a fence, or at the first brace.
fn find_json_start(text: &str) -> Option<usize> {
    let brace = text.find('{').or_else(|| text.find('['))?;
    match text.find("```") {
        Some(fence) if text[fence..].contains(['{', '[']) => Some(fence),
        _ => Some(brace),
    }
}

/// `{"` where a text in quotes would need `{\"`.
fn is_object_in_quotes(text: &str) -> bool {
    let inside = text.trim_start_matches(is_whitespace_like).strip_prefix('{');
    inside.is_some_and(|it| it.trim_start_matches(is_whitespace_like).starts_with(['"', '\'']))
}

/// `callback_123(` and the like.
fn is_function_name(before: &str) -> bool {
    let name =
        before.trim_end_matches(is_whitespace_like).strip_suffix('(').map(|it| it.trim_end_matches(is_whitespace_like));
    name.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || b"_.$".contains(&it)))
}

/// The text with one level of escaping removed, if its first quote is escaped.
fn unescaped(text: &str) -> Option<String> {
    let inside = text.trim_start_matches(is_whitespace_like).strip_prefix(['{', '['])?;
    if !inside
        .trim_start_matches(is_whitespace_like)
        .trim_start_matches("\\n")
        .trim_start_matches(is_whitespace_like)
        .starts_with("\\\"")
    {
        return None;
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(it) = chars.next() {
        match it {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some('r') => plain.push('\r'),
                Some(it @ ('"' | '\\' | '/')) => plain.push(it),
                Some(it) => plain.extend(['\\', it]),
                None => plain.push('\\'),
            },
            it => plain.push(it),
        }
    }
    Some(plain)
}
