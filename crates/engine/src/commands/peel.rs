//! Unwraps programs that run other programs: `env`, `timeout`, `xargs`, `sh -c` and similar ones.

use super::{
    lex,
    parse::{CommandRole, ShellWord},
    read_only::printf_only_prints,
};

/// The commands that a command runs.
#[derive(Default)]
pub(super) struct Peeled {
    /// The role of the command itself.
    pub(super) layer: CommandRole,
    /// The commands it runs: their words, and whether more are added at run time.
    pub(super) inner: Vec<(Vec<ShellWord>, bool)>,
    /// Scripts that it passes to a shell.
    pub(super) scripts: Vec<String>,
    /// Ambiguities, and whether they may run programs.
    pub(super) ambiguities: Vec<(bool, String)>,
    /// Directories it changes to.
    pub(super) cd_targets: Vec<String>,
}

#[allow(clippy::derivable_impls, reason = "a layer has no natural default outside this file")]
impl Default for CommandRole {
    fn default() -> Self {
        Self::Program
    }
}

/// How to separate a wrapper's options from the command it runs.
struct Wrapper {
    name: &'static str,
    layer: CommandRole,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value.
    values: &'static str,
    /// Long options without a value, or with one behind `=`.
    long_flags: &'static [&'static str],
    /// Long options whose value may be the next word.
    long_values: &'static [&'static str],
    /// The number of words between the options and the command.
    skip: usize,
    /// Whether `NAME=value` may precede the command.
    assigns: bool,
    /// Whether more arguments come at run time.
    has_runtime_args: bool,
}

const PLAIN_WRAPPER: Wrapper = Wrapper {
    name: "",
    layer: CommandRole::Wrapper,
    flags: "",
    values: "",
    long_flags: &[],
    long_values: &[],
    skip: 0,
    assigns: false,
    has_runtime_args: false,
};
const LAUNCHER_WRAPPER: Wrapper = Wrapper { layer: CommandRole::Launcher, ..PLAIN_WRAPPER };

#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
    Wrapper { name: "nohup", ..PLAIN_WRAPPER },
    Wrapper { name: "builtin", ..PLAIN_WRAPPER },
    Wrapper { name: "nice", values: "n", long_values: &["adjustment"], ..PLAIN_WRAPPER },
    Wrapper { name: "setsid", flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..PLAIN_WRAPPER },
    Wrapper { name: "stdbuf", values: "ioe", long_values: &["input", "output", "error"], ..PLAIN_WRAPPER },
    Wrapper { name: "timeout", flags: "fpv", values: "ks", skip: 1,
        long_flags: &["foreground", "preserve-status", "verbose"], long_values: &["kill-after", "signal"], ..PLAIN_WRAPPER },
    Wrapper { name: "time", flags: "p", assigns: true, ..PLAIN_WRAPPER },
    Wrapper { name: "ionice", flags: "t", values: "cn", long_flags: &["ignore"], long_values: &["class", "classdata"], ..PLAIN_WRAPPER },
    Wrapper { name: "taskset", flags: "c", skip: 1, long_flags: &["cpu-list"], ..PLAIN_WRAPPER },
    Wrapper { name: "command", flags: "p", ..PLAIN_WRAPPER },
    Wrapper { name: "env", flags: "i0v", values: "uC", assigns: true,
        long_flags: &["ignore-environment", "null", "debug", "block-signal", "default-signal", "ignore-signal", "list-signal-handling"],
        long_values: &["unset", "chdir"], ..LAUNCHER_WRAPPER },
    Wrapper { name: "exec", flags: "cl", values: "a", ..LAUNCHER_WRAPPER },
    Wrapper { name: "coproc", assigns: true, ..LAUNCHER_WRAPPER },
    Wrapper { name: "chrt", flags: "abdfiormRv", values: "TPD", skip: 1, ..LAUNCHER_WRAPPER },
    Wrapper { name: "sudo", flags: "ABbEeHiKklNnPSsVv", values: "CcDghpRrTtUu", assigns: true,
        long_flags: &["askpass", "background", "bell", "edit", "login", "no-update", "non-interactive", "preserve-env", "preserve-groups", "reset-timestamp", "set-home", "shell", "stdin"],
        long_values: &["close-from", "chdir", "group", "host", "prompt", "chroot", "role", "type", "command-timeout", "other-user", "user"], ..LAUNCHER_WRAPPER },
    Wrapper { name: "doas", flags: "Lns", values: "aCu", ..LAUNCHER_WRAPPER },
    Wrapper { name: "chroot", skip: 1, long_flags: &["skip-chdir", "userspec", "groups"], ..LAUNCHER_WRAPPER },
    Wrapper { name: "busybox", ..LAUNCHER_WRAPPER },
    Wrapper { name: "toybox", ..LAUNCHER_WRAPPER },
    Wrapper { name: "xargs", flags: "0oprtxeil", values: "adEILnPs", has_runtime_args: true,
        long_flags: &["null", "interactive", "no-run-if-empty", "verbose", "exit", "open-tty", "show-limits", "replace", "eof", "max-lines"],
        long_values: &["arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"], ..LAUNCHER_WRAPPER },
    Wrapper { name: "unshare", flags: "cfimnprTuUC", values: "GRSw",
        long_flags: &["cgroup", "fork", "ipc", "map-auto", "map-current-user", "map-root-user", "mount", "mount-proc", "net", "pid", "keep-caps", "kill-child", "time", "user", "uts", "propagation"],
        long_values: &["map-user", "map-group", "root", "setuid", "setgid", "wd"], ..LAUNCHER_WRAPPER },
    Wrapper { name: "nsenter", flags: "aCeFikmnprTuUw", values: "GStW",
        long_flags: &["all", "cgroup", "env", "follow-context", "ipc", "mount", "net", "no-fork", "pid", "preserve-credentials", "root", "time", "user", "uts", "wd"],
        long_values: &["setgid", "setuid", "target"], ..LAUNCHER_WRAPPER },
    Wrapper { name: "strace", flags: "AcCdDfFhikKnqrTtvVwxyYzZ", values: "abeEIoOpPsSuUX", ..LAUNCHER_WRAPPER },
    Wrapper { name: "ltrace", flags: "bcCfhiLnrStTVw", values: "aADeFlnopsux", ..LAUNCHER_WRAPPER },
];

const SHELL_PROGRAMS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"];

/// Builtins that redefine names or run text that is not visible here.
const NAME_CHANGING_BUILTINS: &[&str] = &[
    "alias", "hash", "enable", "source", ".", "shopt", "bind", "complete", "compgen", "fc", "unalias", "unset", "set",
];

/// Builtins that evaluate a subscript or arithmetic in their arguments, even in quoted ones.
const EVALUATING_BUILTINS: &[&str] = &[
    "test",
    "[",
    "read",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "let",
    "mapfile",
    "readarray",
    "getopts",
    "wait",
];

/// The last part of a path: `/bin/rm` is `rm`.
pub(crate) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether setting this variable can make a program run or load something.
pub(super) fn is_dangerous_env_var(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "PATH",
        "BASH_ENV",
        "ENV",
        "IFS",
        "PROMPT_COMMAND",
        "PS0",
        "PS1",
        "PS2",
        "PS4",
        "SHELLOPTS",
        "BASHOPTS",
        "CDPATH",
        "SHELL",
        "EDITOR",
        "VISUAL",
        "BROWSER",
        "LESS",
        "LESSOPEN",
        "LESSCLOSE",
        "NODE_OPTIONS",
        "NODE_PATH",
        "RUBYOPT",
        "RUBYLIB",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "MAKEFLAGS",
        "GNUMAKEFLAGS",
        "RIPGREP_CONFIG_PATH",
        "GCONV_PATH",
        "LOCPATH",
        "NLSPATH",
        "TAR_OPTIONS",
        "GREP_OPTIONS",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "RUSTC",
        "RUSTFLAGS",
        "CC",
        "CXX",
        "LD",
        "AR",
        "HOME",
        "ZDOTDIR",
        "TERMINFO",
        "MANOPT",
        "TMPDIR",
        "OPENSSL_CONF",
        "GOFLAGS",
        "KUBECONFIG",
        "DOCKER_HOST",
    ];
    const PREFIXES: &[&str] = &[
        "LD_",
        "DYLD_",
        "GIT_",
        "BASH_FUNC",
        "PERL5",
        "PYTHON",
        "CARGO_",
        "RUSTC_",
        "npm_config_",
        "NPM_CONFIG_",
        "XDG_",
    ];
    NAMES.contains(&name) || name.ends_with("PAGER") || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The commands that a command runs. `open`: more arguments are added at run time.
pub(super) fn peel(words: &[ShellWord], open: bool) -> Peeled {
    let mut peeled = Peeled::default();
    let Some(program) = words.first().and_then(ShellWord::as_literal) else { return peeled };
    let name = base_name(program);
    let rest = &words[1..];
    // A keyword that was parsed as a program, so the line means something else. `time` is harmless.
    if name == program && name != "time" && lex::is_keyword(name) {
        peeled.ambiguities.push((true, format!("`{name}` stands where a program is expected")));
    }
    match name {
        "cd" | "pushd" => peeled.cd_targets.extend(rest.iter().filter_map(ShellWord::as_literal).map(str::to_owned)),
        "eval" => add_script(&mut peeled, rest, open, "eval"),
        "trap" => {
            peeled.ambiguities.push((false, "it sets a trap, which runs later".into()));
            add_script(&mut peeled, rest.get(..1).unwrap_or_default(), open, "trap");
        }
        "find" | "gfind" => peel_find_exec(&mut peeled, rest),
        "watch" => peel_watch(&mut peeled, rest, open),
        "script" => peel_script_option(&mut peeled, rest),
        "flock" => peel_flock(&mut peeled, rest, open),
        "parallel" => peel_parallel(&mut peeled, rest),
        "printf" if sets_variable(rest) => peel_eval(&mut peeled, rest, name),
        _ if SHELL_PROGRAMS.contains(&name) => peel_shell(&mut peeled, rest, open),
        _ if EVALUATING_BUILTINS.contains(&name) => peel_eval(&mut peeled, rest, name),
        _ if NAME_CHANGING_BUILTINS.contains(&name) => {
            let why = format!("it uses `{name}`, which can change what a name runs");
            peeled.ambiguities.push((name != "set" && name != "unset", why));
        }
        _ => {
            if let Some(wrapper) = WRAPPERS.iter().find(|it| it.name == name) {
                peel_wrapper(&mut peeled, wrapper, rest, open);
            }
        }
    }
    peeled
}

/// Adds text from these words that a shell parses again.
fn add_script(peeled: &mut Peeled, words: &[ShellWord], open: bool, who: &str) {
    peeled.layer = CommandRole::Launcher;
    let known: Option<Vec<_>> = words.iter().map(ShellWord::as_literal).collect();
    match known {
        Some(words) if !open => peeled.scripts.push(words.join(" ")),
        _ => peeled.ambiguities.push((true, format!("what `{who}` runs is known only when it runs"))),
    }
}

/// Whether `printf` may set a variable: by `-v NAME`, by `%n`, or by a format known only at run time.
fn sets_variable(rest: &[ShellWord]) -> bool {
    let words: Vec<_> = rest.iter().map(|word| word.as_literal().unwrap_or("%n")).collect();
    !words.is_empty() && !printf_only_prints(&words)
}

fn peel_eval(peeled: &mut Peeled, rest: &[ShellWord], name: &str) {
    let runs = |word: &str| word.contains("$(") || word.contains('`') || word.contains("<(");
    let hides = rest.iter().filter_map(ShellWord::as_literal).any(runs);
    let steers = rest.iter().any(|word| {
        let (ShellWord::Literal(text) | ShellWord::Opaque(text)) = word;
        is_dangerous_env_var(text.split(['=', '+']).next().unwrap_or_default())
    });
    peeled.ambiguities.push((hides || steers, format!("it uses `{name}`, which evaluates its arguments")));
}

/// `sh -c text`, also in clusters (`bash -xec`).
fn peel_shell(peeled: &mut Peeled, rest: &[ShellWord], open: bool) {
    peeled.layer = CommandRole::Launcher;
    let (mut at, mut command) = (0, false);
    while let Some(word) = rest.get(at) {
        let Some(text) = word.as_literal() else { break };
        match text {
            "--" | "-" => {
                at += 1;
                break;
            }
            "--rcfile" | "--init-file" => at += 1,
            "--command" => command = true,
            _ if text.starts_with("--") => {}
            _ if text.starts_with('-') || text.starts_with('+') => {
                command |= text.starts_with('-') && text.contains('c');
                at += usize::from(text.ends_with(['o', 'O']));
            }
            _ => break,
        }
        at += 1;
    }
    match rest.get(at) {
        Some(ShellWord::Literal(text)) if command => peeled.scripts.push(text.clone()),
        Some(ShellWord::Literal(_)) if !command => peeled.layer = CommandRole::Program,
        None if !command && !open => {
            peeled.ambiguities.push((true, "a shell reads commands that cannot be seen".into()));
        }
        _ => peeled.ambiguities.push((true, "what a shell runs is known only when it runs".into())),
    }
}

/// `find … -exec command {} \;`
fn peel_find_exec(peeled: &mut Peeled, rest: &[ShellWord]) {
    let starts = |word: &ShellWord| matches!(word.as_literal(), Some("-exec" | "-execdir" | "-ok" | "-okdir"));
    let mut at = 0;
    while let Some(start) = rest[at..].iter().position(starts).map(|it| at + it + 1) {
        let ends = |word: &ShellWord| matches!(word.as_literal(), Some(";" | "+"));
        let end = rest[start..].iter().position(ends).map_or(rest.len(), |it| start + it);
        peeled.layer = CommandRole::Launcher;
        peeled.inner.push((rest[start..end].to_vec(), true));
        at = end;
    }
}

/// `watch command …`, which passes all words to a shell, or with `-x` to none.
fn peel_watch(peeled: &mut Peeled, rest: &[ShellWord], open: bool) {
    let options = Wrapper {
        name: "watch",
        flags: "bcCdeghprtwx",
        values: "nqs",
        long_flags: &[
            "beep",
            "color",
            "no-color",
            "differences",
            "errexit",
            "chgexit",
            "precise",
            "no-rerun",
            "no-title",
            "no-wrap",
            "exec",
        ],
        long_values: &["interval", "equexit"],
        ..LAUNCHER_WRAPPER
    };
    let at = skip_options(peeled, &options, rest);
    let direct = rest[..at].iter().filter_map(ShellWord::as_literal).any(|it| it == "-x" || it == "--exec");
    if direct {
        peeled.inner.push((rest[at..].to_vec(), open));
        peeled.layer = CommandRole::Launcher;
    } else {
        add_script(peeled, &rest[at..], open, "watch");
    }
}

/// `script -c text file`.
fn peel_script_option(peeled: &mut Peeled, rest: &[ShellWord]) {
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.as_literal() else { break };
        let cluster = text.starts_with('-') && !text.starts_with("--");
        if let Some(value) = text.strip_prefix("--command=") {
            return add_script(peeled, &[ShellWord::Literal(value.to_owned())], false, "script");
        }
        if text == "--command" || (cluster && text.ends_with('c')) {
            return add_script(peeled, words.next().map(std::slice::from_ref).unwrap_or_default(), false, "script");
        }
        if let (true, Some((_, value))) = (cluster, text.split_once('c')) {
            return add_script(peeled, &[ShellWord::Literal(value.to_owned())], false, "script");
        }
    }
    peeled.layer = CommandRole::Launcher;
    peeled.ambiguities.push((true, "a shell reads commands that cannot be seen".into()));
}

/// `flock file command …` and `flock file -c text`.
fn peel_flock(peeled: &mut Peeled, rest: &[ShellWord], open: bool) {
    let options = Wrapper {
        name: "flock",
        flags: "sxenuoFv",
        values: "wE",
        long_flags: &["shared", "exclusive", "nonblock", "unlock", "close", "no-fork", "verbose"],
        long_values: &["timeout", "wait", "conflict-exit-code"],
        ..LAUNCHER_WRAPPER
    };
    let at = skip_options(peeled, &options, rest) + 1;
    peeled.layer = CommandRole::Launcher;
    match rest.get(at).and_then(ShellWord::as_literal) {
        Some("-c" | "--command") => add_script(peeled, rest.get(at + 1..at + 2).unwrap_or_default(), open, "flock"),
        _ => peeled.inner.extend(rest.get(at..).filter(|it| !it.is_empty()).map(|it| (it.to_vec(), open))),
    }
}

/// `parallel command ::: arguments`. Its many options are not modelled, so it is always ambiguous.
fn peel_parallel(peeled: &mut Peeled, rest: &[ShellWord]) {
    peeled.layer = CommandRole::Launcher;
    peeled.ambiguities.push((true, "what `parallel` runs is known only when it runs".into()));
    let end = rest.iter().position(|it| it.as_literal().is_some_and(|it| it.starts_with(":::"))).unwrap_or(rest.len());
    let start = rest.iter().position(|it| it.as_literal().is_none_or(|it| !it.starts_with('-'))).unwrap_or(end);
    match rest.get(start..end) {
        Some([ShellWord::Literal(text)]) if text.contains(' ') => peeled.scripts.push(text.clone()),
        Some(words) if !words.is_empty() => peeled.inner.push((words.to_vec(), true)),
        _ => {}
    }
}

/// Unwraps a wrapper of the table.
fn peel_wrapper(peeled: &mut Peeled, wrapper: &Wrapper, rest: &[ShellWord], open: bool) {
    let mut rest = rest.to_vec();
    if wrapper.name == "env" {
        split_string(peeled, &mut rest);
    }
    // `command -v name` is read-only.
    if wrapper.name == "command"
        && rest.first().and_then(ShellWord::as_literal).is_some_and(|it| it == "-v" || it == "-V")
    {
        return;
    }
    let at = skip_options(peeled, wrapper, &rest) + wrapper.skip;
    let Some(mut inner) = rest.get(at..) else { return };
    let given = rest[..at.min(rest.len())].len();
    while let [ShellWord::Literal(first), others @ ..] = inner
        && wrapper.assigns
        && first.contains('=')
    {
        let name = first.split('=').next().unwrap_or_default();
        peeled
            .ambiguities
            .push((is_dangerous_env_var(name), format!("it sets {name}, which can change what programs do")));
        inner = others;
    }
    // `env command` without options adds nothing; options change the context of the command.
    peeled.layer = if wrapper.name == "env" && given == 0 { CommandRole::Wrapper } else { wrapper.layer };
    match inner.first() {
        None => match wrapper.name {
            "sudo" | "unshare" | "nsenter" | "chroot" if !open => {
                peeled.ambiguities.push((true, "a shell reads commands that cannot be seen".into()));
            }
            _ if open => peeled.ambiguities.push((true, "the program it runs is known only when it runs".into())),
            _ => peeled.layer = CommandRole::Program,
        },
        Some(first) => {
            if first.as_literal().is_none() {
                peeled.ambiguities.push((true, "the program it runs is known only when it runs".into()));
            }
            peeled.inner.push((inner.to_vec(), open || wrapper.has_runtime_args));
        }
    }
}

/// `env -S 'a b'` is `env a b`.
fn split_string(peeled: &mut Peeled, rest: &mut Vec<ShellWord>) {
    for at in 0..rest.len() {
        let Some(text) = rest[at].as_literal() else { return };
        let (value, used) = match text.strip_prefix("--split-string=") {
            Some(value) => (Some(value.to_owned()), 1),
            None if text == "-S" || text == "--split-string" || ends_in_split_option(text) => {
                (rest.get(at + 1).and_then(ShellWord::as_literal).map(str::to_owned), 2)
            }
            None if text.starts_with("-S") => (Some(text[2..].to_owned()), 1),
            None if text.starts_with('-') => continue,
            None => return,
        };
        match value.as_deref().and_then(lex::plain_commands) {
            Some(commands) if commands.len() == 1 => {
                rest.splice(at..(at + used).min(rest.len()), commands.into_iter().flatten().map(ShellWord::Literal));
            }
            _ => peeled.ambiguities.push((true, "what `env -S` runs is not a plain command".into())),
        }
        return;
    }
}

/// `-iS`, `-vS`: a cluster that ends in the option.
fn ends_in_split_option(text: &str) -> bool {
    text.len() > 2 && text.starts_with('-') && !text.starts_with("--") && text.ends_with('S')
}

/// The number of option words of a wrapper. An unknown option makes the rest ambiguous.
fn skip_options(peeled: &mut Peeled, wrapper: &Wrapper, rest: &[ShellWord]) -> usize {
    let mut at = 0;
    while let Some(text) = rest.get(at).and_then(ShellWord::as_literal) {
        if text == "--" {
            return at + 1;
        }
        let number =
            matches!(wrapper.name, "nice") && text.len() > 1 && text[1..].bytes().all(|it| it.is_ascii_digit());
        let used = match text.strip_prefix("--") {
            _ if !text.starts_with('-') => return at,
            _ if number || (wrapper.name == "env" && text == "-") => Some(1),
            Some(long) => long_option(wrapper, long),
            None => short_options(wrapper, &text[1..]),
        };
        if used.is_none() {
            peeled.ambiguities.push((true, format!("the option {text} of `{}` is not known", wrapper.name)));
        }
        at += used.unwrap_or(1);
    }
    at.min(rest.len())
}

/// The number of words of a long option; `None` if it is unknown.
fn long_option(wrapper: &Wrapper, long: &str) -> Option<usize> {
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    match (wrapper.long_values.contains(&name), wrapper.long_flags.contains(&name)) {
        (true, _) => Some(if value.is_some() { 1 } else { 2 }),
        (_, true) => Some(1),
        _ => None,
    }
}

/// The number of words of a cluster of short options; `None` if one is unknown.
fn short_options(wrapper: &Wrapper, cluster: &str) -> Option<usize> {
    for (at, option) in cluster.char_indices() {
        if wrapper.values.contains(option) {
            return Some(if at + option.len_utf8() < cluster.len() { 1 } else { 2 });
        }
        // The rest of the cluster is the value of these options.
        if wrapper.name == "xargs" && "eil".contains(option) {
            return Some(1);
        }
        if !wrapper.flags.contains(option) {
            return None;
        }
    }
    if cluster.is_empty() { None } else { Some(1) }
}
