//! Every setting there is. Reading, checking, `helve config` and docs/settings.md all follow this table.

use serde_json::{Value, json};

/// One setting.
pub struct Key {
    /// Its name, with dots: `tools.shell.deny`.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds when nobody says otherwise, as JSON.
    pub default: &'static str,
    /// What a trusted project file may do to it.
    pub project: Project,
    /// What it does, for people.
    pub about: &'static str,
}

/// What a setting holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words, or nothing.
    Text,
    /// Yes or no.
    Flag,
    /// A whole number in a range.
    Number(u64, u64),
    /// A number that is not negative, with or without a point.
    Amount,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A list of words.
    List,
    /// A folder or file; relative ones start at the file that says so.
    Path,
    /// A list of folders.
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
pub enum Project {
    /// Set it.
    May,
    /// Set it, as long as the user's own file does not.
    IfUnset,
    /// Add to the list; what others put there stays.
    Adds,
    /// Turn it off, not on.
    TurnsOff,
    /// Name a folder inside the project.
    Inside,
    /// Nothing.
    Never,
}

impl Project {
    /// For the table of settings.
    pub const fn words(self) -> &'static str {
        match self {
            Self::May => "yes",
            Self::IfUnset => "unless the user file does",
            Self::Adds => "adds to the list",
            Self::TurnsOff => "only `false`",
            Self::Inside => "a folder inside it",
            Self::Never => "no",
        }
    }
}

const fn key(name: &'static str, kind: Kind, default: &'static str, project: Project, about: &'static str) -> Key {
    Key { name, kind, default, project, about }
}

const MODES: &[&str] = &["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "open"];
const DIALECTS: &[&str] = &["solo", "forge", "preset", "oxydra", "claude"];
const LEVELS: &[&str] = &["auto", "L3", "L2", "L1", "external", "none"];

use Kind::{Amount, Choice, Flag, List, Modules, Number, Paths, Programs, Servers, Text};
use Project::{Adds, IfUnset, Inside, May, Never, TurnsOff};

/// Every setting, in the order in which it is shown.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("dialect", Choice(DIALECTS), "\"claude\"", May, "The dialect: which tools there are, what they are called and how they answer."),
    key("role", Text, "null", IfUnset, "The role or preset of the dialect that decides which of its tools there are."),
    key("workspace", Kind::Path, "\".\"", Inside, "The folder that tools work in. `tools.work_dir` is the same setting."),
    key("roots", Paths, "[]", Never, "Further folders: `DIR` may be read, `DIR:rw` may be changed too."),
    key("tools.preset", Text, "null", IfUnset, "A preset of the dialect `preset` (`coding`, `readonly`, `web`, `all`, `none`); chooses that dialect unless `dialect` is set."),
    key("tools.only", List, "[]", IfUnset, "When not empty, only these tools exist; `*` stands for any letters."),
    key("tools.disable", List, "[]", Adds, "These tools do not exist, whatever else is said."),
    key("tools.plugins", Programs, "[]", Never, "Programs that bring tools of their own, each a path or `{ path, args, env }`. They are started in the sandbox when a session begins."),
    key("plugins", Programs, "[]", Never, "More of them, as a table each: `[[plugins]]` with `path`, `args` and `env`."),
    key("wasm", Modules, "[]", Never, "WebAssembly modules that are tools: `[[wasm]]` with `path` and a JSON file of the same name beside it, or with `name`, `description`, `parameters`, `profile` (`FileReadOnly`, `FileReadWrite`, `Web`, `VaultReadStep`, `VaultWriteStep`), `effects` and `operation` in the table."),
    key("mcp.servers", Servers, "{}", Never, "MCP servers whose tools are used, by their names: `[mcp.servers.NAME]` with `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type` (`http` or `sse`); `allow` and `deny` (lists such as `mcp__NAME__read*`), `timeout_secs` of one call, `roots = true` to tell it the workspace, `enabled = false` to leave it out. `${VARIABLE}` is filled in from the environment in `env` and `headers`. A program starts in a folder of its own unless `cwd` is set, with little of the environment, outside the sandbox."),
    key("mcp.wait_secs", Number(0, 300), "5", Never, "How long the beginning of a session waits for MCP servers. Tools of a server that takes longer join the running session when it is there; `helve batch` goes on without them. `helve call` waits up to 30 s for the one server that it needs."),
    key("tools.plan.workspace", Flag, "false", May, "Whether the files in memory that plans are drafted in show the workspace at /home/user/project. It is read by the rules of the workspace; what a draft changes there stays in memory."),
    key("tools.tolerant_edit", Flag, "false", May, "Whether an edit that does not match to the letter may match without regard to blanks at line ends, indentation, or the style of quotes and dashes. The reply says how it matched."),
    key("tools.shell.enabled", Flag, "true", TurnsOff, "Whether commands may be run at all."),
    key("tools.shell.allow", List, "[\"*\"]", Never, "Programs that commands may start; `*` at the beginning or end stands for any letters. Added to the built-in list."),
    key("tools.shell.deny", List, "[]", Adds, "Programs that commands may not start. Beats every allow."),
    key("tools.shell.replace_defaults", Flag, "false", Never, "Whether `tools.shell.allow` replaces the built-in list instead of adding to it."),
    key("tools.shell.allow_operators", Flag, "true", TurnsOff, "Whether a command may use `&&`, pipes, redirections and substitutions."),
    key("tools.shell.command_timeout_secs", Number(1, 86_400), "60", May, "How long a command of the dialect `oxydra` may run."),
    key("approval.mode", Choice(MODES), "null", Never, "What is asked before a call. Without it nothing is asked: `helve call` is your own hand, and an MCP client asks its user itself. With `default`, a client that can ask its user is made to."),
    key("approval.allow", List, "[]", Never, "Calls that need no question, such as `Bash(npm test:*)` or `Edit(src/**)`."),
    key("approval.ask", List, "[]", Adds, "Calls that always need one."),
    key("approval.deny", List, "[]", Adds, "Calls that are refused in every mode."),
    key("approval.patience_secs", Number(1, 604_800), "86400", Never, "How long a person may think about a question in a conversation, at a terminal or at the page of `helve serve`. No answer in time is a no."),
    key("policy.taint", Choice(&["auto", "off", "ask", "deny"]), "\"auto\"", Never, "What follows when words of a stranger have come into a session: of a page, a search, an MCP server, a plugin. `auto`: in modes that ask, an address that did not come in with them is asked about unless a rule names its host, a yes from before no longer holds for what goes out, and notes are held back until `helve memory release`. `ask` and `deny`: in every mode, whatever can change something or goes out, whatever rules allow. `off`: nothing."),
    key("policy.taint_until", Choice(&["session", "message"]), "\"session\"", Never, "How long that holds: until the session ends, or until the user says something again."),
    key("policy.trusted", List, "[]", Never, "Tools whose words are no stranger's, such as `mcp__files__*`: they are neither marked as data nor remembered."),
    key("policy.untrusted", List, "[]", Adds, "Files beneath the roots whose words are a stranger's, such as `downloads/**`."),
    key("secrets.canaries", List, "[]", Never, "Baits: texts that look like secrets and are worth nothing, put where nobody should look. A call that would send one out is refused in every mode, and recorded as `secret.leak`. `helve config canary` makes one."),
    key("paths.deny_read", List, "[]", Adds, "Paths beneath the roots that tools may neither read nor change, such as `*.pem` or `secrets/**`."),
    key("paths.deny_write", List, "[]", Adds, "Paths beneath the roots that tools may not change."),
    key("sandbox.level", Choice(LEVELS), "\"auto\"", Never, "The walls around commands. `auto` takes the highest that works here; `external` says that this machine is the sandbox; `none` has no walls."),
    key("sandbox.network", Choice(&["off", "allowlist", "on"]), "\"off\"", Never, "Whether commands may use the network. With `allowlist` they may reach the hosts in `sandbox.allow_hosts`, through a proxy that their environment names; that needs L2 or L3, and is no network at L1."),
    key("sandbox.allow_hosts", List, "[]", Never, "Hosts that commands may reach with `sandbox.network = \"allowlist\"`: `example.org`, `*.example.org` for what is beneath it, either with a port. Ports are otherwise those of http and https. A name that leads into this machine or its network is refused; a private address is reached only where it is listed itself."),
    key("sandbox.writable", Paths, "[]", Never, "Further folders that commands may change."),
    key("sandbox.readable", Paths, "[]", Never, "Further folders that commands may read."),
    key("sandbox.memory_mb", Number(0, 1 << 30), "null", Never, "The most memory in MiB that commands may use together, where control groups can be made, and that each process of theirs may use elsewhere. Without it: three quarters of what this machine or its control group has. 0 is no limit."),
    key("host.kind", Choice(&["local", "docker"]), "\"local\"", Never, "Where commands run: behind the walls of this machine, or in a container that is made for the session's first command and removed with the session. Files stay here; the container has the workspace and the roots at the same paths."),
    key("host.docker.endpoint", Text, "\"unix:///var/run/docker.sock\"", Never, "Where the container engine listens: `unix:///PATH` or `tcp://HOST:PORT`."),
    key("host.docker.image", Text, "\"debian:12\"", Never, "The image of the container. It needs a shell; it is pulled when it is missing."),
    key("host.docker.network", Text, "\"none\"", Never, "The network of the container: `none`, `bridge`, or the name of one."),
    key("host.docker.user", Text, "null", Never, "Who commands are in the container, as `UID:GID`. Without it: you, and `nobody` where you are root."),
    key("host_commands.enabled", Flag, "false", Never, "Whether the commands in `host_commands.allowed` run on another machine, over `ssh`."),
    key("host_commands.host", Text, "\"host.docker.internal\"", Never, "The other machine. Its key must be known: an unknown host is refused."),
    key("host_commands.port", Number(1, 65_535), "22", Never, "Where its server listens."),
    key("host_commands.user", Text, "null", Never, "Who to be there."),
    key("host_commands.key", Kind::Path, "null", Never, "The private key. Over there, its line in `authorized_keys` should force `helve host-exec`, which has a list of its own."),
    key("host_commands.known_hosts", Kind::Path, "null", Never, "The file with the keys of known hosts; without it, those of `ssh` itself."),
    key("host_commands.allowed", List, "[]", Never, "The commands that run there. A single word is a program with any arguments, several words are exactly that command. There is no shell over there: such a command stands alone, without operators."),
    key("model.base_url", Text, "null", Never, "Where the model is asked: the address of an OpenAI-compatible endpoint, such as `http://127.0.0.1:11434/v1`. Without it, a well-known key in the environment or a server on this machine decides."),
    key("model.name", Text, "null", IfUnset, "The model that answers in `helve run` and `helve chat`. Without it, the first that the endpoint offers."),
    key("model.key_env", Text, "null", Never, "The name of the environment variable that holds the endpoint's key. The key itself is in no file."),
    key("model.window", Number(1_024, 100_000_000), "null", May, "How many tokens fit into the model's window, where the endpoint does not say."),
    key("model.small", Text, "null", IfUnset, "A small model of the same endpoint, for questions about pages."),
    key("model.price_in", Amount, "null", Never, "US dollars for a million tokens of prompts, where the endpoint does not say."),
    key("model.price_out", Amount, "null", Never, "US dollars for a million tokens of answers."),
    key("agent.max_turns", Number(1, 100_000), "100", Never, "How often the model may answer in one turn of yours."),
    key("agent.max_tokens", Number(1, 1_000_000_000_000), "null", Never, "Tokens of one turn, both ways."),
    key("agent.max_cost", Amount, "null", Never, "US dollars of one turn, where the price is known."),
    key("agent.max_time_secs", Number(1, 31_536_000), "null", Never, "How long one turn may take."),
    key("agent.system", Text, "null", Never, "What the model is told beside the usual, at the end of its first instructions."),
    key("agents.folders", Paths, "[]", Never, "Folders with agents: a Markdown file each, with a name and a description at its head."),
    key("agents.max", Number(1, 16), "16", Never, "How many agents may work at once."),
    key("chat.reasoning", Flag, "false", May, "Whether `helve chat` shows what a model thinks aloud."),
    key("store.file", Kind::Path, "null", Never, "The file that keeps conversations, notes and schedules. Without it, `helve.db` in the state folder."),
    key("memory.weight_meaning", Amount, "0.7", Never, "What likeness of meaning counts when notes are searched, beside `memory.weight_words`."),
    key("memory.weight_words", Amount, "0.3", Never, "What the words themselves count when notes are searched."),
    key("memory.model", Kind::Path, "null", Never, "A folder with an embedding model in model2vec's form (`model.safetensors`, `tokenizer.json`), in place of the small one inside the program."),
    key("memory.embeddings_url", Text, "null", Never, "The address of an OpenAI-compatible endpoint that makes the vectors of notes, such as `http://127.0.0.1:11434/v1`. What is noted and what is looked for is sent there."),
    key("memory.embeddings_model", Text, "null", Never, "The embedding model of that endpoint."),
    key("memory.embeddings_key_env", Text, "null", Never, "The name of the environment variable that holds that endpoint's key."),
    key("schedule.in_chat", Flag, "true", Never, "Whether `helve chat` runs schedules that are due while it is open."),
    key("schedule.timezone", Text, "\"UTC\"", Never, "The IANA name of the zone that the times of schedules are read in where a model names none."),
    key("schedule.min_interval_secs", Number(60, 31_536_000), "60", Never, "The least time between two runs of one schedule."),
    key("schedule.max_per_user", Number(0, 100_000), "50", Never, "How many schedules a user may have."),
    key("schedule.channel", Text, "null", Never, "Where results of schedules go that were made here, as `channel:address`."),
    key("schedule.max_concurrent", Number(1, 1_000), "2", Never, "How many runs of schedules go on at once."),
    key("schedule.max_turns", Number(1, 100_000), "10", Never, "How often the model may answer in one run of a schedule."),
    key("schedule.max_cost", Amount, "0.5", Never, "US dollars of one run of a schedule, where the price is known."),
    key("schedule.max_time_secs", Number(1, 31_536_000), "1800", Never, "How long one run of a schedule may take."),
    key("schedule.window_hours", Number(1, 87_600), "24", Never, "How far back runs are made up for that nobody was there for, where a schedule makes up for each."),
    key("schedule.keep_runs", Number(1, 10_000), "20", Never, "How many runs of a schedule are kept."),
    key("schedule.tell_after", Number(0, 10_000), "3", Never, "After how many failures in a row the owner of a schedule is told; 0 is never."),
    key("schedule.disable_after", Number(0, 10_000), "5", Never, "After how many failures in a row a schedule is disabled; 0 is never."),
    key("web.allow", List, "[]", Never, "Addresses inside this machine or its network that pages may be fetched from all the same: `host`, `host:port`, `*.host`, an address, or a block such as `10.0.0.0/8`."),
    key("web.only_allowed", Flag, "false", Never, "Whether pages are fetched from nowhere but what `web.allow` lists."),
    key("web.proxy", Text, "null", Never, "The proxy that pages and searches go by, as `http://[user:password@]host:port`. Addresses are judged before it is asked."),
    key("search.provider", Choice(&["auto", "exa", "duckduckgo", "searxng", "brave", "google", "tavily"]), "\"auto\"", Never, "Who searches the web. `auto` is Exa where its key is in the environment, and DuckDuckGo, which needs none, where it is not."),
    key("search.base_url", Text, "null", Never, "Where the provider is, instead of its usual address; a SearXNG server has no usual one. It may be a private address."),
    key("search.key_env", Text, "null", Never, "The name of the environment variable that holds the provider's key. Without it: `EXA_API_KEY`, `BRAVE_API_KEY`, `GOOGLE_API_KEY` or `TAVILY_API_KEY`."),
    key("search.engine", Text, "null", Never, "The id of Google's search engine (`cx`). Without it, the variable `GOOGLE_CSE_ID`."),
    key("channels", Kind::Channels, "{}", Never, "Ways out to people, by their names: `[channels.NAME]` with `kind` and `allow`, the addresses that may be written to (`*` stands for any letters). `log` has `to` (`stderr`, `stdout` or a file); `webhook` has `url` and `secret_env`; `mail` has `server`, `port`, `tls` (`starttls`, `implicit` or `none`), `user`, `password_env`, `from`, `subject` and `ca_file`; `signal` has `url` (of a signal-cli daemon) and `account`."),
    key("home_channel", Text, "null", Never, "Where files go that are sent to the user, as `channel:address`."),
    key("hooks", List, "[]", Never, "Webhooks that `helve serve` takes at `/hooks/NAME`, each as `NAME=VARIABLE`: the environment variable holds the secret that bodies are signed with. What comes becomes a message in the conversation `hook:NAME`."),
    key("events", Choice(&["file", "stdout", "off"]), "\"file\"", Never, "Where the record of calls goes: `runs/RUN/events.ndjson` in the state folder, standard output, or nowhere. Records of servers are kept for 30 days."),
    key("scrub.enabled", Flag, "true", Never, "Whether keys and tokens are taken out of replies."),
    key("scrub.secrets_env", List, "[]", Never, "Names of environment variables whose values are taken out of replies too, and may not be sent anywhere. Those in `*.key_env` are among them."),
    key("spill.keep_hours", Number(1, 8_760), "24", May, "How long the whole text of a shortened reply is kept."),
    key("state_dir", Kind::Path, "null", Never, "Where Helve keeps its own files. Without it: `$XDG_STATE_HOME/helve`, or `~/.local/state/helve`."),
];

/// Another name for a key.
pub(crate) const ALIASES: &[(&str, &str)] = &[("tools.work_dir", "workspace")];

impl Key {
    /// The key of this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        KEYS.iter().find(|key| key.name == name)
    }

    /// The variable of the environment that sets it.
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    /// Its default.
    pub fn default(&self) -> Value {
        serde_json::from_str(self.default).unwrap_or(Value::Null)
    }
}

/// How variables of the environment begin that set a key.
pub(crate) const PREFIX: &str = "HELVE_";

/// The variable of the environment that sets a key of this name.
pub(crate) fn variable(name: &str) -> String {
    PREFIX.chars().chain(name.chars().map(as_in_variable)).collect()
}

/// Whether a variable sets the key of this name.
pub(crate) fn sets(variable: &str, name: &str) -> bool {
    variable.strip_prefix(PREFIX).is_some_and(|it| it.chars().eq(name.chars().map(as_in_variable)))
}

fn as_in_variable(letter: char) -> char {
    if letter == '.' { '_' } else { letter.to_ascii_uppercase() }
}

impl Kind {
    /// What is wanted, for people.
    pub fn words(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Flag => "`true` or `false`".into(),
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Amount => "a number such as 2.5".into(),
            Self::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Self::List => "a list of texts".into(),
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
            (Value::Bool(_), Self::Flag) => true,
            (Value::Number(number), Self::Number(least, most)) => {
                number.as_u64().is_some_and(|it| (least..=most).contains(&it))
            }
            (Value::Number(number), Self::Amount) => number.as_f64().is_some_and(|it| it >= 0.0),
            (Value::String(word), Self::Choice(words)) => words.contains(&word.as_str()),
            (Value::Array(items), Self::List | Self::Paths) => items.iter().all(Value::is_string),
            (Value::Array(items), Self::Programs) => items.iter().all(is_program),
            (Value::Array(items), Self::Modules) => items.iter().all(is_module),
            (Value::Object(_), Self::Channels) => {
                if let Err(error) = helve_web::channels::Settings::read_all(&value) {
                    return Err(format!("is wrong: {error}"));
                }
                true
            }
            (Value::Object(servers), Self::Servers) => {
                if let Some((name, why)) = servers.iter().find_map(|(name, it)| Some((name, server_fault(it)?))) {
                    return Err(format!("has a server `{name}` that {why}"));
                }
                true
            }
            _ => false,
        };
        if fits { Ok(value) } else { Err(format!("must be {}, not {}", self.words(), short(&value))) }
    }

    /// A value from the environment or from a flag, read and checked. A list is separated by commas, or is JSON.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "on" | "yes" => json!(true),
                "false" | "0" | "off" | "no" => json!(false),
                _ => json!(text),
            },
            Self::Number(..) => text.trim().parse::<u64>().map_or_else(|_| json!(text), |it| json!(it)),
            Self::Amount => text.trim().parse::<f64>().map_or_else(|_| json!(text), |it| json!(it)),
            Self::List | Self::Paths | Self::Programs | Self::Modules if text.trim_start().starts_with('[') => {
                serde_json::from_str(text).map_err(|error| format!("starts like a JSON list, but: {error}"))?
            }
            Self::Servers | Self::Channels => {
                serde_json::from_str(text).map_err(|error| format!("must be a JSON object: {error}"))?
            }
            Self::List | Self::Paths | Self::Programs | Self::Modules => {
                json!(text.split(',').map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>())
            }
            Self::Text | Self::Choice(_) | Self::Path => json!(text),
        };
        self.check(value)
    }
}

/// A path, or a table of `path`, `args` and `env`.
fn is_program(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Object(map) => {
            map.get("path").is_some_and(Value::is_string)
                && map.get("args").is_none_or(is_words)
                && map.get("env").is_none_or(is_pairs)
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
fn server_fault(value: &Value) -> Option<String> {
    let Some(map) = value.as_object() else { return Some("is not a table".into()) };
    for (key, value) in map {
        let (fits, wanted) = match key.as_str() {
            "command" | "url" | "cwd" => (value.is_string(), "text"),
            "type" => (["stdio", "http", "sse"].iter().any(|it| value == it), "`stdio`, `http` or `sse`"),
            "args" | "allow" | "deny" => (is_words(value), "a list of texts"),
            "env" | "headers" => (is_pairs(value), "a table of texts"),
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

fn is_words(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
}

fn is_pairs(value: &Value) -> bool {
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
    fn the_table_holds_together() {
        for key in KEYS {
            let value = key.default();
            assert!(value.is_null() || key.kind.check(value).is_ok(), "{}", key.name);
            assert!(key.about.ends_with(['.', ')']), "{}", key.name);
            let list = matches!(key.kind, Kind::List | Kind::Paths);
            assert!(key.project != Project::Adds || list, "{}", key.name);
            assert!(key.project != Project::TurnsOff || key.kind == Kind::Flag, "{}", key.name);
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_server() {
        let told = |text: &str| Kind::Servers.parse(text).err().unwrap_or_default();
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
        assert_eq!(Kind::Number(1, 10).parse("many").unwrap_err(), "must be a number from 1 to 10, not \"many\"");
        assert_eq!(Kind::Choice(&["off", "on"]).check(json!(true)).unwrap_err(), "must be `off`, `on`, not true");
        assert_eq!(Kind::List.parse("a, b,").unwrap(), json!(["a", "b"]));
        assert_eq!(Kind::List.parse("[\"Bash(a,b)\"]").unwrap(), json!(["Bash(a,b)"]));
    }
}
