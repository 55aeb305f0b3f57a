//! The git identity of commands: the user's name and address, and nothing else of the user's configuration.

use std::{fs, path::Path};

/// The git config for the home directory inside the sandbox: the user's name and address, if configured.
pub(super) fn git_config(home: &Path) -> Option<String> {
    let texts =
        [".config/git/config", ".gitconfig"].map(|name| fs::read_to_string(home.join(name)).unwrap_or_default());
    let found = |key: &str| texts.iter().rev().find_map(|text| config_value(text, key));
    let mut config = String::from("[user]\n");
    for key in ["name", "email"] {
        let plain: String = found(key)?.chars().filter(|it| !it.is_control()).collect();
        config.push_str(&format!("\t{key} = \"{}\"\n", plain.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    Some(config)
}

/// The last value of a key in the section `[user]`.
fn config_value(text: &str, key: &str) -> Option<String> {
    let mut inside = false;
    let mut last = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.eq_ignore_ascii_case("[user]");
        } else if inside
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case(key)
        {
            last = Some(value.trim().trim_matches('"').to_owned());
        }
    }
    last.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_name_and_address_only() {
        let text = "[credential]\n\thelper = store\n[User]\n\tname = Ann \\ \"B\"\n  email=\"a@b\"\n\tsigningkey = X\n[x]\nname=no\n";
        assert_eq!(config_value(text, "name"), Some("Ann \\ \"B".into()));
        assert_eq!(config_value(text, "email"), Some("a@b".into()));
        assert_eq!(config_value("[user]\n\tname =\n", "name"), None);
    }
}
