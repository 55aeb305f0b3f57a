//! Differential test: runs commands that the gate considers read-only in a real bash, on a read-only mount and on a
//! writable copy.
//!
//! The lines are generated: every program below with every short option and every long option from its `--help`, in
//! several positions and with several values. Lines that pass without approval are executed. `HELVE_LOOKS=all` runs all
//! of them; a number limits how many.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Output, Stdio},
};

use sha2::{Digest, Sha256};

use super::{is_read_only_line, lex::quote, line_only_reads, parse_line, read_only::program_names};

/// The number of lines to run without `HELVE_LOOKS`.
const DEFAULT_COUNT: usize = 1200;
/// The number of failing lines to report.
const MAX_FAULTS: usize = 20;
/// The number of lines in one bash.
const BATCH: usize = 200;

/// Programs and builtins in the generated lines: candidates for read-only, and ones that write, run or set something.
const PROGRAMS: &str = "ls cat head tail wc pwd echo stat which whoami uname id grep cut tr cmp basename dirname \
    realpath readlink true false printf date file diff uniq rg sort find sed nl tac comm paste du df seq cksum md5sum \
    sha1sum sha256sum sha512sum od fold column rev expand unexpand tsort test [ : egrep fgrep zcat zgrep hexdump strings \
    xxd awk tee cp mv rm ln touch mkdir truncate dd split csplit shuf ptx install env xargs timeout nice nohup stdbuf \
    setsid time tar gzip tree jq yq less more man ps top lsof hostname umask ulimit read mapfile readarray getopts \
    export declare typeset local readonly unset set shift eval source . hash alias unalias type command builtin exec \
    trap enable shopt compgen complete bind history fc jobs wait kill cd pushd popd dirs let exit return logger mktemp \
    python3 perl git bash sh vim ed ex patch sqlite3 iconv locale script flock watch chmod chown chattr setfattr sync";

/// Values for options.
const VALUES: &[&str] = &["P", "main.py", "-", "1", "./h", "PATH", "x"];
/// Formats for `printf`.
const FORMATS: &[&str] =
    &["%n", "%5n", "%-n", "%ln", "%hhn", "%.3n", "%*n", "x%sy%n", "%%n", "%s", "%(%s)T", "%q", "%b", "-v", "\\045n"];

/// All lines, and whether each must be checked and run.
fn lines() -> Vec<(bool, String)> {
    let mut lines = Vec::new();
    let help = help_texts();
    for program in PROGRAMS.split_whitespace() {
        for rest in ["", "main.py", "- main.py", "main.py P", "- - main.py", "-- main.py P", ". main.py", "-- - P"] {
            lines.push((true, format!("echo evil | {program} {rest}; ls")));
            lines.push((true, format!("{program} {rest}; ls main.py")));
        }
        let mut options: BTreeSet<String> = (b'!'..=b'~').map(|it| format!("-{}", it as char)).collect();
        options.retain(|it| !it.ends_with(['\'', '"', '\\', '`', '$', '|', '&', ';', '<', '>', '(', ')', '*', '?']));
        // Try all options only for programs that can pass.
        let listed = program_names().any(|it| it == program);
        if !listed {
            options.retain(|it| matches!(it.as_str(), "-c" | "-e" | "-n" | "-o" | "-p" | "-v"));
        }
        for long in help.get(program).into_iter().flatten().filter(|_| listed) {
            options.insert(long.clone());
            options.extend((1..4).filter_map(|cut| long.get(..long.len() - cut)).map(str::to_owned));
        }
        for option in options.iter().filter(|it| it.len() > 1) {
            let long = option.starts_with("--");
            lines.push((false, format!("{program} {option} main.py")));
            for value in VALUES {
                let joined = if long { "=" } else { "" };
                lines.push((false, format!("{program} {option} {value} main.py")));
                lines.push((false, format!("{program} main.py {option} {value}")));
                lines.push((false, format!("{program} {option}{joined}{value} main.py")));
                lines.push((false, format!("echo evil | {program} {option} - {value}")));
            }
        }
    }
    for format in FORMATS {
        for name in ["PATH", "LD_PRELOAD", "IFS", "x", "BASH_ENV"] {
            let format = quote([*format]);
            for before in ["printf", "printf --", "builtin printf", "command printf", "timeout 5 printf"] {
                lines.push((true, format!("{before} {format} {name}; ls")));
                lines.push((true, format!("{before} {format} a {name} b; ls")));
            }
        }
    }
    for script in ["1p", "1,2p", "$p", "1w P", "1e touch P", "s/p/q/w P", "1p;w P", "1r main.py", "1!p", "p", "1W P"] {
        for option in ["-n", "", "-ni", "-n -i", "-n -s", "-n -e", "-n -f", "--quiet", "-nE", "-n --in-place"] {
            lines.push((true, format!("sed {option} {} main.py", quote([script]))));
        }
    }
    for words in ["-name x -delete", "-delete", "-fprint P", "-exec touch P \\;", "-name -delete", "-newer main.py"] {
        for start in ["find .", "find", "find -L .", "find . -maxdepth 1", "find . -type f -o", "find . \\( -true \\)"]
        {
            lines.push((true, format!("{start} {words}")));
        }
    }
    lines
}

/// Lines of Git, which pass in plan mode.
fn git_lines() -> Vec<(bool, String)> {
    let help = help_texts();
    let mut lines = Vec::new();
    for subcommand in GIT {
        for option in help.get("git").into_iter().flatten().map(String::as_str).chain(GIT_OPTIONS.iter().copied()) {
            for rest in ["", "main.py", "HEAD", "P"] {
                lines.push((false, format!("git {subcommand} {option} {rest}")));
                lines.push((false, format!("git {subcommand} {option}=P {rest}")));
            }
            lines.push((false, format!("git {option} {subcommand}")));
        }
    }
    lines
}

#[rustfmt::skip]
const GIT: &[&str] = &[
    "log",
    "show",
    "diff",
    "status",
    "blame",
    "shortlog",
    "describe",
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "cat-file",
    "grep",
    "merge-base",
    "name-rev",
    "diff-tree",
    "branch",
    "tag",
    "remote",
    "stash",
    "worktree",
    "config",
    "reflog",
    "notes",
    "bisect",
    "archive",
    "bundle",
    "fetch",
    "add",
    "commit",
    "checkout",
    "gc",
    "fsck",
    "hash-object",
];
#[rustfmt::skip]
const GIT_OPTIONS: &[&str] = &[
    "",
    "--output",
    "--outpu",
    "--out",
    "--ext-diff",
    "--ext",
    "--textconv",
    "--textc",
    "-OP",
    "-O",
    "--open",
    "-p",
    "--open-files-in-pager",
    "--stat",
    "--oneline",
    "-1",
    "-n1",
    "--all",
    "-a",
    "-v",
    "-d",
    "-D",
    "-l",
    "-w",
    "--list",
    "--name-only",
    "--cached",
    "-e",
    "--edit",
    "-s",
    "--short",
    "--porcelain",
    "--filters",
    "--batch",
    "--dirty",
    "-t",
    "--get",
    "--unset",
    "--add",
    "--global",
    "-c core.pager=./h",
    "-C .",
    "--no-pager",
    "--paginate",
    "--exec-path=.",
    "--git-dir=.git",
    "--decorate",
    "--graph",
    "--patch",
    "--word-diff",
    "--no-index",
    "--untracked-files",
    "--format",
    "--pretty",
    "--show-signature",
    "--date",
    "--author",
    "--since",
    "drop",
    "clear",
    "prune",
    "expire",
    "list",
    "show",
];

/// The long options that each program's help names.
fn help_texts() -> BTreeMap<String, BTreeSet<String>> {
    let names: Vec<_> = PROGRAMS.split_whitespace().filter(|it| !matches!(*it, "." | "exit" | "return")).collect();
    let script = format!(
        "for it in {}; do p=$(type -P $it) || continue; echo \"@@ $it\"; timeout 5 $p --help </dev/null 2>&1; done; \
         echo '@@ git'; for s in log diff grep blame status; do git $s -h 2>&1; done",
        names.join(" ")
    );
    let place = fixture(false);
    let out = bash(place.path(), false, &script);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let option = regex::Regex::new("--[a-z][a-z0-9-]+").unwrap();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(next) = line.strip_prefix("@@ ") {
            name = next.to_owned();
        }
        found.entry(name.clone()).or_default().extend(option.find_iter(line).map(|it| it.as_str().to_owned()));
    }
    assert!(found.get("sort").is_some_and(|it| it.contains("--output")), "the options of sort were not found: {text}");
    found
}

/// A directory with files to read and programs that must not run.
fn fixture(git: bool) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("ws");
    for sub in ["0", "1", "home", "x"] {
        fs::create_dir_all(dir.join(sub)).unwrap();
    }
    fs::write(dir.join("main.py"), "print(1)\nprint(1)\nx = 2\n").unwrap();
    for trap in ["h", "0/ls", "1/ls", "x/ls", "P", "PATH"] {
        fs::write(dir.join(trap), "#!/bin/sh\n: > /tmp/ws/TRAP\n").unwrap();
        fs::set_permissions(dir.join(trap), fs::Permissions::from_mode(0o755)).unwrap();
    }
    if git {
        let script = "git init -q . && git add main.py && git -c user.name=a -c user.email=a@b commit -qm one";
        let made = bash(place.path(), true, script);
        assert!(made.status.success(), "the repository was not made: {made:?}");
    }
    place
}

/// Runs a script in a fresh sandbox whose `/tmp/ws` is the fixture's directory, and whose network is off.
fn bash(place: &Path, writable: bool, script: &str) -> Output {
    let bind = if writable { "--bind" } else { "--ro-bind" };
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--ro-bind", "/", "/"]);
    command.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", bind]);
    command.arg(place.join("ws")).args(["/tmp/ws", "--chdir", "/tmp/ws"]);
    for (name, value) in [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp/ws/home"), ("LC_ALL", "C")] {
        command.args(["--setenv", name, value]);
    }
    command.args(["bash", "-c", script]).stdin(Stdio::null());
    command.output().expect("this test needs bubblewrap (bwrap); install it")
}

/// The properties of files that a command must not change. Git may refresh the cached file times in its index.
fn snapshot(dir: &Path, git: bool) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(path) = waiting.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(dir).unwrap().display().to_string();
        if git && (name == ".git" || name == ".git/index") {
            if facts.is_dir() {
                waiting.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
            }
            continue;
        }
        let mut content = String::new();
        if facts.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else if facts.is_file() {
            content = format!("{:?}", Sha256::digest(fs::read(&path).unwrap()));
        }
        let times = (facts.mtime(), facts.mtime_nsec());
        seen.insert(name, format!("{:o} {times:?} {} {content}", facts.mode(), facts.uid()));
    }
    seen
}

/// Runs lines in one sandbox. Returns the failure, if there is one.
fn run(lines: &[String], writable: bool, git: bool) -> Option<String> {
    let place = fixture(git);
    let dir = place.path().join("ws");
    let before = snapshot(&dir, git);
    let mut script = String::new();
    for (at, line) in lines.iter().enumerate() {
        let line = quote([line.as_str()]);
        script.push_str(&format!(
            "echo '@@ {at}' >&2; timeout -k 1 20 bash -c {line} >/dev/null; [ $? = 124 ] && echo '@@ hang {at}' >&2\n"
        ));
    }
    script.push_str(
        "for it in /proc/[0-9]*; do case ${it#/proc/} in 1|$$) ;; *) echo \"@@ left $(cat $it/comm)\" >&2;; esac; done\n\
         for it in /tmp/* /tmp/.[!.]*; do case $it in /tmp/ws|*'*') ;; *) echo \"@@ made $it\" >&2;; esac; done\n",
    );
    let out = bash(place.path(), writable, &script);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let mut line = "";
    for text in said.lines() {
        if let Some(at) = text.strip_prefix("@@ ").and_then(|it| it.parse::<usize>().ok()) {
            line = &lines[at];
        } else if text.starts_with("@@ ") || text.contains("Read-only file system") {
            return Some(format!("{line}: {text}"));
        }
    }
    assert!(said.contains(&format!("@@ {}", lines.len() - 1)), "the sandbox ran no line: {out:?}");
    let after = snapshot(&dir, git);
    let changed: Vec<_> =
        before.iter().filter(|(name, it)| after.get(*name) != Some(it)).map(|(name, _)| name).collect();
    let made: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    (!changed.is_empty() || !made.is_empty()).then(|| format!("changed {changed:?}, made {made:?}"))
}

/// Runs lines in batches, and bisects a failing batch to find the lines that cause it.
fn faults(lines: &[String], git: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let mut waiting: Vec<&[String]> = lines.chunks(BATCH).collect();
    while let Some(batch) = waiting.pop() {
        let Some(why) = run(batch, false, git).or_else(|| run(batch, true, git)) else { continue };
        match batch {
            [line] => faults.push(format!("{line}: {why}")),
            _ if faults.len() > MAX_FAULTS => faults.push(format!("{why}, and perhaps more")),
            _ => waiting.extend([&batch[..batch.len() / 2], &batch[batch.len() / 2..]]),
        }
    }
    faults
}

/// Selects the lines to run: all mandatory ones and an even sample of the others.
fn chosen(lines: Vec<(bool, String)>, passes: impl Fn(&str) -> bool) -> Vec<String> {
    let most = match std::env::var("HELVE_LOOKS") {
        Ok(text) if text == "all" => usize::MAX,
        Ok(text) => text.parse().expect("HELVE_LOOKS is a number or `all`"),
        Err(_) => DEFAULT_COUNT,
    };
    let (always, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|(always, _)| *always);
    let all = always.len() + others.len();
    // The check takes time too. About one line in ten passes.
    let step = (others.len() / most.saturating_mul(10)).max(1);
    let others = others.into_iter().step_by(step);
    let passing = |lines: &mut dyn Iterator<Item = (bool, String)>| -> Vec<String> {
        lines.map(|(_, line)| line).filter(|line| passes(line)).collect()
    };
    let mut chosen = passing(&mut always.into_iter());
    let others = passing(&mut { others });
    let room = most.saturating_sub(chosen.len()).max(200);
    let step = (others.len() / room).max(1);
    chosen.extend(others.into_iter().step_by(step));
    println!("{} of {all} lines pass and run", chosen.len());
    chosen
}

#[test]
fn every_program_that_may_pass_is_tried() {
    let tried: BTreeSet<_> = PROGRAMS.split_whitespace().collect();
    let missing: Vec<_> = program_names().filter(|name| !tried.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_line_that_changes_something_is_noticed() {
    let generated: BTreeSet<String> = lines().into_iter().map(|(_, line)| line).collect();
    for line in ["echo evil | uniq - main.py; ls", "printf %n PATH; ls", "find . -fprint P", "sort -o P main.py"] {
        assert!(generated.contains(line), "{line} is not generated");
        let noticed = faults(&["ls".to_owned(), line.to_owned(), "cat main.py".to_owned()], false);
        assert!(noticed.iter().any(|it| it.starts_with(line)), "{line}: {noticed:?}");
    }
    for line in ["sleep 1000 >/dev/null 2>&1 & ls", "chmod 600 main.py", "touch -d 2020-01-01 main.py", "mktemp"] {
        assert_eq!(faults(&[line.to_owned()], false).len(), 1, "{line}");
    }
}

#[test]
fn what_passes_unasked_changes_nothing() {
    let chosen = chosen(lines(), |line| parse_line(line).is_ok_and(|reading| is_read_only_line(&reading)));
    assert!(chosen.len() > 500, "only {} lines pass", chosen.len());
    let faults = faults(&chosen, false);
    assert!(faults.is_empty(), "{} lines passed and changed something:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn what_passes_in_plan_mode_changes_nothing() {
    let passes = |line: &str| parse_line(line).is_ok_and(|reading| line_only_reads(&reading));
    let chosen = chosen(git_lines(), passes);
    assert!(chosen.len() > 200, "only {} lines pass", chosen.len());
    let faults = faults(&chosen, true);
    assert!(faults.is_empty(), "{} lines passed and changed something:\n{}", faults.len(), faults.join("\n"));
}
