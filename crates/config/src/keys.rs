//! The flat table of settings, made from the schema of [`Config`]: names, kinds, defaults, project policies and texts.
//! Reading and checking of files, `helve config` and docs/settings.md follow it.

use std::sync::LazyLock;

use helve_contract::{TENANT_NAME_FORM, USER_NAME_FORM, is_user_name, ports::ChannelSettings};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::Config;

/// One setting.
pub struct SettingKey {
    /// Its name, with dots: `tools.shell.deny`.
    pub name: &'static str,
    /// What it holds.
    pub value_type: SettingType,
    /// Its default, as JSON; `null` where it has none.
    pub default: Value,
    /// What a trusted project file may do to it.
    pub project: ProjectPolicy,
    /// What it does, for people.
    pub description: &'static str,
}

/// What a setting holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingType {
    /// Words, or nothing.
    Text,
    /// The name of a user.
    UserName,
    /// The name of a tenant.
    TenantName,
    /// Yes or no.
    Bool,
    /// A whole number in a range.
    Integer(u64, u64),
    /// A number that is not negative, with or without a point.
    Float,
    /// One of these.
    Enum(&'static [&'static str]),
    /// A list of words.
    StringList,
    /// A directory or file; relative ones start at the file that says so.
    Path,
    /// A list of directories.
    Paths,
    /// A list of programs, each a path or `{ path, args, env }`.
    Programs,
    /// A list of WebAssembly modules, each a path or a table.
    Modules,
    /// A table of MCP servers by their names.
    Servers,
    /// A table of channels by their names.
    Channels,
}

/// What a trusted project file may do to a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectPolicy {
    /// Set it.
    Set,
    /// Set it, as long as the user's own file does not.
    IfUnset,
    /// Add to the list; what others put there stays.
    Append,
    /// Turn it off, not on.
    DisableOnly,
    /// Name a directory inside the project.
    SubdirOnly,
    /// Nothing.
    Never,
}

impl ProjectPolicy {
    /// The policy that a field of the configuration names.
    fn named(name: &str) -> Option<Self> {
        let all = [Self::Set, Self::IfUnset, Self::Append, Self::DisableOnly, Self::SubdirOnly, Self::Never];
        all.into_iter().find(|it| format!("{it:?}") == name)
    }

    /// For the table of settings.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Set => "yes",
            Self::IfUnset => "unless the user file does",
            Self::Append => "adds to the list",
            Self::DisableOnly => "only `false`",
            Self::SubdirOnly => "a folder inside it",
            Self::Never => "no",
        }
    }
}

/// Every setting, in the order in which it is shown: the schema of [`Config`] as a flat table. It is made when it is
/// first needed, for a file, a variable or a flag.
pub static SETTINGS: LazyLock<Vec<SettingKey>> = LazyLock::new(|| {
    let generator = SchemaSettings::default().with(|it| it.inline_subschemas = true).into_generator();
    let schema = generator.into_root_schema_for::<Config>();
    let mut keys = Vec::new();
    flatten("", schema.as_value(), &mut keys);
    keys
});

/// Adds the settings of one table of the schema, and of the tables in it.
fn flatten(prefix: &str, table: &Value, keys: &mut Vec<SettingKey>) {
    let fields = table.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (field, schema) in fields {
        let name = if prefix.is_empty() { field.clone() } else { format!("{prefix}.{field}") };
        match schema.get("x-project").and_then(Value::as_str).and_then(ProjectPolicy::named) {
            None => flatten(&name, schema, keys),
            Some(project) => keys.push(SettingKey {
                // The table lives as long as the program, and so do its names.
                name: name.leak(),
                value_type: SettingType::of_schema(schema),
                default: schema.get("default").cloned().unwrap_or_default(),
                project,
                description: about(schema).leak(),
            }),
        }
    }
}

/// The doc comment of a field, in one line.
fn about(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Another name for a key.
pub(crate) const ALIASES: &[(&str, &str)] = &[("tools.work_dir", "workspace")];

impl SettingKey {
    /// The key of this name, if there is one.
    pub fn find(name: &str) -> Option<&'static Self> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        SETTINGS.iter().find(|key| key.name == name)
    }

    /// The variable of the environment that sets it.
    pub fn env_var(&self) -> String {
        variable(self.name)
    }
}

/// How variables of the environment begin that set a key.
pub(crate) const ENV_PREFIX: &str = "HELVE_";

/// The variable of the environment that sets a key of this name.
pub(crate) fn variable(name: &str) -> String {
    ENV_PREFIX.chars().chain(name.chars().map(env_char)).collect()
}

/// Whether a variable sets the key of this name.
pub(crate) fn env_var_sets(variable: &str, name: &str) -> bool {
    variable.strip_prefix(ENV_PREFIX).is_some_and(|it| it.chars().eq(name.chars().map(env_char)))
}

fn env_char(letter: char) -> char {
    if letter == '.' { '_' } else { letter.to_ascii_uppercase() }
}

impl SettingType {
    /// The kind of a field, by its schema.
    fn of_schema(schema: &Value) -> Self {
        let text = |schema: &Value, key: &str| schema.get(key).and_then(Value::as_str).map(str::to_owned);
        // An optional choice is `anyOf: [the choice, null]`.
        if let Some(some) = schema.get("anyOf").and_then(|it| it.get(0)) {
            return Self::of_schema(some);
        }
        let words = choices(schema);
        if !words.is_empty() {
            return Self::Enum(words.leak());
        }
        let inner = schema.get("items").or_else(|| schema.get("additionalProperties"));
        let special = text(schema, "x-kind").or_else(|| text(inner?, "x-kind"));
        match special.as_deref() {
            Some("program") => return Self::Programs,
            Some("module") => return Self::Modules,
            Some("server") => return Self::Servers,
            Some("channels") => return Self::Channels,
            Some("user") => return Self::UserName,
            Some("tenant") => return Self::TenantName,
            _ => {}
        }
        let of_type = |name: &str| match schema.get("type") {
            Some(Value::Array(names)) => names.iter().any(|it| it == name),
            Some(one) => one == name,
            None => false,
        };
        let is_path = |schema: &Value| text(schema, "format").as_deref() == Some("path");
        let bound = |key: &str, usual: u64| schema.get(key).and_then(Value::as_u64).unwrap_or(usual);
        match () {
            () if of_type("boolean") => Self::Bool,
            () if of_type("integer") => Self::Integer(bound("minimum", 0), bound("maximum", u64::MAX)),
            () if of_type("number") => Self::Float,
            () if of_type("array") && inner.is_some_and(is_path) => Self::Paths,
            () if of_type("array") => Self::StringList,
            () if is_path(schema) => Self::Path,
            () => Self::Text,
        }
    }

    /// What is wanted, for people.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::UserName => USER_NAME_FORM.into(),
            Self::TenantName => TENANT_NAME_FORM.into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Integer(least, most) => format!("a number from {least} to {most}"),
            Self::Float => "a number such as 2.5".into(),
            Self::Enum(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Self::StringList => "a list of texts".into(),
            Self::Path => "a path".into(),
            Self::Paths => "a list of paths".into(),
            Self::Programs => "a list of paths or `{ path, args, env }`".into(),
            Self::Modules => "a list of paths or `{ path, name, profile }`".into(),
            Self::Servers => "a table of servers, each with `command` or `url`".into(),
            Self::Channels => "a table of channels, each with `kind` and `allow`".into(),
        }
    }

    /// A value from a file, checked.
    pub fn check(self, value: Value) -> Result<Value, String> {
        let fits = match (&value, self) {
            (Value::String(_), Self::Text | Self::Path) => true,
            (Value::String(name), Self::UserName | Self::TenantName) => is_user_name(name),
            (Value::Bool(_), Self::Bool) => true,
            (Value::Number(number), Self::Integer(least, most)) => {
                number.as_u64().is_some_and(|it| (least..=most).contains(&it))
            }
            (Value::Number(number), Self::Float) => number.as_f64().is_some_and(|it| it >= 0.0),
            (Value::String(word), Self::Enum(words)) => words.contains(&word.as_str()),
            (Value::Array(items), Self::StringList | Self::Paths) => items.iter().all(Value::is_string),
            (Value::Array(items), Self::Programs) => items.iter().all(is_program),
            (Value::Array(items), Self::Modules) => items.iter().all(is_module),
            (Value::Object(_), Self::Channels) => {
                if let Err(error) = ChannelSettings::read_all(&value) {
                    return Err(format!("is wrong: {error}"));
                }
                true
            }
            (Value::Object(servers), Self::Servers) => {
                if let Some((name, why)) = servers.iter().find_map(|(name, it)| Some((name, server_config_error(it)?)))
                {
                    return Err(format!("has a server `{name}` that {why}"));
                }
                true
            }
            _ => false,
        };
        if fits { Ok(value) } else { Err(format!("must be {}, not {}", self.describe(), short(&value))) }
    }

    /// A value from the environment or from a flag, read and checked. A list is separated by commas, or is JSON.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Bool => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "on" | "yes" => json!(true),
                "false" | "0" | "off" | "no" => json!(false),
                _ => json!(text),
            },
            Self::Integer(..) => text.trim().parse::<u64>().map_or_else(|_| json!(text), |it| json!(it)),
            Self::Float => text.trim().parse::<f64>().map_or_else(|_| json!(text), |it| json!(it)),
            Self::StringList | Self::Paths | Self::Programs | Self::Modules if text.trim_start().starts_with('[') => {
                serde_json::from_str(text).map_err(|error| format!("starts like a JSON list, but: {error}"))?
            }
            Self::Servers | Self::Channels => {
                serde_json::from_str(text).map_err(|error| format!("must be a JSON object: {error}"))?
            }
            Self::StringList | Self::Paths | Self::Programs | Self::Modules => {
                json!(text.split(',').map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>())
            }
            Self::Text | Self::UserName | Self::TenantName | Self::Enum(_) | Self::Path => json!(text),
        };
        self.check(value)
    }
}

/// The words of an enum: `enum` where its variants have no doc comments, `oneOf` where they have.
fn choices(schema: &Value) -> Vec<&'static str> {
    let list = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let words = list("enum").chain(list("oneOf").filter_map(|it| it.get("const")));
    words.filter_map(Value::as_str).map(|word| &*word.to_owned().leak()).collect()
}

/// A path, or a table of `path`, `args` and `env`.
fn is_program(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Object(map) => {
            map.get("path").is_some_and(Value::is_string)
                && map.get("args").is_none_or(is_string_list)
                && map.get("env").is_none_or(is_string_map)
                && map.keys().all(|key| ["path", "args", "env"].contains(&key.as_str()))
        }
        _ => false,
    }
}

/// A path, or a table with one. The rest is checked by whoever loads it.
fn is_module(value: &Value) -> bool {
    value.is_string() || value.get("path").is_some_and(Value::is_string)
}

/// What is wrong with the settings of an MCP server, if something is.
fn server_config_error(value: &Value) -> Option<String> {
    let Some(map) = value.as_object() else { return Some("is not a table".into()) };
    for (key, value) in map {
        let (fits, wanted) = match key.as_str() {
            "command" | "url" | "cwd" => (value.is_string(), "text"),
            "type" => (["stdio", "http", "sse"].iter().any(|it| value == it), "`stdio`, `http` or `sse`"),
            "args" | "allow" | "deny" => (is_string_list(value), "a list of texts"),
            "env" | "headers" => (is_string_map(value), "a table of texts"),
            "timeout_secs" => (value.as_u64().is_some_and(|it| (1..=86_400).contains(&it)), "a number from 1 to 86400"),
            "enabled" | "roots" => (value.is_boolean(), "`true` or `false`"),
            _ => return Some(format!("has an unknown setting `{key}`")),
        };
        if !fits {
            return Some(format!("has a `{key}` that is not {wanted}"));
        }
    }
    let ways = ["command", "url"].iter().filter(|key| map.contains_key(**key)).count();
    (ways != 1).then(|| "needs either `command` or `url`".into())
}

fn is_string_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
}

fn is_string_map(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(Value::is_string))
}

/// A value fit to be shown: what is in `env` and `headers` may be a secret.
pub fn shown(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Value::Object(pairs) if key == "env" || key == "headers" => {
                    (key.clone(), pairs.keys().map(|name| (name.clone(), Value::from("…"))).collect())
                }
                value => (key.clone(), shown(value)),
            })
            .collect(),
        Value::Array(items) => items.iter().map(shown).collect(),
        value => value.clone(),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 60 { format!("{}…", text.chars().take(60).collect::<String>()) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_lists_every_second_name_of_a_setting() {
        let changelog = include_str!("../../../CHANGELOG.md");
        for (alias, real) in ALIASES {
            assert!(changelog.contains(&format!("`{alias}` is `{real}`")), "{alias}");
        }
    }

    #[test]
    fn the_table_holds_together() {
        for key in SETTINGS.iter() {
            let value = key.default.clone();
            assert!(value.is_null() || key.value_type.check(value).is_ok(), "{}", key.name);
            assert!(key.description.ends_with(['.', ')']), "{}", key.name);
            assert!(!matches!(key.value_type, SettingType::Integer(_, u64::MAX)), "{} has no upper bound", key.name);
            let list = matches!(key.value_type, SettingType::StringList | SettingType::Paths | SettingType::Programs);
            assert!(key.project != ProjectPolicy::Append || list, "{}", key.name);
            assert!(key.project != ProjectPolicy::DisableOnly || key.value_type == SettingType::Bool, "{}", key.name);
        }
    }

    #[test]
    fn the_table_follows_the_types() {
        let row = |name: &str| {
            let key = SettingKey::find(name).unwrap_or_else(|| panic!("{name}"));
            (key.value_type, key.default.to_string(), key.project)
        };
        use ProjectPolicy::{Append, DisableOnly, IfUnset, Never, Set, SubdirOnly};
        let modes = SettingType::Enum(&["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "open"]);
        assert_eq!(row("approval.mode"), (modes, "null".into(), Never));
        assert_eq!(row("theme"), (SettingType::Enum(&["auto", "light", "dark"]), "\"auto\"".into(), Set));
        assert_eq!(row("role"), (SettingType::Text, "null".into(), IfUnset));
        assert_eq!(row("tools.work_dir"), (SettingType::Path, "\".\"".into(), SubdirOnly));
        assert_eq!(row("roots"), (SettingType::Paths, "[]".into(), Never));
        assert_eq!(row("state_dir"), (SettingType::Path, "null".into(), Never));
        assert_eq!(row("tools.shell.enabled"), (SettingType::Bool, "true".into(), DisableOnly));
        assert_eq!(row("tools.shell.deny"), (SettingType::StringList, "[]".into(), Append));
        assert_eq!(row("tools.shell.command_timeout_secs"), (SettingType::Integer(1, 86_400), "60".into(), Set));
        assert_eq!(row("agent.max_time_secs"), (SettingType::Integer(1, 31_536_000), "null".into(), Never));
        assert_eq!(row("host.ssh.port"), (SettingType::Integer(1, 65_535), "22".into(), Never));
        assert_eq!(row("model.price_in"), (SettingType::Float, "null".into(), Never));
        assert_eq!(row("schedule.max_cost"), (SettingType::Float, "0.5".into(), Never));
        assert_eq!(row("tools.plugins"), (SettingType::Programs, "[]".into(), Append));
        assert_eq!(row("plugins"), (SettingType::Programs, "[]".into(), Never));
        assert_eq!(row("wasm"), (SettingType::Modules, "[]".into(), Never));
        assert_eq!(row("mcp.servers"), (SettingType::Servers, "{}".into(), Never));
        assert_eq!(row("channels"), (SettingType::Channels, "{}".into(), Never));
    }

    #[test]
    fn says_what_is_wrong_with_a_server() {
        let told = |text: &str| SettingType::Servers.parse(text).err().unwrap_or_default();
        assert_eq!(
            told(r#"{"a":{"command":"x","args":["y"]},"b":{"url":"https://b.example","headers":{"K":"v"}}}"#),
            ""
        );
        assert_eq!(told(r#"{"a":{}}"#), "has a server `a` that needs either `command` or `url`");
        assert_eq!(told(r#"{"a":{"command":"x","argv":[]}}"#), "has a server `a` that has an unknown setting `argv`");
        assert_eq!(told(r#"{"a":{"command":["x"]}}"#), "has a server `a` that has a `command` that is not text");
    }

    #[test]
    fn secrets_are_not_shown() {
        let value = json!({ "a": { "url": "u", "headers": { "Authorization": "Bearer x" } } });
        assert_eq!(shown(&value), json!({ "a": { "url": "u", "headers": { "Authorization": "…" } } }));
    }

    #[test]
    fn says_what_is_wanted() {
        assert_eq!(
            SettingType::Integer(1, 10).parse("many").unwrap_err(),
            "must be a number from 1 to 10, not \"many\""
        );
        assert_eq!(SettingType::Enum(&["off", "on"]).check(json!(true)).unwrap_err(), "must be `off`, `on`, not true");
        assert_eq!(SettingType::StringList.parse("a, b,").unwrap(), json!(["a", "b"]));
        assert_eq!(SettingType::StringList.parse("[\"Bash(a,b)\"]").unwrap(), json!(["Bash(a,b)"]));
    }
}
