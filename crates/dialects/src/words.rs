//! Message templates that several dialects share.

use helve_contract::{ArgumentProblem, Error, Reply};
use helve_tools::fs;

/// The error's default text.
pub(crate) fn plain_error(_: &str, error: &Error) -> Reply {
    Reply::error(error_text(error))
}

/// The text of an error for the model. Internal errors are not explained to it.
pub(crate) fn error_text(error: &Error) -> String {
    match error {
        Error::Internal(_) => "internal error: the tool failed in a way that other arguments will not mend".into(),
        Error::UnknownTool(text) => format!("unknown tool {text}"),
        error => error.to_string(),
    }
}

/// Every problem with the arguments, each rendered by `one`.
pub(crate) fn render_problems(problems: &[ArgumentProblem], one: fn(&ArgumentProblem) -> String) -> String {
    problems.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A number with thousands separators: `142,857`.
pub(crate) fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A page of text, or the reply for other content: an image, a notebook, pages of a PDF.
pub(crate) fn page_or_reply(out: fs::ReadOutput, more_pages: fn(u32) -> String) -> Result<fs::TextPage, Box<Reply>> {
    match out {
        fs::ReadOutput::Text(page) => Ok(page),
        fs::ReadOutput::Pdf(pdf) => Err(Box::new(pdf.to_text(more_pages).into())),
        other => Err(Box::new(other.into())),
    }
}

/// The lines, followed by further notes in brackets.
pub(crate) fn plain_page(page: &fs::TextPage, hint: fn(u64) -> String) -> String {
    let mut text = page.to_exact_text();
    for note in page.notes(hint) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text += &format!("[{note}]");
    }
    text
}

/// An edit of one place, matched exactly.
pub(crate) fn exact_edit(path: String, old: String, new: String) -> fs::EditTool {
    fs::EditTool { path, old, new, all: false, tolerance: fs::Tolerance::Exact, create: false }
}

/// How an edit went, and its diff.
pub(crate) fn edit_summary(out: &fs::EditOutput) -> String {
    format!("{}\n{}", out.summary(), out.unified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([7, 142_857, 1_000_000].map(group_thousands), ["7", "142,857", "1,000,000"]);
    }
}
