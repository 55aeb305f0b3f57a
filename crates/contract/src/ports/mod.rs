//! Everything a tool reaches outside of itself: one trait a port, several makers each.

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
    Activity, AgentKind, AgentReport, AgentState, Agents, Delivery, NoAgents, Order as AgentOrder, OwnAgent, TimeLimit,
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
pub use channels::{Address, Channels, NoChannels, Outgoing};
pub use clock::{Clock, WallClock};
pub use documents::{Documents, NoDocuments, PdfPages, Picture};
pub use events::{Events, follow};
pub use host::{
    Absence, Change, Chunk, Command, Content, Contents, Environment, Exit, Expect, FileHits, Find, Found, FoundFile,
    GRACE, Glance, Glimpse, Grep, Hit, HitKind, Host, Input, Item, Kind, Level, Matches, Network, NoHost, Noise,
    Noticed, Order, Output, Process, Signal, SkipReason, Skipped, Span, Stamp, Stat, Streams, Terminal, Written,
};
pub use host_layer::HostLayer;
pub use jobs::{
    ClaimedJob, Enqueued, HeldJob, Job, JobFilter, JobId, JobKind, JobResult, JobState, Jobs, NewJob, Worker,
    retry_delay,
};
pub use leases::{HeldLease, Lease, Leases, SESSION_LEASE, SessionHolder};
pub use notes::{FileMark, NewNote, Note, NoteOrigin, Notes, Recall, Recalled, Source};
pub use schedules::{
    Cadence, Claim, Claimed as ClaimedRun, Finish, Missed, Notification, Overlap, Run as ScheduleRun, RunStatus,
    Schedule, ScheduleStatus, Schedules, Scheduling, WhichSchedules,
};
pub use sessions::{
    Appended, FinishReason, InboxItem, Message, Moved, Part, Retitle, SessionRecord, Sessions, Speaker, Spent, Usage,
    Which,
};
pub use set::{Port, PortSet};
pub use slates::{Slate, Slates};
pub use store::{NoStore, Store};
pub use tasks::{NoTasks, State, TaskId, TaskInfo, TaskOutput, Tasks, Until};
pub use user::{Choice, Nobody, Question, Todo, TodoStatus, User, Verdict};
pub use web::{
    Fetch, Fetched, Freshness, NoWeb, PagePart, PageStyle, Redirects, Scheme, Supply, Web, WebQuery, WebResult,
    WebResults,
};
