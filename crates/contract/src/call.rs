//! `Call`, `Session` and `Ports`: one call, the session it belongs to, and what it can reach.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Access, CancellationToken, Error, Limit, Media, Port, PortSet, Result, SafePath, Taint, Workspace, ids,
    ports::{
        Agents, Blobs, Channels, Clock, Documents, HeldLease, Host, Leases, NoAgents, NoBlobs, NoChannels, NoDocuments,
        NoStore, NoTasks, NoUser, NoWeb, RunArtifacts, ScheduleRules, Store, StoredAttachment, Tasks, User, WallClock,
        Web,
    },
};

/// The ports of a session, one field each. Each port is a trait with several implementations.
#[derive(Clone)]
pub struct Ports {
    /// File access and process execution.
    pub host: Arc<dyn Host>,
    /// Commands in the foreground and in the background.
    pub tasks: Arc<dyn Tasks>,
    /// Parser for PDF files and images.
    pub documents: Arc<dyn Documents>,
    /// Records: sessions, notes, schedules, session state.
    pub store: Arc<dyn Store>,
    /// Content addressed by its hash: attachments, undo data.
    pub blobs: Arc<dyn Blobs>,
    /// Web pages and web search.
    pub web: Arc<dyn Web>,
    /// Sub-agents.
    pub agents: Arc<dyn Agents>,
    /// The user of the session: questions, plans, settings.
    pub user: Arc<dyn User>,
    /// Channels that send messages and files to people.
    pub channels: Arc<dyn Channels>,
    /// The current time.
    pub clock: Arc<dyn Clock>,
}

impl Ports {
    /// Only the host; all other ports are placeholders. Set further ports by field.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self {
            host,
            tasks: Arc::new(NoTasks),
            documents: Arc::new(NoDocuments),
            store: Arc::new(NoStore),
            blobs: Arc::new(NoBlobs),
            web: Arc::new(NoWeb),
            agents: Arc::new(NoAgents),
            user: Arc::new(NoUser),
            channels: Arc::new(NoChannels),
            clock: Arc::new(WallClock),
        }
    }

    /// The ports that are not placeholders.
    #[must_use]
    pub fn available(&self) -> PortSet {
        let kept = self.store.keeps_records();
        let found = [
            (Port::Commands, self.tasks.is_available()),
            (Port::Web, self.web.can_fetch()),
            (Port::Search, self.web.can_search()),
            (Port::Sessions, kept),
            (Port::Memory, kept),
            (Port::Schedules, kept),
            (Port::Slates, kept),
            (Port::Agents, self.agents.is_available()),
            (Port::User, self.user.is_available()),
            (Port::Settings, self.user.has_settings()),
            (Port::Channels, !self.channels.names().is_empty()),
            (Port::HomeChannel, self.channels.has_home()),
            (Port::Attachments, self.channels.takes_attachments()),
        ];
        found.into_iter().filter(|(_, is)| *is).fold(PortSet::NONE, |set, (port, _)| set | PortSet::of(&[port]))
    }
}

/// The part of a planned run that an agent works on: task, attempt and branch.
#[derive(Clone)]
pub struct TaskContext {
    /// The id of the run.
    pub run: String,
    /// The run's name for people, such as `plan-1`. It is unique in a repository.
    pub label: String,
    /// The task; the captain and the executor have none.
    pub task: Option<String>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The branch that the agent works on.
    pub branch: Option<String>,
    /// The branch or commit that `branch` started from.
    pub base: String,
    /// The artifacts of the run. Only artifact tools and the executor use them.
    pub artifacts: RunArtifacts,
}

/// State that persists between the calls of a session.
pub struct Session {
    /// The session id. Background tasks belong to it.
    pub id: String,
    /// A name that identifies the session in its workspace.
    pub label: Option<String>,
    /// The user that owns the session.
    pub user: String,
    /// The agent that runs in the session.
    pub agent: String,
    /// The role that selects the tools, in dialects with roles.
    pub role: Option<String>,
    /// Edits may ignore differences in whitespace, indentation and quote style. Off unless the user configured it.
    pub lenient_edits: bool,
    /// The configured timeout of commands whose tool has no timeout parameter.
    pub command_timeout: Option<Duration>,
    /// The directories that the session may access.
    pub workspace: Workspace,
    /// The ports of the session.
    pub ports: Ports,
    /// The session's part of a planned run, if it belongs to one.
    pub task: Option<TaskContext>,
    /// The in-memory session in which plans are drafted, if there is one.
    pub draft_session: Option<Arc<Session>>,
    /// The operator's rules for schedules created in this session.
    pub schedule_rules: ScheduleRules,
    /// The untrusted content that the session has read.
    pub taint: Taint,
    /// Random letters known only to this session. The session id may be known to others.
    pub salt: String,
    leases: Leases,
    cwd: Mutex<Option<SafePath>>,
    plan_rules: Mutex<Vec<String>>,
}

impl Session {
    /// A session in a workspace, for the default user and agent.
    #[must_use]
    pub fn new(id: impl Into<String>, workspace: Workspace, ports: Ports) -> Self {
        Self {
            id: id.into(),
            label: None,
            user: "user".into(),
            agent: "main".into(),
            role: None,
            lenient_edits: false,
            command_timeout: None,
            workspace,
            ports,
            task: None,
            draft_session: None,
            schedule_rules: ScheduleRules::default(),
            taint: Taint::new(),
            salt: String::new(),
            leases: Leases::default(),
            cwd: Mutex::new(None),
            plan_rules: Mutex::default(),
        }
    }

    /// A copy of the session in another workspace, usually a narrower one. Commands start at its top directory.
    #[must_use]
    pub fn with_workspace(&self, workspace: Workspace) -> Self {
        Self {
            id: self.id.clone(),
            label: self.label.clone(),
            user: self.user.clone(),
            agent: self.agent.clone(),
            role: self.role.clone(),
            lenient_edits: self.lenient_edits,
            command_timeout: self.command_timeout,
            workspace,
            ports: self.ports.clone(),
            task: self.task.clone(),
            draft_session: self.draft_session.clone(),
            schedule_rules: self.schedule_rules.clone(),
            taint: self.taint.clone(),
            salt: self.salt.clone(),
            leases: self.leases.clone(),
            cwd: Mutex::new(None),
            plan_rules: Mutex::default(),
        }
    }

    /// The label, or the id where there is no label.
    #[must_use]
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }

    /// Claims this session in the store, or shares the lease that is already held. Fails with [`Error::SessionHeld`]
    /// while another process holds the lease.
    pub async fn hold(&self) -> Result<Arc<HeldLease>> {
        self.leases.hold(&self.ports.store, &self.id).await
    }

    /// Releases the lease, unless another part of this session still uses it.
    pub async fn release(&self, held: Arc<HeldLease>) -> Result<()> {
        self.leases.release(held).await
    }

    /// Writes a value of the session state, under the session's lease.
    pub async fn write_slate(&self, name: &str, value: serde_json::Value) -> Result<()> {
        let held = self.hold().await?;
        let written = self.ports.store.set_state(&held.get(), name, value).await;
        self.release(held).await?;
        written
    }

    /// Removes a value of the session state, under the session's lease. Returns whether it existed.
    pub async fn wipe_slate(&self, name: &str) -> Result<bool> {
        let held = self.hold().await?;
        let wiped = self.ports.store.delete_state(&held.get(), name).await;
        self.release(held).await?;
        wiped
    }

    /// Whether the files of a turn are stored, which lets another process continue the turn.
    #[must_use]
    pub fn stores_attachments(&self) -> bool {
        self.ports.store.keeps_records() && self.ports.blobs.is_available()
    }

    /// Records the files of the turn that begins, under the session's lease. An empty list removes those of the last
    /// turn.
    pub async fn list_attachments(&self, held: &HeldLease, files: &[StoredAttachment]) -> Result<()> {
        let (lease, store) = (held.get(), &self.ports.store);
        if files.is_empty() {
            // Skips the write in the usual case: neither this turn nor the last one has files.
            if store.get_state(&self.id, StoredAttachment::SLATE).await?.is_some() {
                store.delete_state(&lease, StoredAttachment::SLATE).await?;
            }
            return Ok(());
        }
        let list = serde_json::to_value(files).map_err(|error| Error::Internal(error.into()))?;
        store.set_state(&lease, StoredAttachment::SLATE, list).await
    }

    /// The stored files of the current turn.
    async fn stored_attachments(&self) -> Result<Vec<StoredAttachment>> {
        let slate = self.ports.store.get_state(&self.id, StoredAttachment::SLATE).await?;
        let files = slate.map(|slate| serde_json::from_value(slate.value)).transpose();
        Ok(files.map_err(|error| Error::Internal(error.into()))?.unwrap_or_default())
    }

    /// The ports that this session has.
    #[must_use]
    pub fn available(&self) -> PortSet {
        let mut set = self.ports.available();
        if self.task.is_some() {
            set = set | PortSet::of(&[Port::ForgeRun]);
        }
        if self.draft_session.is_some() {
            set = set | PortSet::of(&[Port::Draft]);
        }
        set
    }

    /// The directory that commands start in. It is the top of the workspace until a command changes it.
    pub fn cwd(&self) -> Result<SafePath> {
        let dir = self.cwd.lock().unwrap_or_else(PoisonError::into_inner);
        dir.clone().map_or_else(|| self.workspace.primary_root(Access::Read), Ok)
    }

    /// Command rules that the user approved with a plan. They apply until the turn ends.
    pub fn plan_rules(&self) -> Vec<String> {
        self.plan_rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the command rules of the approved plan. An empty list removes them.
    pub fn set_plan_rules(&self, rules: Vec<String>) {
        *self.plan_rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Sets the directory that commands start in.
    pub fn set_cwd(&self, dir: SafePath) {
        *self.cwd.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir);
    }
}

/// Receives progress while a call runs: parts of a command's output, steps of a long job.
pub type ProgressFn = Arc<dyn Fn(&str) + Send + Sync>;

/// One call. Cheap to clone.
#[derive(Clone)]
pub struct Call {
    /// The call id that the model or client sent. It need not be unique.
    pub id: String,
    /// The call's UUID in records, the same in every clone.
    pub uuid: String,
    /// The session of the call.
    pub session: Arc<Session>,
    /// Cancelled when the caller gives up.
    pub cancel: CancellationToken,
    /// Receives progress, if there is a listener.
    pub progress: Option<ProgressFn>,
    /// The caller's limit for the reply, if it is below the dialect's limit.
    pub max_reply: Option<Limit>,
    /// Remarks that the model gets in addition to the reply.
    pub remarks: Remarks,
}

/// Remarks that the model gets in addition to the reply of a call. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Remarks(Arc<Mutex<Vec<String>>>);

impl Call {
    /// Adds remarks for the model, in every dialect. Example: the owner of a file could not be preserved.
    pub fn remark(&self, texts: impl IntoIterator<Item = String>) {
        self.remarks.0.lock().unwrap_or_else(PoisonError::into_inner).extend(texts);
    }

    /// Returns the remarks so far and clears the list.
    #[must_use]
    pub fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut *self.remarks.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call in a session.
    #[must_use]
    pub fn new(id: impl Into<String>, session: Arc<Session>) -> Self {
        Self {
            id: id.into(),
            uuid: ids::new_id(),
            session,
            cancel: CancellationToken::new(),
            progress: None,
            max_reply: None,
            remarks: Remarks::default(),
        }
    }

    /// File access and process execution.
    #[must_use]
    pub fn host(&self) -> &dyn Host {
        &*self.session.ports.host
    }

    /// Running commands.
    #[must_use]
    pub fn tasks(&self) -> &dyn Tasks {
        &*self.session.ports.tasks
    }

    /// Parser for PDF files and images.
    #[must_use]
    pub fn documents(&self) -> &dyn Documents {
        &*self.session.ports.documents
    }

    /// Records: sessions, notes, schedules, session state.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.session.ports.store
    }

    /// Web pages and web search.
    #[must_use]
    pub fn web(&self) -> &dyn Web {
        &*self.session.ports.web
    }

    /// Sub-agents.
    #[must_use]
    pub fn agents(&self) -> &dyn Agents {
        &*self.session.ports.agents
    }

    /// The user of the session.
    #[must_use]
    pub fn user(&self) -> &dyn User {
        &*self.session.ports.user
    }

    /// Channels that send messages and files to people.
    #[must_use]
    pub fn channels(&self) -> &dyn Channels {
        &*self.session.ports.channels
    }

    /// Content addressed by its hash.
    #[must_use]
    pub fn blobs(&self) -> &dyn Blobs {
        &*self.session.ports.blobs
    }

    /// The file number `index`, from 0, that the user sent with the turn of this call. `None` if there is no such file.
    pub async fn attachment(&self, index: usize) -> Result<Option<Media>> {
        if let Some(file) = self.channels().attachment(self, index).await? {
            return Ok(Some(file));
        }
        let Some(file) = self.session.stored_attachments().await?.into_iter().nth(index) else { return Ok(None) };
        match self.blobs().get(&file.blob).await? {
            Some(bytes) => Ok(Some(Media { mime: file.mime, bytes })),
            None => Err(Error::failed(format!(
                "the content of the attachment {} is no longer stored. Ask the user to send it again",
                file.name
            ))),
        }
    }

    /// The number of files that the user sent with the turn of this call.
    pub async fn count_attachments(&self) -> Result<usize> {
        let mut count = 0;
        while count < 64 && self.channels().attachment(self, count).await?.is_some() {
            count += 1;
        }
        Ok(if count > 0 { count } else { self.session.stored_attachments().await?.len() })
    }

    /// The current time of the session's clock.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        self.session.ports.clock.now()
    }

    /// The run and task of this call. An error outside planned runs.
    pub fn task_context(&self) -> Result<&TaskContext> {
        self.session.task.as_ref().ok_or_else(|| {
            Error::failed(format!("{}; begin one with `helve forge plan`", Port::ForgeRun.why_missing()))
        })
    }

    /// A copy of the call in the session where plans are drafted.
    pub fn in_draft_session(&self) -> Result<Self> {
        let session = self.session.draft_session.clone();
        let session = session.ok_or_else(|| Error::failed(Port::Draft.why_missing()))?;
        Ok(Self { session, ..self.clone() })
    }

    /// Checks a path that this call reads.
    pub fn check_read(&self, path: impl AsRef<Path>) -> Result<SafePath> {
        self.session.workspace.check(path.as_ref(), Access::Read, None)
    }

    /// Checks a path that this call changes.
    pub fn check_write(&self, path: impl AsRef<Path>) -> Result<SafePath> {
        self.session.workspace.check(path.as_ref(), Access::Write, None)
    }

    /// The top of the workspace, for tools whose path is optional.
    pub fn workspace_root(&self) -> Result<SafePath> {
        self.session.workspace.primary_root(Access::Read)
    }

    /// Sends progress text to the caller.
    pub fn report_progress(&self, text: &str) {
        if let Some(progress) = &self.progress {
            progress(text);
        }
    }

    /// Returns an error if the caller cancelled the call. Long loops call this regularly.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
