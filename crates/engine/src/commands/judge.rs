//! Whether a command line is read-only. The result can avoid an approval; it never weakens the sandbox.

use super::{
    parse::{CommandRole, ParsedCommandLine, SimpleCommand},
    read_only::{git_only_prints, is_read_only},
};

/// Whether every command of the line is known to change nothing with these arguments, and none stays in the background.
pub(crate) fn is_read_only_line(reading: &ParsedCommandLine) -> bool {
    passes(reading, |_| false)
}

/// Like [`is_read_only_line`], but also accepts `git log` and similar commands. Repository settings can make git run
/// programs, so this must not replace an approval. In plan mode the sandbox confines those programs.
pub(crate) fn line_only_reads(reading: &ParsedCommandLine) -> bool {
    passes(reading, |command| {
        command.role == CommandRole::Program && command.argv().is_some_and(|argv| git_only_prints(&argv))
    })
}

fn passes(reading: &ParsedCommandLine, also: impl Fn(&SimpleCommand) -> bool) -> bool {
    let goes = |command: &SimpleCommand| command.argv().is_some_and(|argv| matches!(argv.as_slice(), ["cd", _]));
    let looks = |command: &SimpleCommand| is_read_only_command(command) || goes(command) || also(command);
    reading.is_fully_understood() && !reading.background && reading.commands.iter().all(looks)
}

/// Whether this command is known to change nothing, for itself or later commands. Not git: repository settings can run
/// programs. Not `cd`: it changes what later commands refer to.
pub(crate) fn is_read_only_command(command: &SimpleCommand) -> bool {
    let Some(argv) = command.argv() else { return false };
    match command.role {
        CommandRole::Program => is_read_only(&argv),
        // The wrapped command is checked separately. `nohup` writes a file if standard output is a terminal.
        CommandRole::Wrapper => matches!(argv.first(), Some(&("timeout" | "nice"))),
        CommandRole::Launcher => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::parse_line;

    fn looks(command: &str) -> bool {
        parse_line(command).is_ok_and(|reading| is_read_only_line(&reading))
    }

    #[test]
    fn looking_needs_no_question() {
        for command in [
            "ls",
            "ls -la src 2>/dev/null",
            "cat 'a b' | grep -n x | head -5",
            "cd src && ls",
            "wc -l < f",
            "echo hi; pwd",
            "find . -name '*.rs' -type f",
            "rg -n foo src",
            "sed -n 1,20p f",
            "sed -n '$p' f",
            "printf '%5d %s\\n' 1 a",
            "uniq -c f",
            "uniq -f 1 -- f",
            "find . \\( -name a -o -name -b \\) -print",
            "grep -rn --include=a -e x -A2 src",
            "tail -n +5 f; head -5 f",
            "date -d yesterday +%s",
            "sort -rn f | uniq -c",
            "date +%s",
            "diff -u a b",
            "timeout 5 ls",
            "git --version 2>&1 >/dev/null; ls",
        ] {
            assert_eq!(looks(command), !command.starts_with("git"), "{command}");
        }
    }

    #[test]
    fn git_that_only_prints_counts_in_plan_mode_alone() {
        let reads = |command: &str| parse_line(command).is_ok_and(|reading| line_only_reads(&reading));
        for command in [
            "git log --oneline",
            "git -C a status",
            "git --no-pager diff HEAD~1 | head",
            "git branch -a",
            "git stash list",
            "git config --get user.name",
            "git log -- --output",
            "git rev-parse --abbrev-ref HEAD",
        ] {
            assert!(reads(command) && !looks(command), "{command}");
        }
        for command in [
            "git commit -m x",
            "git branch new",
            "git branch -D a",
            "git stash",
            "git tag v1",
            "git diff --output=a",
            "git diff --ext-diff",
            "git diff --outpu=a",
            "git log --ext",
            "git show --textc",
            "git cat-file --filters HEAD:a",
            "git grep --open x",
            "git config a b",
            "git config --unset a",
            "git status &",
            "git grep -Oless x",
            "git -c core.pager=x log",
            "git log > a",
            "git log $(rm a)",
            "git remote add a b",
            "git checkout .",
        ] {
            assert!(!reads(command), "{command}");
        }
    }

    #[test]
    fn a_dangerous_option_is_a_question() {
        for command in [
            "rg --pre ./h x f",
            "rg -nz x f",
            "rg --hostname-bin=./h x",
            "find . -delete",
            "find . -fls P",
            "find . -fprintf P x",
            "find . -exec touch P \\;",
            "find . -okdir x \\;",
            "sed '1e touch P' f",
            "sed s/x/y/e f",
            "sed -n 'w P' f",
            "sed -f s f",
            "sed -ni.bak 1p f",
            "sed -Eni.bak 1p f",
            "sed -n 1p -i f",
            "sort -o P f",
            "sort --output=P f",
            "sort -ro P f",
            "sort --compress-program=./h f",
            "uniq a P",
            "uniq - P",
            "uniq -c - P",
            "uniq -- - P",
            "uniq -f 1 a P",
            "printf %n PATH",
            "printf %5n PATH",
            "printf -- 'a%-n' PATH",
            "printf '%(%s)T' 1",
            "sort --outpu P f",
            "sort -T . f",
            "sort -S 1 f",
            "rg --pre=./h x",
            "file -p f",
            "tail -f f",
            "ls &",
            "sleep 5 & ls",
            "nohup ls",
            "df --sync",
            "find . -files0-from P",
            "read PATH < f",
            "mapfile PATH < f",
            "getopts a PATH",
            "umask 0",
            "ls --unknown",
            "LD_PRELOAD=./h ls",
            "GIT_PAGER=./h cat f",
            "printf -v x y",
            "date -s 12:00",
            "date 010100002020",
            "date -f /etc/passwd",
            "file -C -m x",
            "file -z x",
            "diff -l a b",
            "./ls",
            "/tmp/ls",
            "xargs ls",
            "sh -c ls",
            "sudo ls",
            "env A=b ls",
            "A=b ls",
            "ls $HOME",
            "ls *",
            "ls ~",
            "echo x > f",
            "echo x >> f",
            "cat < /dev/tcp/a/1",
            "cat <<E\nx\nE",
            "git status",
            "ls &&",
            "ls | tee f",
            "echo hi\r\nls",
            "",
            "# x",
            "echo x | sed 'w .agent/x'",
        ] {
            assert!(!looks(command), "{command}");
        }
    }
}
