//! Dependencies point one way: a crate may name only the crates before it in this list.

use std::fs;

const LAYERS: &[(&str, &[&str])] = &[
    ("macros", &[]),
    ("contract", &[]),
    ("engine", &["contract"]),
    ("tools", &["contract", "macros"]),
    ("dialects", &["contract", "macros", "engine", "tools"]),
    ("hosts", &["contract"]),
    ("store", &["contract"]),
    ("web", &["contract"]),
    ("plugins", &["contract"]),
    ("mcp", &["contract", "engine"]),
    ("script", &[]),
    ("agent", &["contract", "engine", "tools", "dialects", "hosts", "store", "web", "plugins", "mcp"]),
    ("config", &["contract"]),
    (
        "runtime",
        &["contract", "engine", "tools", "dialects", "hosts", "store", "web", "plugins", "mcp", "agent", "config"],
    ),
    (
        "cli",
        &[
            "contract", "macros", "engine", "tools", "dialects", "hosts", "store", "web", "plugins", "mcp", "agent",
            "config", "runtime",
        ],
    ),
    ("faults", &["script"]),
];

#[test]
fn dependencies_point_one_way() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for folder in fs::read_dir(crates).unwrap() {
        let path = folder.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let (_, allowed) =
            LAYERS.iter().find(|(layer, _)| *layer == name).unwrap_or_else(|| panic!("{name} has no place in LAYERS"));
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let (_, rest) = manifest.split_once("[dependencies]").unwrap();
        let normal = rest.split("\n[").next().unwrap();
        for (layer, _) in LAYERS {
            let named = normal.lines().any(|line| line.starts_with(&format!("helve-{layer}")));
            assert!(!named || allowed.contains(layer), "{name} must not depend on {layer}");
        }
    }
}
