//! Every setting, one field each. To add a setting, add a field here: its type, its default, what a project file may
//! do to it, and a doc comment, which `helve config` and docs/settings.md show.

use std::collections::BTreeMap;

use helve_contract::ids::DEFAULT_TENANT;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{
    ApprovalMode, ChannelTable, ConfigPath, DialectName, EventsTarget, HostKind, Hours, McpServer, PluginProgram,
    RootDir, SandboxLevelSetting, SandboxNetwork, SandboxUnixSockets, SearchProvider, Seconds, TaintPolicySetting,
    TaintUntil, Theme, WasmModule,
};

/// Defines tables of settings. A setting is `name: Type = default, Policy;` where `Policy` is a variant of
/// [`crate::ProjectPolicy`]; a table inside is `name: Table;`.
macro_rules! settings {
    ($(
        $(#[$meta:meta])*
        $table:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty $(= $default:expr, $policy:ident)?;)* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        #[schemars(inline)]
        pub struct $table {
            $($(#[$field_meta])* $(#[schemars(extend("x-project" = stringify!($policy)))])? pub $field: $type,)*
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($field: settings!(@default $($default)?),)* }
            }
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}

settings! {
    /// All settings. Unset ones have their defaults.
    Config {
        /// The dialect: which tools there are, what they are called and how they answer.
        dialect: DialectName = DialectName::Claude, Set;
        /// The role or preset of the dialect that decides which of its tools there are.
        role: Option<String> = None, IfUnset;
        /// The user whose memory, schedules and sessions are used. Without it: the one local user.
        #[schemars(extend("x-kind" = "user"))]
        user: Option<String> = None, Never;
        /// The directory that tools work in. `tools.work_dir` is the same setting.
        workspace: ConfigPath = ConfigPath::new("."), SubdirOnly;
        /// Further directories: `DIR` may be read, `DIR:rw` may be changed too.
        roots: Vec<RootDir> = Vec::new(), Never;
        /// Tools.
        tools: ToolsConfig;
        /// More plugins, as a table each: `[[plugins]]` with `path`, `args` and `env`.
        plugins: Vec<PluginProgram> = Vec::new(), Never;
        /// WebAssembly modules that are tools: `[[wasm]]` with `path` and a JSON file of the same name beside it, or
        /// with `name`, `description`, `parameters`, `profile` (`FileReadOnly`, `FileReadWrite`, `Web`,
        /// `VaultReadStep`, `VaultWriteStep`), `effects` and `operation` in the table.
        wasm: Vec<WasmModule> = Vec::new(), Never;
        /// MCP servers.
        mcp: McpConfig;
        /// Approval of calls.
        approval: ApprovalConfig;
        /// Untrusted content.
        policy: PolicyConfig;
        /// Secrets.
        secrets: SecretsConfig;
        /// Path rules.
        paths: PathsConfig;
        /// The sandbox around commands.
        sandbox: SandboxConfig;
        /// Where commands run.
        host: HostConfig;
        /// Commands that run on another machine.
        host_commands: HostCommandsConfig;
        /// The model.
        model: ModelConfig;
        /// Limits of one turn.
        agent: AgentConfig;
        /// Sub-agents.
        agents: AgentsConfig;
        /// `helve chat`.
        chat: ChatConfig;
        /// The colours of the page of `helve serve`. A choice made in the page wins.
        theme: Theme = Theme::Auto, Set;
        /// The store.
        store: StoreConfig;
        /// Memory.
        memory: MemoryConfig;
        /// Schedules.
        schedule: ScheduleConfig;
        /// Fetching pages.
        web: WebConfig;
        /// Searching the web.
        search: SearchConfig;
        /// Channels to people, by their names: `[channels.NAME]` with `kind` and `allow`, the addresses that may be
        /// written to (`*` stands for any characters). `log` has `to` (`stderr`, `stdout` or a file); `webhook` has
        /// `url` and `secret_env`; `mail` has `server`, `port`, `tls` (`starttls`, `implicit` or `none`), `user`,
        /// `password_env`, `from`, `subject` and `ca_file`; `signal` has `url` (of a signal-cli daemon) and `account`.
        channels: ChannelTable = ChannelTable::default(), Never;
        /// Where files go that are sent to the user, as `channel:address`.
        home_channel: Option<String> = None, Never;
        /// Webhooks that `helve serve` takes at `/hooks/NAME`, each as `NAME=VARIABLE`: the environment variable holds
        /// the secret that bodies are signed with. A body becomes a message in the session `hook:NAME`.
        hooks: Vec<String> = Vec::new(), Never;
        /// Where the record of calls goes: `runs/RUN/events.ndjson` in the state directory, standard output, or
        /// nowhere. Records of servers are kept for 30 days.
        events: EventsTarget = EventsTarget::File, Never;
        /// Redaction of replies.
        scrub: ScrubConfig;
        /// Saved replies.
        spill: SpillConfig;
        /// Where Helve keeps its own files. Without it: `$XDG_STATE_HOME/helve`, or `~/.local/state/helve`.
        state_dir: Option<ConfigPath> = None, Never;
    }

    /// `[tools]`
    ToolsConfig {
        /// A preset of the dialect `preset` (`coding`, `readonly`, `web`, `all`, `none`); chooses that dialect unless
        /// `dialect` is set.
        preset: Option<String> = None, IfUnset;
        /// When not empty, only these tools exist; `*` stands for any characters.
        only: Vec<String> = Vec::new(), IfUnset;
        /// These tools do not exist, whatever other settings say.
        disable: Vec<String> = Vec::new(), Append;
        /// Programs that bring tools, each a path or `{ path, args, env }`. They are started in the sandbox when a
        /// session begins. A project adds its plugins once `helve config trust` listed them; trust covers their files in
        /// the project, and ends when one of them changes.
        plugins: Vec<PluginProgram> = Vec::new(), Append;
        /// The most bytes of one reply. Without it: the limit of the dialect. The output of a command is shown up to
        /// 524288 bytes, whatever this says.
        #[schemars(range(min = 1_024, max = 1_048_576))]
        max_output_bytes: Option<u64> = None, Set;
        /// Whether an edit that does not match exactly may match without regard to trailing blanks, indentation, or
        /// the style of quotes and dashes. The reply says how it matched.
        tolerant_edit: bool = false, Set;
        /// Drafting plans.
        plan: PlanConfig;
        /// Commands.
        shell: ShellConfig;
    }

    /// `[tools.plan]`
    PlanConfig {
        /// Whether the files in memory that plans are drafted in show the workspace at /home/user/project. The rules of
        /// the workspace hold for reading; changes of a draft stay in memory.
        workspace: bool = false, Set;
    }

    /// `[tools.shell]`
    ShellConfig {
        /// Whether commands may be run at all.
        enabled: bool = true, DisableOnly;
        /// Programs that commands may start; `*` at the beginning or end stands for any characters. Added to the
        /// built-in list.
        allow: Vec<String> = vec!["*".to_owned()], Never;
        /// Programs that commands may not start. Takes precedence over every allow.
        deny: Vec<String> = Vec::new(), Append;
        /// Whether `tools.shell.allow` replaces the built-in list instead of adding to it.
        replace_defaults: bool = false, Never;
        /// Whether a command may use `&&`, pipes, redirections and substitutions.
        allow_operators: bool = true, DisableOnly;
        /// The time limit of a command in the dialect `oxydra`.
        #[schemars(range(min = 1, max = 86_400))]
        command_timeout_secs: Seconds = Seconds(60), Set;
    }

    /// `[mcp]`
    McpConfig {
        /// MCP servers whose tools are used, by their names: `[mcp.servers.NAME]` with `command`, `args`, `env` and
        /// `cwd`, or `url`, `headers` and `type` (`http` or `sse`); `allow` and `deny` (lists such as
        /// `mcp__NAME__read*`), `timeout_secs` of one call, `roots = true` to tell it the workspace, `enabled = false`
        /// to leave it out. `${VARIABLE}` is filled in from the environment in `env` and `headers`. A program starts in
        /// a directory of its own unless `cwd` is set, with little of the environment, outside the sandbox.
        servers: BTreeMap<String, McpServer> = BTreeMap::new(), Never;
        /// How long the beginning of a session waits for MCP servers. Tools of a slower server join the running
        /// session when they are there; `helve batch` goes on without them. `helve call` waits up to 30 s for the one
        /// server that it needs.
        #[schemars(range(min = 0, max = 300))]
        wait_secs: Seconds = Seconds(5), Never;
    }

    /// `[approval]`
    ApprovalConfig {
        /// Which calls need your approval. Without it none do: `helve call` runs with your authority, and an MCP client
        /// prompts its user itself. With `default`, approval prompts go to a client that supports elicitation.
        mode: Option<ApprovalMode> = None, Never;
        /// Calls that need no approval, such as `Bash(npm test:*)` or `Edit(src/**)`.
        allow: Vec<String> = Vec::new(), Never;
        /// Calls that always need approval.
        ask: Vec<String> = Vec::new(), Append;
        /// Calls that are refused in every mode.
        deny: Vec<String> = Vec::new(), Append;
        /// How long an approval prompt or question waits for an answer, at a terminal or in the page of `helve serve`.
        /// No answer in time is a no.
        #[schemars(range(min = 1, max = 604_800))]
        patience_secs: Seconds = Seconds(86_400), Never;
    }

    /// `[policy]`
    PolicyConfig {
        /// What follows when untrusted content reached a session: a page, a search, an MCP server, a plugin. `auto`: in
        /// modes that ask, an address that was not in that content is asked about unless a rule names its host, earlier
        /// approvals no longer hold for outgoing calls, and notes are held back until `helve memory release`. `ask` and
        /// `deny`: in every mode, every call that changes something or goes out, whatever rules allow. `off`: nothing.
        taint: TaintPolicySetting = TaintPolicySetting::Auto, Never;
        /// How long that holds: until the session ends, or until the user's next message.
        taint_until: TaintUntil = TaintUntil::Session, Never;
        /// Tools whose output is trusted, such as `mcp__files__*`: it is neither marked as data nor remembered.
        trusted: Vec<String> = Vec::new(), Never;
        /// Files beneath the roots whose content is untrusted, such as `downloads/**`.
        untrusted: Vec<String> = Vec::new(), Append;
    }

    /// `[secrets]`
    SecretsConfig {
        /// Canaries: texts that look like secrets and are worth nothing, put where nobody should look. A call that
        /// would send one out is refused in every mode, and recorded as `secret.leak`. `helve config canary` makes one.
        canaries: Vec<String> = Vec::new(), Never;
    }

    /// `[paths]`
    PathsConfig {
        /// Paths beneath the roots that tools may neither read nor change, such as `*.pem` or `secrets/**`.
        deny_read: Vec<String> = Vec::new(), Append;
        /// Paths beneath the roots that tools may not change.
        deny_write: Vec<String> = Vec::new(), Append;
    }

    /// `[sandbox]`
    SandboxConfig {
        /// The sandbox around commands. `auto` takes the highest level that works here, for root not
        /// L1; `external` says that this machine is the sandbox; `none` has no sandbox.
        level: SandboxLevelSetting = SandboxLevelSetting::Auto, Never;
        /// Whether commands may use the network. With `allowlist` they may reach the hosts in `sandbox.allow_hosts`,
        /// through a proxy that their environment names; that needs L2 or L3, and is no network at L1.
        network: SandboxNetwork = SandboxNetwork::Off, Never;
        /// Which local (Unix) sockets commands may connect to while the network is off: those that the same command made
        /// (`own`), or also those of programs outside whose files they see (`any`). At L1 they may connect to none.
        unix_sockets: SandboxUnixSockets = SandboxUnixSockets::Own, Never;
        /// Hosts that commands may reach with `sandbox.network = "allowlist"`: `example.org`, `*.example.org` for
        /// the names beneath it, either with a port. Ports are otherwise those of http and https. A name that leads
        /// into this machine or its network is refused; a private address is reached only where it is listed itself.
        allow_hosts: Vec<String> = Vec::new(), Never;
        /// Further directories that commands may change.
        writable: Vec<ConfigPath> = Vec::new(), Never;
        /// Further directories that commands may read.
        readable: Vec<ConfigPath> = Vec::new(), Never;
        /// Names of environment variables that commands inherit beside the built-in list.
        env: Vec<String> = Vec::new(), Never;
        /// The most memory in MiB that commands may use together, where control groups can be made, and that each
        /// process may use elsewhere. Without it: three quarters of what this machine or its control group has. 0 is no
        /// limit.
        #[schemars(range(min = 0, max = 1_073_741_824))]
        memory_mb: Option<u64> = None, Never;
    }

    /// `[host]`
    HostConfig {
        /// Where commands run: in the sandbox of this machine (`local`), in a container that is made for the session's
        /// first command and removed with the session (`docker`), on another machine (`ssh`), or in an E2B sandbox
        /// (`e2b`). With `docker` files stay here, and the container has the workspace and the roots at the same paths;
        /// with `ssh` and `e2b` tools work on the files over there.
        kind: HostKind = HostKind::Local, Never;
        /// The container.
        docker: DockerConfig;
        /// The other machine.
        ssh: SshConfig;
        /// The E2B sandbox.
        e2b: E2bConfig;
    }

    /// `[host.docker]`
    DockerConfig {
        /// Where the container engine listens: `unix:///PATH` or `tcp://HOST:PORT`.
        endpoint: String = "unix:///var/run/docker.sock".to_owned(), Never;
        /// The image of the container. It needs a shell; it is pulled when it is missing.
        image: String = "debian:12".to_owned(), Never;
        /// The network of the container: `none`, `bridge`, or the name of one.
        network: String = "none".to_owned(), Never;
        /// The user of commands in the container, as `UID:GID`. Without it: you, and `nobody` where you are root.
        user: Option<String> = None, Never;
    }

    /// `[host.ssh]`
    SshConfig {
        /// The other machine. Its key must be known: an unknown host is refused.
        host: Option<String> = None, Never;
        /// The port of its SSH server.
        #[schemars(range(min = 1, max = 65_535))]
        port: u16 = 22, Never;
        /// The user over there. Without it: as `ssh` decides.
        user: Option<String> = None, Never;
        /// The private key. Without it: as `ssh` decides.
        key: Option<ConfigPath> = None, Never;
        /// The file with the keys of known hosts. Without it: the files of `ssh` itself.
        known_hosts: Option<ConfigPath> = None, Never;
        /// The workspace over there, an absolute path. Required with `host.kind = "ssh"`.
        dir: Option<String> = None, Never;
        /// The `helve` program over there. Without it: `helve` in the `PATH`.
        program: Option<String> = None, Never;
    }

    /// `[host.e2b]`
    E2bConfig {
        /// The address of the API. Without it: the service's own.
        url: Option<String> = None, Never;
        /// The name of the environment variable that holds the key.
        key_env: String = "E2B_API_KEY".to_owned(), Never;
        /// The template of the sandbox. Without it: `base`.
        template: Option<String> = None, Never;
        /// The workspace in the sandbox, an absolute path. Without it: `/home/user/workspace`.
        dir: Option<String> = None, Never;
        /// The address where sandboxes are reached. Without it: the service's own for each sandbox.
        sandbox_url: Option<String> = None, Never;
        /// The `helve` program in the template. Without it: this program is uploaded.
        program: Option<String> = None, Never;
    }

    /// `[host_commands]`
    HostCommandsConfig {
        /// Whether the commands in `host_commands.allowed` run on another machine, over `ssh`.
        enabled: bool = false, Never;
        /// The other machine. Its key must be known: an unknown host is refused.
        host: String = "host.docker.internal".to_owned(), Never;
        /// The port of its SSH server.
        #[schemars(range(min = 1, max = 65_535))]
        port: u16 = 22, Never;
        /// The user over there.
        user: Option<String> = None, Never;
        /// The private key. Over there, its line in `authorized_keys` should force `helve host-exec`, which has a list
        /// of its own.
        key: Option<ConfigPath> = None, Never;
        /// The file with the keys of known hosts; without it, those of `ssh` itself.
        known_hosts: Option<ConfigPath> = None, Never;
        /// The commands that run there. A single word is a program with any arguments, several words are exactly that
        /// command. There is no shell over there: such a command stands alone, without operators.
        allowed: Vec<String> = Vec::new(), Never;
    }

    /// `[model]`
    ModelConfig {
        /// The address of an OpenAI-compatible endpoint, such as `http://127.0.0.1:11434/v1`. Without it, a well-known
        /// key in the environment or a server on this machine decides.
        base_url: Option<String> = None, Never;
        /// The model that answers in `helve run` and `helve chat`. Without it, the first that the endpoint offers.
        name: Option<String> = None, IfUnset;
        /// The name of the environment variable that holds the endpoint's key. The key itself is in no file.
        key_env: Option<String> = None, Never;
        /// How many tokens fit into the model's context window, where the endpoint does not say.
        #[schemars(range(min = 1_024, max = 100_000_000))]
        window: Option<u64> = None, Set;
        /// A small model of the same endpoint, for questions about pages.
        small: Option<String> = None, IfUnset;
        /// US dollars for a million tokens of prompts, where the endpoint does not say.
        #[schemars(range(min = 0))]
        price_in: Option<f64> = None, Never;
        /// US dollars for a million tokens of answers.
        #[schemars(range(min = 0))]
        price_out: Option<f64> = None, Never;
    }

    /// `[agent]`
    AgentConfig {
        /// How often the model may answer in one turn of yours.
        #[schemars(range(min = 1, max = 100_000))]
        max_turns: u32 = 100, Never;
        /// Tokens of one turn, both ways.
        #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
        max_tokens: Option<u64> = None, Never;
        /// US dollars of one turn, where the price is known.
        #[schemars(range(min = 0))]
        max_cost: Option<f64> = None, Never;
        /// How long one turn may take.
        #[schemars(range(min = 1, max = 31_536_000))]
        max_time_secs: Option<Seconds> = None, Never;
        /// Further instructions at the end of the system prompt.
        system: Option<String> = None, Never;
    }

    /// `[agents]`
    AgentsConfig {
        /// Directories with agents: a Markdown file each, with a name and a description at its head.
        folders: Vec<ConfigPath> = Vec::new(), Never;
        /// Whether agents are read from `.claude/agents` of a trusted workspace too.
        claude_folder: bool = true, DisableOnly;
        /// How many agents may work at once.
        #[schemars(range(min = 1, max = 16))]
        max: usize = 16, Never;
        /// The time limit of one agent. 0 is the limit of the dialect.
        #[schemars(range(min = 0, max = 86_400))]
        time_secs: Seconds = Seconds(0), Never;
        /// The models behind the names that callers use.
        models: AgentModelsConfig;
    }

    /// `[agents.models]`
    AgentModelsConfig {
        /// The model that `sonnet` stands for when an agent is started. Without it: the main model.
        sonnet: Option<String> = None, IfUnset;
        /// The model that `opus` stands for when an agent is started. Without it: the main model.
        opus: Option<String> = None, IfUnset;
        /// The model that `haiku` stands for when an agent is started. Without it: the main model.
        haiku: Option<String> = None, IfUnset;
    }

    /// `[chat]`
    ChatConfig {
        /// Whether `helve chat` shows the model's reasoning.
        reasoning: bool = false, Set;
    }

    /// `[store]`
    StoreConfig {
        /// The file that keeps sessions, notes and schedules. Without it, `helve.db` in the state directory.
        file: Option<ConfigPath> = None, Never;
        /// The tenant whose sessions, notes and schedules are used. A tenant sees nothing of another one: neither rows of the
        /// store nor saved output, temporary files and records.
        #[schemars(extend("x-kind" = "tenant"))]
        tenant: String = DEFAULT_TENANT.to_owned(), Never;
    }

    /// `[memory]`
    MemoryConfig {
        /// Whether there is memory: notes, and the tools that keep and find them.
        enabled: bool = true, DisableOnly;
        /// How much similarity of meaning counts when notes are searched, beside `memory.weight_words`.
        #[schemars(range(min = 0))]
        weight_meaning: f64 = 0.7, Never;
        /// How much common words count when notes are searched.
        #[schemars(range(min = 0))]
        weight_words: f64 = 0.3, Never;
        /// A directory with an embedding model in model2vec's form (`model.safetensors`, `tokenizer.json`), in place of
        /// the small one inside the program.
        model: Option<ConfigPath> = None, Never;
        /// The address of an OpenAI-compatible endpoint that makes the vectors of notes, such as
        /// `http://127.0.0.1:11434/v1`. Notes and queries are sent there.
        embeddings_url: Option<String> = None, Never;
        /// The embedding model of that endpoint.
        embeddings_model: Option<String> = None, Never;
        /// The name of the environment variable that holds that endpoint's key.
        embeddings_key_env: Option<String> = None, Never;
    }

    /// `[schedule]`
    ScheduleConfig {
        /// Whether there are schedules: the tools that make them, and what runs them when they are due.
        enabled: bool = true, DisableOnly;
        /// Which calls of a scheduled run need approval, and so are refused because nobody is there. Without it:
        /// `default`.
        mode: Option<ApprovalMode> = None, Never;
        /// Whether `helve chat` runs schedules that are due while it is open.
        in_chat: bool = true, Never;
        /// The IANA name of the time zone of schedules where the model names none.
        timezone: String = "UTC".to_owned(), Never;
        /// The least time between two runs of one schedule.
        #[schemars(range(min = 60, max = 31_536_000))]
        min_interval_secs: Seconds = Seconds(60), Never;
        /// How many schedules a user may have.
        #[schemars(range(min = 0, max = 100_000))]
        max_per_user: u64 = 50, Never;
        /// Where results go of schedules that were made here, as `channel:address`.
        channel: Option<String> = None, Never;
        /// How many runs of schedules go on at once.
        #[schemars(range(min = 1, max = 1_000))]
        max_concurrent: usize = 2, Never;
        /// How often the model may answer in one run of a schedule.
        #[schemars(range(min = 1, max = 100_000))]
        max_turns: u32 = 10, Never;
        /// US dollars of one run of a schedule, where the price is known.
        #[schemars(range(min = 0))]
        max_cost: f64 = 0.5, Never;
        /// How long one run of a schedule may take.
        #[schemars(range(min = 1, max = 31_536_000))]
        max_time_secs: Seconds = Seconds(1_800), Never;
        /// How far back missed runs are made up for, where a schedule makes up for each.
        #[schemars(range(min = 1, max = 87_600))]
        window_hours: Hours = Hours(24), Never;
        /// How many runs of a schedule are kept.
        #[schemars(range(min = 1, max = 10_000))]
        keep_runs: usize = 20, Never;
        /// After how many failures in a row the owner of a schedule is notified; 0 is never.
        #[schemars(range(min = 0, max = 10_000))]
        tell_after: u32 = 3, Never;
        /// After how many failures in a row a schedule is disabled; 0 is never.
        #[schemars(range(min = 0, max = 10_000))]
        disable_after: u32 = 5, Never;
    }

    /// `[web]`
    WebConfig {
        /// Addresses inside this machine or its network that pages may be fetched from all the same: `host`,
        /// `host:port`, `*.host`, an address, or a block such as `10.0.0.0/8`.
        allow: Vec<String> = Vec::new(), Never;
        /// Whether pages are fetched only from what `web.allow` lists.
        only_allowed: bool = false, Never;
        /// The proxy for pages and searches, as `http://[user:password@]host:port`. Addresses are checked before it is
        /// asked.
        proxy: Option<String> = None, Never;
    }

    /// `[search]`
    SearchConfig {
        /// The web search service. `auto` is Exa where its key is in the environment, and else DuckDuckGo, which needs
        /// none.
        provider: SearchProvider = SearchProvider::Auto, Never;
        /// The address of the service, instead of its usual one; a SearXNG server has no usual one. It may be a private
        /// address.
        base_url: Option<String> = None, Never;
        /// The name of the environment variable that holds the service's key. Without it: `EXA_API_KEY`,
        /// `BRAVE_API_KEY`, `GOOGLE_API_KEY` or `TAVILY_API_KEY`.
        key_env: Option<String> = None, Never;
        /// The id of Google's search engine (`cx`). Without it, the variable `GOOGLE_CSE_ID`.
        engine: Option<String> = None, Never;
    }

    /// `[scrub]`
    ScrubConfig {
        /// Whether keys and tokens are redacted in replies.
        enabled: bool = true, Never;
        /// Names of environment variables whose values are redacted in replies too, and may not be sent anywhere. Those
        /// in `*.key_env` are among them.
        secrets_env: Vec<String> = Vec::new(), Never;
    }

    /// `[spill]`
    SpillConfig {
        /// How long the whole text of a shortened reply is kept.
        #[schemars(range(min = 1, max = 8_760))]
        keep_hours: Hours = Hours(24), Set;
    }
}

impl Config {
    /// All plugins, of `tools.plugins` and of `plugins`.
    pub fn all_plugins(&self) -> impl Iterator<Item = &PluginProgram> {
        self.tools.plugins.iter().chain(&self.plugins)
    }
}

impl Config {
    /// Whether plugins or MCP servers are configured, which are programs that bring tools.
    pub fn has_programs(&self) -> bool {
        !self.tools.plugins.is_empty() || !self.plugins.is_empty() || !self.mcp.servers.is_empty()
    }
}
