//! The five layers of settings, in increasing precedence: defaults, the user's file, the project's file once it is
//! trusted, the environment, options.
//!
//! Deny lists of all layers are combined, so no layer can remove an entry of another.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::{
    keys::{ALIASES, ENV_PREFIX, ProjectPolicy, SETTINGS, SettingKey, SettingType, env_var_sets, variable},
    source::{home, parse_settings, project_file, read_limited, unknown_key_message, user_file},
    trust::TrustStore,
};
use crate::{
    Config, state,
    values::{ConfigPath, DialectName, PluginProgram},
};

/// A setting given on the command line.
pub struct CliOverride {
    /// Which setting.
    pub key: String,
    /// Its value as it was written.
    pub text: String,
    /// The option as the user writes it.
    pub flag: &'static str,
}

/// The origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The default.
    Default,
    /// The user's own file.
    User(PathBuf),
    /// The trusted project file.
    Project(PathBuf),
    /// An environment variable.
    EnvVar(String),
    /// A command-line option.
    Flag(&'static str),
    /// Another setting, from which this one is derived if nobody sets it.
    Setting(&'static str),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User(path) | Self::Project(path) => write!(f, "{}", path.display()),
            Self::EnvVar(name) => f.write_str(name),
            Self::Flag(name) | Self::Setting(name) => f.write_str(name),
        }
    }
}

/// The state of the project's settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectFileStatus {
    /// It does not exist.
    Absent,
    /// It is trusted and applies.
    Trusted(PathBuf),
    /// It is ignored until the user trusts it.
    Untrusted(PathBuf),
    /// It cannot be read, and is ignored.
    Unreadable(PathBuf, String),
}

/// The current value of a setting.
#[derive(Clone, Debug)]
pub struct EffectiveSetting {
    /// Its value.
    pub value: Value,
    /// Its origin; several for combined lists.
    pub sources: Vec<SettingSource>,
    /// For a list: the origin of each item.
    pub items: Vec<SettingSource>,
}

impl EffectiveSetting {
    fn new(value: Value, origin: SettingSource) -> Self {
        let items = value.as_array().map_or(0, Vec::len);
        Self { value, items: vec![origin.clone(); items], sources: vec![origin] }
    }
}

/// All current settings.
pub struct Settings {
    /// The values, including defaults.
    pub config: Config,
    /// The values that were set, by name, without defaults.
    set: BTreeMap<&'static str, EffectiveSetting>,
    /// The directory that tools work in, without symbolic links.
    pub workspace: PathBuf,
    /// The directory as the user wrote it, made absolute.
    pub workspace_as_given: PathBuf,
    /// The user's file, and whether it exists.
    pub user_file: Option<(PathBuf, bool)>,
    /// The state of the project's file.
    pub project_file: ProjectFileStatus,
    /// Warnings for the user, one per line.
    pub warnings: Vec<String>,
}

type SettingsLayer = Vec<(&'static SettingKey, Value, SettingSource)>;

impl Settings {
    /// Reads all layers. Runs nothing in the project, and reads only its settings file and the files of its plugins.
    pub fn load(flags: Vec<CliOverride>) -> Result<Self, String> {
        let here = env::current_dir().map_err(|error| {
            format!("the current folder cannot be read: {error}. Go to a folder that exists and try again")
        })?;
        let mut remarks = Vec::new();
        let user_file = user_file().map(|path| (path.clone(), path.exists()));
        let user = match &user_file {
            Some((path, true)) => from_user_file(path)?,
            _ => Vec::new(),
        };
        let environment = from_environment(&here, &mut remarks)?;
        let flags = from_flags(&here, flags)?;

        let mine = || user.iter().chain(&environment).chain(&flags);
        let last = |name: &str| mine().rfind(|(key, ..)| key.name == name).map(|(_, value, _)| value);
        let given = last("workspace").and_then(Value::as_str).map_or(here, PathBuf::from);
        let top = canonicalize_dir(&given)?;
        let state = last("state_dir").and_then(Value::as_str).map(PathBuf::from).or_else(state::default_dir);

        let beside = user_file.as_ref().is_some_and(|(path, _)| path.parent() == Some(&top));
        let (project, standing) = if beside {
            (Vec::new(), ProjectFileStatus::Absent)
        } else {
            from_project(&top, state.as_deref(), &mut remarks)?
        };

        let mut set = BTreeMap::new();
        apply_layer(&mut set, user);
        let project = filter_project_layer(project, &set, &top, &mut remarks);
        apply_layer(&mut set, project);
        apply_layer(&mut set, environment);
        apply_layer(&mut set, flags);
        choose_preset_dialect(&mut set);

        let mut config = config_of(&set)?;
        let project_chose =
            set.get("workspace").is_some_and(|it| matches!(it.sources.last(), Some(SettingSource::Project(_))));
        let given = if project_chose { config.workspace.to_path_buf() } else { given };
        let workspace = canonicalize_dir(&given)?;
        config.workspace = ConfigPath::new(workspace.clone());
        Ok(Self {
            config,
            set,
            workspace,
            workspace_as_given: given,
            user_file,
            project_file: standing,
            warnings: remarks,
        })
    }

    /// All settings with their values and origins, in the order of the table.
    pub fn all(&self) -> impl Iterator<Item = (&'static SettingKey, EffectiveSetting)> {
        SETTINGS.iter().map(|key| (key, self.setting(key)))
    }

    /// The value of a setting as JSON, and where it came from.
    pub fn setting(&self, key: &SettingKey) -> EffectiveSetting {
        let unset = || EffectiveSetting::new(key.default.clone(), SettingSource::Default);
        let mut setting = self.set.get(key.name).cloned().unwrap_or_else(unset);
        if key.name == "workspace" {
            setting.value = Value::from(self.workspace.to_string_lossy());
        }
        setting
    }

    /// The settings that were set, by name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &EffectiveSetting)> {
        self.set.iter().map(|(name, setting)| (*name, setting))
    }

    /// The origins of a setting; empty if nobody set it.
    pub fn origins(&self, name: &str) -> &[SettingSource] {
        debug_assert!(SettingKey::find(name).is_some(), "unknown setting `{name}`");
        self.set.get(name).map_or(&[], |it| &it.sources)
    }

    /// The origin of an item of a list; `None` if nobody set it.
    pub fn item_origin(&self, name: &str, item: &Value) -> Option<&SettingSource> {
        let setting = self.set.get(name)?;
        let at = setting.value.as_array()?.iter().position(|it| it == item)?;
        setting.items.get(at)
    }

    /// The configured timeout of commands whose tool has no timeout parameter.
    pub fn command_timeout(&self) -> Option<Duration> {
        let is_set = !self.origins("tools.shell.command_timeout_secs").is_empty();
        is_set.then(|| self.config.tools.shell.command_timeout_secs.duration())
    }

    /// The dialect: as set, or the one of the preset.
    pub const fn dialect(&self) -> &'static str {
        self.config.dialect.as_str()
    }

    /// The role in a dialect: as set, or the preset.
    pub fn role(&self, dialect: &str) -> Option<&str> {
        // A role from a file applies only with that file's dialect; one from an option always applies.
        let fits = dialect == self.dialect() || matches!(self.origins("role").last(), Some(SettingSource::Flag(_)));
        match &self.config.role {
            Some(role) if fits => Some(role),
            _ => self.config.tools.preset.as_deref().filter(|_| dialect == DialectName::Preset.as_str()),
        }
    }
}

/// A preset selects the dialect `preset` if no dialect is set.
fn choose_preset_dialect(set: &mut BTreeMap<&'static str, EffectiveSetting>) {
    if set.contains_key("tools.preset") && !set.contains_key("dialect") {
        let value = Value::from(DialectName::Preset.as_str());
        set.insert("dialect", EffectiveSetting::new(value, SettingSource::Setting("tools.preset")));
    }
}

/// The typed settings: the set values over the defaults. Each value was validated when it was read.
fn config_of(set: &BTreeMap<&'static str, EffectiveSetting>) -> Result<Config, String> {
    let mut tree = Map::new();
    for (name, setting) in set {
        let mut table = &mut tree;
        let mut rest = *name;
        while let Some((part, after)) = rest.split_once('.') {
            let inner = table.entry(part).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(inner) = inner else { return Err(format!("`{part}` must be a table of settings")) };
            (table, rest) = (inner, after);
        }
        table.insert(rest.to_owned(), setting.value.clone());
    }
    Config::deserialize(Value::Object(tree)).map_err(|error| format!("the settings are not understood: {error}"))
}

fn from_user_file(path: &Path) -> Result<SettingsLayer, String> {
    let told = |why: String| format!("{}: {why}", path.display());
    let bytes = read_limited(path).map_err(|error| told(error.to_string()))?;
    let base = path.parent().unwrap_or(Path::new("/"));
    let origin = SettingSource::User(path.to_owned());
    let found = parse_settings(path, &bytes).map_err(told)?;
    Ok(found.into_iter().map(|(key, value)| (key, absolutize_paths(key, value, base), origin.clone())).collect())
}

fn from_project(
    top: &Path,
    state: Option<&Path>,
    remarks: &mut Vec<String>,
) -> Result<(SettingsLayer, ProjectFileStatus), String> {
    let Some(path) = project_file(top) else {
        return Ok((Vec::new(), ProjectFileStatus::Absent));
    };
    let bytes = match read_limited(&path) {
        Ok(bytes) => bytes,
        Err(error) => {
            remarks.push(format!("{} is ignored: {error}", path.display()));
            return Ok((Vec::new(), ProjectFileStatus::Unreadable(path, error.to_string())));
        }
    };
    let Some(trust) = state.map(TrustStore::new).filter(|trust| trust.is_trusted(&path, &bytes)) else {
        remarks
            .push(format!("{} is ignored until you trust it; read it, then run `helve config trust`", path.display()));
        return Ok((Vec::new(), ProjectFileStatus::Untrusted(path)));
    };
    let found = project_settings(&path, &bytes)?;
    let origin = SettingSource::Project(path.clone());
    let mut layer = SettingsLayer::new();
    for (key, mut value) in found {
        if let (ProjectPolicy::Append, SettingType::Programs, Value::Array(programs)) =
            (key.project, key.value_type, &mut value)
        {
            programs.retain(|program| match changed_file(program, top, &trust) {
                None => true,
                Some(file) => {
                    remarks.push(format!(
                        "a plugin in {origin} is ignored: {} changed since you trusted it; read it, then run \
                         `helve config trust`",
                        file.display()
                    ));
                    false
                }
            });
        }
        layer.push((key, value, origin.clone()));
    }
    Ok((layer, ProjectFileStatus::Trusted(path)))
}

/// The settings in a project file, with their paths resolved.
fn project_settings(path: &Path, bytes: &[u8]) -> Result<Vec<(&'static SettingKey, Value)>, String> {
    let top = path.parent().unwrap_or(Path::new("/"));
    let found = parse_settings(path, bytes).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(found.into_iter().map(|(key, value)| (key, absolutize_paths(key, value, top))).collect())
}

/// A plugin file of a project that changed after the user trusted it.
fn changed_file(program: &Value, top: &Path, trust: &TrustStore) -> Option<PathBuf> {
    let program = PluginProgram::deserialize(program).ok()?;
    program_files(&program, top).into_iter().find(|file| !trust.holds_file(file))
}

/// The files of a plugin inside the project: the program, and scripts among its arguments. They determine what runs, so
/// trust covers them too.
fn program_files(program: &PluginProgram, top: &Path) -> Vec<PathBuf> {
    let words = std::iter::once(&program.path).chain(&program.args);
    let files = words.map(|word| top.join(word)).filter(|file| file.is_file());
    // A link may lead out of the project, and its target can also change.
    files.filter(|file| file.starts_with(top) || file.canonicalize().is_ok_and(|it| it.starts_with(top))).collect()
}

/// What a project file runs; shown to the user who decides about trust.
pub struct ProjectPlugins {
    /// The programs, in the order of the file.
    pub programs: Vec<PluginProgram>,
    /// Their files in the project; trust covers the content.
    pub files: Vec<PathBuf>,
}

impl ProjectPlugins {
    /// Reads them from the project's settings file. Fails where the file is not a valid settings file.
    pub fn read(path: &Path, bytes: &[u8]) -> Result<Self, String> {
        let top = path.parent().unwrap_or(Path::new("/"));
        let found = project_settings(path, bytes)?;
        let lists = found
            .into_iter()
            .filter(|(key, _)| key.value_type == SettingType::Programs && key.project == ProjectPolicy::Append);
        let programs: Vec<PluginProgram> =
            lists.filter_map(|(_, value)| Vec::deserialize(value).ok()).flatten().collect();
        let files = programs.iter().flat_map(|it| program_files(it, top)).collect();
        Ok(Self { programs, files })
    }
}

fn from_environment(here: &Path, remarks: &mut Vec<String>) -> Result<SettingsLayer, String> {
    let mut layer = Vec::new();
    let ours = |(name, _): &(OsString, OsString)| name.as_encoded_bytes().starts_with(ENV_PREFIX.as_bytes());
    let mut given: Vec<_> = env::vars_os().filter(ours).collect();
    if given.is_empty() {
        return Ok(layer);
    }
    let aliases = ALIASES.iter().filter_map(|(alias, real)| Some((*alias, SettingKey::find(real)?)));
    let names = || aliases.clone().chain(SETTINGS.iter().map(|key| (key.name, key)));
    for (name, key) in names() {
        let Some(at) = given.iter().position(|(it, _)| it.to_str().is_some_and(|it| env_var_sets(it, name))) else {
            continue;
        };
        let (variable, text) = given.swap_remove(at);
        if text.is_empty() {
            continue;
        }
        let variable = variable.to_string_lossy().into_owned();
        let text = text.to_str().ok_or_else(|| format!("{variable} is not UTF-8"))?;
        let value = key.value_type.parse(text).map_err(|why| format!("{variable} {why}"))?;
        layer.push((key, absolutize_paths(key, value, here), SettingSource::EnvVar(variable)));
    }
    given.sort();
    for name in given.iter().filter_map(|(name, _)| name.to_str()) {
        let known: Vec<_> = names().map(|(name, _)| variable(name)).collect();
        let near = helve_contract::closest_names(name, known.iter().map(String::as_str));
        let near = near.first().map(|it| format!("; did you mean {it}?")).unwrap_or_default();
        remarks.push(format!("the variable {name} is no setting{near}"));
    }
    Ok(layer)
}

fn from_flags(here: &Path, flags: Vec<CliOverride>) -> Result<SettingsLayer, String> {
    let mut layer = Vec::new();
    for CliOverride { key, text, flag: shown } in flags {
        let key = SettingKey::find(&key).ok_or_else(|| format!("{shown}: {}", unknown_key_message(&key)))?;
        let value = key.value_type.parse(&text).map_err(|why| match shown {
            "--set" => format!("--set {} {why}", key.name),
            _ => format!("{shown} {why}"),
        })?;
        layer.push((key, absolutize_paths(key, value, here), SettingSource::Flag(shown)));
    }
    Ok(layer)
}

/// Applies a layer to the settings. Deny lists are combined, and a project adds its plugins to the user's.
fn apply_layer(set: &mut BTreeMap<&'static str, EffectiveSetting>, layer: SettingsLayer) {
    for (key, value, origin) in layer {
        let adds = key.project == ProjectPolicy::Append
            && (key.value_type != SettingType::Programs || matches!(origin, SettingSource::Project(_)));
        match (set.get_mut(key.name), value) {
            (Some(EffectiveSetting { value: Value::Array(there), sources: from, items }), Value::Array(more))
                if adds =>
            {
                from.push(origin.clone());
                for item in more {
                    if !there.contains(&item) {
                        items.push(origin.clone());
                        there.push(item);
                    }
                }
            }
            (_, value) => _ = set.insert(key.name, EffectiveSetting::new(value, origin)),
        }
    }
}

/// Filters the settings of a trusted project by policy, and warns about the rest.
fn filter_project_layer(
    layer: SettingsLayer,
    set: &BTreeMap<&'static str, EffectiveSetting>,
    top: &Path,
    remarks: &mut Vec<String>,
) -> SettingsLayer {
    let refusal = |key: &SettingKey, value: &Value| match key.project {
        ProjectPolicy::Set | ProjectPolicy::Append => None,
        ProjectPolicy::IfUnset if !set.contains_key(key.name) => None,
        ProjectPolicy::IfUnset => Some("your own settings file sets it"),
        ProjectPolicy::DisableOnly
            if *value == false || set.get(key.name).map_or(&key.default, |it| &it.value) == true =>
        {
            None
        }
        ProjectPolicy::DisableOnly => Some("a project may turn it off, not on"),
        ProjectPolicy::SubdirOnly
            if value
                .as_str()
                .and_then(|it| canonicalize_dir(Path::new(it)).ok())
                .is_some_and(|it| it.starts_with(top)) =>
        {
            None
        }
        ProjectPolicy::SubdirOnly => Some("it must name a folder inside the project"),
        ProjectPolicy::Never => Some("a project file may not set it"),
    };
    layer
        .into_iter()
        .filter(|(key, value, origin)| match refusal(key, value) {
            None => true,
            Some(why) => {
                remarks.push(format!("`{}` in {origin} is ignored: {why}", key.name));
                false
            }
        })
        .collect()
}

/// Relative paths start at the directory of the file that contains them; `~/` is the user's home.
fn absolutize_paths(key: &SettingKey, value: Value, base: &Path) -> Value {
    let join = |text: &str| {
        let path = match (text.strip_prefix("~/"), home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.join(text),
        };
        Value::from(path.to_string_lossy())
    };
    // A bare name is a file beside the settings, or a program in `PATH`.
    let program =
        |text: &str| if text.contains('/') || base.join(text).exists() { join(text) } else { Value::from(text) };
    match (key.value_type, value) {
        (SettingType::Path, Value::String(text)) => join(&text),
        (SettingType::Paths, Value::Array(items)) => items.iter().filter_map(Value::as_str).map(join).collect(),
        (SettingType::Programs | SettingType::Modules, Value::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Value::String(path) => program(&path),
                Value::Object(mut map) => {
                    if let Some(path) = map.get("path").and_then(Value::as_str).map(program) {
                        map.insert("path".into(), path);
                    }
                    Value::Object(map)
                }
                item => item,
            })
            .collect(),
        (SettingType::Channels, Value::Object(channels)) => {
            let channel = |(name, mut channel): (String, Value)| {
                for key in ["to", "ca_file"] {
                    let path = channel[key].as_str().filter(|it| !["stdout", "stderr"].contains(it)).map(join);
                    if let Some(path) = path {
                        channel[key] = path;
                    }
                }
                (name, channel)
            };
            channels.into_iter().map(channel).collect()
        }
        (SettingType::Servers, Value::Object(servers)) => {
            let server = |(name, mut server): (String, Value)| {
                for key in ["command", "cwd"] {
                    // A program without a slash is searched in `PATH`.
                    let path = server[key].as_str().filter(|it| key == "cwd" || it.contains('/')).map(join);
                    if let Some(path) = path {
                        server[key] = path;
                    }
                }
                (name, server)
            };
            servers.into_iter().map(server).collect()
        }
        (_, value) => value,
    }
}

fn canonicalize_dir(path: &Path) -> Result<PathBuf, String> {
    let next = "name a folder that exists with --workspace";
    let real = path.canonicalize().map_err(|error| format!("the workspace {}: {error}; {next}", path.display()))?;
    if real.is_dir() { Ok(real) } else { Err(format!("the workspace {} is not a folder; {next}", path.display())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config_with(name: &'static str, value: Value) -> Result<Config, String> {
        config_of(&BTreeMap::from([(name, EffectiveSetting::new(value, SettingSource::Default))]))
    }

    /// Values that the key table accepts for this type.
    fn samples(kind: SettingType) -> Vec<Value> {
        match kind {
            SettingType::Text | SettingType::UserName | SettingType::TenantName => vec![json!("x")],
            SettingType::Bool => vec![json!(true), json!(false)],
            SettingType::Integer(least, most) => vec![json!(least), json!(most)],
            SettingType::Float => vec![json!(0), json!(2), json!(1.5)],
            SettingType::Enum(words) => words.iter().map(|it| json!(it)).collect(),
            SettingType::StringList => vec![json!([]), json!(["a", "b"])],
            SettingType::Path => vec![json!("/a")],
            SettingType::Paths => vec![json!([]), json!(["/a", "/b"])],
            SettingType::Programs => {
                vec![json!([]), json!(["p", { "path": "q", "args": ["-v"], "env": { "A": "b" } }])]
            }
            SettingType::Modules => vec![json!([]), json!(["m.wasm", { "path": "n.wasm", "name": "n", "other": 1 }])],
            SettingType::Servers => vec![
                json!({}),
                json!({ "a": { "command": "x", "args": ["y"], "env": { "K": "v" }, "cwd": "/", "enabled": false } }),
                json!({ "b": { "url": "https://b.example", "type": "sse", "timeout_secs": 5, "roots": true } }),
            ],
            SettingType::Channels => vec![
                json!({}),
                json!({ "log": { "allow": ["*"] }, "post": { "kind": "webhook", "url": "https://x.example", "allow": [] } }),
            ],
        }
    }

    #[test]
    fn what_the_table_accepts_fits_the_types_and_is_found_under_its_name() {
        for key in SETTINGS.iter() {
            for value in samples(key.value_type) {
                assert_eq!(key.value_type.check(value.clone()), Ok(value.clone()), "{}", key.name);
                let config = config_with(key.name, value.clone()).unwrap_or_else(|why| panic!("{}: {why}", key.name));
                let tree = serde_json::to_value(&config).unwrap();
                let pointer = format!("/{}", key.name.replace('.', "/"));
                let seen = tree.pointer(&pointer).unwrap_or_else(|| panic!("{} is nowhere", key.name));
                match key.value_type {
                    SettingType::Programs | SettingType::Modules => {
                        assert_eq!(seen.as_array().map(Vec::len), value.as_array().map(Vec::len), "{}", key.name);
                    }
                    SettingType::Servers | SettingType::Channels => {
                        assert!(seen.as_object().unwrap().keys().eq(value.as_object().unwrap().keys()), "{}", key.name);
                    }
                    SettingType::Float => assert_eq!(seen.as_f64(), value.as_f64(), "{}", key.name),
                    _ => assert_eq!(*seen, value, "{}", key.name),
                }
            }
        }
    }

    #[test]
    fn unset_settings_have_their_defaults() {
        assert_eq!(config_of(&BTreeMap::new()), Ok(Config::default()));
        let tree = serde_json::to_value(Config::default()).unwrap();
        for key in SETTINGS.iter() {
            let pointer = format!("/{}", key.name.replace('.', "/"));
            assert_eq!(tree.pointer(&pointer), Some(&key.default), "{}", key.name);
        }
    }

    #[test]
    fn tables_become_typed_values() {
        let config = config_with("roots", json!(["/a", "/b:rw"])).unwrap();
        assert_eq!(config.roots.iter().map(|it| it.writable).collect::<Vec<_>>(), [false, true]);
        assert_eq!(config.roots[1].path, Path::new("/b"));
        let config = config_with("tools.plugins", json!(["p", { "path": "q", "args": ["-v"] }])).unwrap();
        assert_eq!(config.all_plugins().map(PluginProgram::argv).collect::<Vec<_>>(), [vec!["p"], vec!["q", "-v"]]);
        let config = config_with("wasm", json!(["m.wasm", { "path": "n.wasm", "name": "n" }])).unwrap();
        assert!(config.wasm[0].definition.is_empty() && config.wasm[1].definition["name"] == "n");
        let config = config_with("channels", json!({ "log": { "allow": ["me"] } })).unwrap();
        assert_eq!(
            (config.channels[0].name.as_str(), config.channels[0].allow.as_slice()),
            ("log", &["me".to_owned()][..])
        );
    }

    #[test]
    fn a_project_adds_plugins_and_a_variable_replaces_them() {
        let key = SettingKey::find("tools.plugins").unwrap();
        let mut set = BTreeMap::new();
        apply_layer(&mut set, vec![(key, json!(["/mine"]), SettingSource::User("u".into()))]);
        apply_layer(&mut set, vec![(key, json!(["/p/x"]), SettingSource::Project("p".into()))]);
        assert_eq!(set["tools.plugins"].value, json!(["/mine", "/p/x"]));
        apply_layer(&mut set, vec![(key, json!(["/y"]), SettingSource::EnvVar("V".into()))]);
        assert_eq!(set["tools.plugins"].value, json!(["/y"]));
    }
}
