//! Suggested rules for a prompt: the narrowest ones that allow a call, and what a broader one would allow.

use super::{
    Rule,
    deed::{CallAccess, PathTarget, TargetHost},
    given,
};
use crate::commands::{CommandRole, SimpleCommand, base_name, escape_invisible, quote};

/// What a prompt says about rules.
#[derive(Default)]
pub(super) struct Suggestion {
    /// Rules for `approval.allow` that cover the call together.
    pub(super) rules: Vec<String>,
    /// What a broader rule would allow.
    pub(super) broader: Option<String>,
}

/// The most rules that are proposed at once.
const MAX_RULES: usize = 4;

/// The narrowest rules for a call.
pub(super) fn suggest(deed: &CallAccess<'_>) -> Suggestion {
    let tool = &deed.spec.name;
    let suggestion = match (&deed.parsed, &deed.host) {
        (Some(reading), _) if reading.is_fully_understood() => for_commands(tool, &reading.commands),
        (Some(_), _) => return Suggestion::default(),
        (None, Some(TargetHost::Host(host))) => Suggestion {
            rules: vec![format!("{tool}(domain:{host})")],
            broader: Some(format!("The rule {tool} would allow every address.")),
        },
        (None, Some(TargetHost::Ambiguous)) => return Suggestion::default(),
        (None, None) => for_paths(tool, &deed.targets),
    };
    let is_rule = |text: &String| Rule::parse(text).is_ok() && *text == escape_invisible(text);
    let fits = suggestion.rules.len() <= MAX_RULES && suggestion.rules.iter().all(is_rule);
    if fits { suggestion } else { Suggestion::default() }
}

fn for_commands(tool: &str, commands: &[SimpleCommand]) -> Suggestion {
    let mut suggestion = Suggestion::default();
    for command in given::commands_needing_approval(commands) {
        let Some(argv) = command.argv() else { return Suggestion::default() };
        let words: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let is_family = command.role == CommandRole::Program && given::is_known_command(&words);
        let rule = match argv.as_slice() {
            [program, subcommand, ..] if is_family => format!("{tool}({program} {subcommand}:*)"),
            words => format!("{tool}({})", quote(words.iter().copied())),
        };
        if !suggestion.rules.contains(&rule) {
            suggestion.rules.push(rule);
        }
        if let (None, [program, ..]) = (&suggestion.broader, argv.as_slice()) {
            let text = format!("The rule {tool}({program}:*) would allow {}.", granted_by_program(program));
            suggestion.broader = Some(escape_invisible(&text));
        }
    }
    suggestion
}

fn for_paths(tool: &str, targets: &[PathTarget]) -> Suggestion {
    let mut rules = Vec::new();
    for target in targets {
        match target {
            PathTarget::Inside { relative, .. } if !relative.as_os_str().is_empty() => {
                let path = relative.to_string_lossy();
                // As a pattern, the name would match more than this file.
                if path.contains(['*', '?', '[', ']', '{', '}', '(', ')', '\\']) || path.starts_with(['~', '!']) {
                    return Suggestion::default();
                }
                rules.push(format!("{tool}({path})"));
            }
            _ => return Suggestion::default(),
        }
    }
    let broader = match rules.as_slice() {
        [] => format!("The rule {tool} would allow every call of {tool}, with any arguments."),
        _ => format!("The rule {tool} would allow every file of the workspace."),
    };
    if rules.is_empty() {
        rules.push(tool.to_owned());
    }
    Suggestion { rules, broader: Some(broader) }
}

/// What a rule for a whole program allows, in words.
fn granted_by_program(program: &str) -> String {
    const RUNS_CODE: &[&str] = &[
        "ash", "awk", "bash", "bun", "bunx", "busybox", "dash", "deno", "doas", "env", "eval", "exec", "expect",
        "find", "fish", "flock", "gawk", "gdb", "java", "julia", "just", "ksh", "lua", "make", "mawk", "node", "nohup",
        "npx", "nsenter", "parallel", "perl", "php", "pnpx", "python", "python2", "python3", "ruby", "sed", "setsid",
        "sh", "ssh", "strace", "su", "sudo", "tar", "time", "uvx", "vi", "vim", "watch", "xargs", "zsh",
    ];
    const FETCHES_CODE: &[&str] = &[
        "apt", "apt-get", "brew", "bundle", "cargo", "composer", "conda", "dotnet", "gem", "go", "gradle", "mvn",
        "npm", "pip", "pip3", "pipx", "pnpm", "poetry", "rustup", "uv", "yarn",
    ];
    let name = base_name(program);
    let more = match name {
        _ if RUNS_CODE.contains(&name) => "; it can run any other program",
        _ if FETCHES_CODE.contains(&name) => ", among them those that download code and run it",
        "git" => ", among them those that push, delete branches and run programs named in options",
        "rm" | "mv" | "cp" | "chmod" | "chown" | "ln" | "dd" | "tee" | "touch" | "truncate" => {
            ", so it could change or delete any file that commands can write"
        }
        "curl" | "wget" | "scp" | "rsync" | "nc" => ", to any address and with any file",
        "docker" | "podman" | "kubectl" | "systemctl" => ", among them those that start other programs",
        _ => "",
    };
    format!("every `{program}` command with any arguments{more}")
}
