//! Whether a command line only looks. It spares a question; it is never the reason to leave a wall away.

use super::parse::{Layer, Reading, Simple};

/// Whether every command of the line is known to change nothing, with these very arguments.
pub(crate) fn line_only_looks(reading: &Reading) -> bool {
    let goes = |command: &Simple| command.argv().is_some_and(|argv| matches!(argv.as_slice(), ["cd", _]));
    reading.is_clear() && reading.commands.iter().all(|command| only_looks(command) || goes(command))
}

/// The same, and `git log` and the like count too. A repository's own settings can make Git run programs, so this is not
/// enough to leave a question out where a person decides; in plan mode the sandbox holds what Git runs.
pub(crate) fn line_only_reads(reading: &Reading) -> bool {
    let goes = |command: &Simple| command.argv().is_some_and(|argv| matches!(argv.as_slice(), ["cd", _]));
    let reads =
        |command: &Simple| command.layer == Layer::Program && command.argv().is_some_and(|argv| git_reads(&argv));
    reading.is_clear() && reading.commands.iter().all(|it| only_looks(it) || goes(it) || reads(it))
}

/// Whether these words are a Git command that only prints what is in the repository.
fn git_reads(argv: &[&str]) -> bool {
    let ["git", rest @ ..] = argv else { return false };
    let rest = match rest {
        ["--no-pager", rest @ ..] | ["-C", _, rest @ ..] => rest,
        rest => rest,
    };
    let [subcommand, args @ ..] = rest else { return false };
    let writes = ["--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--edit"];
    if args.iter().any(|it| writes.iter().any(|bad| it.starts_with(bad)) || has_short(it, 'O')) {
        return false;
    }
    let options_only = || args.iter().all(|it| it.starts_with('-'));
    match *subcommand {
        "log" | "show" | "diff" | "status" | "blame" | "shortlog" | "describe" | "rev-parse" | "rev-list"
        | "ls-files" | "ls-tree" | "cat-file" | "grep" | "merge-base" | "name-rev" | "diff-tree" | "--version" => true,
        "branch" | "tag" | "remote" => {
            let lists = ["-a", "-r", "-v", "-vv", "-l", "--all", "--list", "--show-current", "--verbose", "--remotes"];
            options_only() && args.iter().all(|it| lists.contains(it))
        }
        "stash" | "worktree" => args == ["list"],
        _ => false,
    }
}

/// Whether this command is known to change nothing, for itself or for the commands after it. Git is not: a repository's
/// own settings can run programs. `cd` is not: the same command elsewhere can be another.
pub(crate) fn only_looks(command: &Simple) -> bool {
    let Some(argv) = command.argv() else { return false };
    let [program, args @ ..] = argv.as_slice() else { return false };
    if command.layer == Layer::Carrier {
        return false;
    }
    let words = || args.iter().copied();
    match *program {
        // What these run is judged by itself. Other wrappers are not worth a rule here.
        "timeout" | "nice" | "nohup" => command.layer == Layer::Wrapper,
        "ls" | "cat" | "head" | "tail" | "wc" | "pwd" | "echo" | "stat" | "which" | "whoami" | "uname" | "id"
        | "grep" | "cut" | "tr" | "cmp" | "basename" | "dirname" | "realpath" | "true" | "false" => true,
        "printf" => !words().any(|it| it.starts_with("-v")),
        "date" => words().all(|it| it.starts_with('+') || matches!(it, "-u" | "--utc" | "-R" | "-I" | "-Iseconds")),
        "file" => words()
            .all(|it| !it.starts_with('-') || matches!(it, "-b" | "-i" | "-L" | "--brief" | "--mime" | "--mime-type")),
        "diff" => !words().any(|it| has_short(it, 'l') || it.starts_with("--pag")),
        // The second name is where it writes.
        "uniq" => words().all(|it| !it.starts_with("--")) && words().filter(|it| !it.starts_with('-')).count() <= 1,
        "rg" => !words().any(|it| {
            has_short(it, 'z') || ["--pre", "--search-zip", "--hostname-bin"].iter().any(|bad| it.starts_with(bad))
        }),
        "sort" => sorts(args),
        "find" => !words().any(changes_files),
        "sed" => prints_lines(args),
        _ => false,
    }
}

/// Whether a word is a cluster of short options with this one in it. A value that looks so counts too: better asked.
fn has_short(word: &str, option: char) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.contains(option)
}

fn changes_files(word: &str) -> bool {
    let begins = ["-exec", "-ok", "-delete", "-fls", "-fprint"];
    begins.iter().any(|bad| word.starts_with(bad))
}

/// `sort` with nothing but options of order.
fn sorts(args: &[&str]) -> bool {
    let long = ["--reverse", "--unique", "--numeric-sort", "--human-numeric-sort", "--version-sort", "--ignore-case"];
    args.iter().all(|word| match word.strip_prefix('-') {
        None | Some("" | "-") => true,
        Some(_) if word.starts_with("--") => long.contains(word),
        Some(cluster) if cluster.starts_with(['k', 't']) => true,
        Some(cluster) => cluster.chars().all(|it| "bdfghiMnRrsuVz".contains(it)),
    })
}

/// `sed -n '3,9p' file …` and no other.
fn prints_lines(args: &[&str]) -> bool {
    let ["-n", script, files @ ..] = args else { return false };
    let number = |text: &str| text == "$" || (!text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()));
    let lines = script.strip_suffix('p').is_some_and(|range| match range.split_once(',') {
        Some((first, last)) => number(first) && number(last),
        None => number(range),
    });
    lines && !files.iter().any(|file| file.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::read;

    fn looks(command: &str) -> bool {
        read(command).is_ok_and(|reading| line_only_looks(&reading))
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
        let reads = |command: &str| read(command).is_ok_and(|reading| line_only_reads(&reading));
        for command in [
            "git log --oneline",
            "git -C a status",
            "git --no-pager diff HEAD~1 | head",
            "git branch -a",
            "git stash list",
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
