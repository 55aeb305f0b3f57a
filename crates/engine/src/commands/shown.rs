//! Formats a command for an approval prompt.

use helve_contract::invisible;

use super::parse::{ParsedCommandLine, SimpleCommand};

/// Longer runs of whitespace are shown as a count; otherwise they could push the rest out of view.
const MAX_BLANKS: usize = 16;

/// The whole command with invisible characters escaped, and every command found in it.
pub(crate) fn display_command(command: &str, reading: Option<&ParsedCommandLine>) -> (String, Vec<String>) {
    let commands =
        reading.map(|it| it.commands.iter().map(SimpleCommand::source).map(|it| escape_invisible(&it)).collect());
    (escape_invisible(command), commands.unwrap_or_default())
}

/// Escapes characters that hide, reorder or erase text. Keeps everything else.
pub(crate) fn escape_invisible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if next == '\n' {
            rest = push_lines(&mut shown, rest);
            continue;
        }
        let run = rest.len() - rest.trim_start_matches(next).len();
        let count = run / next.len_utf8();
        match next {
            ' ' if count > MAX_BLANKS => shown.push_str(&format!("⟨{count} spaces⟩")),
            '\t' if count > MAX_BLANKS => shown.push_str(&format!("⟨{count} tabs⟩")),
            _ => rest[..run].chars().for_each(|it| push_escaped(&mut shown, it)),
        }
        rest = &rest[run..];
    }
    shown
}

/// Consumes a newline and the following blank lines, and counts them if there are many.
fn push_lines<'a>(shown: &mut String, text: &'a str) -> &'a str {
    let blank = text.len() - text.trim_start_matches([' ', '\t', '\n']).len();
    let end = text[..blank].rfind('\n').map_or(0, |at| at + 1);
    let count = text[..end].matches('\n').count();
    if count > MAX_BLANKS {
        shown.push_str(&format!("⟨{count} line breaks⟩\n"));
        return &text[end..];
    }
    shown.push('\n');
    &text[1..]
}

fn push_escaped(shown: &mut String, it: char) {
    match it {
        '\n' | ' ' => shown.push(it),
        '\t' => shown.push_str("\\t"),
        '\r' => shown.push_str("\\r"),
        _ if it.is_ascii_control() => shown.push_str(&format!("\\x{:02x}", u32::from(it))),
        _ if it.is_control() || it.is_whitespace() || invisible(it).is_some() || it == '\u{2800}' => {
            shown.push_str(&it.escape_unicode().to_string());
        }
        _ => shown.push(it),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::parse_line;

    #[test]
    fn nothing_stays_hidden() {
        let cases = [
            ("ls\x1b[2J", "ls\\x1b[2J"),
            ("rm x\rls   ", "rm x\\rls   "),
            ("ls \u{202e}fr- mr", "ls \\u{202e}fr- mr"),
            ("l\u{200b}s\u{e0041}", "l\\u{200b}s\\u{e0041}"),
            ("a\u{a0}b", "a\\u{a0}b"),
            ("grün 雪", "grün 雪"),
        ];
        for (text, shown) in cases {
            assert_eq!(escape_invisible(text), shown);
        }
        assert_eq!(escape_invisible(&format!("ls{}; rm x", " ".repeat(50))), "ls⟨50 spaces⟩; rm x");
        assert_eq!(escape_invisible(&format!("ls{}; rm x", "\t".repeat(50))), "ls⟨50 tabs⟩; rm x");
        assert_eq!(escape_invisible(&format!("ls;{}rm x", "\n".repeat(50))), "ls;⟨50 line breaks⟩\nrm x");
        assert_eq!(escape_invisible(&format!("ls;{}  rm x", " \n\t\n".repeat(25))), "ls; ⟨50 line breaks⟩\n  rm x");
        assert_eq!(escape_invisible("a\n\n  b\n"), "a\n\n  b\n");
    }

    #[test]
    fn the_commands_are_decoded() {
        let command = "timeout 5 t''ouch $'\\x50WN' && echo $x";
        let reading = parse_line(command).unwrap();
        let (text, commands) = display_command(command, Some(&reading));
        assert_eq!(text, command);
        assert_eq!(commands, ["timeout 5 touch PWN", "touch PWN", "echo $x"]);
    }

    #[test]
    fn nothing_is_left_out_however_long() {
        let text = format!("a{}z", "x".repeat(30_000));
        assert_eq!(escape_invisible(&text), text);
    }
}
