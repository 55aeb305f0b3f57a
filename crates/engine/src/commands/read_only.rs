//! The programs that are read-only, with their permitted options.
//!
//! Everything else counts as a change: another program, an unlisted or abbreviated option, an additional operand. To
//! add a row, read the manual for options that write a file, run a program or load code. Then run the differential test
//! with `HELVE_LOOKS=all`.

/// A program that changes nothing with these options.
struct Program {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value: the rest of the word, or the next word.
    values: &'static str,
    /// Short options whose value, if they have one, is the rest of the word.
    optional: &'static str,
    /// Long options without a value, or with one behind `=`.
    long_flags: &'static [&'static str],
    /// Long options whose value may be the next word.
    long_values: &'static [&'static str],
    /// The maximum number of operands.
    operands: usize,
    /// Whether `-12` is an option.
    numbers: bool,
}

const PLAIN: Program = Program {
    name: "",
    flags: "",
    values: "",
    optional: "",
    long_flags: &[],
    long_values: &[],
    operands: usize::MAX,
    numbers: false,
};

// Omitted on purpose: `date -s`, `df --sync`, `diff -l` (runs `pr`), `file -C`, `-p` and `-z`, `rg -z`, `--pre` and
// `--hostname-bin`, `sort -o`, `-T` and `--compress-program`, `tail -f` (never ends), `uniq` with a second operand (its
// output file).
#[rustfmt::skip]
const PROGRAMS: &[Program] = &[
    Program { name: "basename", flags: "az", values: "s", long_flags: &["multiple", "zero"], long_values: &["suffix"], ..PLAIN },
    Program { name: "cat", flags: "AbeEnstTuv",
        long_flags: &["show-all", "number-nonblank", "show-ends", "number", "squeeze-blank", "show-tabs", "show-nonprinting"], ..PLAIN },
    Program { name: "cksum", ..PLAIN },
    Program { name: "cmp", flags: "bls", values: "in", long_flags: &["print-bytes", "verbose", "quiet", "silent"],
        long_values: &["ignore-initial", "bytes"], ..PLAIN },
    Program { name: "comm", flags: "123z", long_flags: &["check-order", "nocheck-order", "total", "zero-terminated", "output-delimiter"], ..PLAIN },
    Program { name: "cut", flags: "nsz", values: "bcdf", long_flags: &["complement", "only-delimited", "zero-terminated"],
        long_values: &["bytes", "characters", "delimiter", "fields", "output-delimiter"], ..PLAIN },
    Program { name: "df", flags: "ahHiklPT", values: "Btx", long_flags: &["all", "human-readable", "si", "inodes", "local", "portability", "print-type", "total", "no-sync"],
        long_values: &["block-size", "type", "exclude-type"], ..PLAIN },
    Program { name: "diff", flags: "abBcdeEinNpqrstTuwyZ", values: "CFIUWx",
        long_flags: &["brief", "report-identical-files", "context", "unified", "side-by-side", "suppress-common-lines", "recursive", "new-file",
            "ignore-case", "ignore-tab-expansion", "ignore-trailing-space", "ignore-space-change", "ignore-all-space", "ignore-blank-lines",
            "strip-trailing-cr", "text", "color", "minimal", "show-c-function", "no-dereference"],
        long_values: &["exclude", "ignore-matching-lines", "label", "width", "show-function-line"], ..PLAIN },
    Program { name: "dirname", flags: "z", long_flags: &["zero"], ..PLAIN },
    Program { name: "du", flags: "0abcDhHklLmPsSx", values: "Bdt",
        long_flags: &["all", "apparent-size", "bytes", "total", "human-readable", "si", "summarize", "separate-dirs", "one-file-system", "dereference", "null"],
        long_values: &["block-size", "max-depth", "threshold", "exclude"], ..PLAIN },
    Program { name: "file", flags: "bhikLNr0",
        long_flags: &["brief", "mime", "mime-type", "mime-encoding", "keep-going", "dereference", "no-dereference", "no-pad", "raw", "print0"], ..PLAIN },
    Program { name: "fold", flags: "bs", values: "w", long_flags: &["bytes", "spaces"], long_values: &["width"], ..PLAIN },
    Program { name: "grep", flags: "abcEFGHhiIlLnoPqrRsTUvVwxyzZ", values: "ABCdDefm", numbers: true,
        long_flags: &["extended-regexp", "fixed-strings", "basic-regexp", "perl-regexp", "ignore-case", "no-ignore-case", "word-regexp", "line-regexp",
            "null-data", "no-messages", "invert-match", "byte-offset", "line-number", "line-buffered", "with-filename", "no-filename", "only-matching",
            "quiet", "silent", "text", "recursive", "dereference-recursive", "files-with-matches", "files-without-match", "count", "initial-tab",
            "null", "color", "colour"],
        long_values: &["regexp", "file", "max-count", "label", "binary-files", "directories", "devices", "include", "exclude", "exclude-from",
            "exclude-dir", "after-context", "before-context", "context", "group-separator"], ..PLAIN },
    Program { name: "head", flags: "qvz", values: "cn", numbers: true,
        long_flags: &["quiet", "silent", "verbose", "zero-terminated"], long_values: &["bytes", "lines"], ..PLAIN },
    Program { name: "id", flags: "agGnruzZ", long_flags: &["group", "groups", "name", "real", "user", "zero", "context"], ..PLAIN },
    Program { name: "ls", flags: "1aAbBcCdDfFgGhHiklLmnNopqQrRsStuUvxXZ", values: "ITw",
        long_flags: &["all", "almost-all", "author", "escape", "ignore-backups", "color", "directory", "dired", "classify", "file-type", "format",
            "full-time", "group-directories-first", "no-group", "human-readable", "si", "dereference-command-line", "hyperlink", "indicator-style",
            "inode", "kibibytes", "dereference", "numeric-uid-gid", "literal", "hide-control-chars", "show-control-chars", "quote-name",
            "quoting-style", "reverse", "recursive", "size", "sort", "time", "time-style", "context", "zero"],
        long_values: &["block-size", "hide", "ignore", "tabsize", "width"], ..PLAIN },
    Program { name: "md5sum", flags: "bctwz", long_flags: &["binary", "check", "tag", "text", "zero", "ignore-missing", "quiet", "status", "strict", "warn"], ..PLAIN },
    Program { name: "nl", flags: "p", values: "bdfhilnsvw", ..PLAIN },
    Program { name: "od", flags: "abcdfilosvx", values: "AjNSt", optional: "w", ..PLAIN },
    Program { name: "paste", flags: "sz", values: "d", long_flags: &["serial", "zero-terminated"], long_values: &["delimiters"], ..PLAIN },
    Program { name: "pwd", flags: "LP", operands: 0, ..PLAIN },
    Program { name: "readlink", flags: "efmnqsvz",
        long_flags: &["canonicalize", "canonicalize-existing", "canonicalize-missing", "no-newline", "quiet", "silent", "verbose", "zero"], ..PLAIN },
    Program { name: "realpath", flags: "eLmPqsz",
        long_flags: &["canonicalize-existing", "canonicalize-missing", "logical", "physical", "quiet", "strip", "no-symlinks", "zero"],
        long_values: &["relative-to", "relative-base"], ..PLAIN },
    Program { name: "rg", flags: "0abcFHhiIlLnNopPqsSuUvVwx.", values: "ABCdeEfgjmMrtT",
        long_flags: &["files", "files-with-matches", "files-without-match", "count", "count-matches", "hidden", "no-hidden", "no-ignore", "no-ignore-vcs",
            "no-ignore-parent", "ignore-case", "smart-case", "case-sensitive", "word-regexp", "line-regexp", "fixed-strings", "line-number",
            "no-line-number", "heading", "no-heading", "column", "multiline", "multiline-dotall", "only-matching", "stats", "json", "pcre2",
            "invert-match", "null", "trim", "vimgrep", "with-filename", "no-filename", "follow", "text", "quiet", "passthru", "no-config",
            "no-messages", "type-list", "pretty", "unrestricted", "byte-offset", "crlf", "one-file-system", "version", "help"],
        long_values: &["glob", "iglob", "type", "type-not", "regexp", "color", "context", "after-context", "before-context", "max-count", "max-depth",
            "max-filesize", "max-columns", "replace", "sort", "sortr", "threads", "encoding"], ..PLAIN },
    Program { name: "seq", flags: "w", values: "fs", long_flags: &["equal-width"], long_values: &["format", "separator"], ..PLAIN },
    Program { name: "sha1sum", flags: "bctwz", long_flags: &["binary", "check", "tag", "text", "zero", "ignore-missing", "quiet", "status", "strict", "warn"], ..PLAIN },
    Program { name: "sha256sum", flags: "bctwz", long_flags: &["binary", "check", "tag", "text", "zero", "ignore-missing", "quiet", "status", "strict", "warn"], ..PLAIN },
    Program { name: "sha512sum", flags: "bctwz", long_flags: &["binary", "check", "tag", "text", "zero", "ignore-missing", "quiet", "status", "strict", "warn"], ..PLAIN },
    Program { name: "sort", flags: "bcCdfghiMmnRrsuVz", values: "kt",
        long_flags: &["ignore-leading-blanks", "dictionary-order", "ignore-case", "general-numeric-sort", "ignore-nonprinting", "month-sort",
            "human-numeric-sort", "numeric-sort", "random-sort", "reverse", "version-sort", "check", "merge", "stable", "unique", "zero-terminated"],
        long_values: &["key", "field-separator"], ..PLAIN },
    Program { name: "stat", flags: "fLt", values: "c", long_flags: &["dereference", "file-system", "terse", "printf"], long_values: &["format"], ..PLAIN },
    Program { name: "tac", flags: "br", values: "s", long_flags: &["before", "regex"], long_values: &["separator"], ..PLAIN },
    Program { name: "tail", flags: "qvz", values: "cn", numbers: true,
        long_flags: &["quiet", "silent", "verbose", "zero-terminated"], long_values: &["bytes", "lines"], ..PLAIN },
    Program { name: "tr", flags: "cCdst", long_flags: &["complement", "delete", "squeeze-repeats", "truncate-set1"], ..PLAIN },
    Program { name: "uname", flags: "aimnoprsv",
        long_flags: &["all", "kernel-name", "nodename", "kernel-release", "kernel-version", "machine", "processor", "hardware-platform", "operating-system"],
        operands: 0, ..PLAIN },
    Program { name: "uniq", flags: "cdDiuz", values: "fsw", operands: 1,
        long_flags: &["count", "repeated", "all-repeated", "group", "ignore-case", "unique", "zero-terminated"],
        long_values: &["skip-fields", "skip-chars", "check-chars"], ..PLAIN },
    Program { name: "wc", flags: "clLmw", long_flags: &["bytes", "chars", "lines", "max-line-length", "words", "total"], ..PLAIN },
    Program { name: "which", flags: "a", ..PLAIN },
    Program { name: "whoami", operands: 0, ..PLAIN },
];

/// Whether a program is known to change nothing with these arguments: no file, no lasting process, no shell variable.
/// `cd` and wrappers such as `timeout` are handled elsewhere.
pub(super) fn is_read_only(argv: &[&str]) -> bool {
    let [program, args @ ..] = argv else { return false };
    match *program {
        "echo" | "true" | "false" => true,
        "printf" => printf_only_prints(args),
        "date" => date_only_prints(args),
        "find" => find_only_prints(args),
        "sed" => sed_only_prints(args),
        name => PROGRAMS.iter().find(|it| it.name == name).is_some_and(|it| it.allows(args)),
    }
}

/// Every program that can be read-only, for the differential test.
#[cfg(test)]
pub(super) fn program_names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|it| it.name).chain(["echo", "true", "false", "printf", "date", "find", "sed"])
}

impl Program {
    /// Whether all options are in the row and there are not too many operands.
    fn allows(&self, args: &[&str]) -> bool {
        let mut operands = 0;
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let next_is_value = match word.strip_prefix("--") {
                Some("") => {
                    operands += words.len();
                    break;
                }
                Some(long) => self.long_option(long),
                None if word.len() > 1 && word.starts_with('-') => self.short_options(&word[1..]),
                None => {
                    operands += 1;
                    Some(false)
                }
            };
            match next_is_value {
                None => return false,
                Some(true) if words.next().is_none() => return false,
                Some(_) => {}
            }
        }
        operands <= self.operands
    }

    /// Whether the next word is the value of this long option; `None` if the option is not in the row.
    fn long_option(&self, long: &str) -> Option<bool> {
        let (name, has_value) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
        match (self.long_flags.contains(&name), self.long_values.contains(&name)) {
            (true, _) => Some(false),
            (_, true) => Some(!has_value),
            _ => None,
        }
    }

    /// Whether the next word is the value of the last option in this cluster; `None` if an option is not in the row.
    fn short_options(&self, cluster: &str) -> Option<bool> {
        if self.numbers && cluster.bytes().all(|it| it.is_ascii_digit()) {
            return Some(false);
        }
        for (at, option) in cluster.char_indices() {
            if self.values.contains(option) {
                return Some(at + option.len_utf8() == cluster.len());
            }
            if self.optional.contains(option) {
                return Some(false);
            }
            if !self.flags.contains(option) {
                return None;
            }
        }
        Some(false)
    }
}

/// Whether `printf` prints and sets nothing: `-v NAME` and `%n` set a variable of the shell.
pub(super) fn printf_only_prints(args: &[&str]) -> bool {
    let format = match args {
        ["--", format, ..] => format,
        [format, ..] if !format.starts_with('-') => format,
        _ => return false,
    };
    let mut rest = *format;
    while let Some((_, conversion)) = rest.split_once('%') {
        let conversion = conversion.trim_start_matches(|it: char| it.is_ascii_digit() || "-+ #0'.*".contains(it));
        let Some(kind) = conversion.chars().next() else { return true };
        if !"%diouxXeEfFgGaAcsbq".contains(kind) {
            return false;
        }
        rest = &conversion[1..];
    }
    true
}

/// Whether `date` prints a time and sets none: a bare operand and `-s` set the clock.
fn date_only_prints(args: &[&str]) -> bool {
    const ROW: Program = Program {
        flags: "uR",
        values: "dr",
        optional: "I",
        long_flags: &["utc", "universal", "rfc-email", "rfc-3339", "iso-8601", "debug"],
        long_values: &["date", "reference"],
        ..PLAIN
    };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let next_is_value = match (word.strip_prefix("--"), word.strip_prefix('-')) {
            _ if word.starts_with('+') => Some(false),
            (Some(long), _) if !long.is_empty() => ROW.long_option(long),
            (None, Some(cluster)) if !cluster.is_empty() => ROW.short_options(cluster),
            _ => None,
        };
        match next_is_value {
            None => return false,
            Some(true) if words.next().is_none() => return false,
            Some(_) => {}
        }
    }
    true
}

/// Tests and actions of `find` without a value that print at most.
#[rustfmt::skip]
const FIND_FLAGS: &[&str] = &[
    "-H", "-L", "-P", "(", ")", "!", ",", "-a", "-and", "-o", "-or", "-not", "-true", "-false", "-empty", "-readable", "-writable", "-executable",
    "-nouser", "-nogroup", "-print", "-print0", "-ls", "-prune", "-quit", "-depth", "-d", "-xdev", "-mount", "-follow", "-daystart", "-noleaf",
    "-ignore_readdir_race", "-noignore_readdir_race", "-warn", "-nowarn",
];
/// The same with a value.
#[rustfmt::skip]
const FIND_VALUES: &[&str] = &[
    "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-regextype", "-type", "-xtype", "-maxdepth", "-mindepth",
    "-size", "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin", "-newer", "-anewer", "-cnewer", "-newermt", "-newerct", "-newerat", "-newermm", "-perm", "-user",
    "-group", "-uid", "-gid", "-links", "-inum", "-samefile", "-lname", "-ilname", "-fstype", "-used", "-printf",
];

/// Whether `find` only prints.
fn find_only_prints(args: &[&str]) -> bool {
    // Implementations of `find` differ, so a word that could be an action counts even as a value.
    let acts = ["-exec", "-ok", "-delete", "-fls", "-fprint"];
    if args.iter().any(|word| acts.iter().any(|act| word.starts_with(act))) {
        return false;
    }
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let is_path = !word.starts_with('-');
        if FIND_VALUES.contains(word) {
            if words.next().is_none() {
                return false;
            }
        } else if !is_path && !FIND_FLAGS.contains(word) {
            return false;
        }
    }
    true
}

/// Accepts `sed -n '3,9p' file …` only.
fn sed_only_prints(args: &[&str]) -> bool {
    let ["-n", script, files @ ..] = args else { return false };
    let is_line = |text: &str| text == "$" || (!text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()));
    let prints = script.strip_suffix('p').is_some_and(|range| match range.split_once(',') {
        Some((first, last)) => is_line(first) && is_line(last),
        None => is_line(range),
    });
    prints && !files.iter().any(|file| file.starts_with('-'))
}

/// Subcommands of Git that only print, with any operands.
#[rustfmt::skip]
const GIT_PRINTS: &[&str] = &[
    "log", "show", "diff", "status", "blame", "shortlog", "describe", "rev-parse", "rev-list", "ls-files", "ls-tree", "cat-file", "grep", "merge-base",
    "name-rev", "diff-tree", "--version",
];
/// Long options of those subcommands that neither write a file nor run a program. Git accepts abbreviations, so only
/// the full spelling counts.
#[rustfmt::skip]
const GIT_OPTIONS: &[&str] = &[
    "abbrev", "abbrev-commit", "abbrev-ref", "absolute-git-dir", "after", "all", "all-match", "always", "ancestry-path", "author", "before", "boundary", "branch", "branches", "cached", "cc",
    "check", "cherry", "cherry-pick", "color", "column", "combined-all-paths", "committer", "contains", "count", "cumulative", "date", "decorate", "deleted",
    "diff-algorithm", "diff-filter", "directory", "dirstat", "error-unmatch", "exact-match", "exit-code", "exclude", "exclude-standard", "extended-regexp", "find-copies",
    "find-copies-harder", "find-object", "find-renames", "first-parent", "fixed-strings", "follow", "format", "full-diff", "full-history", "full-index",
    "full-name", "function-context", "git-common-dir", "git-dir", "glob", "graph", "grep", "heads", "histogram", "ignore-all-space", "ignore-blank-lines", "ignore-case",
    "ignore-space-at-eol", "ignore-space-change", "ignore-submodules", "ignored", "indent-heuristic", "inter-hunk-context", "invert-grep", "is-ancestor", "is-bare-repository", "is-inside-work-tree",
    "left-only", "left-right", "line-number", "long", "match", "max-count", "merge-base", "merges", "minimal", "modified", "name-only", "name-status", "no-abbrev",
    "no-abbrev-commit", "no-color", "no-decorate", "no-ext-diff", "no-index", "no-merges", "no-patch", "no-prefix", "no-renames", "no-textconv", "no-walk", "not", "null",
    "numbered", "numstat", "object-id", "objects", "oneline", "others", "parents", "patch", "patch-with-stat", "patience", "perl-regexp", "pickaxe-all",
    "pickaxe-regex", "porcelain", "pretty", "quiet", "raw", "reflog", "regexp-ignore-case", "relative", "relative-date", "remotes", "reverse", "right-only", "root",
    "short", "shortstat", "show-prefix", "show-stash", "show-toplevel", "simplify-by-decoration", "since", "skip", "source", "staged", "stage", "stat",
    "stdin", "submodule", "summary", "symbolic-full-name", "tags", "text", "topo-order", "unified", "unmerged", "until", "untracked", "untracked-files",
    "verbose", "verify", "version", "walk-reflogs", "word-diff", "word-diff-regex", "word-regexp",
];

/// Whether this is a git command that only prints and writes at most the index's cached times. Repository settings can
/// still make git run programs.
pub(super) fn git_only_prints(argv: &[&str]) -> bool {
    let ["git", rest @ ..] = argv else { return false };
    let rest = match rest {
        ["--no-pager", rest @ ..] | ["-C", _, rest @ ..] => rest,
        rest => rest,
    };
    let [subcommand, args @ ..] = rest else { return false };
    let end = args.iter().position(|it| *it == "--").unwrap_or(args.len());
    let known = |word: &&str| match word.strip_prefix("--") {
        Some(long) => GIT_OPTIONS.contains(&long.split('=').next().unwrap_or_default()),
        // `git grep -O` opens a pager.
        None => !word.starts_with('-') || !word.contains('O'),
    };
    match *subcommand {
        "branch" | "tag" | "remote" => {
            let lists = ["-a", "-r", "-v", "-vv", "-l", "--all", "--list", "--show-current", "--verbose", "--remotes"];
            args.iter().all(|it| lists.contains(it))
        }
        "stash" | "worktree" => args == ["list"],
        "config" => matches!(args, ["--get", name] | ["get", name] if !name.starts_with('-')),
        name => GIT_PRINTS.contains(&name) && args[..end].iter().all(known),
    }
}
