//! Which programs a command line may name (003's allowlist and syntax restriction).

use super::{parse::ParsedCommandLine, peel::base_name};

/// The programs that are allowed by default.
const DEFAULT_PROGRAMS: [&str; 33] = [
    "awk", "cat", "cargo", "cp", "curl", "cut", "echo", "env", "find", "git", "go", "grep", "head", "jq", "ls",
    "mkdir", "mv", "node", "printf", "pwd", "python", "python3", "rustc", "sed", "sleep", "sort", "stat", "tail",
    "touch", "tr", "uniq", "wc", "which",
];

/// Builtins that run no program; they pass unless denied.
const HARMLESS_BUILTINS: &[&str] = &["cd", "true", "false", ":", "exit"];

/// The programs that a command line may run. Deny entries take precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramAllowlist {
    allow: Vec<String>,
    deny: Vec<String>,
    defaults: bool,
    operators: bool,
}

impl Default for ProgramAllowlist {
    fn default() -> Self {
        Self { allow: Vec::new(), deny: Vec::new(), defaults: true, operators: true }
    }
}

impl ProgramAllowlist {
    /// Allows the default names and `allow` except `deny`. A name may start or end with `*`.
    pub fn new(allow: Vec<String>, deny: Vec<String>) -> Result<Self, String> {
        for name in allow.iter().chain(&deny) {
            let inner = name.strip_prefix('*').unwrap_or(name);
            let inner = inner.strip_suffix('*').unwrap_or(inner);
            if name.is_empty() || inner.contains(|it: char| it == '*' || it == '/' || it.is_whitespace()) {
                return Err(format!("`{name}` is not a name of a program; a `*` may stand only at its ends"));
            }
        }
        let lower = |names: Vec<String>| names.into_iter().map(|name| name.to_lowercase()).collect();
        Ok(Self { allow: lower(allow), deny: lower(deny), ..Self::default() })
    }

    /// Drops the default names.
    pub fn replacing_defaults(self) -> Self {
        Self { defaults: false, ..self }
    }

    /// Permits one command per line: no `&&`, `|`, `;`, `&`, redirection, substitution or newline.
    pub fn without_operators(self) -> Self {
        Self { operators: false, ..self }
    }

    /// The default names, for documentation.
    pub fn defaults() -> &'static [&'static str] {
        &DEFAULT_PROGRAMS
    }

    /// Why a command line is not allowed, if it is not.
    pub fn denial_reason(&self, command: &str) -> Option<String> {
        match super::parse_line(command) {
            Ok(reading) => self.check_parsed(&reading),
            Err(why) => Some(blocked_message(&why)),
        }
    }

    /// Why a parsed command line is not allowed, if it is not.
    pub(crate) fn check_parsed(&self, reading: &ParsedCommandLine) -> Option<String> {
        if !self.operators
            && let Some(first) = reading.operators.first()
        {
            return Some(blocked_message(&format!("`{}` is not allowed; send one plain command", first.trim_end())));
        }
        for command in &reading.commands {
            match command.program() {
                Some(program) => {
                    let name = base_name(program).to_lowercase();
                    if !self.allows(&name) {
                        let why = format!("the program `{name}` is not on the list of allowed programs");
                        return Some(blocked_message(&why));
                    }
                }
                None if self.allows_everything() => {}
                None => {
                    return Some(blocked_message(&format!(
                        "`{}` names no program that can be checked",
                        command.source()
                    )));
                }
            }
        }
        match reading.ambiguities.iter().find(|doubt| doubt.may_hide_programs) {
            Some(doubt) if !self.allows_everything() => {
                Some(blocked_message(&format!("the command cannot be checked because {}", doubt.reason)))
            }
            _ => None,
        }
    }

    /// Whether every name is allowed, so that there is nothing to check.
    fn allows_everything(&self) -> bool {
        self.deny.is_empty() && self.allow.iter().any(|name| name == "*")
    }

    fn allows(&self, name: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|glob| name_matches(glob, name));
        if named(&self.deny) {
            return false;
        }
        named(&self.allow) || HARMLESS_BUILTINS.contains(&name) || (self.defaults && DEFAULT_PROGRAMS.contains(&name))
    }
}

fn blocked_message(why: &str) -> String {
    format!("blocked by security policy (CommandNotAllowed): {why}")
}

/// Matches a name, or a pattern with `*` at its ends.
fn name_matches(glob: &str, name: &str) -> bool {
    match (glob.strip_prefix('*'), glob.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(glob.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => glob == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(allow: &[&str], deny: &[&str]) -> ProgramAllowlist {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ProgramAllowlist::new(owned(allow), owned(deny)).unwrap()
    }

    #[test]
    fn every_command_of_the_line_is_checked() {
        let names = ProgramAllowlist::default();
        for fine in
            ["ls -l", "cd x && cargo build | tail -5", "echo $HOME", "/usr/bin/LS", "for i in a b; do echo $i; done"]
        {
            assert_eq!(names.denial_reason(fine), None, "{fine}");
        }
        for bad in [
            "ls; rm x",
            "ls & rm x",
            "echo $(rm x)",
            "env rm x",
            "find . -exec rm {} \\;",
            "$x",
            "eval $x",
            "r? x",
            "ls |",
        ] {
            assert!(names.denial_reason(bad).is_some(), "{bad}");
        }
        assert_eq!(
            names.denial_reason("ls && /bin/rm x").unwrap(),
            "blocked by security policy (CommandNotAllowed): the program `rm` is not on the list of allowed programs"
        );
    }

    #[test]
    fn deny_beats_a_glob() {
        let names = list(&["*"], &["rm", "mkfs*"]);
        assert_eq!(names.denial_reason("anything at all"), None);
        assert!(names.denial_reason("sudo rm x").is_some());
        assert!(names.denial_reason("mkfs.ext4 /dev/x").is_some());
        assert!(names.denial_reason("$cmd x").is_some(), "what cannot be seen may be the denied one");
        assert_eq!(list(&["*"], &[]).denial_reason("$cmd x"), None);
    }

    #[test]
    fn without_operators_one_plain_command_is_all() {
        let names = list(&["*"], &[]).without_operators();
        for fine in ["echo 'a && b; c | d > e'", "echo \"x & y\"", "ls -l $HOME"] {
            assert_eq!(names.denial_reason(fine), None, "{fine}");
        }
        for bad in [
            "a && b", "a || b", "a; b", "a | b", "a & b", "a &", "a > f", "a < f", "a `b`", "a $(b)", "a\nb", "a\rb",
            "(a)", "a <<< b",
        ] {
            assert!(names.denial_reason(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn the_list_can_be_ones_own() {
        let names = list(&["just"], &[]).replacing_defaults();
        assert_eq!(names.denial_reason("just test"), None);
        assert!(names.denial_reason("ls").is_some());
        assert!(ProgramAllowlist::new(vec!["a*b".into()], Vec::new()).is_err());
        assert_eq!(ProgramAllowlist::defaults().len(), 33);
    }
}
