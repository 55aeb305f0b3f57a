//! `edit`: replaces text in a file.

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Reply, Result, SafePath, Tool,
    ports::{Expect, FileChunk, Span},
    schemars,
    schemars::JsonSchema,
};
use serde::Deserialize;

use super::{
    diff::{self, Diff},
    replace::{self, MatchLevel, ReplaceError, ReplaceResult, Replacement, Tolerance},
    text::{self, Charset, DecodedText, TextFormat},
    with_suggestions,
};

const MAX_FILE_BYTES: u64 = 64 << 20;

/// Replaces a piece of text in a file. It must match exactly and be there only once, unless all are wanted. The file's
/// encoding and line ends stay as they are. Returns the diff.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditTool {
    /// File to change.
    pub path: String,
    /// Text to replace, exactly as it is in the file.
    pub old: String,
    /// Text to put in its place.
    pub new: String,
    /// Replace it wherever it is.
    #[serde(default)]
    pub all: bool,
    /// How closely the text must match.
    #[serde(default)]
    pub tolerance: Tolerance,
    /// Without a text to replace, create the file (or fill an empty one) with the new text.
    #[serde(default)]
    pub create: bool,
}

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditOutput {
    /// The file, as the model knows it.
    pub path: String,
    /// The number of replacements.
    pub replaced: usize,
    /// Whether the file was created.
    pub created: bool,
    /// How the text was found.
    pub match_level: MatchLevel,
    /// The diff.
    pub diff: Diff,
    /// A note about the file's encoding.
    pub encoding: Option<String>,
}

impl EditOutput {
    /// The unified diff.
    #[must_use]
    pub fn unified(&self) -> String {
        if self.created { self.diff.created(&self.path) } else { self.diff.unified(&self.path) }
    }

    /// A one-line summary: `replaced 2 places in a.txt`.
    #[must_use]
    pub fn summary(&self) -> String {
        let note = self.match_level.note().map(|it| format!(" ({it})")).unwrap_or_default();
        match self.replaced {
            0 => format!("created {}", self.path),
            1 => format!("replaced 1 place in {}{note}", self.path),
            count => format!("replaced {count} places in {}{note}", self.path),
        }
    }
}

/// How often an edit of a concurrently changed file is retried.
const MAX_RETRIES: usize = 8;

impl Tool for EditTool {
    const NAME: &'static str = "edit";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    type Output = EditOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::writes([&self.path]))
    }

    async fn run(mut self, call: &Call) -> Result<EditOutput> {
        let path = call.check_write(&self.path)?;
        if call.session.lenient_edits {
            self.tolerance = Tolerance::Tolerant;
        }
        if self.old == self.new {
            return Err(Error::failed(format!("{path} was not changed: the new text is the same as the old one")));
        }
        for _ in 1..MAX_RETRIES {
            match self.try_once(call, &path).await {
                // Another writer was faster. Only the matched text counts, so search the new content.
                Err(Error::File { fault: FileErrorKind::Changed, .. }) => call.check_cancelled()?,
                done => return done,
            }
        }
        self.try_once(call, &path).await
    }
}

impl EditTool {
    async fn try_once(&self, call: &Call, path: &SafePath) -> Result<EditOutput> {
        let file = match call.host().read(path, Span::first(MAX_FILE_BYTES)).await {
            Ok(file) if file.size > MAX_FILE_BYTES => {
                return Err(Error::file(path, FileErrorKind::TooLarge { bytes: file.size, limit: MAX_FILE_BYTES }));
            }
            Ok(file) => Some(file),
            Err(Error::File { fault: FileErrorKind::Missing { .. }, .. }) if self.old.is_empty() && self.create => None,
            Err(error) => return Err(with_suggestions(call, path, error).await),
        };
        match file {
            Some(file) if !(self.old.is_empty() && self.create) => self.change(call, path, file).await,
            file => self.create_file(call, path, file).await,
        }
    }

    /// Replaces text in an existing file.
    async fn change(&self, call: &Call, path: &SafePath, file: FileChunk) -> Result<EditOutput> {
        let format = text::detect(&file.bytes, true).map_err(|what| {
            Error::file(path, FileErrorKind::Binary(format!("{what}, {}", super::format_size(file.size))))
        })?;
        let wanted = Replacement { old: &self.old, new: &self.new, all: self.all, tolerance: self.tolerance };
        let ReplaceResult { bytes, changes, count, rung } =
            replace::replace(&file.bytes, format, &wanted).map_err(|why| refusal_error(path, format, &why))?;
        call.remark(call.host().write(path, &bytes, Expect::bytes(&file.bytes)).await?.remarks);
        let diff = match (std::str::from_utf8(&file.bytes), std::str::from_utf8(&bytes)) {
            // Includes the byte order mark, because a patch must match it too.
            (Ok(before), Ok(after)) if format.charset == Charset::Utf8 => {
                diff::diff_with_known_changes(before, after, changes)
            }
            _ => diff::diff(&DecodedText::new(&file.bytes, format).text, &DecodedText::new(&bytes, format).text),
        };
        Ok(EditOutput {
            path: path.to_string(),
            replaced: count,
            created: false,
            match_level: rung,
            diff,
            encoding: format.note(),
        })
    }

    /// Writes a missing or empty file.
    async fn create_file(&self, call: &Call, path: &SafePath, file: Option<FileChunk>) -> Result<EditOutput> {
        if file.as_ref().is_some_and(|file| !file.bytes.is_empty()) {
            return Err(Error::failed(format!(
                "{path} exists and is not empty, so there must be a text to replace; write the whole file to replace all of it"
            )));
        }
        let expect = match &file {
            Some(file) => Expect::bytes(&file.bytes),
            None => Expect::Absent,
        };
        call.remark(call.host().write(path, self.new.as_bytes(), expect).await?.remarks);
        Ok(EditOutput {
            path: path.to_string(),
            replaced: 0,
            created: file.is_none(),
            match_level: MatchLevel::Exact,
            diff: diff::diff("", &self.new),
            encoding: None,
        })
    }
}

/// The error for the model when nothing was replaced.
fn refusal_error(path: &SafePath, format: TextFormat, why: &ReplaceError) -> Error {
    Error::failed(match why {
        ReplaceError::Empty => {
            format!("{path} was not changed: the text to replace is empty; send the text that is to be replaced")
        }
        ReplaceError::NoChange => format!("{path} was not changed: the new text is the same as the old one"),
        ReplaceError::Ambiguous(count, lines) => {
            let shown: Vec<_> = lines.iter().map(ToString::to_string).collect();
            let more = if *count > lines.len() { ", …" } else { "" };
            let times = if *count == 1 { "more than once".to_owned() } else { format!("{count} times") };
            format!(
                "{path} was not changed: the text to replace is there {times}, at line{} {}{more}; send more of the lines \
                 around it, so that only one place fits",
                if *count == 1 { "" } else { "s" },
                shown.join(", ")
            )
        }
        ReplaceError::TooLarge => {
            format!("{path} was not changed: the result would be too large; replace fewer places")
        }
        ReplaceError::Missing(why) => format!("{path} was not changed: {why}"),
        ReplaceError::Unmappable(it) => format!(
            "{path} was not changed: it is written in {}, which has no `{it}` (U+{:04X}); use other characters, or convert \
             the file first",
            format.charset,
            u32::from(*it)
        ),
        ReplaceError::Unreadable => format!(
            "{path} was not changed: \u{fffd} in the new text stands for bytes that cannot be shown; leave the places \
             around it out of the change"
        ),
        ReplaceError::VerificationFailed => format!(
            "{path} was not changed: the change would have touched bytes outside of the text to replace; write the whole \
             file instead"
        ),
    })
}

impl From<EditOutput> for Reply {
    fn from(it: EditOutput) -> Self {
        format!("{}\n{}", it.summary(), it.unified()).into()
    }
}

#[cfg(test)]
mod tests;
