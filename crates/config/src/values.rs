//! Types of setting values: choices, paths, durations, and the tables that describe programs, modules and servers.
//! Open this file to add a choice or a new kind of value; `config.rs` lists the settings themselves.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    path::{Path, PathBuf},
    time::Duration,
};

use helve_contract::ports::ChannelSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// Defines enums whose variants are words in settings files.
macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
        #[schemars(inline)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// The word that stands for it in a settings file.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}

choices! {
    /// A built-in dialect.
    DialectName {
        /// Short names, relative paths.
        Solo = "solo",
        /// Tools of planned runs.
        Forge = "forge",
        /// Tools grouped in presets.
        Preset = "preset",
        /// Virtual roots and tiers.
        Oxydra = "oxydra",
        /// The names of Claude Code.
        Claude = "claude",
    }

    /// Which calls need the user's approval.
    ApprovalMode {
        /// Read-only calls pass, others are asked.
        Default = "default",
        /// Edits of files pass too.
        AcceptEdits = "acceptEdits",
        /// Only read-only calls pass.
        Plan = "plan",
        /// What would be asked is denied.
        DontAsk = "dontAsk",
        /// Nothing is asked except what a rule names.
        BypassPermissions = "bypassPermissions",
        /// Nothing is asked.
        Open = "open",
    }

    /// What a session does after untrusted content reached it.
    TaintPolicySetting {
        /// Asks about new outgoing addresses in modes that ask.
        Auto = "auto",
        /// Nothing.
        Off = "off",
        /// Asks before every call with an outside effect.
        Ask = "ask",
        /// Refuses every call with an outside effect.
        Deny = "deny",
    }

    /// How long a session remembers untrusted content.
    TaintUntil {
        /// Until the session ends.
        Session = "session",
        /// Until the user's next message.
        Message = "message",
    }

    /// The sandbox around commands.
    SandboxLevelSetting {
        /// The highest level that works on this machine.
        Auto = "auto",
        /// Namespaces with an own `/proc`.
        L3 = "L3",
        /// Namespaces inside a container.
        L2 = "L2",
        /// Landlock and seccomp.
        L1 = "L1",
        /// This machine is the sandbox.
        External = "external",
        /// No sandbox.
        None = "none",
    }

    /// The network of commands.
    SandboxNetwork {
        /// No network.
        Off = "off",
        /// The hosts of `sandbox.allow_hosts`, through a proxy.
        Allowlist = "allowlist",
        /// The machine's network.
        On = "on",
    }

    /// Local sockets that commands may connect to.
    SandboxUnixSockets {
        /// Those that the same command made.
        Own = "own",
        /// Every socket whose file they see.
        Any = "any",
    }

    /// Where commands run.
    HostKind {
        /// On this machine, in the sandbox.
        Local = "local",
        /// In a container.
        Docker = "docker",
        /// On another machine, over `ssh`.
        Ssh = "ssh",
        /// In an E2B sandbox.
        E2b = "e2b",
    }

    /// A web search service.
    SearchProvider {
        /// Exa where its key is set, else DuckDuckGo.
        Auto = "auto",
        /// Exa.
        Exa = "exa",
        /// DuckDuckGo, which needs no key.
        Duckduckgo = "duckduckgo",
        /// A SearXNG server.
        Searxng = "searxng",
        /// Brave.
        Brave = "brave",
        /// Google.
        Google = "google",
        /// Tavily.
        Tavily = "tavily",
    }

    /// Where the record of calls goes.
    EventsTarget {
        /// A file in the state directory.
        File = "file",
        /// Standard output.
        Stdout = "stdout",
        /// Nowhere.
        Off = "off",
    }

    /// The colours of the terminal and the web UI.
    Theme {
        /// What the terminal or the browser prefers.
        Auto = "auto",
        /// Dark text on a light background.
        Light = "light",
        /// Light text on a dark background.
        Dark = "dark",
    }
}

/// A path from the settings. A relative path in a file starts at that file's directory; loading makes it absolute.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ConfigPath(PathBuf);

impl ConfigPath {
    /// Wraps a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl Deref for ConfigPath {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for ConfigPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// The schema of a text that is a path. The `format` tells the key table to resolve it.
fn path_schema() -> Schema {
    json_schema!({ "type": "string", "format": "path" })
}

impl JsonSchema for ConfigPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigPath".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        path_schema()
    }
}

/// A further root: `DIR` may be read, `DIR:rw` may be changed too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootDir {
    /// The directory.
    pub path: PathBuf,
    /// Whether tools may change files in it.
    pub writable: bool,
}

impl<'de> Deserialize<'de> for RootDir {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.strip_suffix(":rw") {
            Some(path) => Self { path: path.into(), writable: true },
            None => Self { path: text.into(), writable: false },
        })
    }
}

impl Serialize for RootDir {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}{}", self.path.display(), if self.writable { ":rw" } else { "" }))
    }
}

impl JsonSchema for RootDir {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RootDir".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        path_schema()
    }
}

/// A duration in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Seconds(pub u64);

impl Seconds {
    /// The same as a [`Duration`].
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// A duration in whole hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Hours(pub u64);

impl Hours {
    /// The same as a [`Duration`].
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0.saturating_mul(3600))
    }
}

/// A plugin: a program that brings tools. Written as a path, or as a table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(from = "PluginForm")]
#[schemars(inline, extend("x-kind" = "program"))]
pub struct PluginProgram {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub path: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables of its environment beside the usual ones.
    pub env: BTreeMap<String, String>,
}

impl PluginProgram {
    /// The program and its arguments.
    pub fn argv(&self) -> Vec<String> {
        std::iter::once(&self.path).chain(&self.args).cloned().collect()
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum PluginForm {
    Path(String),
    Table(PluginTable),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PluginTable {
    path: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl From<PluginForm> for PluginProgram {
    fn from(form: PluginForm) -> Self {
        match form {
            PluginForm::Path(path) => Self { path, args: Vec::new(), env: BTreeMap::new() },
            PluginForm::Table(PluginTable { path, args, env }) => Self { path, args, env },
        }
    }
}

/// A WebAssembly module that is a tool. Written as a path, or as a table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(from = "ModuleForm")]
#[schemars(inline, extend("x-kind" = "module"))]
pub struct WasmModule {
    /// The module's file.
    pub path: String,
    /// Its definition (`name`, `profile` …). Empty: the definition is in the JSON file beside the module. Whoever loads
    /// the module checks it, so that one bad definition leaves out one tool.
    pub definition: Map<String, Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum ModuleForm {
    Path(String),
    Table {
        path: String,
        #[serde(flatten)]
        definition: Map<String, Value>,
    },
}

impl From<ModuleForm> for WasmModule {
    fn from(form: ModuleForm) -> Self {
        match form {
            ModuleForm::Path(path) => Self { path, definition: Map::new() },
            ModuleForm::Table { path, definition } => Self { path, definition },
        }
    }
}

/// How an MCP server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpTransport {
    /// A program, over its standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP with server-sent events, the older transport.
    Sse,
}

/// An MCP server: a program (`command`) or an address (`url`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, extend("x-kind" = "server"))]
pub struct McpServer {
    /// The program to start.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment; `${VARIABLE}` is filled in.
    pub env: BTreeMap<String, String>,
    /// Where it starts; a directory of its own otherwise.
    pub cwd: Option<PathBuf>,
    /// The address of a server that is already running.
    pub url: Option<String>,
    /// Headers of each request; `${VARIABLE}` is filled in.
    pub headers: BTreeMap<String, String>,
    /// The transport, where it does not follow from `command` or `url`.
    #[serde(rename = "type")]
    pub transport: Option<McpTransport>,
    /// Tools to offer; all without it.
    pub allow: Vec<String>,
    /// Tools not to offer.
    pub deny: Vec<String>,
    /// The time limit of one call.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_secs: Option<Seconds>,
    /// Whether the server is told the workspace.
    pub roots: bool,
    /// `false` leaves the server out.
    pub enabled: Option<bool>,
}

impl McpServer {
    /// Whether it is to be started.
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }
}

/// The channels by their names, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelTable(pub Vec<ChannelSettings>);

impl Deref for ChannelTable {
    type Target = [ChannelSettings];
    fn deref(&self) -> &[ChannelSettings] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ChannelTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A channel's `kind` is its name unless it says otherwise, so the table is read as a whole.
        ChannelSettings::read_all(&Value::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

impl Serialize for ChannelTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|channel| (&channel.name, channel)))
    }
}

impl JsonSchema for ChannelTable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ChannelTable".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let channel = generator.subschema_for::<ChannelSettings>();
        json_schema!({ "type": "object", "additionalProperties": channel, "x-kind": "channels" })
    }
}
