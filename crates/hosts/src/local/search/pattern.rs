//! Patterns, globs and file types, with ripgrep's semantics.

use std::path::Path;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use helve_contract::{Error, Result, closest_names, ports::GrepQuery};
use ignore::{
    overrides::{Override, OverrideBuilder},
    types::{FileTypeDef, Types, TypesBuilder},
};

/// The memory limit of a compiled pattern, and of its cache.
const MAX_REGEX_BYTES: usize = 10 << 20;

/// Compiles the matcher of a search.
pub(crate) fn matcher(grep: &GrepQuery) -> Result<RegexMatcher> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .unicode(true)
        .octal(false)
        .fixed_strings(grep.literal)
        .case_insensitive(grep.ignore_case)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .ban_byte(Some(0));
    if grep.multiline {
        builder.dot_matches_new_line(true);
    } else {
        builder.line_terminator(Some(b'\n')).dot_matches_new_line(false);
    }
    builder.build_many(&[&grep.pattern]).map_err(|error| {
        let text = error.to_string();
        let advice = if text.contains("size limit") {
            "it is too large when expanded; use smaller repetitions"
        } else if text.contains("\\n") && !grep.multiline {
            "a line break can only be matched when the search spans lines; turn that on, or leave it out"
        } else {
            "escape `( ) [ ] { } . * + ? | ^ $ \\` with `\\` to match them literally"
        };
        Error::failed(format!("the pattern is not a regular expression that can be used: {text}. Hint: {advice}"))
    })
}

pub(crate) struct FileFilters {
    pub(crate) globs: Override,
    pub(crate) types: Types,
}

/// Parses the globs and the type of a search. Globs are relative to the root, as ripgrep's are to its working
/// directory.
pub(crate) fn filters(root: &Path, grep: &GrepQuery) -> Result<FileFilters> {
    let mut globs = OverrideBuilder::new(root);
    for glob in &grep.globs {
        // Paths here have no `./` prefix.
        globs
            .add(glob.strip_prefix("./").unwrap_or(glob))
            .map_err(|error| Error::failed(format!("`{glob}` is not a glob: {error}")))?;
    }
    let globs = globs.build().map_err(|error| Error::failed(format!("the globs do not fit together: {error}")))?;

    let mut types = TypesBuilder::new();
    types.add_defaults();
    if let Some(wanted) = &grep.file_type {
        let known = types.definitions();
        if wanted != "all" && !known.iter().any(|known| known.name() == wanted) {
            return Err(unknown_type_error(wanted, &known));
        }
        types.select(wanted);
    }
    let types = types.build().map_err(|error| Error::failed(error.to_string()))?;
    Ok(FileFilters { globs, types })
}

/// Suggests the type that owns the extension, or types with similar names.
fn unknown_type_error(wanted: &str, known: &[FileTypeDef]) -> Error {
    let ending = format!("*.{}", wanted.trim_start_matches('.'));
    let ends = |it: &&FileTypeDef| it.globs().contains(&ending);
    let mut near: Vec<&str> = known.iter().filter(ends).map(FileTypeDef::name).collect();
    if near.is_empty() {
        near = closest_names(wanted, known.iter().map(FileTypeDef::name));
    }
    let near = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
    Error::failed(format!("unrecognized file type: {wanted}{near}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_by_the_ending_of_its_files() {
        let known = TypesBuilder::new().add_defaults().definitions();
        let said = |wanted| unknown_type_error(wanted, &known).to_string();
        assert_eq!(said("rs"), "unrecognized file type: rs; did you mean rust?");
        assert_eq!(said(".tsx"), "unrecognized file type: .tsx; did you mean ts, typescript?");
        assert_eq!(said("rustt"), "unrecognized file type: rustt; did you mean rust?");
    }
}
