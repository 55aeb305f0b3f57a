//! Every fuzz target has a corpus, and some test replays it.

#[path = "../../../../fuzz/gate.rs"]
mod gate;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use std::{fs, path::Path};

use replay::replay;

#[test]
fn of_calls_at_the_gate_is_replayed() {
    for dialect in helve_dialects::all() {
        replay("gate", |data| gate::check(data, &dialect));
    }
}

/// Every file with Rust code beneath a directory.
fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|it| it == "rs") {
            into.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn of_every_target_is_replayed() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(top.join("fuzz/Cargo.toml")).unwrap();
    let targets: Vec<_> = manifest.lines().filter_map(|it| it.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    let targets: Vec<_> = targets.into_iter().filter(|it| *it != "helve-fuzz").collect();
    assert!(targets.len() >= 16, "{targets:?}");
    let mut code = Vec::new();
    sources(&top.join("crates"), &mut code);
    for target in targets {
        assert!(top.join("fuzz/fuzz_targets").join(format!("{target}.rs")).is_file(), "{target}");
        let call = format!("replay(\"{target}\", ");
        assert!(code.iter().any(|text| text.contains(&call)), "no test replays the corpus of {target}");
    }
}
