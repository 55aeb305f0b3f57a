//! The environment of commands: built from a list of what is wanted, never from what the engine happens to have.

use std::{
    env,
    path::{Path, PathBuf},
};

use helve_contract::{Error, Result};

use super::settings::SandboxSettings;

/// Where the system keeps programs.
pub(super) const SYSTEM_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Copied from the engine's own environment when set.
const KEPT: [&str; 6] = ["LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "COLORTERM"];

/// Set always: no program opens a pager, asks at a terminal, or runs a filter that a variable names.
const FIXED: [(&str, &str); 11] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("LESSOPEN", ""),
    ("LESSCLOSE", ""),
    ("LESSSECURE", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GCM_INTERACTIVE", "never"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];

/// Beginnings of names that make other programs run code of the sender's choice, or change how they are walled in.
const REFUSED_PREFIXES: [&str; 11] =
    ["LD_", "DYLD_", "GIT_", "BASH_FUNC_", "GCONV_", "MALLOC_", "PERL5", "RUSTC", "CARGO_", "NPM_CONFIG_", "HELVE_"];

/// Names of the same kind.
const REFUSED: [&str; 37] = [
    "BASH_ENV",
    "ENV",
    "BASHOPTS",
    "SHELLOPTS",
    "PROMPT_COMMAND",
    "PS4",
    "IFS",
    "PATH",
    "CDPATH",
    "HOME",
    "SHELL",
    "TMPDIR",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "RUBYOPT",
    "RUBYLIB",
    "PERLLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "MAKEFLAGS",
    "MFLAGS",
    "MAKEFILES",
    "RIPGREP_CONFIG_PATH",
    "PAGER",
    "MANPAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "LOCPATH",
    "NLSPATH",
    "TERMINFO",
];

/// Refuses names that would let the sender run code in programs that are not theirs.
pub(super) fn check(given: &[(String, String)]) -> Result<()> {
    for (name, value) in given {
        let upper = name.to_ascii_uppercase();
        let sane = !name.is_empty()
            && !name.starts_with(|it: char| it.is_ascii_digit())
            && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        if sane && value.contains('\0') {
            return Err(Error::failed(format!(
                "the value of the environment variable `{name}` has a NUL character in it, which no program takes; remove it"
            )));
        }
        if !sane {
            return Err(Error::failed(format!(
                "`{}` is not a name for an environment variable; use letters, digits and underscores",
                name.escape_debug()
            )));
        }
        if REFUSED.contains(&upper.as_str()) || REFUSED_PREFIXES.iter().any(|prefix| upper.starts_with(prefix)) {
            return Err(Error::denied(format!(
                "the environment variable `{name}` is not accepted, because it changes how other programs run; \
                 set it inside the command if the command needs it"
            )));
        }
    }
    Ok(())
}

/// The whole environment of a command, sorted by name.
pub(super) fn build(
    settings: &SandboxSettings,
    home: &Path,
    temporary: &Path,
    path: &[PathBuf],
    terminal: bool,
    given: &[(String, String)],
) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: String| match all.iter_mut().find(|(it, _)| it == name) {
        Some(slot) => slot.1 = value,
        None => all.push((name.to_owned(), value)),
    };
    for (name, value) in env::vars_os() {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
            && (KEPT.contains(&name) || name.starts_with("LC_"))
        {
            set(name, value.to_owned());
        }
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let joined: Vec<_> = path.iter().map(|dir| text(dir)).collect();
    set("PATH", joined.join(":"));
    set("HOME", text(home));
    set("TMPDIR", text(temporary));
    set("SHELL", "/bin/sh".to_owned());
    set("TERM", if terminal { "xterm-256color" } else { "dumb" }.to_owned());
    for (name, value) in FIXED {
        set(name, value.to_owned());
    }
    for (name, value) in settings.env.iter().chain(given) {
        set(name, value.clone());
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> String {
        match check(&[(name.to_owned(), "x".to_owned())]) {
            Ok(()) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_that_run_code_are_refused() {
        for name in ["LD_PRELOAD", "ld_preload", "BASH_ENV", "GIT_SSH_COMMAND", "NODE_OPTIONS", "PYTHONPATH", "PATH"] {
            assert!(said(name).starts_with(&format!("the environment variable `{name}` is not accepted")), "{name}");
        }
        assert_eq!(said("A B"), "`A B` is not a name for an environment variable; use letters, digits and underscores");
        assert_eq!(said("CI"), "accepted");
        assert_eq!(
            check(&[("CI".to_owned(), "a\0b".to_owned())]).unwrap_err().to_string(),
            "the value of the environment variable `CI` has a NUL character in it, which no program takes; remove it"
        );
    }

    #[test]
    fn nothing_of_the_engine_gets_in_unasked() {
        let path = [PathBuf::from("/usr/bin")];
        let settings = SandboxSettings::default();
        let given = [("CI".to_owned(), "1".to_owned())];
        let built = build(&settings, Path::new("/home/u"), Path::new("/tmp"), &path, false, &given);
        let names: Vec<_> = built
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !KEPT.contains(name) && !name.starts_with("LC_"))
            .collect();
        assert_eq!(
            names.join(" "),
            "CI DEBIAN_FRONTEND GCM_INTERACTIVE GIT_OPTIONAL_LOCKS GIT_PAGER GIT_TERMINAL_PROMPT HOME LESSCLOSE \
             LESSOPEN LESSSECURE MANPAGER PAGER PATH SHELL SYSTEMD_PAGER TERM TMPDIR"
        );
    }
}
