//! Listings, reference pages, help, and pipes that close early.

use std::{fs, io::Read, process::Stdio};

use crate::desk::Desk;

const DIALECTS: [&str; 5] = ["solo", "forge", "preset", "oxydra", "claude"];

#[test]
fn every_format_has_the_same_tools() {
    let desk = Desk::new();
    for dialect in DIALECTS {
        let listed = |format: &str| desk.run(&["tools", "--dialect", dialect, "--format", format]).json();
        let names = |list: &serde_json::Value, at: &str| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            list.map(|it| it.pointer(at).unwrap().as_str().unwrap().to_owned()).collect()
        };
        let openai = names(&listed("openai"), "/function/name");
        assert!(!openai.is_empty(), "{dialect}");
        assert_eq!(openai, names(&listed("anthropic"), "/name"));
        assert_eq!(openai, names(&listed("mcp")["tools"], "/name"));
        assert_eq!(openai, names(&listed("json"), "/name"));
        let table = desk.run(&["tools", "--dialect", dialect]).out;
        assert!(openai.iter().all(|name| table.contains(name.as_str())), "{table}");
        for (format, at) in
            [("openai", "/function/parameters"), ("anthropic", "/input_schema"), ("json", "/parameters")]
        {
            for tool in listed(format).as_array().unwrap() {
                let schema = tool.pointer(at).unwrap();
                assert!(schema["type"] == "object" && schema["properties"].is_object(), "{format}: {tool}");
            }
        }
        for tool in listed("mcp")["tools"].as_array().unwrap() {
            let schema = &tool["inputSchema"];
            assert!(schema["type"] == "object" && schema["properties"].is_object(), "{tool}");
        }
        for tool in listed("openai").as_array().unwrap() {
            assert!(tool["function"]["description"].as_str().is_some_and(|it| !it.is_empty()), "{tool}");
        }
    }
}

#[test]
fn the_reference_pages_are_up_to_date() {
    let checked = Desk::new().run(&["docs", "--check", concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")]);
    assert_eq!((checked.code, checked.err.as_str()), (0, ""));
}

/// The number in front of "tools" in the last line of a table.
fn count(table: &str) -> usize {
    table.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_readme_counts_the_rows_of_every_table() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let desk = Desk::new();
    for dialect in DIALECTS {
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{dialect}` ("))).unwrap();
        let told: usize = row.split('|').nth(2).unwrap().trim().parse().unwrap();
        assert_eq!(told, count(&desk.run(&["tools", "--dialect", dialect]).out), "README.md: {row}");
    }
}

#[test]
fn a_row_that_is_not_offered_says_why() {
    let desk = Desk::new();
    let whole = desk.run(&["tools", "--dialect", "preset"]).out;
    let part = desk.run(&["tools", "--dialect", "preset", "--role", "readonly"]).out;
    assert_eq!(count(&whole), count(&part), "{part}");
    let row = |name: &str| part.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap().to_owned();
    assert!(row("write").contains("[not offered: "), "{part}");
    assert!(!row("read").contains("not offered"), "{part}");
    assert!(part.lines().last().unwrap().contains("offered here"), "{part}");
    let disabled = desk.run(&["tools", "--dialect", "preset", "--set", "tools.disable=grep"]).out;
    assert!(disabled.lines().any(|it| it.starts_with("grep ") && it.contains("[not offered: ")), "{disabled}");
}

#[test]
fn the_doctor_lists_every_kind_of_host() {
    let checks = |flags: &[&str]| -> Vec<(String, String, String)> {
        let told = Desk::new().run(&[&["doctor", "--json"], flags].concat()).json();
        let text = |it: &serde_json::Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
        let all = told["checks"].as_array().unwrap().iter();
        all.map(|it| (text(it, "name"), text(it, "state"), it.to_string())).collect()
    };
    let of = |all: &[(String, String, String)], name: &str| all.iter().find(|it| it.0 == name).unwrap().clone();
    let usual = checks(&[]);
    assert_eq!(of(&usual, "host local").1, "good");
    assert!(of(&usual, "host ssh").2.contains("host.ssh.host is not set"), "{usual:?}");
    assert!(of(&usual, "host e2b").2.contains("E2B_API_KEY"), "{usual:?}");
    let nowhere = checks(&["--set", "host.kind=docker", "--set", "host.docker.endpoint=unix:///nowhere.sock"]);
    assert_eq!(of(&nowhere, "host docker").1, "weak", "{nowhere:?}");
}

#[test]
fn the_bill_adds_up() {
    let desk = Desk::new();
    let bill = desk.run(&["tools", "--dialect", "preset", "--tokens", "--format", "openai"]).json();
    let tools = bill["tools"].as_array().unwrap();
    let sum: u64 = tools.iter().map(|it| it["tokens"].as_u64().unwrap()).sum();
    assert_eq!((bill["encoding"].as_str(), bill["sum"].as_u64()), (Some("o200k_base"), Some(sum)));
    let shown = desk.run(&["tools", "--dialect", "preset", "--tokens"]).out;
    assert!(shown.contains(&format!("{} tools", tools.len())) && shown.contains(&sum.to_string()), "{shown}");
}

#[test]
fn a_role_that_does_not_exist_is_told_with_those_that_do() {
    let ran = Desk::new().run(&["tools", "--dialect", "preset", "--role", "king"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("has no role `king`") && ran.err.contains("coding"), "{}", ran.err);
}

#[test]
fn the_pages_are_checked() {
    let desk = Desk::new();
    let folder = desk.path("docs");
    let folder = folder.to_str().unwrap();
    assert_eq!(desk.run(&["docs", "--check", folder]).code, 1);
    let ran = desk.run(&["docs", "--write", folder]);
    assert_eq!(
        ran.all(),
        (0, "DESK/docs/tools.md\nDESK/docs/dialects.md\nDESK/docs/settings.md\nDESK/docs/events.md\n", "")
    );
    assert_eq!(desk.run(&["docs", "--check", folder]).all(), (0, "", ""));
    fs::write(desk.path("docs/tools.md"), "old").unwrap();
    assert_eq!(
        desk.run(&["docs", "--check", folder]).all(),
        (1, "", "tools.md is out of date; run `helve docs --write` on its folder\n")
    );
}

#[test]
fn the_doctor_says_what_it_tried() {
    let desk = Desk::new();
    let ran = desk.run(&["doctor", "--json"]);
    let report = ran.json();
    let names: Vec<_> = report["checks"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    for name in ["kernel", "openat2", "workspace", "state folder", "sandbox", "documents", "git", "protected"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert_eq!(ran.code == 0, report["works"] == true);
    let shown = desk.run(&["doctor"]).out;
    assert!(names.iter().all(|name| shown.contains(name)), "{shown}");
}

#[test]
fn a_reader_that_leaves_is_no_reason_to_panic() {
    let desk = Desk::new();
    let mut child = desk
        .command(&["tools", "--dialect", "claude", "--format", "openai"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn colours_stay_out_of_pipes_and_help_shows_the_way() {
    let desk = Desk::new();
    for args in [&["tools"][..], &["config"], &["doctor"], &["--help"]] {
        assert!(!desk.run(args).out.contains('\u{1b}'), "{args:?}");
    }
    for command in ["tools", "call", "batch", "mcp", "doctor", "config", "docs", "host-exec", "host-serve", "version"] {
        let help = desk.run(&[command, "--help"]).out;
        assert!(help.contains("Example") && help.contains(&format!("helve {command}")), "{help}");
    }
    assert_eq!(desk.run(&["frobnicate"]).code, 2);
}

#[test]
fn a_value_that_looks_like_a_flag_is_a_value() {
    let desk = Desk::new();
    let ran = desk.run(&["call", "Read", "--", "--workspace=/"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("the arguments are not JSON"), "{}", ran.err);
}

#[test]
fn no_program_of_the_project_is_started() {
    let desk = Desk::new();
    let path = format!("{0}/work:{0}/work/bin:.:/usr/bin:/bin", desk.path("").display());
    let desk = desk.env("PATH", &path);
    for program in ["git", "bwrap", "sh", "bash", "node", "yarn", "helve"] {
        for place in ["work", "work/bin"] {
            let trap = format!("#!/bin/sh\n/usr/bin/touch {}\n", desk.path("work/PWN").display());
            desk.put(&format!("{place}/{program}"), &trap);
            let file = desk.path(&format!("{place}/{program}"));
            fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    for args in [&["tools"][..], &["config"], &["doctor"], &["mcp"], &["call", "file_list", r#"{"path":"/shared"}"#]] {
        desk.run(args);
        assert!(!desk.path("work/PWN").exists(), "{args:?}");
    }
}
