//! Settings files: finds them and reads them safely.

use std::{
    env,
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use helve_contract::closest_names;
use rustix::fs::OFlags;
use serde_json::Value;

use super::keys::{ALIASES, SETTINGS, SettingKey};

/// The maximum size of a settings file.
const LARGEST: u64 = 1 << 20;
/// The only accepted names: tools may not write these two.
const FILE_NAMES: [&str; 2] = ["helve.toml", "helve.yaml"];

/// The user's home, only from the real environment.
pub(crate) fn home() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from).filter(|it| it.is_absolute())
}

/// A directory from an XDG variable; relative values count as unset, as the specification says.
pub fn xdg_dir(variable: &str, beneath_home: &str) -> Option<PathBuf> {
    let set = env::var_os(variable).map(PathBuf::from).filter(|it| it.is_absolute());
    set.or_else(|| Some(home()?.join(beneath_home)))
}

/// The user's own settings file: the one that exists, or where it would be.
pub fn user_file() -> Option<PathBuf> {
    let folder = xdg_dir("XDG_CONFIG_HOME", ".config")?.join("helve");
    Some(find_existing(&folder).unwrap_or_else(|| folder.join(FILE_NAMES[0])))
}

/// The settings file of a project, if it exists: in the workspace itself, never in a parent.
pub fn project_file(workspace: &Path) -> Option<PathBuf> {
    find_existing(workspace)
}

fn find_existing(folder: &Path) -> Option<PathBuf> {
    // A directory with that name is not a settings file.
    FILE_NAMES.iter().map(|name| folder.join(name)).find(|path| path.symlink_metadata().is_ok_and(|it| !it.is_dir()))
}

/// Opens a regular file. Refuses a pipe or device without blocking.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// The bytes of a small regular file.
pub fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("larger than {LARGEST} bytes")));
    }
    Ok(bytes)
}

/// The validated settings of a file, flattened: `tools.shell.deny` and its value.
pub(crate) fn parse_settings(path: &Path, bytes: &[u8]) -> Result<Vec<(&'static SettingKey, Value)>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree: Value = if path.extension().is_some_and(|it| it == "toml") {
        toml::from_str(text).map_err(|error| error.to_string())?
    } else if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        Value::Object(serde_json::Map::new())
    } else {
        serde_norway::from_str(text).map_err(|error| error.to_string())?
    };
    let mut flat = Vec::new();
    flatten("", tree, &mut flat)?;
    Ok(flat)
}

fn flatten(prefix: &str, tree: Value, flat: &mut Vec<(&'static SettingKey, Value)>) -> Result<(), String> {
    let Value::Object(map) = tree else {
        return Err(match prefix {
            "" => "the file must be a table of settings".to_owned(),
            _ => format!("`{prefix}` must be a table of settings"),
        });
    };
    for (part, value) in map {
        let name = if prefix.is_empty() { part } else { format!("{prefix}.{part}") };
        if let Some(key) = SettingKey::find(&name) {
            // An empty value in YAML means unset.
            if !value.is_null() {
                let value = key.value_type.check(value).map_err(|why| format!("`{name}` {why}"))?;
                flat.push((key, value));
            }
        } else if is_table(&name) {
            if !value.is_null() {
                flatten(&name, value, flat)?;
            }
        } else {
            return Err(unknown_key_message(&name));
        }
    }
    Ok(())
}

fn is_table(name: &str) -> bool {
    let names = SETTINGS.iter().map(|key| key.name).chain(ALIASES.iter().map(|(alias, _)| *alias));
    names.into_iter().any(|key| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// The error for an unknown key.
pub(crate) fn unknown_key_message(name: &str) -> String {
    let names = || SETTINGS.iter().map(|key| key.name).chain(ALIASES.iter().map(|(alias, _)| *alias));
    // Usually only the last part is wrong, so compare the last parts first.
    let (table, last) = name.rsplit_once('.').map_or(("", name), |(table, last)| (table, last));
    let inside: Vec<_> =
        names().filter(|key| key.rsplit_once('.').map_or(table.is_empty(), |(other, _)| other == table)).collect();
    let lasts: Vec<_> = inside.iter().map(|key| key.rsplit_once('.').map_or(*key, |(_, last)| last)).collect();
    let near = closest_names(last, lasts.iter().copied());
    let near = match near.first() {
        Some(last) if table.is_empty() => Some((*last).to_owned()),
        Some(last) => Some(format!("{table}.{last}")),
        None => closest_names(name, names()).first().map(|it| (*it).to_owned()),
    };
    match near {
        Some(near) => format!("unknown setting `{name}`; did you mean `{near}`?"),
        None => format!("unknown setting `{name}`; `helve config` lists all settings"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Vec<String>, String> {
        let flat = parse_settings(Path::new(name), text.as_bytes())?;
        let mut seen: Vec<_> = flat.into_iter().map(|(key, value)| format!("{}={value}", key.name)).collect();
        seen.sort();
        Ok(seen)
    }

    #[test]
    fn toml_and_yaml_say_the_same() {
        let toml = "dialect = \"solo\"\n[tools]\nwork_dir = \"src\"\n[tools.shell]\ndeny = [\"rm\"]\n";
        let yaml = "dialect: solo\ntools:\n  work_dir: src\n  shell:\n    deny: [rm]\n";
        let seen = vec!["dialect=\"solo\"".to_owned(), "tools.shell.deny=[\"rm\"]".into(), "workspace=\"src\"".into()];
        assert_eq!(read("helve.toml", toml), Ok(seen.clone()));
        assert_eq!(read("helve.yaml", yaml), Ok(seen));
        assert_eq!(read("helve.yaml", "# nothing yet\n"), Ok(vec![]));
    }

    #[test]
    fn an_unknown_key_is_told_with_the_nearest() {
        let seen = [
            "dialetc = 'solo'",
            "[tools.shell]\ndenny = []",
            "[tools]\nshell = true",
            "[zzzz]\nx = 1",
            "dialect = 'english'",
        ]
        .map(|text| read("helve.toml", text).unwrap_err());
        assert_eq!(
            seen,
            [
                "unknown setting `dialetc`; did you mean `dialect`?",
                "unknown setting `tools.shell.denny`; did you mean `tools.shell.deny`?",
                "`tools.shell` must be a table of settings",
                "unknown setting `zzzz`; `helve config` lists all settings",
                "`dialect` must be `solo`, `forge`, `preset`, `oxydra`, `claude`, not \"english\"",
            ]
        );
    }
}
