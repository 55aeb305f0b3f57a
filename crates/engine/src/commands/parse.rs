//! Parses a command line with the bash grammar and collects every simple command in it.
//!
//! It also finds commands inside substitutions, subshells, functions, here-documents and arguments of wrappers. Syntax
//! that it cannot interpret becomes an [`Ambiguity`]; a line above the limits is refused.

use std::{
    borrow::Cow,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use tree_sitter::{Node, ParseOptions, Parser, Tree};

use super::{lex, peel};

/// The maximum length of a command line, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The maximum number of simple commands in a line, including wrapped ones.
const MAX_COMMANDS: usize = 200;
/// The maximum nesting depth. Each `&&` of a chain adds one level.
const MAX_NESTING: usize = 1000;
/// The maximum depth of nested scripts: `sh -c "sh -c …"`.
const MAX_SCRIPT_DEPTH: usize = 5;
/// The maximum number of recorded ambiguities; further ones change nothing.
const MAX_AMBIGUITIES: usize = 20;
/// The timeout of the grammar.
const PARSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of parsing a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedCommandLine {
    /// Every simple command; a wrapper precedes the wrapped command.
    pub(crate) commands: Vec<SimpleCommand>,
    /// Ambiguities. While there is one, nothing is allowed without approval.
    pub(crate) ambiguities: Vec<Ambiguity>,
    /// Files that redirections write; `None` if the name is known only at run time.
    pub(crate) redirect_targets: Vec<Option<String>>,
    /// Files that redirections read; `None` if the name is known only at run time.
    pub(crate) reads: Vec<Option<String>>,
    /// Targets of `cd`, in order.
    pub(crate) cd_targets: Vec<String>,
    /// Operators, redirections, substitutions and structures, as written.
    pub(crate) operators: Vec<String>,
    /// Whether a command runs in the background (`&`).
    pub(crate) background: bool,
}

/// One simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    /// The program and its arguments.
    pub(crate) words: Vec<ShellWord>,
    /// The role of the command.
    pub(crate) role: CommandRole,
    /// Whether more arguments come at run time (`xargs`, `find -exec`).
    pub(crate) has_runtime_args: bool,
}

/// The role of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandRole {
    /// It does the work itself.
    Program,
    /// It runs the next command and adds no effect (`timeout 5 …`).
    Wrapper,
    /// It runs the next command in a different context (`sudo …`, `xargs …`).
    Launcher,
}

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShellWord {
    /// Exactly this.
    Literal(String),
    /// Known only at run time; contains the source text.
    Opaque(String),
}

/// Syntax that cannot be interpreted with certainty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ambiguity {
    /// Whether it may run programs that are not among the commands.
    pub(crate) may_hide_programs: bool,
    /// The reason, for people.
    pub(crate) reason: String,
}

impl ShellWord {
    /// A word as written in a command line.
    pub(crate) fn new(text: &str) -> Self {
        lex::literal(text).map_or_else(|| Self::Opaque(text.to_owned()), Self::Literal)
    }

    /// Its meaning, where it is known.
    pub(crate) fn as_literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Opaque(_) => None,
        }
    }

    /// How it is written, where a shell expands it.
    pub(crate) fn pattern(&self) -> Option<&str> {
        match self {
            Self::Literal(_) => None,
            Self::Opaque(text) => Some(text),
        }
    }

    fn source(&self) -> String {
        match self {
            Self::Literal(text) => lex::quote([text.as_str()]),
            Self::Opaque(text) => text.clone(),
        }
    }
}

impl SimpleCommand {
    /// The program as written, with its directory, if it is known.
    pub(crate) fn program(&self) -> Option<&str> {
        self.words.first()?.as_literal()
    }

    /// All words, if all are known and none is added at run time.
    pub(crate) fn argv(&self) -> Option<Vec<&str>> {
        if self.has_runtime_args { None } else { self.words.iter().map(ShellWord::as_literal).collect() }
    }

    /// The command as a line that a shell parses identically.
    pub(crate) fn source(&self) -> String {
        let mut words: Vec<_> = self.words.iter().map(ShellWord::source).collect();
        if self.has_runtime_args {
            words.push("…".into());
        }
        words.join(" ")
    }
}

impl ParsedCommandLine {
    /// Whether a program may run that is not among the commands.
    pub(crate) fn may_hide_programs(&self) -> bool {
        self.ambiguities.iter().any(|doubt| doubt.may_hide_programs)
    }

    /// Whether the line has no ambiguity and no redirection writes a file.
    pub(crate) fn is_fully_understood(&self) -> bool {
        self.ambiguities.is_empty() && self.redirect_targets.is_empty() && !self.commands.is_empty()
    }

    /// Records variables that are set outside the line.
    pub(crate) fn note_environment<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            self.add_ambiguity(
                peel::is_dangerous_env_var(name),
                format!("it sets {name}, which can change what programs do"),
            );
        }
    }

    /// Records an ambiguity once.
    pub(super) fn add_ambiguity(&mut self, hides: bool, why: impl Into<String>) {
        let doubt = Ambiguity { may_hide_programs: hides, reason: why.into() };
        let enough = self.ambiguities.len() >= MAX_AMBIGUITIES && (!hides || self.may_hide_programs());
        if !enough && !self.ambiguities.contains(&doubt) {
            self.ambiguities.push(doubt);
        }
    }
}

/// Parses a command line. The error names the exceeded limit, or the reason why the line cannot run.
pub(crate) fn parse_line(command: &str) -> Result<ParsedCommandLine, String> {
    if command.contains('\0') {
        return Err("the command has a NUL character in it, which no shell reads as it stands; remove it".into());
    }
    let mut reading = ParsedCommandLine::default();
    parse_script(&mut reading, command, 0)?;
    Ok(reading)
}

/// Parses a program with its arguments that runs without a shell.
pub(crate) fn parse_argv(argv: &[&str]) -> Result<ParsedCommandLine, String> {
    let mut reading = ParsedCommandLine::default();
    let words = argv.iter().map(|word| ShellWord::Literal((*word).to_owned())).collect();
    add_command(&mut reading, words, false, 0)?;
    Ok(reading)
}

/// Parses one script: the outermost one or one inside a wrapper.
fn parse_script(reading: &mut ParsedCommandLine, command: &str, scripts: usize) -> Result<(), String> {
    if command.len() > MAX_LINE_BYTES {
        return Err(format!("the command is {} bytes long; at most {MAX_LINE_BYTES} are checked", command.len()));
    }
    if scripts > MAX_SCRIPT_DEPTH {
        return Err(format!("the command has scripts inside scripts, more than {MAX_SCRIPT_DEPTH} deep"));
    }
    // A shell keeps a carriage return in a word; other readers end the line there. Check both forms.
    let text = command.replace('\r', "\n");
    if command.contains('\r') {
        reading.add_ambiguity(false, "it has carriage returns in it");
    }
    let tamed = mask_for_grammar(&text);
    let tree = parse_tree(&tamed)?;
    // A masked letter may change where a here-document ends.
    let torn = tree.root_node().has_error() || (*tamed != *text && text.contains("<<"));
    if torn {
        reading.add_ambiguity(true, "it is not a shell command line that can be read");
    }
    let first = reading.commands.len();
    let subscripts = text.contains('[') && (text.contains("$(") || text.contains('`'));
    let mut walk = TreeWalker { parsed: reading, text: &text, scripts, top: Vec::new(), subscripts };
    walk.run(tree.root_node())?;
    let top = walk.top;
    if top.len() > 1 && reading.operators.is_empty() {
        reading.operators.push("a further line".into());
    }
    cross_check(reading, &text, &top, first)?;
    // The grammar and the shell treat line continuations (`x=\⏎ rm`) differently, so check both forms.
    let joined = text.replace("\\\n", "");
    if joined.len() < text.len() && lex::plain_commands(&text).is_none() {
        parse_script(reading, &joined, scripts + 1)?;
    }
    if torn {
        for words in text.lines().filter_map(lex::plain_commands).flatten() {
            add_command(reading, words.into_iter().map(ShellWord::Literal).collect(), false, scripts)?;
        }
    }
    Ok(())
}

/// Replaces letters that the grammar mishandles. It calls C library functions on the character after `{`, `{1` or
/// `{1..2`, which is out of bounds for multi-byte characters. Offsets do not change.
fn mask_for_grammar(text: &str) -> Cow<'_, str> {
    let mut tamed = Cow::Borrowed(text);
    for (at, _) in text.match_indices('{') {
        let mut rest = text[at + 1..].trim_start_matches(|it: char| it.is_ascii_digit());
        let behind = |rest: &str| rest.chars().next().filter(|it| !it.is_ascii());
        let mut odd = behind(rest);
        if let Some(after) = rest.strip_prefix("..") {
            rest = after.trim_start_matches(|it: char| it.is_ascii_digit());
            odd = behind(rest);
        }
        if let Some(odd) = odd {
            let from = text.len() - rest.len();
            tamed.to_mut().replace_range(from..from + odd.len_utf8(), &"x".repeat(odd.len_utf8()));
        }
    }
    tamed
}

fn parse_tree(text: &str) -> Result<Tree, String> {
    let mut parser = Parser::new();
    let broken = |_| "the grammar of the shell could not be loaded, so the command cannot be checked".to_owned();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).map_err(broken)?;
    let start = Instant::now();
    let mut in_time =
        |_: &_| if start.elapsed() > PARSE_TIMEOUT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let options = ParseOptions::new().progress_callback(&mut in_time);
    let bytes = text.as_bytes();
    let tree = parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options));
    tree.ok_or_else(|| "the command took too long to read, so it cannot be checked".to_owned())
}

/// Compares the grammar's result with the lexer's. A difference becomes an ambiguity.
fn cross_check(
    reading: &mut ParsedCommandLine,
    text: &str,
    top: &[Vec<ShellWord>],
    first: usize,
) -> Result<(), String> {
    let Some(plain) = lex::plain_commands(text) else {
        reading.add_ambiguity(false, "it is more than a plain list of commands");
        return Ok(());
    };
    let same = plain.len() == top.len()
        && plain.iter().zip(top).all(|(plain, found)| {
            plain.len() == found.len()
                && plain.iter().zip(found).all(|(plain, found)| found.as_literal() == Some(plain))
        });
    if !same {
        reading.add_ambiguity(true, "it can be read in two ways");
        if plain.len() > MAX_COMMANDS {
            return Err(too_many_error());
        }
        let other = plain.into_iter().map(|words| words.into_iter().map(ShellWord::Literal).collect());
        let other = other.map(|words| SimpleCommand { words, role: CommandRole::Program, has_runtime_args: false });
        reading.commands.splice(first..first, other);
    }
    Ok(())
}

fn too_many_error() -> String {
    format!("the command has more than {MAX_COMMANDS} commands in it")
}

/// Adds a command and the commands that it runs.
pub(super) fn add_command(
    reading: &mut ParsedCommandLine,
    words: Vec<ShellWord>,
    open: bool,
    scripts: usize,
) -> Result<(), String> {
    let mut queue = vec![(words, open)];
    while let Some((words, open)) = queue.pop() {
        if reading.commands.len() >= MAX_COMMANDS {
            return Err(too_many_error());
        }
        let peeled = peel::peel(&words, open);
        for (hides, why) in peeled.ambiguities {
            reading.add_ambiguity(hides, why);
        }
        reading.cd_targets.extend(peeled.cd_targets);
        reading.commands.push(SimpleCommand { words, role: peeled.layer, has_runtime_args: open });
        queue.extend(peeled.inner.into_iter().rev());
        for script in peeled.scripts {
            parse_script(reading, &script, scripts + 1)?;
        }
    }
    Ok(())
}

struct TreeWalker<'a> {
    parsed: &'a mut ParsedCommandLine,
    text: &'a str,
    scripts: usize,
    /// The words of the commands in this script, without those inside wrappers.
    top: Vec<Vec<ShellWord>>,
    /// Whether a subscript could contain a substitution that a test or declaration would run.
    subscripts: bool,
}

impl<'a> TreeWalker<'a> {
    /// Visits every node in source order, without recursion.
    fn run(&mut self, root: Node<'a>) -> Result<(), String> {
        let mut stack = vec![(root, 0)];
        while let Some((node, depth)) = stack.pop() {
            if depth > MAX_NESTING {
                return Err(format!("the command nests more than {MAX_NESTING} levels deep"));
            }
            self.visit(node)?;
            let mut cursor = node.walk();
            let children: Vec<_> = node.children(&mut cursor).collect();
            stack.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
        }
        Ok(())
    }

    fn visit(&mut self, node: Node<'a>) -> Result<(), String> {
        if node.is_error() || node.is_missing() {
            self.parsed.add_ambiguity(true, "it is not a shell command line that can be read");
            return Ok(());
        }
        self.check_leaf(node);
        match node.kind() {
            "program" | "list" | "pipeline" | "redirected_statement" | "command_name" | "string" | "concatenation" => {}
            "word"
            | "number"
            | "raw_string"
            | "ansi_c_string"
            | "string_content"
            | "comment"
            | "variable_name"
            | "special_variable_name"
            | "file_descriptor"
            | "heredoc_start"
            | "heredoc_end"
            | "heredoc_content"
            | "test_operator"
            | "regex" => {}
            "command" => self.command(node)?,
            "declaration_command" | "unset_command" => self.declaration(node)?,
            "test_command" => self.note_evaluation("a test", node),
            "variable_assignment" => self.assignment(node),
            "file_redirect" => self.redirect(node)?,
            "heredoc_redirect" | "herestring_redirect" => self.structure("a here-document", node),
            "command_substitution" => self.substitution(node),
            "expansion" => self.expansion(node),
            "arithmetic_expansion" => self.note_evaluation("arithmetic", node),
            "function_definition" => {
                self.operator(node);
                self.parsed.add_ambiguity(true, "it defines a function, which can change what a name runs");
            }
            "simple_expansion"
            | "brace_expression"
            | "extglob_pattern"
            | "array"
            | "subscript"
            | "translated_string"
            | "binary_expression"
            | "unary_expression"
            | "postfix_expression"
            | "ternary_expression"
            | "parenthesized_expression"
            | "variable_assignments"
            | "heredoc_body" => {
                self.parsed.add_ambiguity(false, "it has expansions in it, which are known only when it runs");
            }
            "process_substitution"
            | "subshell"
            | "compound_statement"
            | "do_group"
            | "for_statement"
            | "c_style_for_statement"
            | "while_statement"
            | "if_statement"
            | "elif_clause"
            | "else_clause"
            | "case_statement"
            | "case_item"
            | "negated_command" => self.structure("a structure", node),
            _ if !node.is_named() => self.token(node),
            other => self.parsed.add_ambiguity(true, format!("it has a part of an unknown kind ({other})")),
        }
        Ok(())
    }

    /// The grammar does not parse everything (`${x:=`…`}`), so a leaf may still contain a substitution.
    fn check_leaf(&mut self, node: Node<'a>) {
        let literal = matches!(node.kind(), "raw_string" | "ansi_c_string" | "comment");
        let text = self.slice(node);
        if node.child_count() > 0
            || literal
            || !node.is_named()
            || text.starts_with('\\')
            || is_quoted_heredoc(node, self.text)
        {
            return;
        }
        if text.contains("$(") || text.contains('`') || text.contains("<(") || text.contains(">(") {
            self.parsed.add_ambiguity(true, "it has a substitution in a place that cannot be read");
        }
    }

    fn slice(&self, node: Node<'_>) -> &'a str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    /// Collects the words of a simple command, wherever the grammar attached them.
    fn command(&mut self, node: Node<'a>) -> Result<(), String> {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        let mut end = None;
        for child in node.children(&mut cursor) {
            // Adjacent words without whitespace are one word to the shell.
            if end == Some(child.start_byte()) && !child.kind().ends_with("redirect") {
                self.parsed.add_ambiguity(true, "it can be read in two ways");
            }
            end = Some(child.end_byte());
            match child.kind() {
                "variable_assignment" | "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {}
                "subshell" => self.parsed.add_ambiguity(true, "it has parentheses where none are expected"),
                _ => words.push(ShellWord::new(self.slice(child))),
            }
        }
        words.extend(self.stray_words(node));
        if words.first().is_some_and(|word| word.as_literal().is_none()) {
            self.parsed.add_ambiguity(true, "the program it runs is known only when it runs");
        }
        if words.iter().any(|word| word.as_literal().is_none()) {
            self.parsed.add_ambiguity(false, "it has expansions in it, which are known only when it runs");
        }
        self.top.push(words.clone());
        add_command(self.parsed, words, false, self.scripts)
    }

    /// Arguments after a redirection: the grammar attaches them to the redirection, the shell to the command.
    fn stray_words(&self, command: Node<'a>) -> Vec<ShellWord> {
        let Some(parent) = command.parent().filter(|it| it.kind() == "redirected_statement") else { return Vec::new() };
        if parent.child_by_field_name("body") != Some(command) {
            return Vec::new();
        }
        let mut words = Vec::new();
        let mut cursor = parent.walk();
        for redirect in parent.children_by_field_name("redirect", &mut cursor) {
            let (field, skip) = match redirect.kind() {
                "file_redirect" => ("destination", 1),
                _ => ("argument", 0),
            };
            let mut inner = redirect.walk();
            let strays = redirect.children_by_field_name(field, &mut inner).skip(skip);
            words.extend(strays.map(|it| ShellWord::new(self.slice(it))));
        }
        words
    }

    /// `export`, `declare`, `unset` and similar builtins, which evaluate subscripts and change names.
    fn declaration(&mut self, node: Node<'a>) -> Result<(), String> {
        let mut cursor = node.walk();
        let words: Vec<_> = node.children(&mut cursor).map(|child| ShellWord::new(self.slice(child))).collect();
        self.note_evaluation("a declaration", node);
        self.top.push(words.clone());
        add_command(self.parsed, words, false, self.scripts)
    }

    /// Records syntax whose quoted text the shell evaluates again. If it contains a substitution, it may run a program.
    fn note_evaluation(&mut self, what: &str, node: Node<'_>) {
        self.operator(node);
        self.parsed
            .add_ambiguity(self.subscripts, format!("it has {what} in it, which the shell evaluates when it runs"));
    }

    fn assignment(&mut self, node: Node<'a>) {
        self.operator(node);
        let name = node.child_by_field_name("name").map(|it| self.slice(it)).unwrap_or_default();
        let hides = peel::is_dangerous_env_var(name);
        self.parsed.add_ambiguity(hides, format!("it sets {name}, which can change what programs do"));
    }

    fn redirect(&mut self, node: Node<'a>) -> Result<(), String> {
        self.operator(node);
        let mut cursor = node.walk();
        let kinds: Vec<_> = node.children(&mut cursor).map(|it| it.kind()).collect();
        let target = node.child_by_field_name("destination").map(|it| ShellWord::new(self.slice(it)));
        let known = target.as_ref().and_then(ShellWord::as_literal);
        let copies = kinds.iter().any(|kind| matches!(*kind, ">&" | "<&" | ">&-" | "<&-"));
        let number = |it: &str| it == "-" || it.chars().all(|it| it.is_ascii_digit());
        if known == Some("/dev/null") || (copies && (target.is_none() || known.is_some_and(number))) {
            return Ok(());
        }
        let known = known.map(str::to_owned);
        if self.parsed.redirect_targets.len() + self.parsed.reads.len() >= MAX_COMMANDS {
            return Err(format!("the command has more than {MAX_COMMANDS} redirections in it"));
        }
        // Any redirection except a plain `<` may open its file for writing.
        let reads = kinds.iter().any(|kind| kind.starts_with('<'));
        if reads {
            self.parsed.reads.push(known.clone());
        }
        if let (true, Some(file)) = (kinds.contains(&"<"), &known) {
            if file.contains("/dev/") {
                self.parsed.add_ambiguity(false, "it reads a device, which can be the network");
            }
            return Ok(());
        }
        self.parsed.redirect_targets.push(known);
        Ok(())
    }

    fn substitution(&mut self, node: Node<'a>) {
        let text = self.slice(node);
        if text.starts_with('`') && text.contains('\\') {
            self.parsed.add_ambiguity(true, "it has backslashes between backticks, which are read twice");
        }
        self.structure("a substitution", node);
    }

    fn expansion(&mut self, node: Node<'a>) {
        // `${x@P}` executes the value of the variable.
        let hides = self.slice(node).contains('@');
        self.parsed.add_ambiguity(hides, "it has expansions in it, which are known only when it runs");
    }

    fn structure(&mut self, what: &str, node: Node<'_>) {
        self.operator(node);
        self.parsed.add_ambiguity(false, format!("it has {what} in it"));
    }

    fn token(&mut self, node: Node<'_>) {
        self.parsed.background |= node.kind() == "&";
        if matches!(node.kind(), "&&" | "||" | ";" | "|" | "|&" | "&" | ";;" | "\n" | "!") {
            self.operator(node);
        }
    }

    fn operator(&mut self, node: Node<'_>) {
        // Only the first one is reported.
        if self.parsed.operators.is_empty() {
            self.parsed.operators.push(self.slice(node).chars().take(20).collect());
        }
    }
}

/// Whether this is the text of a here-document that the shell leaves as it is (`<<'EOF'`).
fn is_quoted_heredoc(node: Node<'_>, text: &str) -> bool {
    let body = if node.kind() == "heredoc_body" { Some(node) } else { node.parent() };
    let Some(redirect) = body.filter(|it| it.kind() == "heredoc_body").and_then(|it| it.parent()) else { return false };
    let mut cursor = redirect.walk();
    let start = redirect.children(&mut cursor).find(|it| it.kind() == "heredoc_start");
    start.and_then(|it| text.get(it.byte_range())).is_some_and(|it| it.contains(['\'', '"', '\\']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command, one per line, then the ambiguities (`!` if they may run programs).
    fn seen(command: &str) -> String {
        let reading = match parse_line(command) {
            Ok(reading) => reading,
            Err(why) => return why,
        };
        let mut lines: Vec<_> = reading.commands.iter().map(SimpleCommand::source).collect();
        lines.extend(
            reading
                .ambiguities
                .iter()
                .map(|it| format!("{} {}", if it.may_hide_programs { '!' } else { '?' }, it.reason)),
        );
        lines.extend(reading.redirect_targets.iter().map(|it| format!("> {}", it.as_deref().unwrap_or("…"))));
        lines.join("\n")
    }

    #[test]
    fn a_plain_line_is_understood() {
        assert_eq!(seen("cd x && ls -l 'a b' | wc -l; echo hi 2>&1 &"), "cd x\nls -l 'a b'\nwc -l\necho hi");
        assert_eq!(seen("rm >/dev/null y"), "rm y");
        assert_eq!(seen("echo hi # x\ntouch PWN"), "echo hi\ntouch PWN");
    }

    #[test]
    fn commands_are_found_wherever_they_hide() {
        for command in [
            "echo \"$(touch PWN)\"",
            "echo `touch PWN`",
            "cat <<EOF\n$(touch PWN)\nEOF",
            "cat <(touch PWN)",
            "echo > >(touch PWN)",
            "echo ${x:-$(touch PWN)}",
            "echo $((a[$(touch PWN)]))",
            "(touch PWN)",
            "{ touch PWN; }",
            "if true; then touch PWN; fi",
            "for i in 1; do touch PWN; done",
            "case x in x) touch PWN;; esac",
            "ls(){ touch PWN; }; ls",
            "! touch PWN",
            "true & touch PWN",
            "echo hi\r\ntouch PWN",
            "cat <<EOF\nx\nEOF\ntouch PWN",
            "env nice -n 5 timeout -k 1 5 sh -c 'eval \"touch PWN\"'",
            "find . -name x -exec touch PWN \\;",
            "x=$(touch PWN) true",
            "while read l; do touch PWN; done < f",
            "[[ -n $(touch PWN) ]]",
            "export X=$(touch PWN)",
            "x=\\\n touch PWN",
        ] {
            let seen = seen(command);
            assert!(seen.lines().any(|line| line == "touch PWN" || line == "touch PWN …"), "{command}: {seen}");
        }
    }

    #[test]
    fn what_cannot_be_found_is_known_to_hide() {
        for command in [
            "echo \"${x:=`touch PWN`}\"",
            "echo ${x@P}",
            "echo `a \\`touch PWN\\``",
            "$x",
            "eval \"$x\"",
            "bash -c \"$x\"",
            "echo touch | sh",
            "cat <<EOF; touch PWN\nx\nEOF",
            "{touch,PWN}",
            "touch${IFS}PWN",
            "/bin/t?uch PWN",
            "PATH=. ls",
            "export LD_PRELOAD=./x",
            "alias ls=rm; ls",
            "hash -p /bin/touch ls; ls PWN",
            "source ./x",
            ". ./x",
            "enable -f ./e.so x",
            "test -v 'a[$(touch PWN)]'",
            "[[ -v 'a[$(touch PWN)]' ]]",
            "printf -v 'a[$(touch PWN)]' x",
            "read 'a[$(touch PWN)]' <<< x",
            "declare 'a[$(touch PWN)]=1'",
            "let 'a[$(touch PWN)]'",
            "x='a[$(touch PWN)]'; [[ $x -eq 0 ]]",
            "timeout --unknown 5 touch PWN",
            "if true; then",
            "qqa$'\\x71$'\\x71<<E\n\nE\n",
            "nsenter -t 1",
        ] {
            assert!(parse_line(command).is_ok_and(|it| it.may_hide_programs()), "{command}: {}", seen(command));
        }
        for command in
            ["echo $HOME *.rs", "cat > f <<'EOF'\n$(x) `y`\nEOF", "for i in a; do echo $i; done", "[ -f x ] && ls"]
        {
            assert!(parse_line(command).is_ok_and(|it| !it.may_hide_programs()), "{command}: {}", seen(command));
        }
    }

    #[test]
    fn a_letter_behind_a_brace_is_a_letter() {
        for odd in ["\u{e9}", "\u{20ac}", "\u{10430}", "\u{10ffff}"] {
            for before in ["{", "{1", "{12..", "{1..23"] {
                assert_eq!(parse_line(&format!("echo {before}{odd}")).unwrap().commands.len(), 1, "{before}{odd}");
            }
        }
        assert_eq!(mask_for_grammar("a {1\u{e9} b {2..\u{20ac}} \u{e9}"), "a {1xx b {2..xxx} \u{e9}");
        assert!(seen("cat <<{\u{e9}\n{\u{e4}\n'\n{\u{e9}\nrm x\n'").contains("rm x"));
    }

    #[test]
    fn a_limit_is_a_refusal() {
        assert!(seen(&"true;".repeat(201)).contains("more than 200 commands"));
        assert!(seen(&"x".repeat(70_000)).contains("at most 65536 are checked"));
        let deep = seen(&format!("{}x{}", "(".repeat(1500), ")".repeat(1500)));
        assert!(deep.contains("nests more than 1000"), "{deep}");
        let nested = (0..6).fold("touch PWN".to_owned(), |inner, _| format!("sh -c {}", lex::quote([inner.as_str()])));
        assert!(seen(&nested).contains("more than 5 deep"));
        assert!(seen(&"env ".repeat(300)).contains("more than 200 commands"));
        assert!(seen("a\0b").contains("NUL"));
    }
}
