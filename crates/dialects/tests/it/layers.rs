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

/// What a dialect has or needs decides; its name is for people. Tests may compare names.
#[test]
fn no_name_of_a_dialect_is_compared_outside_this_crate() {
    let names = helve_dialects::all().into_iter().map(|it| it.name).collect::<Vec<_>>().join("|");
    let compared = regex::Regex::new(&format!(r#"([=!]= *"({names})")|("({names})" *([=!]=|=>|\|))"#)).unwrap();
    let mut found = Vec::new();
    for (layer, _) in LAYERS.iter().filter(|(layer, _)| *layer != "dialects") {
        let mut folders = vec![format!("{}/../{layer}/src", env!("CARGO_MANIFEST_DIR")).into()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
                    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
                    found.extend(lines.filter(|line| compared.is_match(line)).map(|line| format!("{path:?}: {line}")));
                }
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

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
