//! Command lines that bypassed other tools, one row per attack. None may run without approval or evade a deny rule.

use serde::Deserialize;

use super::stage::{CallFate, command, gate};
use crate::gate::Mode;

/// The allow rules that such an attack tries to exploit.
const TRUSTING: &[&str] =
    &["+Bash(ls:*)", "+Bash(echo:*)", "+Bash(cat:*)", "+Bash(git status)", "+Bash(true)", "+Bash(cd:*)"];

/// Every row with the number of its attack.
const ROWS: &[(&str, &[&str])] = &[
    (
        "A1 substitutions",
        &["echo \"$(touch PWN)\"", "echo `touch PWN`", "cat <<EOF\n$(touch PWN)\nEOF", "cat <(touch PWN)"],
    ),
    ("A2 blanks that are not", &["touch${IFS}PWN", "touch$IFS$9PWN", "{touch,PWN}"]),
    ("A3 spelling", &["$'\\x74ouch' PWN", "t''ou\"\"ch PWN", "tou\\\nch PWN", "/bin/t?uch PWN", "/bin/touch PWN"]),
    (
        "A4 further lines",
        &["echo hi\ntouch PWN", "echo hi # x\ntouch PWN", "echo hi\r\ntouch PWN", "echo hi\rtouch PWN"],
    ),
    ("A10 find", &["find . -exec touch PWN \\;", "find . -execdir touch PWN \\;", "find . -ok touch PWN \\;"]),
    (
        "A15 subscripts",
        &[
            "test -v 'a[$(touch PWN)]'",
            "[[ -v 'a[$(touch PWN)]' ]]",
            "printf -v 'a[$(touch PWN)]' x",
            "read 'a[$(touch PWN)]'",
            "declare 'a[$(touch PWN)]=1'",
            "x='a[$(touch PWN)]'; [[ $x -eq 0 ]]",
        ],
    ),
    (
        "A17 wrappers",
        &[
            "env -S 'touch PWN'",
            "nice nohup setsid stdbuf -oL touch PWN",
            "timeout 5 touch PWN",
            "echo PWN | xargs touch",
            "command -p touch PWN",
            "builtin eval 'touch PWN'",
            "bash -c 'touch PWN'",
        ],
    ),
    (
        "A18 names that change",
        &[
            "ls(){ touch PWN; }; ls",
            "alias ls='touch PWN'\nls",
            "hash -p /bin/touch ls; ls PWN",
            "trap 'touch PWN' EXIT",
            "trap 'touch PWN' DEBUG; true",
        ],
    ),
];

#[tokio::test]
async fn no_attack_passes_behind_trusting_rules() {
    for (name, lines) in ROWS {
        for line in *lines {
            assert_eq!(command(gate(Mode::Default, TRUSTING), line).await, CallFate::Asked, "{name}: {line}");
        }
    }
}

#[tokio::test]
async fn no_attack_slips_by_a_deny_rule() {
    for (name, lines) in ROWS {
        for line in *lines {
            let fate = command(gate(Mode::BypassPermissions, &["-Bash(touch:*)", "+Bash"]), line).await;
            assert_ne!(fate, CallFate::Passed, "{name}: {line}");
        }
    }
}

#[tokio::test]
async fn a5_a_limit_denies_and_never_asks() {
    let many = format!("{}touch PWN", "true;".repeat(50));
    assert_eq!(command(gate(Mode::Default, TRUSTING), &many).await, CallFate::Asked);
    assert!(matches!(command(gate(Mode::Open, &["-Bash(touch:*)"]), &many).await, CallFate::Denied(_)));
    let too_many = format!("{}touch PWN", "true;".repeat(300));
    for mode in [Mode::Default, Mode::AcceptEdits, Mode::DontAsk] {
        let fate = command(gate(mode, TRUSTING), &too_many).await;
        let text = "the command has more than 200 commands in it. Split it into smaller commands.";
        assert_eq!(fate, CallFate::Denied(text.into()), "{mode:?}");
    }
    assert!(matches!(command(gate(Mode::Open, &[]), "ls\0rm").await, CallFate::Denied(_)));
}

#[tokio::test]
async fn a6_a_deny_rule_sees_every_command() {
    for (rule, line) in
        [("-Bash(git push:*)", "cd /x && git push"), ("-Bash(git clean:*)", "git fetch && git clean -fd")]
    {
        let fate = command(gate(Mode::BypassPermissions, &[rule]), line).await;
        assert!(matches!(fate, CallFate::Denied(_)), "{line}: {fate:?}");
    }
}

#[tokio::test]
async fn a7_a_redirection_is_followed_through_cd() {
    for line in [
        "cd .claude && echo x > settings.json",
        "echo x > .git/config",
        "cd sub; cd ../.git/hooks && echo x >> pre-commit",
        "cd /w/.vscode && echo x >| tasks.json",
        "echo x > .GIT/Config",
    ] {
        let fate = command(gate(Mode::Open, &[]), line).await;
        assert!(matches!(&fate, CallFate::Denied(why) if why.contains("is protected")), "{line}: {fate:?}");
    }
    let rules = &["-Edit(secret/**)"];
    assert!(matches!(command(gate(Mode::Open, rules), "cd secret && echo x > y").await, CallFate::Denied(_)));
    assert_eq!(command(gate(Mode::Open, rules), "echo x > $y").await, CallFate::Asked);
    assert_eq!(command(gate(Mode::Open, rules), "echo x > y").await, CallFate::Passed);
}

#[tokio::test]
async fn a8_to_a14_looking_stops_at_the_first_dangerous_option() {
    for line in [
        "rg --pre ./h x f",
        "RIPGREP_CONFIG_PATH=./rc rg x",
        "rg -z x f",
        "find . -delete",
        "find . -fls PWN",
        "find . -fprintf PWN x",
        "sed '1e touch PWN' f",
        "sed 's/x/touch PWN/e' f",
        "sed -n 'w PWN' f",
        "sed -f s f",
        "sed -ni.bak 1p f",
        "sed -Eni.bak 1p f",
        "echo x | sed 'w .agent/x'",
        "echo x >| PWN",
        "echo x >& PWN",
        ": <> PWN",
        "echo x 1>PWN",
        "echo x &> PWN",
        "echo x >! PWN",
        "echo x &>>| PWN",
    ] {
        assert_eq!(command(gate(Mode::Default, TRUSTING), line).await, CallFate::Asked, "{line}");
    }
}

#[tokio::test]
async fn a16_builtins_are_commands_too() {
    for line in
        ["export PAGER=./x", "typeset x=1", "declare -x A=b", "readonly x", "unset PATH", "set -x", "shopt -s extglob"]
    {
        assert_eq!(command(gate(Mode::Default, TRUSTING), line).await, CallFate::Asked, "{line}");
    }
}

#[tokio::test]
async fn a19_to_a22_a_program_is_not_safe_because_it_is_known() {
    for line in [
        "tar cf /dev/null f --checkpoint=1 --checkpoint-action=exec='touch PWN'",
        "tar -I 'sh -c \"touch PWN\"' -cf /dev/null f",
        "awk 'BEGIN{system(\"touch PWN\")}'",
        "awk 'BEGIN{print 1 > \"PWN\"}'",
        "man -P 'touch PWN' ls",
        "LESSOPEN='|touch PWN %s' less f",
        "sort -o PWN f",
        "sort --compress-program=./h f",
        "xxd f PWN",
        "dd if=f of=PWN",
        "curl -o PWN file:///etc/hostname",
        "strace -o PWN true",
        "uniq f PWN",
        "date -s 12:00",
    ] {
        assert_eq!(command(gate(Mode::Default, TRUSTING), line).await, CallFate::Asked, "{line}");
    }
}

#[derive(Deserialize)]
struct Payload {
    name: String,
    command: String,
}

/// Every known payload. `git status` is what its rule allows: the sandbox confines what repository settings add to it.
#[tokio::test]
async fn no_payload_is_allowed_unasked() {
    let payloads: Vec<Payload> = serde_json::from_str(include_str!("../../commands/testdata/payloads.json")).unwrap();
    assert_eq!(payloads.len(), 128);
    let rules = &["+Bash(ls:*)", "+Bash(echo:*)", "+Bash(git status)"];
    for Payload { name, command: line } in payloads {
        assert_ne!(command(gate(Mode::Default, &[]), &line).await, CallFate::Passed, "{name} only looks");
        let trusted = command(gate(Mode::Default, rules), &line).await;
        assert_eq!(trusted == CallFate::Passed, line == "git status", "{name}: {line}");
    }
}
