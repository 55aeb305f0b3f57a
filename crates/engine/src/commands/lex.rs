//! A simple lexer for command lines: words without expansion, and the operators between them.
//!
//! It supports only syntax without expansion and rejects everything else. The result of the grammar is trusted only
//! where this independent lexer agrees.

/// A token of a simple command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A word with quotes and backslashes removed.
    Word(String),
    /// `;`, `&`, `|`, `&&`, `||` or a newline: another command starts.
    Separator,
    /// A redirection that writes no file: `2>&1`, `>/dev/null`, `< file`.
    HarmlessRedirect,
}

/// Tokenizes a simple line; `None` if a shell would expand, group or redirect something in it.
pub(crate) fn lex(text: &str) -> Option<Vec<Token>> {
    Lexer { rest: text, tokens: Vec::new(), word: None, bare: true }.run()
}

/// The literal meaning of one word as written; `None` when a shell would expand it.
pub(crate) fn literal(word: &str) -> Option<String> {
    match lex(word)?.as_slice() {
        [Token::Word(only)] => Some(only.clone()),
        _ => None,
    }
}

/// The words of each command of a simple line; `None` if it contains anything else.
pub(crate) fn plain_commands(text: &str) -> Option<Vec<Vec<String>>> {
    let mut commands = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut quiet = false;
    for token in lex(text)?.into_iter().chain([Token::Separator]) {
        match token {
            Token::Word(word) => words.push(word),
            Token::HarmlessRedirect => quiet = true,
            Token::Separator if words.is_empty() && quiet => return None,
            Token::Separator => {
                if let Some(first) = words.first() {
                    if is_keyword(first) || is_assignment(first) {
                        return None;
                    }
                    commands.push(std::mem::take(&mut words));
                }
                quiet = false;
            }
        }
    }
    Some(commands)
}

/// Quotes words so that a shell reads exactly these words.
pub(crate) fn quote<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = words.into_iter().map(quote_word).collect();
    quoted.join(" ")
}

fn quote_word(word: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-./:=@%+,".contains(it);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('=') && !is_assignment(word) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Keywords that open or close a compound command.
pub(super) fn is_keyword(word: &str) -> bool {
    const KEYWORDS: &[&str] = &[
        "!", "[[", "]]", "{", "}", "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case",
        "esac", "select", "function", "in", "coproc", "time",
    ];
    KEYWORDS.contains(&word)
}

/// `NAME=…`, `NAME+=…`, `NAME[…]=…`: what a shell parses as an assignment.
pub(crate) fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    !name.is_empty()
        && !name.starts_with(|it: char| it.is_ascii_digit())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

struct Lexer<'a> {
    rest: &'a str,
    tokens: Vec<Token>,
    /// The current word; `Some("")` for an empty quoted one.
    word: Option<String>,
    /// Whether the word so far has no quotes and no backslashes.
    bare: bool,
}

impl Lexer<'_> {
    fn run(mut self) -> Option<Vec<Token>> {
        while let Some(next) = self.take() {
            match next {
                ' ' | '\t' => self.end(),
                '\n' | ';' => self.separator(next)?,
                '#' if self.word.is_none() => self.skip_comment(),
                '&' => self.ampersand()?,
                '|' => self.pipe()?,
                '>' => self.output()?,
                '<' => self.input()?,
                '\'' => self.single()?,
                '"' => self.double()?,
                '\\' => self.escaped()?,
                '$' if self.rest.starts_with('\'') => self.ansi()?,
                '{' if self.word.is_none() && self.empty_braces() => self.push_str("{}"),
                '~' if self.is_tilde_prefix() => return None,
                '$' | '`' | '(' | ')' | '*' | '?' | '[' | '{' | '}' => return None,
                other if other.is_control() || (other.is_whitespace() && !other.is_ascii()) => return None,
                other => self.push(other),
            }
        }
        self.end();
        Some(self.tokens)
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn push(&mut self, it: char) {
        self.word.get_or_insert_default().push(it);
    }

    fn push_str(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn end(&mut self) {
        if let Some(word) = self.word.take() {
            self.tokens.push(Token::Word(word));
        }
        self.bare = true;
    }

    fn separator(&mut self, which: char) -> Option<()> {
        self.end();
        if which == ';' && self.rest.trim_start_matches([' ', '\t']).starts_with([';', '&', '|']) {
            return None;
        }
        self.tokens.push(Token::Separator);
        Some(())
    }

    fn skip_comment(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    fn ampersand(&mut self) -> Option<()> {
        self.end();
        if self.eat(">") {
            return self.dev_null_target();
        }
        self.eat("&");
        self.operator()
    }

    fn pipe(&mut self) -> Option<()> {
        self.end();
        if self.rest.starts_with('&') {
            return None;
        }
        self.eat("|");
        self.operator()
    }

    /// An operator without a command before it is not a simple line.
    fn operator(&mut self) -> Option<()> {
        if matches!(self.tokens.last(), None | Some(Token::Separator)) {
            return None;
        }
        self.tokens.push(Token::Separator);
        Some(())
    }

    /// Digits directly before a redirection are its file descriptor.
    fn descriptor(&mut self) {
        let digits = |word: &String| !word.is_empty() && word.chars().all(|it| it.is_ascii_digit());
        if self.bare && self.word.as_ref().is_some_and(digits) {
            self.word = None;
        }
        self.end();
    }

    fn output(&mut self) -> Option<()> {
        self.descriptor();
        if self.eat("&1") || self.eat("&2") {
            return self.harmless_redirect();
        }
        self.eat(">");
        self.dev_null_target()
    }

    fn dev_null_target(&mut self) -> Option<()> {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        if self.eat("/dev/null") { self.harmless_redirect() } else { None }
    }

    fn harmless_redirect(&mut self) -> Option<()> {
        let ends = self.rest.starts_with([' ', '\t', '\n', ';', '&', '|', '>', '<']) || self.rest.is_empty();
        self.tokens.push(Token::HarmlessRedirect);
        ends.then_some(())
    }

    fn input(&mut self) -> Option<()> {
        self.descriptor();
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        if self.rest.starts_with(['<', '>', '&', '(']) {
            return None;
        }
        let end = self.rest.find([' ', '\t', '\n', ';', '&', '|', '>', '<']).unwrap_or(self.rest.len());
        let file = literal(&self.rest[..end])?;
        // `/dev/tcp/host/port` opens a network connection; other devices have side effects too.
        if file.contains("/dev/") && file != "/dev/null" {
            return None;
        }
        self.rest = &self.rest[end..];
        self.tokens.push(Token::HarmlessRedirect);
        Some(())
    }

    fn single(&mut self) -> Option<()> {
        let (text, rest) = self.rest.split_once('\'')?;
        self.bare = false;
        self.push_str(text);
        self.rest = rest;
        Some(())
    }

    fn double(&mut self) -> Option<()> {
        self.bare = false;
        self.push_str("");
        loop {
            match self.take()? {
                '"' => return Some(()),
                '$' | '`' => return None,
                '\\' => match self.take()? {
                    '\n' => {}
                    it @ ('"' | '\\' | '$' | '`') => self.push(it),
                    it => {
                        self.push('\\');
                        self.push(it);
                    }
                },
                it => self.push(it),
            }
        }
    }

    fn escaped(&mut self) -> Option<()> {
        match self.take()? {
            '\n' => {}
            it => {
                self.bare = false;
                self.push(it);
            }
        }
        Some(())
    }

    fn empty_braces(&mut self) -> bool {
        let rest = self.rest.strip_prefix('}').map(str::as_bytes);
        let alone = matches!(rest, Some([] | [b' ' | b'\t' | b'\n' | b';' | b'&' | b'|', ..]));
        alone && self.eat("}")
    }

    fn is_tilde_prefix(&self) -> bool {
        self.word.as_ref().is_none_or(|word| word.is_empty() || word.ends_with(['=', ':']))
    }

    /// `$'…'` with the escapes of C.
    fn ansi(&mut self) -> Option<()> {
        self.bare = false;
        self.eat("'");
        self.push_str("");
        loop {
            match self.take()? {
                '\'' => return Some(()),
                '\\' => {
                    let it = self.ansi_escape()?;
                    self.push(it);
                }
                it => self.push(it),
            }
        }
    }

    fn ansi_escape(&mut self) -> Option<char> {
        let it = match self.take()? {
            'a' => '\x07',
            'b' => '\x08',
            'e' | 'E' => '\x1b',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            it @ ('\\' | '\'' | '"' | '?') => it,
            'x' => return self.hex(2, 0x7f),
            'u' => return self.hex(4, u32::MAX),
            'U' => return self.hex(8, u32::MAX),
            it @ '0'..='7' => return self.octal(it),
            _ => return None,
        };
        Some(it)
    }

    fn octal(&mut self, first: char) -> Option<char> {
        let mut value = first.to_digit(8)?;
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|it| it.to_digit(8)) else { break };
            value = value * 8 + digit;
            self.rest = &self.rest[1..];
        }
        // Larger values may be invalid text, and a NUL ends the word in a shell.
        (1..=0x7f).contains(&value).then(|| char::from_u32(value)).flatten()
    }

    fn hex(&mut self, most: usize, limit: u32) -> Option<char> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_hexdigit).count();
        let value = u32::from_str_radix(&self.rest[..digits], 16).ok()?;
        self.rest = &self.rest[digits..];
        if value == 0 || value > limit {
            return None;
        }
        char::from_u32(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<Vec<String>>> {
        plain_commands(text)
    }

    #[test]
    fn decodes_what_a_shell_would() {
        let cases = [
            ("t''ou\"\"ch PWN", "touch PWN"),
            ("$'\\x74ouch' PWN", "touch PWN"),
            ("$'\\164ouch' $'\\u0050WN'", "touch PWN"),
            ("tou\\\nch PWN", "touch PWN"),
            ("\\rm -- '-x'", "rm -- -x"),
            ("git show HEAD~1 a#b --x=y {} # bye", "git show HEAD~1 a#b --x=y {}"),
        ];
        for (text, words) in cases {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(read(text), Some(vec![words]), "{text}");
        }
    }

    #[test]
    fn splits_at_every_operator() {
        let text = "a 2>&1 | b >/dev/null && c < in.txt || d & e; f\n# g\nh &>/dev/null";
        let names: Vec<_> = read(text).unwrap().concat();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f", "h"]);
    }

    #[test]
    fn gives_up_where_a_shell_would_expand() {
        for text in [
            "a $x",
            "a `b`",
            "a $(b)",
            "a *",
            "a ?",
            "a [b]",
            "{a,b}",
            "~/a",
            "a=~",
            "x=1 a",
            "a > f",
            "a >| f",
            "a <> f",
            "a << E",
            "a <<< b",
            "a <(b)",
            "a >& f",
            "(a)",
            "! a",
            "if a",
            "a |& b",
            "a;; b",
            "a \r",
            "a 'b",
            "a \"b",
            "a $\"b\"",
            "a < /dev/tcp/h/1",
            "a 1>f",
            "$'\\0' a",
            "a\u{a0}b",
            "> /dev/null",
            "a >/dev/null2",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
