//! Checks that a crate depends only on the crates before it in this list.

use std::fs;

use helve_contract::events::EVENTS;
use regex::Regex;

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

/// Code must test properties of a dialect, not its name. Tests may compare names.
#[test]
fn no_name_of_a_dialect_is_compared_outside_this_crate() {
    let names = helve_dialects::all().into_iter().map(|it| it.name).collect::<Vec<_>>().join("|");
    let compared = Regex::new(&format!(r#"([=!]= *"({names})")|("({names})" *([=!]=|=>|\|))"#)).unwrap();
    let layers = LAYERS.iter().map(|(layer, _)| *layer).filter(|layer| *layer != "dialects");
    let found: Vec<String> = layers.flat_map(|layer| product_lines(layer, "rs", &compared)).collect();
    assert_eq!(found, Vec::<String>::new());
}

/// Checks that there is one table only. The embedding model's tokenizer keeps the characters it was trained with.
#[test]
fn there_is_one_table_of_invisible_characters() {
    let range = Regex::new(r"'\\u\{(200[b-f]|202[89a-e]|206[0-9a-f]|e00[0-9a-f]{2})\}' *\.\.").unwrap();
    let all: Vec<String> = LAYERS.iter().flat_map(|(layer, _)| product_lines(layer, "rs", &range)).collect();
    let is_table = |line: &&String| {
        ["contract/src/invisible.rs", "store/src/embed/wordpiece.rs"].iter().any(|it| line.contains(it))
    };
    assert_eq!(all.iter().filter(|line| !is_table(line)).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_ne!(all, Vec::<String>::new(), "the pattern finds the table itself");
}

/// Events are variants of one enum. Their names are written only there; tests may name them.
#[test]
fn no_name_of_an_event_is_written_outside_of_the_enum() {
    let names = EVENTS.iter().map(|it| regex::escape(it.name)).collect::<Vec<_>>().join("|");
    // In a string of JSON the quotes are escaped.
    let named = Regex::new(&format!(r#"\\?"({names})\\?""#)).unwrap();
    let layers = LAYERS.iter().map(|(layer, _)| *layer).filter(|layer| *layer != "faults");
    let found: Vec<String> = layers
        .flat_map(|layer| product_lines(layer, "rs", &named))
        .filter(|line| !line.contains("contract/src/events/"))
        .collect();
    assert_eq!(found, Vec::<String>::new());
    let definitions = product_lines("contract", "rs", &named);
    assert!(definitions.len() >= EVENTS.len(), "the rule finds the definitions: {definitions:?}");
}

/// The web page reads events by name; a server must send these names.
#[test]
fn the_page_names_events_that_exist() {
    let compared = Regex::new(r"type [=!]== '[a-z_]+\.[a-z_.]+'").unwrap();
    let lines = product_lines("cli", "js", &compared);
    let names: Vec<&str> =
        lines.iter().flat_map(|line| line.split('\'')).filter(|it| it.contains('.') && !it.contains(' ')).collect();
    assert!(names.len() >= 10, "{lines:?}");
    let known = |name: &&str| EVENTS.iter().any(|it| it.name == *name);
    let unknown: Vec<_> =
        names.iter().filter(|name| compared.is_match(&format!("type === '{name}'")) && !known(name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new());
}

/// Lines of a crate's product code that match, each after its path.
fn product_lines(layer: &str, extension: &str, matches: &Regex) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![format!("{}/../{layer}/src", env!("CARGO_MANIFEST_DIR")).into()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                let text = fs::read_to_string(&path).unwrap();
                let product = text.split("#[cfg(test)]").next().unwrap_or_default();
                let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
                let lines = lines.filter(|line| matches.is_match(line));
                found.extend(lines.map(|line| format!("{}: {line}", path.display())));
            }
        }
    }
    found
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
