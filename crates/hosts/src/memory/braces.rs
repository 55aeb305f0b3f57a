//! Rewrites scripts to avoid a parser bug of the interpreter.
//!
//! The interpreter ends `${x/${y}/z}` at the first closing brace. It reads the equivalent `${x/$y/z}` correctly, and
//! `${x/"${y%.md}"/z}` for all values without glob characters.

use std::borrow::Cow;

/// Removes or quotes the inner braces in replacements.
pub(super) fn rewrite_nested_braces(script: &str) -> Cow<'_, str> {
    if !has_replacement(script) {
        return Cow::Borrowed(script);
    }
    let mut speller =
        BraceRewriter { text: script.as_bytes(), at: 0, out: Vec::with_capacity(script.len()), below: Vec::new() };
    speller.script();
    // Only complete ASCII characters were removed or inserted.
    String::from_utf8(speller.out).map_or(Cow::Borrowed(script), Cow::Owned)
}

/// Most scripts contain none and stay unchanged.
fn has_replacement(script: &str) -> bool {
    let bytes = script.as_bytes();
    memchr::memmem::find_iter(bytes, b"${").any(|at| replaced_from(bytes, at).is_some())
        && memchr::memmem::find_iter(bytes, b"${").nth(1).is_some()
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The start of the pattern in `${name/` or `${name[index]/`.
fn replaced_from(text: &[u8], at: usize) -> Option<usize> {
    let name = text.get(at + 2..)?;
    let mut len = name.iter().take_while(|it| is_name(**it)).count();
    if name.get(len) == Some(&b'[') {
        len += name[len..].iter().take(256).position(|it| *it == b']')? + 1;
    }
    (len > 0 && name.get(len) == Some(&b'/')).then_some(at + 2 + len + 1)
}

/// The name of `${name}`.
fn plain_name(text: &[u8], at: usize) -> Option<&[u8]> {
    let inner = text.get(at..)?.strip_prefix(b"${")?;
    let len = inner.iter().take_while(|it| is_name(**it)).count();
    (len > 0 && !inner[0].is_ascii_digit() && inner.get(len) == Some(&b'}')).then(|| &inner[..len])
}

/// A here-document whose body follows later.
struct PendingHeredoc {
    end: Vec<u8>,
    tabs: bool,
    literal: bool,
}

struct BraceRewriter<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    below: Vec<PendingHeredoc>,
}

impl BraceRewriter<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn copy(&mut self, count: usize) {
        let end = (self.at + count).min(self.text.len());
        self.out.extend_from_slice(&self.text[self.at..end]);
        self.at = end;
    }

    fn copy_through(&mut self, byte: u8) {
        let rest = &self.text[self.at..];
        self.copy(memchr::memchr(byte, rest).map_or(rest.len(), |it| it + 1));
    }

    fn script(&mut self) {
        // The quoting state of this level and of each enclosing substitution.
        let mut quoted = vec![false];
        while let Some(byte) = self.peek() {
            let in_quotes = quoted.last().copied().unwrap_or(false);
            let rest = &self.text[self.at..];
            match byte {
                b'\\' => self.copy(2),
                b'\'' if !in_quotes => {
                    self.copy(1);
                    self.copy_through(b'\'');
                }
                b'"' => {
                    if let Some(last) = quoted.last_mut() {
                        *last = !in_quotes;
                    }
                    self.copy(1);
                }
                b'$' if !in_quotes && rest.starts_with(b"$'") => self.ansi_quoted(),
                b'$' if rest.starts_with(b"$(") => {
                    quoted.push(false);
                    self.copy(2);
                }
                b')' if !in_quotes && quoted.len() > 1 => {
                    quoted.pop();
                    self.copy(1);
                }
                b'#' if !in_quotes && self.begins_word() => {
                    let rest = &self.text[self.at..];
                    self.copy(memchr::memchr(b'\n', rest).unwrap_or(rest.len()));
                }
                b'<' if !in_quotes && rest.starts_with(b"<<<") => self.copy(3),
                b'<' if !in_quotes && rest.starts_with(b"<<") => self.here_document(),
                b'\n' if !self.below.is_empty() => {
                    self.copy(1);
                    self.bodies();
                }
                b'$' if replaced_from(self.text, self.at).is_some() => self.replacement(in_quotes),
                _ => self.copy(1),
            }
        }
    }

    fn begins_word(&self) -> bool {
        self.at == 0 || matches!(self.text[self.at - 1], b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(')
    }

    fn ansi_quoted(&mut self) {
        self.copy(2);
        while let Some(byte) = self.peek() {
            self.copy(if byte == b'\\' { 2 } else { 1 });
            if byte == b'\'' {
                break;
            }
        }
    }

    fn here_document(&mut self) {
        self.copy(2);
        let tabs = self.peek() == Some(b'-');
        self.copy(usize::from(tabs));
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.copy(1);
        }
        let start = self.at;
        while self
            .peek()
            .is_some_and(|it| !matches!(it, b' ' | b'\t' | b'\n' | b';' | b'|' | b'&' | b')' | b'>' | b'<'))
        {
            self.copy(1);
        }
        let word = &self.text[start..self.at];
        let literal = word.iter().any(|it| matches!(it, b'\'' | b'"' | b'\\'));
        let end: Vec<u8> = word.iter().copied().filter(|it| !matches!(it, b'\'' | b'"' | b'\\')).collect();
        if !end.is_empty() && !end[0].is_ascii_digit() {
            self.below.push(PendingHeredoc { end, tabs, literal });
        }
    }

    fn bodies(&mut self) {
        for below in std::mem::take(&mut self.below) {
            while self.at < self.text.len() {
                let rest = &self.text[self.at..];
                let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
                let bare = if below.tabs { line.trim_ascii_start() } else { line };
                let (stop, is_end) = (self.at + line.len(), bare == below.end);
                while self.at < stop {
                    match self.peek() {
                        Some(b'\\') => self.copy(2),
                        Some(b'$') if !below.literal && replaced_from(self.text, self.at).is_some() => {
                            self.replacement(true);
                        }
                        _ => self.copy(1),
                    }
                }
                self.copy(usize::from(self.peek() == Some(b'\n') && self.at == stop));
                if is_end {
                    break;
                }
            }
        }
    }

    /// The end of an expansion that contains no quotes.
    fn inner_end(&self) -> Option<usize> {
        let inner = self.text[self.at..].strip_prefix(b"${")?;
        let mut depth = 1_usize;
        for (at, byte) in inner.iter().enumerate() {
            match byte {
                b'"' | b'\'' | b'\\' | b'`' | b'\n' => return None,
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(self.at + 2 + at + 1);
            }
        }
        None
    }

    /// `${x/pattern/text}`: a plain name in it loses its braces, any other expansion is quoted.
    fn replacement(&mut self, in_quotes: bool) {
        let Some(start) = replaced_from(self.text, self.at) else { return self.copy(1) };
        self.copy(start - self.at);
        let (mut depth, mut inner_quotes) = (0_usize, false);
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => self.copy(2),
                b'"' => {
                    inner_quotes = !inner_quotes;
                    self.copy(1);
                }
                b'\'' if !in_quotes && !inner_quotes => {
                    self.copy(1);
                    self.copy_through(b'\'');
                }
                b'$' if depth == 0 && !inner_quotes => match plain_name(self.text, self.at) {
                    Some(name) => {
                        self.out.push(b'$');
                        self.out.extend_from_slice(name);
                        self.at += name.len() + 3;
                        if self.peek().is_some_and(|it| is_name(it) || it == b'[') {
                            self.out.extend_from_slice(b"\"\"");
                        }
                    }
                    None => match self.inner_end() {
                        // Quotes also hide its brace.
                        Some(end) => {
                            self.out.push(b'"');
                            self.copy(end - self.at);
                            self.out.push(b'"');
                        }
                        None => {
                            depth += usize::from(self.text[self.at..].starts_with(b"${"));
                            self.copy(1);
                        }
                    },
                },
                b'}' if !inner_quotes => {
                    self.copy(1);
                    if depth == 0 {
                        return;
                    }
                    depth -= 1;
                }
                _ => self.copy(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite_nested_braces;

    #[test]
    fn plain_names_in_replacements_lose_their_braces() {
        assert_eq!(rewrite_nested_braces("echo \"${x//${y}/z}\""), "echo \"${x//$y/z}\"");
        assert_eq!(rewrite_nested_braces("echo ${x/#${y}/${z}}"), "echo ${x/#$y/$z}");
        assert_eq!(rewrite_nested_braces("echo ${x[1]/${y}a/z}"), "echo ${x[1]/$y\"\"a/z}");
        assert_eq!(rewrite_nested_braces("echo ${x/${y%.*}/${z}}"), "echo ${x/\"${y%.*}\"/$z}");
        assert_eq!(rewrite_nested_braces("a=$(echo \"${x/${y}/}\")"), "a=$(echo \"${x/$y/}\")");
        assert_eq!(rewrite_nested_braces("cat <<E\n${x/${y}/z}\nE\n"), "cat <<E\n${x/$y/z}\nE\n");
    }

    #[test]
    fn everything_else_stays() {
        for script in [
            "echo '${x//${y}/z}'",
            "# ${x//${y}/z}\ntrue",
            "echo ${x//\"${y}\"/z} ${y}",
            "echo ${x:-${y}} ${x#${y}} a/${y}/b",
            "cat <<'E'\n${x//${y}/z}\nE\n",
            "cat <<-\\E\n\t${x//${y}/z}\n\tE\n",
            "echo $'it\\'s ${x//${y}/z}'",
            "echo \\${x//${y}/z}",
            "é${x/",
            "${x/${",
        ] {
            assert_eq!(rewrite_nested_braces(script), script);
        }
    }
}
