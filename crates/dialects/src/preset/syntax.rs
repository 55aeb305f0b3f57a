//! Translates Go regular expressions, which the seed's models write, into the syntax of the search engine.

/// The equivalent pattern for the engine. Common syntax stays unchanged.
///
/// Go supports `\Q…\E`, `\C` and octal escapes, treats `\<`, `\>` and a brace without a repetition as literals, and has
/// no set operations in a class.
pub(super) fn from_go(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(first) = rest.chars().next() {
        let len = first.len_utf8();
        match first {
            '\\' => rest = escape(rest, in_class, &mut out),
            '[' if !in_class => {
                // A bracket right after the opening (and a `^`) is a literal.
                let head = 1 + usize::from(rest[1..].starts_with('^'));
                out.push_str(&rest[..head]);
                rest = &rest[head..];
                if let Some(after) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = after;
                }
                in_class = true;
            }
            '[' => match rest.find(":]").filter(|_| rest.starts_with("[:")) {
                Some(end) => {
                    out.push_str(&rest[..end + 2]);
                    rest = &rest[end + 2..];
                }
                None => {
                    out.push_str("\\[");
                    rest = &rest[1..];
                }
            },
            ']' if in_class => {
                in_class = false;
                out.push(']');
                rest = &rest[1..];
            }
            // A doubled character is a set operation in the engine.
            '&' | '~' if in_class => {
                out.extend(['\\', first]);
                rest = &rest[1..];
            }
            '{' if !in_class && !is_repetition(rest) => {
                out.push_str("\\{");
                rest = &rest[1..];
            }
            _ => {
                out.push(first);
                rest = &rest[len..];
            }
        }
    }
    out
}

/// Consumes an escape and returns the rest of the text.
fn escape<'a>(text: &'a str, in_class: bool, out: &mut String) -> &'a str {
    let after = &text[1..];
    let Some(second) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let rest = &after[second.len_utf8()..];
    match second {
        'Q' if !in_class => {
            let (literal, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            for one in literal.chars() {
                if one.is_ascii_punctuation() {
                    out.push('\\');
                }
                out.push(one);
            }
            rest
        }
        // Any one byte.
        'C' if !in_class => {
            out.push_str("(?s-u:.)");
            rest
        }
        '<' | '>' => {
            out.push(second);
            rest
        }
        '0'..='7' => {
            let digits = after.bytes().take(3).take_while(|it| (b'0'..=b'7').contains(it)).count();
            // A single digit other than 0 is a back-reference, which neither engine supports.
            if digits == 1 && second != '0' {
                out.extend(['\\', second]);
                return rest;
            }
            let code = u32::from_str_radix(&after[..digits], 8).unwrap_or_default();
            out.push_str(&format!("\\x{{{code:x}}}"));
            &after[digits..]
        }
        _ => {
            out.extend(['\\', second]);
            rest
        }
    }
}

/// Whether a brace begins a repetition: `{3}`, `{3,}`, `{3,5}`.
fn is_repetition(text: &str) -> bool {
    let Some(inner) = text[1..].split_once('}').map(|(inner, _)| inner) else { return false };
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let number = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    !least.is_empty() && number(least) && number(most)
}

#[cfg(test)]
mod tests {
    use super::from_go;

    fn finds(pattern: &str, text: &str) -> bool {
        let read = from_go(pattern);
        regex::bytes::Regex::new(&read)
            .unwrap_or_else(|error| panic!("{pattern} -> {read}: {error}"))
            .is_match(text.as_bytes())
    }

    #[test]
    fn reads_what_go_reads() {
        for (pattern, yes, no) in [
            (r"\QFoo(\E", "Foo(", "Foo"),
            (r"a\Q.*\Eb", "a.*b", "axxb"),
            (r"\Qx+y", "x+y", "xxy"),
            (r"^a\Cb$", "a.b", "ab"),
            (r"\<tag\>", "<tag>", "tag"),
            (r"\101\x42", "AB", "ab"),
            (r"a{,3}", "a{,3}", "aaa"),
            (r"fn {", "fn {", "fn"),
            (r"^a{2,3}$", "aa", "a"),
            (r"^[a&&b]$", "&", "c"),
            (r"^[[x]$", "[", "y"),
            (r"^[]a]$", "]", "b"),
            (r"^[^]a]$", "b", "]"),
            (r"^[[:digit:]_]$", "7", "x"),
            (r"^\pN\z", "5", "x"),
            (r"(?P<n>x)(?i)Y", "xy", "xz"),
            (r"\d+\\", r"12\", "12"),
            (r"é\Qü.\E", "éü.", "éüx"),
        ] {
            assert!(finds(pattern, yes), "{pattern} should find {yes}");
            assert!(!finds(pattern, no), "{pattern} should not find {no}");
        }
    }
}
