//! Tests of parsing and matching rules.

use helve_contract::{Access, Effects, Spec};
use serde_json::json;

use super::stage::{CallFate, bash, command, edit, fetch, gate, grep, rule, run_gate, spec, write};
use crate::gate::{Mode, Rule};

#[test]
fn a_malformed_rule_is_an_error() {
    for text in [
        "",
        " ",
        "Bash(",
        "Bash)",
        "Bash()",
        "Bash(ls",
        "Bash(ls) x",
        "(ls)",
        "!Bash",
        "Ba sh",
        "Bash(ls *.rs)",
        "Bash(a; b)",
        "Bash('a)",
        "Bash(:*)",
        "Bash(npm * x)",
        "Bash(ls*)",
        "exec($x)",
        "Read(~/.ssh)",
        "Edit(*.{a,b})",
        "WebFetch(domain:)",
        "WebFetch(domain:a*)",
    ] {
        assert!(Rule::parse(text).is_err(), "{text}");
    }
    for text in [
        "Bash",
        "Bash(*)",
        "Bash(npm test)",
        "Bash(npm run test:*)",
        "Bash(git *)",
        "mcp__a__*",
        "Edit(src/**)",
        "Edit(it's/**)",
    ] {
        assert_eq!(rule(text).source(), text);
    }
    assert_eq!(
        Rule::parse("Bash()").unwrap_err(),
        "`Bash()` is not a rule: there is nothing between the parentheses; leave them away for the whole tool"
    );
}

#[tokio::test]
async fn an_allow_rule_matches_words_and_every_command() {
    let rules = &["+Bash(npm test)", "+Bash(npm run test:*)", "+Bash(git *)"];
    for line in [
        "npm test",
        "npm  't'est",
        "npm run test",
        "npm run test --watch",
        "git push",
        "git push && npm test | tail -3",
        "timeout 60 npm test 2>&1",
        "npm test >/dev/null",
    ] {
        assert_eq!(command(gate(Mode::Default, rules), line).await, CallFate::Passed, "{line}");
    }
    for line in [
        "npm test --x",
        "npm tests",
        "npm run testing",
        "npm run test:unit",
        "rm -rf / # npm test",
        "npm test; rm x",
        "npm test & rm x",
        "npm test $(rm x)",
        "npm test > f",
        "npm test $x",
        "/tmp/npm test",
        "./npm test",
        "sudo npm test",
        "sh -c 'npm test'",
        "A=b npm test",
        "env A=b npm test",
        "xargs npm test",
        "(npm test)",
        "npm test <<< x",
        "npm test |",
    ] {
        assert_eq!(command(gate(Mode::Default, rules), line).await, CallFate::Asked, "{line}");
    }
}

#[tokio::test]
async fn a_deny_rule_hits_any_command_behind_any_wrapper() {
    for line in [
        "rm x",
        "/bin/rm x",
        "\\rm x",
        "cd /y && rm x",
        "true | rm x",
        "(rm x)",
        "echo $(rm x)",
        "sudo -u root rm x",
        "env -i A=b rm x",
        "env -S 'rm x'",
        "nice -n 5 nohup setsid stdbuf -oL timeout -s KILL 5 rm x",
        "find . -name y -execdir rm {} +",
        "echo x | xargs -0 -n 1 rm",
        "bash -lc 'cd y; rm x'",
        "eval 'rm x'",
        "watch -n 1 rm x",
        "script -qc 'rm x' /dev/null",
        "flock /tmp/l rm x",
        "busybox rm x",
        "command -p rm x",
        "trap 'rm x' EXIT",
        "coproc rm x",
        "time -p rm x",
        "strace -f -o out rm x",
        "if x; then rm x; fi",
        "rm $x",
        "x=1 rm x",
    ] {
        let fate = command(gate(Mode::Open, &["-Bash(rm:*)"]), line).await;
        assert!(matches!(fate, CallFate::Denied(_)), "{line}: {fate:?}");
    }
    for line in
        ["rmdir x", "echo rm", "ls # rm x", "git rm x", "echo $x", "for i in *; do wc $i; done", "command -v rm"]
    {
        assert_eq!(command(gate(Mode::Open, &["-Bash(rm:*)"]), line).await, CallFate::Passed, "{line}");
    }
}

#[tokio::test]
async fn options_before_the_subcommand_do_not_hide_it() {
    for line in [
        "git push",
        "git -C /x push origin",
        "git -c a=b --no-pager push",
        "git --git-dir=/x push",
        "git --git-dir /x push",
    ] {
        let fate = command(gate(Mode::Open, &["-Bash(git push:*)"]), line).await;
        assert!(matches!(fate, CallFate::Denied(_)), "{line}: {fate:?}");
    }
    assert_eq!(command(gate(Mode::Open, &["-Bash(git push:*)"]), "git pull").await, CallFate::Passed);
}

#[tokio::test]
async fn what_a_deny_rule_cannot_see_is_asked() {
    for line in [
        "$x y",
        "eval $x",
        "git $x",
        "sh < f",
        "alias a=b",
        "PATH=. ls",
        "echo x | sh",
        "xargs git",
        "ls |",
        "test -v 'a[$(x)]'",
    ] {
        assert_eq!(command(gate(Mode::Open, &["-Bash(git push:*)"]), line).await, CallFate::Asked, "{line}");
    }
    assert_eq!(command(gate(Mode::Open, &["-Bash(git push:*)"]), "echo $x").await, CallFate::Passed);
}

#[tokio::test]
async fn paths_are_matched_wherever_they_are_written() {
    let edits = |path: &str| json!({"file_path": path, "old_string": "a", "new_string": "b"});
    for path in ["src/a.rs", "/w/src/b/c.rs", "./src/../src/a.rs"] {
        assert_eq!(
            run_gate(gate(Mode::Default, &["+Edit(src/**)"]), &edit(), edits(path)).await,
            CallFate::Passed,
            "{path}"
        );
    }
    for path in ["a.rs", "src/../a.rs", "/x/src/a.rs", "srcs/a.rs"] {
        assert_eq!(
            run_gate(gate(Mode::Default, &["+Edit(src/**)"]), &edit(), edits(path)).await,
            CallFate::Asked,
            "{path}"
        );
    }
    let denied = run_gate(gate(Mode::Open, &["-Edit(/w/src/**)"]), &edit(), edits("src/a.rs")).await;
    assert_eq!(
        denied,
        CallFate::Denied(
            "Edit is denied by the rule Edit(/w/src/**); do it another way, or ask the user to change the rule".into()
        )
    );
}

#[tokio::test]
async fn edit_speaks_for_all_that_change_files_and_read_for_all_that_look() {
    let file = json!({"file_path": "src/a.rs", "content": "x"});
    assert_eq!(run_gate(gate(Mode::Default, &["+Edit(src/**)"]), &write(), file.clone()).await, CallFate::Passed);
    assert_eq!(
        run_gate(gate(Mode::Default, &["+FileWrite"]), &write(), file.clone()).await,
        CallFate::Passed,
        "by its alias"
    );
    assert_eq!(run_gate(gate(Mode::Default, &["+write"]), &write(), file).await, CallFate::Passed);
    let search = json!({"pattern": "x", "path": "secrets"});
    assert!(matches!(
        run_gate(gate(Mode::Open, &["-Read"]), &grep(), json!({"pattern": "x"})).await,
        CallFate::Denied(_)
    ));
    assert!(matches!(
        run_gate(gate(Mode::Open, &["-Read(secrets)"]), &grep(), search.clone()).await,
        CallFate::Denied(_)
    ));
    assert_eq!(run_gate(gate(Mode::Open, &["-Edit(secrets)"]), &grep(), search).await, CallFate::Passed);
}

#[tokio::test]
async fn a_rule_with_content_holds_for_the_class() {
    let effects = Effects::READS | Effects::WRITES | Effects::EXECUTES;
    for name in ["exec", "run_tests", "shell_exec", "someones_runner"] {
        let tool = spec(name, effects, &["command"]);
        for rule in ["-Bash(touch:*)", "-exec(touch:*)", "-run_tests(touch:*)", "-SHELL_EXEC(touch:*)", "-*(touch:*)"] {
            let seen = run_gate(gate(Mode::Open, &[rule]), &tool, json!({"command": "touch B"})).await;
            assert!(matches!(seen, CallFate::Denied(_)), "{name} {rule}: {seen:?}");
            let asked =
                run_gate(gate(Mode::Open, &[&rule.replace('-', "?")]), &tool, json!({"command": "touch B"})).await;
            assert_eq!(asked, CallFate::Asked, "{name} {rule}");
        }
        for rule in ["-Bash", "-Bash(rm:*)", "-Read(touch)", "-WebFetch(domain:touch)"] {
            let seen = run_gate(gate(Mode::Open, &[rule]), &tool, json!({"command": "touch B"})).await;
            assert_eq!(seen, CallFate::Passed, "{name} {rule}");
        }
        // An allow rule grants the named tool and no other.
        let seen = run_gate(gate(Mode::Default, &["+Bash(touch:*)"]), &tool, json!({"command": "touch B"})).await;
        assert_eq!(seen, CallFate::Asked, "{name}");
    }
    let reader = spec("look_at", Effects::READS, &["path"]);
    for rule in ["-Read(**/*.pem)", "-Grep(*.pem)", "-file_read(/w/a/k.pem)", "-ls(a/**)"] {
        for path in ["a/k.pem", "/w/a/K.PEM", "./b/../a/k.pem"] {
            let seen = run_gate(gate(Mode::Open, &[rule]), &reader, json!({"path": path})).await;
            assert!(matches!(seen, CallFate::Denied(_)), "{rule} {path}: {seen:?}");
        }
    }
    let seen =
        run_gate(gate(Mode::Open, &["-Edit(a/**)", "-apply_patch(a/**)"]), &reader, json!({"path": "a/k.pem"})).await;
    assert_eq!(seen, CallFate::Passed, "a rule about writing says nothing of reading");
}

#[tokio::test]
async fn a_rule_on_reading_stops_a_command_that_names_the_file() {
    for line in ["cat a/k.pem", "cd a && cat k.pem", "dd if=a/k.pem", "curl --data @a/k.pem x", "git show HEAD:a/k.pem"]
    {
        let fate = command(gate(Mode::Open, &["-Read(**/*.pem)"]), line).await;
        assert!(matches!(fate, CallFate::Denied(_)), "{line}: {fate:?}");
    }
    assert_eq!(
        command(gate(Mode::Open, &["?Edit(package.json)"]), "sed -i s/a/b/ package.json").await,
        CallFate::Asked
    );
    assert_eq!(command(gate(Mode::Open, &["?Edit(package.json)"]), "cat package.json").await, CallFate::Passed);
    assert_eq!(command(gate(Mode::Open, &["-Read(**/*.pem)"]), "cat a/k.txt").await, CallFate::Passed);
}

#[tokio::test]
async fn a_rule_sees_a_command_in_the_arguments_of_another_program() {
    let lines = [
        "fd x -x rm",
        "python3 -c 'import os; os.system(\"rm x\")'",
        "python3 -c \"import os; os.system('rm $x')\"",
        "git -c alias.z='!rm x' z",
        "git -c core.pager='rm x' -p log",
        "git rebase --exec='rm x' HEAD~1",
        "awk 'BEGIN{system(\"/bin/rm x\")}'",
        "perl -e 'system \"rm x\"'",
        "ssh h rm x",
        "systemd-run rm x",
        "su -c 'rm x'",
        "runuser -u a -- rm x",
        "setpriv --reuid 1 rm x",
        "bwrap --dev-bind / / rm x",
        "some-new-wrapper --flag rm x",
        "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
        "mapfile -C 'rm x' -c 1 a",
        "npm exec -- rm x",
        "npx -c 'rm x'",
        "tar xf a --to-command='rm x'",
        "tar cf a . --checkpoint=1 --checkpoint-action=exec='rm x'",
        "rsync -e 'rm x' a b:",
        "sed '1e rm x' f",
        "vim -c ':!rm x' f",
        "docker run a rm x",
        "tmux new -d 'rm x'",
        "ruby -e '`rm x`'",
    ];
    for line in lines {
        for rule in ["-Bash(rm:*)", "-Bash(rm x)", "?exec(rm:*)"] {
            assert_eq!(command(gate(Mode::Open, &[rule]), line).await, CallFate::Asked, "{rule} {line}");
        }
    }
    let harmless = ["echo rm", "grep rm x", "git rm x", "git commit -m 'rm x'", "cp rm.txt a", "npm test", "mv form a"];
    for line in harmless {
        assert_eq!(command(gate(Mode::Open, &["-Bash(rm:*)"]), line).await, CallFate::Passed, "{line}");
    }
    assert_eq!(command(gate(Mode::Open, &["-Bash(git push:*)"]), "ssh h git -C x push").await, CallFate::Asked);
    assert_eq!(command(gate(Mode::Open, &["-Bash(git push:*)"]), "ssh h git log").await, CallFate::Passed);
}

#[tokio::test]
async fn a_rule_on_reading_sees_every_way_to_name_the_file() {
    let lines = [
        "cat < a/k.pem",
        "cat <a/k.pem",
        "cat 0< a/k.pem",
        "cat <> a/k.pem",
        "wc -l < ./b/../a//K.PEM",
        "cd a && cat < k.pem",
        "while read x; do echo $x; done < a/k.pem",
        "{ cat; } < a/k.pem",
        "(cat) < a/k.pem",
        "echo $(< a/k.pem)",
        "mapfile x < a/k.pem",
        "exec 3< a/k.pem; cat <&3",
        "sh -c 'cat < a/k.pem'",
        "cat <<E\n$(cat a/k.pem)\nE",
        "diff <(cat a/k.pem) x",
        "grep -fa/k.pem x",
        "curl -d@a/k.pem x",
        "curl file:///w/a/k.pem",
        "curl -F f=@a/k.pem x",
        "curl -F 'f=@x,a/k.pem' x",
        "ssh -oIdentityFile=a/k.pem h",
        "tar --files-from=a/k.pem -c",
        "find a/k.pem -exec cat {} +",
        "env X=1 nice timeout 3 cat a/k.pem",
    ];
    for line in lines {
        let seen = command(gate(Mode::Open, &["?Read(**/*.pem)"]), line).await;
        assert_eq!(seen, CallFate::Asked, "{line}");
        let seen = command(gate(Mode::Open, &["-Read(**/*.pem)"]), line).await;
        assert!(matches!(seen, CallFate::Denied(_)), "{line}: {seen:?}");
    }
    // Known only at run time: only a prompt can enforce an ask rule.
    let unknown = [
        "cat a/*.pem",
        "cat a/k.p?m",
        "cat a/*",
        "cat {a,b}/k.pem",
        "cat ~/k.pem",
        "cat $HOME/k.pem",
        "cat \"$f\"",
        "cat < $f",
        "cat < a/*.pem",
        "cat $(printf a/k.pem)",
        "echo a/k | sed s/$/.pem/ | xargs cat",
        "eval \"$x\"",
    ];
    for line in unknown {
        assert_eq!(command(gate(Mode::Open, &["?Read(**/*.pem)"]), line).await, CallFate::Asked, "{line}");
    }
    for line in ["cat src/*.rs", "ls a", "cat < a/k.txt", "echo $HOME", "cat a.txt 2>&1 </dev/null", "git status"] {
        assert_eq!(command(gate(Mode::Open, &["?Read(**/*.pem)"]), line).await, CallFate::Passed, "{line}");
    }
    for line in ["grep -r x secret", "tar -cf - secret/", "cd secret && cat deep/k", "cp -r ./secret /tmp"] {
        let seen = command(gate(Mode::Open, &["?Read(secret/deep/*)"]), line).await;
        assert_eq!(seen, CallFate::Asked, "{line}: a folder around it");
    }
    assert_eq!(command(gate(Mode::Open, &["?Read(secret/deep/*)"]), "cat src/a").await, CallFate::Passed);
    for line in ["cp x deploy.*", "tee $f", "sed -i s/a/b/ $f", "cat x > $f"] {
        assert_eq!(command(gate(Mode::Open, &["?Edit(deploy.sh)"]), line).await, CallFate::Asked, "{line}");
    }
}

#[tokio::test]
async fn a_domain_is_a_whole_name() {
    let to = |url: &str| json!({ "url": url });
    let rules = &["+WebFetch(domain:example.com)", "-WebFetch(domain:evil.com)"];
    let cases = [
        ("https://example.com/x", CallFate::Passed),
        ("https://sub.example.com/", CallFate::Asked),
        ("https://notexample.com/", CallFate::Asked),
        ("https://example.com@other.com/", CallFate::Asked),
        ("https://other.com\\@example.com/", CallFate::Asked),
    ];
    for (url, wanted) in cases {
        assert_eq!(run_gate(gate(Mode::Default, rules), &fetch(), to(url)).await, wanted, "{url}");
    }
    for url in ["https://evil.com", "https://a.EVIL.com./x", "https://example.com@evil.com"] {
        assert!(matches!(run_gate(gate(Mode::Open, rules), &fetch(), to(url)).await, CallFate::Denied(_)), "{url}");
    }
}

#[tokio::test]
async fn names_of_tools_may_be_patterns() {
    let tool = spec("mcp__files__read", Effects::READS | Effects::WRITES | Effects::NETWORK, &["x"]);
    for (text, fits) in [
        ("mcp__files__*", true),
        ("mcp__files", true),
        ("mcp__*", true),
        ("mcp__file", false),
        ("mcp__other__*", false),
    ] {
        let seen = run_gate(gate(Mode::Default, &[&format!("+{text}")]), &tool, json!({"x": "y"})).await;
        assert_eq!(seen == CallFate::Passed, fits, "{text}");
    }
}

/// Tools of a server `my-files` that has `get-sum`, under its own name and under one with a suffix.
fn sums() -> [Spec; 2] {
    let effects = Effects::READS | Effects::WRITES | Effects::NETWORK;
    let plain = spec("mcp__my-files__get-sum", effects, &["x"]);
    let rule_names = vec!["mcp__my-files__get-sum".into()];
    [plain, Spec { rule_names, ..spec("mcp__my-files__get-sum_0a1b2c3d", effects, &["x"]) }]
}

#[tokio::test]
async fn a_deny_or_ask_rule_covers_every_spelling_of_a_name() {
    for text in [
        "mcp__my-files__get-sum",
        "mcp__my_files__get_sum",
        "mcp__my-files__get_sum",
        "MCP__My-Files__Get-Sum",
        "mcp__my-files",
        "mcp__my_files",
        "mcp__my-files__*",
        "mcp__my_files__*",
        "mcp__my.files__get*",
    ] {
        for tool in sums() {
            let denied = run_gate(gate(Mode::Open, &[&format!("-{text}")]), &tool, json!({"x": "y"})).await;
            assert!(matches!(denied, CallFate::Denied(_)), "{text} {}", tool.name);
            let asked = run_gate(gate(Mode::Open, &[&format!("?{text}")]), &tool, json!({"x": "y"})).await;
            assert_eq!(asked, CallFate::Asked, "{text} {}", tool.name);
        }
    }
}

#[tokio::test]
async fn an_allow_rule_grants_nothing_to_a_tool_of_a_similar_name() {
    let other = spec("mcp__my_files__get_sum", Effects::WRITES | Effects::NETWORK, &["x"]);
    let [plain, suffixed] = sums();
    for (text, granted) in [
        ("mcp__my-files__get-sum", [true, true, false]),
        ("mcp__my_files__get_sum", [true, false, true]),
        ("mcp__my-files__get-sum_0a1b2c3d", [false, true, false]),
        ("mcp__my_files__get_sum_0a1b2c3d", [false, true, false]),
        ("mcp__my-files", [true, true, false]),
    ] {
        for (tool, granted) in [&plain, &suffixed, &other].into_iter().zip(granted) {
            let seen = run_gate(gate(Mode::Default, &[&format!("+{text}")]), tool, json!({"x": "y"})).await;
            assert_eq!(seen == CallFate::Passed, granted, "{text} {}", tool.name);
        }
    }
}

#[tokio::test]
async fn a_tool_of_unknown_effects_is_asked_about() {
    let tool = spec("mine", Effects::UNKNOWN, &["path"]);
    for mode in [Mode::Default, Mode::AcceptEdits] {
        assert_eq!(run_gate(gate(mode, &[]), &tool, json!({"path": "a"})).await, CallFate::Asked);
    }
    assert!(matches!(run_gate(gate(Mode::Plan, &[]), &tool, json!({"path": "a"})).await, CallFate::Denied(_)));
}

#[tokio::test]
async fn a_command_may_come_as_a_list_of_words() {
    let run = |words: &[&str]| json!({ "command": words });
    let rules = &["+Bash(npm test)", "-Bash(rm:*)"];
    assert_eq!(run_gate(gate(Mode::Default, rules), &bash(), run(&["npm", "test"])).await, CallFate::Passed);
    assert!(matches!(
        run_gate(gate(Mode::Default, rules), &bash(), run(&["bash", "-lc", "rm x"])).await,
        CallFate::Denied(_)
    ));
    assert_eq!(run_gate(gate(Mode::Default, rules), &bash(), run(&["npm", "$(rm x)"])).await, CallFate::Asked);
}

#[tokio::test]
async fn an_environment_beside_the_command_counts() {
    let args = json!({"command": "ls", "env": {"LD_PRELOAD": "./e.so"}});
    assert_eq!(run_gate(gate(Mode::Default, &["+Bash(ls:*)"]), &bash(), args).await, CallFate::Asked);
}

#[test]
fn a_deny_rule_on_paths_is_a_path_rule_too() {
    let read = rule("Read(secrets/**)").path_rule().unwrap();
    assert_eq!((read.glob.pattern(), read.denies), ("secrets/**".to_owned(), Access::Read));
    assert_eq!(rule("Edit(*.lock)").path_rule().unwrap().denies, Access::Write);
    let absolute = rule("FileRead(/etc/x)").path_rule().unwrap();
    assert!(absolute.scope.is_absolute && absolute.scope.binds_commands);
    assert_eq!(rule("apply_patch(x/**)").path_rule().unwrap().denies, Access::Write);
    assert!(rule("Bash(rm:*)").path_rule().is_none());
    assert!(rule("mcp__a__b(x)").path_rule().is_none());
    let search = rule("Grep(*.pem)").search_rule().unwrap();
    assert!(search.scope.only_searches && rule("Edit(x)").search_rule().is_none());
    assert!(rule("Edit").path_rule().is_none());
}

#[tokio::test]
async fn the_name_list_of_003_denies() {
    let names = || crate::commands::ProgramAllowlist::new(vec!["npm".into()], vec!["curl".into()]).unwrap();
    let open = || gate(Mode::Open, &[]).program_allowlist(names());
    assert_eq!(command(open(), "npm test | head").await, CallFate::Passed);
    assert_eq!(
        command(open(), "ls && sudo curl x").await,
        CallFate::Denied(
            "blocked by security policy (CommandNotAllowed): the program `sudo` is not on the list of allowed programs"
                .into()
        )
    );
    let shell_exec = Spec { name: "shell_exec".into(), ..bash() };
    assert!(matches!(run_gate(open(), &shell_exec, json!({"command": "curl x"})).await, CallFate::Denied(_)));
}
