//! `helve policy`: which rule decides about a call, and tests of rules.

use serde_json::{Value, json};

use crate::{desk::Desk, serve::Site};

/// A desk with rules of the user and of a variable.
fn desk() -> Desk {
    let desk = Desk::new().env("HELVE_APPROVAL_DENY", "Bash(curl:*)").env("HELVE_DIALECT", "claude");
    desk.put("home/.config/helve/helve.toml", USER_FILE);
    desk
}

const USER_FILE: &str = "[approval]\ndeny = [\"Bash(rm:*)\"]\nallow = [\"Bash(npm test:*)\"]\n";

fn explain(desk: &Desk, args: &[&str]) -> Value {
    let ran = desk.run(&[&["policy", "explain"], args, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_command_is_explained_with_the_origin_of_its_rule() {
    let desk = desk();
    let denied = explain(&desk, &["timeout 5 rm -rf x"]);
    assert_eq!((&denied["outcome"], &denied["basis"]["kind"]), (&json!("deny"), &json!("deny_rule")));
    let rule = &denied["rules"][0];
    assert_eq!((&rule["rule"], &rule["setting"]), (&json!("Bash(rm:*)"), &json!("approval.deny")));
    assert!(rule["from"].as_str().unwrap().ends_with("helve.toml"), "{rule}");
    // Both lists add up, and each rule keeps its own origin.
    assert_eq!(explain(&desk, &["curl x"])["rules"][0]["from"], "HELVE_APPROVAL_DENY");
    assert_eq!(explain(&desk, &["npm test"])["rules"][0]["setting"], "approval.allow");
    assert_eq!(explain(&desk, &["ls -l | wc"])["basis"]["kind"], "read_only");
    let asked = explain(&desk, &["make all"]);
    assert_eq!((&asked["outcome"], &asked["suggested_rules"]), (&json!("ask"), &json!(["Bash(make all)"])));
    assert!(asked["question"]["broader"].as_str().unwrap().contains("any other program"), "{asked}");
    assert_eq!(
        (&asked["mode_from"], &asked["sandbox"]["level"]),
        (&json!("default of the dialect claude"), &json!("auto"))
    );
    assert_eq!(explain(&desk, &["make all", "--mode", "dontAsk"])["outcome"], "deny");
    assert_eq!(explain(&desk, &["make all", "--mode", "open"])["outcome"], "allow");
    let flag = explain(&desk, &["make all", "--set", "approval.allow=[\"Bash(make:*)\"]"]);
    assert_eq!((&flag["outcome"], &flag["rules"][0]["from"]), (&json!("allow"), &json!("--set")));

    let text = desk.run(&["policy", "explain", "rm x"]);
    assert_eq!(text.code, 0);
    for part in ["deny: ", "rule     Bash(rm:*) (approval.deny, from ", "mode     default", "command  rm x [runs]"] {
        assert!(text.out.contains(part), "{part}: {}", text.out);
    }
    assert!(!desk.path("work/x").exists());
}

#[test]
fn a_call_is_explained_with_its_paths() {
    let desk = desk();
    let write = |path: &str| {
        let args = json!({ "file_path": desk.path("work").join(path), "content": "x" }).to_string();
        explain(&desk, &["--tool", "Write", &args, "--mode", "acceptEdits"])
    };
    assert_eq!(write("a.txt")["outcome"], "allow");
    let protected = write(".git/config");
    assert_eq!((&protected["outcome"], &protected["basis"]["kind"]), (&json!("refuse"), &json!("path")));
    assert!(protected["paths"][0]["refused"].is_string(), "{protected}");
    assert_eq!(write("../../outside")["outcome"], "refuse");
    let forge = explain(&desk, &["--dialect", "forge", "--tool", "bash", r#"{"command":"ls"}"#]);
    assert_eq!((&forge["tool"], &forge["dialect"]), (&json!("bash"), &json!("forge")));
    assert_eq!(explain(&desk, &["--tool", "Write", "{}"])["basis"]["kind"], "invalid_call");
    assert_eq!(desk.run(&["policy", "explain", "--tool", "Nothing", "{}"]).code, 2);
    assert_eq!(desk.run(&["policy", "explain", "--tool", "Write", "no json"]).code, 2);
    assert_eq!(desk.get("work/a.txt"), "");
}

const TESTS: &str = r#"
[[test]]
command = "rm -rf build"
expect = "deny"
rule = "Bash(rm:*)"

[[test]]
name = "tests run unasked"
command = "npm test -- a"
expect = "allow"

[[test]]
tool = "Write"
args = { file_path = "PLACE/.git/config", content = "x" }
mode = "acceptEdits"
expect = "refuse"

[[test]]
command = "make"
dialect = "forge"
mode = "default"
expect = "ask"
"#;

#[test]
fn rule_tests_pass_or_fail_with_a_table() {
    let desk = desk();
    desk.put("work/rules.toml", &TESTS.replace("PLACE", &desk.path("work").display().to_string()));
    let ran = desk.run(&["policy", "test", "rules.toml"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("4 tests, 0 failed") && ran.out.contains("tests run unasked"), "{}", ran.out);

    desk.put("work/wrong.toml", &format!("{TESTS}\n[[test]]\ncommand = \"rm x\"\nexpect = \"ask\"\n"));
    let ran = desk.run(&["policy", "test", "wrong.toml"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("FAIL  deny") && ran.out.contains("expected ask; got deny"), "{}", ran.out);
    let other = "[[test]]\ncommand = \"rm x\"\nexpect = \"deny\"\nrule = \"Bash(curl:*)\"\n";
    desk.put("work/other.toml", other);
    let ran = desk.run(&["policy", "test", "other.toml"]);
    assert_eq!(ran.code, 1, "the rule must be the one that decides: {}", ran.out);

    for broken in [
        "",
        "[[test]]\ncommand = \"ls\"\n",
        "[[test]]\ncommand = \"ls\"\nexpect = \"maybe\"\n",
        "[[test]]\nexpect = \"ask\"\n",
        "[[test]]\ncommand = \"ls\"\nexpect = \"ask\"\nmode = \"x\"\n",
    ] {
        desk.put("work/broken.toml", broken);
        assert_eq!(desk.run(&["policy", "test", "broken.toml"]).code, 2, "{broken}");
    }
    assert_eq!(desk.run(&["policy", "test", "missing.toml"]).code, 2);
}

#[test]
fn the_page_explains_with_the_same_words() {
    let desk = desk();
    let site = Site::open(&desk);
    let mut answer = site.post("/api/policy/explain", r#"{"command":"rm -rf x"}"#).json();
    let mut printed = explain(&desk, &["rm -rf x"]);
    for it in [&mut answer, &mut printed] {
        // What is printed has the desk's path replaced.
        assert!(it["rules"][0]["from"].take().as_str().unwrap().ends_with("helve.toml"));
    }
    assert_eq!(answer, printed);
    let call = json!({ "tool": "Write", "args": { "file_path": "/etc/x", "content": "" }, "mode": "open" });
    assert_eq!(site.post("/api/policy/explain", &call.to_string()).json()["outcome"], "refuse");
    for bad in ["{}", r#"{"command":"ls","mode":"x"}"#, r#"{"command":"ls","tool":"Bash"}"#, r#"{"tool":"None"}"#] {
        assert_eq!(site.post("/api/policy/explain", bad).status, 400, "{bad}");
    }
    assert_eq!(site.stop(), Some(0));
}

#[test]
fn rules_are_learned_from_what_ran_and_never_from_what_was_refused() {
    let desk = desk();
    for command in ["make all", "make all", "ls", "npm test", "git commit -m x", "rm x", "echo $HOME"] {
        desk.run(&["call", "Bash", &json!({ "command": command }).to_string()]);
    }
    let file = json!({ "file_path": desk.path("work/new.txt"), "content": "x" }).to_string();
    assert_eq!(desk.run(&["call", "Write", &file]).code, 0);
    let before = desk.get("home/.config/helve/helve.toml");
    let ran = desk.run(&["policy", "learn", "cli"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    for part in [
        "Bash(make all)\n    grants: the command `make all` with exactly these words",
        "calls in this session: 2",
        "Bash(git commit:*)\n    grants: every `git commit` command with any further arguments",
        "(new.txt)\n    grants: the file new.txt, with any content",
        "Bash rm x\n        it was refused in the session",
        "Bash echo $HOME\n        no rule can name it",
        "Nothing was written.",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(!ran.out.contains("Bash(rm") && !ran.out.contains("Bash(npm"), "{}", ran.out);
    assert_eq!(desk.get("home/.config/helve/helve.toml"), before, "nothing is written without --write");

    // The file has rules already, which are not rewritten.
    let ran = desk.run(&["policy", "learn", "cli", "--write"]);
    assert!(ran.code != 0 && ran.err.contains("Bash(make all)"), "{} {}", ran.out, ran.err);
    assert_eq!(desk.get("home/.config/helve/helve.toml"), before);
    desk.put("home/.config/helve/helve.toml", "[approval]\ndeny = [\"Bash(rm:*)\"]\n");
    let ran = desk.run(&["policy", "learn", "cli", "--write"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert_eq!(explain(&desk, &["make all"])["basis"]["kind"], "allow_rules");
    assert_eq!(explain(&desk, &["rm x"])["outcome"], "deny");
    let again = desk.run(&["policy", "learn", "cli"]);
    assert!(again.out.contains("No rule is needed or possible"), "{}", again.out);
    assert_eq!(desk.run(&["policy", "learn", "nobody"]).code, 2);
}
