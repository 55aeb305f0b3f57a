//! Settings of Helve: the typed configuration, the layers that set it, trust in project files, and the state directory.
//!
//! [`Settings::load`] reads all layers; [`Settings::config`] holds the values. [`Config`] lists every setting.

mod config;
mod keys;
mod layers;
mod source;
pub mod state;
#[cfg(any(test, fuzzing))]
pub mod trials;
mod trust;
mod values;

pub use config::{
    AgentConfig, AgentModelsConfig, AgentsConfig, ApprovalConfig, ChatConfig, Config, DockerConfig, E2bConfig,
    HostCommandsConfig, HostConfig, McpConfig, MemoryConfig, ModelConfig, PathsConfig, PlanConfig, PolicyConfig,
    SandboxConfig, ScheduleConfig, ScrubConfig, SearchConfig, SecretsConfig, ShellConfig, SpillConfig, SshConfig,
    StoreConfig, ToolsConfig, WebConfig,
};
pub use keys::{ProjectPolicy, SETTINGS, SettingKey, SettingType, shown};
pub use layers::{CliOverride, EffectiveSetting, ProjectFileStatus, ProjectPlugins, SettingSource, Settings};
pub use source::{project_file, read_limited, user_file, xdg_dir};
pub use trust::TrustStore;
pub use values::{
    ApprovalMode, ChannelTable, ConfigPath, DialectName, EventsTarget, HostKind, Hours, McpServer, McpTransport,
    PluginProgram, RootDir, SandboxLevelSetting, SandboxNetwork, SandboxUnixSockets, SearchProvider, Seconds,
    TaintPolicySetting, TaintUntil, Theme, WasmModule,
};
