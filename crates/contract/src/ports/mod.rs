//! The ports: one trait for each kind of external resource that a tool can use, with several implementations.

mod agents;
mod artifacts;
mod attachments;
mod blobs;
mod channel_settings;
mod channels;
mod clock;
mod documents;
mod events;
mod host;
mod host_layer;
mod jobs;
mod leases;
mod notes;
mod schedules;
mod sessions;
mod set;
mod slates;
mod store;
mod tasks;
mod user;
mod web;

pub use agents::{
    Activity, AgentKind, AgentReport, AgentStatus, Agents, CurrentAgent, Delivery, NoAgents,
    SubAgentRequest as AgentOrder, TimeLimit,
};
pub use artifacts::{
    Artifact, ArtifactVersion, Artifacts, ExpectedVersion, MAX_ARTIFACT, RUN_LEASE, RunArtifacts, check_artifact_path,
    check_artifact_write, check_run_name,
};
pub use attachments::{Attachment, AttachmentLimits, StoredAttachment};
pub use blobs::{BlobId, BlobStream, Blobs, InvalidBlobId, MAX_BLOB, NoBlobs};
pub use channel_settings::{
    ChannelKind, ChannelSettings, LogChannel, MailChannel, MailTls, SignalChannel, WebhookChannel,
};
pub use channels::{ChannelAddress, Channels, NoChannels, OutgoingFile};
pub use clock::{Clock, WallClock};
pub use documents::{Documents, Image, NoDocuments, PdfPages};
pub use events::{Events, follow};
pub use host::{
    ContentDigest, ContentHasher, DirEntry, DirListing, EnvVars, Expect, FileChange, FileChunk, FileKind, FileMatches,
    FileStamp, FindQuery, FindResult, FoundFile, GrepOutputMode, GrepQuery, GrepResult, Host, IgnoreOptions,
    ListOptions, MatchLine, MatchLineKind, NetworkAccess, NoHost, NoMatchDiagnostics, Process, ProcessEvent,
    ProcessExit, ProcessSpec, SandboxLevel, Signal, SkipReason, Skipped, SortOrder, Span, Stat, StdinSource, Streams,
    TERMINATION_GRACE, TerminalSize, WriteOutcome,
};
pub use host_layer::HostLayer;
pub use jobs::{
    ClaimedJob, Enqueued, HeldJob, Job, JobFilter, JobId, JobKind, JobResult, JobState, Jobs, NewJob, Worker,
    retry_delay,
};
pub use leases::{HeldLease, Lease, Leases, SESSION_LEASE, SessionHolder};
pub use notes::{FileRevision, MemoryHit, MemoryQuery, MemorySource, NewNote, Note, NoteOrigin, Notes};
pub use schedules::{
    Cadence, Claimed as ClaimedRun, LeaseClaim, MissedRunPolicy, Notification, OverlapPolicy, RunCompletion, Schedule,
    ScheduleFilter, ScheduleRules, ScheduleRun, ScheduleRunStatus, ScheduleStatus, Schedules,
};
pub use sessions::{
    Appended, FinishReason, InboxItem, Message, MessagePart, MessageRole, Moved, SessionFilter, SessionRecord,
    SessionUpdate, Sessions, TokenUsage, UsageRecord,
};
pub use set::{Port, PortSet};
pub use slates::{SessionState, StateValue};
pub use store::{NoStore, Store};
pub use tasks::{NoTasks, ProcessStatus, TaskId, TaskInfo, TaskOutput, Tasks, WaitUntil};
pub use user::{NoUser, PlanDecision, Question, QuestionOption, Todo, TodoStatus, User};
pub use web::{
    FetchRequest, FetchResponse, Freshness, NoWeb, PageFormat, PageScope, PageSource, RedirectPolicy, SchemePolicy,
    Web, WebQuery, WebResult, WebResults,
};
