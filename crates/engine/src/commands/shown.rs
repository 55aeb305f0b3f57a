//! A command as a person must see it before saying yes.

use helve_contract::invisible;

use super::parse::{Reading, Simple};

/// Beyond this many characters only the two ends are shown.
const MOST_SHOWN: usize = 20_000;
/// Blanks in a row beyond this are counted, not shown: they would push the rest out of sight.
const MOST_BLANKS: usize = 16;

/// The whole command with nothing invisible in it, and every command found in it.
pub(crate) fn show_command(command: &str, reading: Option<&Reading>) -> (String, Vec<String>) {
    let commands = reading.map(|it| it.commands.iter().map(Simple::written).map(|it| visible(&it)).collect());
    (visible(command), commands.unwrap_or_default())
}

/// Text with nothing in it that hides, reorders or erases.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let run = rest.len() - rest.trim_start_matches(next).len();
        let count = run / next.len_utf8();
        if matches!(next, ' ' | '\t' | '\n') && count > MOST_BLANKS {
            let what = if next == '\n' { "empty lines" } else { "blanks" };
            shown.push_str(&format!("⟨{count} {what}⟩"));
        } else {
            rest[..run].chars().for_each(|it| push_visible(&mut shown, it));
        }
        rest = &rest[run..];
    }
    both_ends(shown)
}

fn push_visible(shown: &mut String, it: char) {
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

fn both_ends(text: String) -> String {
    let count = text.chars().count();
    if count <= MOST_SHOWN {
        return text;
    }
    let head: String = text.chars().take(MOST_SHOWN / 2).collect();
    let tail: String = text.chars().skip(count - MOST_SHOWN / 2).collect();
    format!("{head}\n⟨{} characters are not shown here⟩\n{tail}", count - MOST_SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::read;

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
            assert_eq!(visible(text), shown);
        }
        assert_eq!(visible(&format!("ls{}; rm x", " ".repeat(50))), "ls⟨50 blanks⟩; rm x");
    }

    #[test]
    fn the_commands_are_decoded() {
        let command = "timeout 5 t''ouch $'\\x50WN' && echo $x";
        let reading = read(command).unwrap();
        let (text, commands) = show_command(command, Some(&reading));
        assert_eq!(text, command);
        assert_eq!(commands, ["timeout 5 touch PWN", "touch PWN", "echo $x"]);
    }

    #[test]
    fn only_the_very_long_is_cut_and_it_is_said() {
        let text = visible(&format!("a{}z", "x".repeat(30_000)));
        assert!(text.starts_with('a') && text.ends_with('z'));
        assert!(text.contains("⟨10002 characters are not shown here⟩"));
    }
}
