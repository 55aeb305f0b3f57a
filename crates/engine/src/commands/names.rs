//! Which programs a command line may name (003's allowlist and syntax restriction).

use super::{parse::Reading, peel::base_name};

/// The names that are allowed when nothing else is said.
const DEFAULTS: [&str; 33] = [
    "awk", "cat", "cargo", "cp", "curl", "cut", "echo", "env", "find", "git", "go", "grep", "head", "jq", "ls",
    "mkdir", "mv", "node", "printf", "pwd", "python", "python3", "rustc", "sed", "sleep", "sort", "stat", "tail",
    "touch", "tr", "uniq", "wc", "which",
];

/// Builtins that run no program; they pass unless they are denied.
const HARMLESS: &[&str] = &["cd", "true", "false", ":", "exit"];

/// Which programs a command line may name. Deny is asked first, and at every check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    allow: Vec<String>,
    deny: Vec<String>,
    defaults: bool,
    operators: bool,
}

impl Default for NameList {
    fn default() -> Self {
        Self { allow: Vec::new(), deny: Vec::new(), defaults: true, operators: true }
    }
}

impl NameList {
    /// The default names and `allow`, without `deny`. A `*` may begin or end a name.
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

    /// Only the names that were given, without the default ones.
    pub fn replacing_defaults(self) -> Self {
        Self { defaults: false, ..self }
    }

    /// One command a line: no `&&`, `|`, `;`, `&`, redirection, substitution or further line.
    pub fn without_operators(self) -> Self {
        Self { operators: false, ..self }
    }

    /// The default names, for documentation.
    pub fn defaults() -> &'static [&'static str] {
        &DEFAULTS
    }

    /// Why a command line is not allowed, if it is not.
    pub fn refusal(&self, command: &str) -> Option<String> {
        match super::read(command) {
            Ok(reading) => self.judge(&reading),
            Err(why) => Some(blocked(&why)),
        }
    }

    /// The same for a line that was read before.
    pub(crate) fn judge(&self, reading: &Reading) -> Option<String> {
        if !self.operators
            && let Some(first) = reading.operators.first()
        {
            return Some(blocked(&format!("`{}` is not allowed; send one plain command", first.trim_end())));
        }
        for command in &reading.commands {
            match command.program() {
                Some(program) => {
                    let name = base_name(program).to_lowercase();
                    if !self.allows(&name) {
                        let why = format!("the program `{name}` is not on the list of allowed programs");
                        return Some(blocked(&why));
                    }
                }
                None if self.is_open() => {}
                None => return Some(blocked(&format!("`{}` names no program that can be checked", command.written()))),
            }
        }
        match reading.doubts.iter().find(|doubt| doubt.hides) {
            Some(doubt) if !self.is_open() => {
                Some(blocked(&format!("the command cannot be checked because {}", doubt.why)))
            }
            _ => None,
        }
    }

    /// Whether every name is allowed, so that there is nothing to check.
    fn is_open(&self) -> bool {
        self.deny.is_empty() && self.allow.iter().any(|name| name == "*")
    }

    fn allows(&self, name: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|glob| covers(glob, name));
        if named(&self.deny) {
            return false;
        }
        named(&self.allow) || HARMLESS.contains(&name) || (self.defaults && DEFAULTS.contains(&name))
    }
}

fn blocked(why: &str) -> String {
    format!("blocked by security policy (CommandNotAllowed): {why}")
}

/// A name, or one with `*` at its ends.
fn covers(glob: &str, name: &str) -> bool {
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

    fn list(allow: &[&str], deny: &[&str]) -> NameList {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        NameList::new(owned(allow), owned(deny)).unwrap()
    }

    #[test]
    fn every_command_of_the_line_is_checked() {
        let names = NameList::default();
        for fine in
            ["ls -l", "cd x && cargo build | tail -5", "echo $HOME", "/usr/bin/LS", "for i in a b; do echo $i; done"]
        {
            assert_eq!(names.refusal(fine), None, "{fine}");
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
            assert!(names.refusal(bad).is_some(), "{bad}");
        }
        assert_eq!(
            names.refusal("ls && /bin/rm x").unwrap(),
            "blocked by security policy (CommandNotAllowed): the program `rm` is not on the list of allowed programs"
        );
    }

    #[test]
    fn deny_beats_a_glob() {
        let names = list(&["*"], &["rm", "mkfs*"]);
        assert_eq!(names.refusal("anything at all"), None);
        assert!(names.refusal("sudo rm x").is_some());
        assert!(names.refusal("mkfs.ext4 /dev/x").is_some());
        assert!(names.refusal("$cmd x").is_some(), "what cannot be seen may be the denied one");
        assert_eq!(list(&["*"], &[]).refusal("$cmd x"), None);
    }

    #[test]
    fn without_operators_one_plain_command_is_all() {
        let names = list(&["*"], &[]).without_operators();
        for fine in ["echo 'a && b; c | d > e'", "echo \"x & y\"", "ls -l $HOME"] {
            assert_eq!(names.refusal(fine), None, "{fine}");
        }
        for bad in [
            "a && b", "a || b", "a; b", "a | b", "a & b", "a &", "a > f", "a < f", "a `b`", "a $(b)", "a\nb", "a\rb",
            "(a)", "a <<< b",
        ] {
            assert!(names.refusal(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn the_list_can_be_ones_own() {
        let names = list(&["just"], &[]).replacing_defaults();
        assert_eq!(names.refusal("just test"), None);
        assert!(names.refusal("ls").is_some());
        assert!(NameList::new(vec!["a*b".into()], Vec::new()).is_err());
        assert_eq!(NameList::defaults().len(), 33);
    }
}
