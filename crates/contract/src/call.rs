//! One call: who asks, where, and what it may reach.

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

/// What a session can reach. One field a port; each port is a trait with several makers.
#[derive(Clone)]
pub struct Ports {
    /// Files, and where programs run.
    pub host: Arc<dyn Host>,
    /// Running commands, in the foreground and in the background.
    pub tasks: Arc<dyn Tasks>,
    /// Reading of PDF files and pictures.
    pub documents: Arc<dyn Documents>,
    /// Records: conversations, notes, schedules, slates.
    pub store: Arc<dyn Store>,
    /// Content by its hash: attachments, undo data.
    pub blobs: Arc<dyn Blobs>,
    /// Pages and searches.
    pub web: Arc<dyn Web>,
    /// Other agents.
    pub agents: Arc<dyn Agents>,
    /// The person at the other end.
    pub user: Arc<dyn User>,
    /// Messages and files to people.
    pub channels: Arc<dyn Channels>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl Ports {
    /// Files, and nothing else: whatever more a session can reach is put in by field.
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

    /// The ports that are more than placeholders.
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

/// What an agent does in a planned run: which task, which attempt, on which branch.
#[derive(Clone)]
pub struct TaskContext {
    /// The id of the run.
    pub run: String,
    /// The name of the run for people, such as `plan-1`. It names one run of a repository.
    pub label: String,
    /// The task; the captain and the executor have none.
    pub task: Option<String>,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// The branch it works on.
    pub branch: Option<String>,
    /// What that branch came from.
    pub base: String,
    /// The artifacts of the run. Only artifact tools and the executor use them.
    pub artifacts: RunArtifacts,
}

/// What lasts from one call of a conversation to the next.
pub struct Session {
    /// Its id; background tasks and the like are bound to it.
    pub id: String,
    /// A name by which people and programs find it in its workspace.
    pub label: Option<String>,
    /// Whose it is.
    pub user: String,
    /// Which agent speaks.
    pub agent: String,
    /// The role that decides which tools there are, where the dialect has roles.
    pub role: Option<String>,
    /// Edits may match without regard to blanks, indentation and the style of quotes: only where the user configured it.
    pub lenient_edits: bool,
    /// How long a command may run whose tool has no parameter for it, where the user configured it.
    pub command_timeout: Option<Duration>,
    /// Where it may go.
    pub workspace: Workspace,
    /// What it can reach.
    pub ports: Ports,
    /// What it does in a planned run, if it belongs to one.
    pub task: Option<TaskContext>,
    /// The session in memory that plans are drafted in, where there is one.
    pub draft_session: Option<Arc<Session>>,
    /// The operator's rules for schedules that are made here.
    pub schedule_rules: ScheduleRules,
    /// What it remembers of strangers' words that came in.
    pub taint: Taint,
    /// Random letters that only this session knows, where its id may be known to others.
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

    /// The same session in another workspace, such as a smaller one. Commands start at its top.
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

    /// The name by which people and programs know it: its label, or else its id.
    #[must_use]
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }

    /// Claims this session in the store, or shares the lease that is held already. Fails with
    /// [`Error::SessionHeld`] while another process works in it.
    pub async fn hold(&self) -> Result<Arc<HeldLease>> {
        self.leases.hold(&self.ports.store, &self.id).await
    }

    /// Gives the lease back, unless another part of this session still uses it.
    pub async fn release(&self, held: Arc<HeldLease>) -> Result<()> {
        self.leases.release(held).await
    }

    /// Writes one of the small records of this session, under its lease.
    pub async fn write_slate(&self, name: &str, value: serde_json::Value) -> Result<()> {
        let held = self.hold().await?;
        let written = self.ports.store.set_state(&held.get(), name, value).await;
        self.release(held).await?;
        written
    }

    /// Removes one of the small records of this session, under its lease. Whether there was one.
    pub async fn wipe_slate(&self, name: &str) -> Result<bool> {
        let held = self.hold().await?;
        let wiped = self.ports.store.delete_state(&held.get(), name).await;
        self.release(held).await?;
        wiped
    }

    /// Whether the files of a turn are stored, so that another process can continue the turn.
    #[must_use]
    pub fn stores_attachments(&self) -> bool {
        self.ports.store.keeps_records() && self.ports.blobs.is_available()
    }

    /// Lists the files of the turn that begins, under the session's lease. An empty list removes those of the last turn.
    pub async fn list_attachments(&self, held: &HeldLease, files: &[StoredAttachment]) -> Result<()> {
        let (lease, store) = (held.get(), &self.ports.store);
        if files.is_empty() {
            // Most turns have no files, and neither had the turn before.
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

    /// The folder that commands start in: the top of the workspace until a command went elsewhere.
    pub fn cwd(&self) -> Result<SafePath> {
        let dir = self.cwd.lock().unwrap_or_else(PoisonError::into_inner);
        dir.clone().map_or_else(|| self.workspace.primary_root(Access::Read), Ok)
    }

    /// Command rules that the user approved together with a plan; they hold until its work ends.
    pub fn plan_rules(&self) -> Vec<String> {
        self.plan_rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the command rules that hold while a plan is carried out. An empty list ends them.
    pub fn set_plan_rules(&self, rules: Vec<String>) {
        *self.plan_rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Commands start here from now on.
    pub fn set_cwd(&self, dir: SafePath) {
        *self.cwd.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir);
    }
}

/// Takes what a call wants to say while it runs: pieces of a command's output, steps of a long job.
pub type ProgressFn = Arc<dyn Fn(&str) + Send + Sync>;

/// One call. Cheap to clone.
#[derive(Clone)]
pub struct Call {
    /// The call's id, as the model or client gave it. Others may have the same one.
    pub id: String,
    /// The identity of the call in records: a UUID, the same in every clone.
    pub uuid: String,
    /// The conversation it belongs to.
    pub session: Arc<Session>,
    /// Set when the caller gives up.
    pub cancel: CancellationToken,
    /// Where progress goes, if anybody listens.
    pub progress: Option<ProgressFn>,
    /// The most that the caller takes of the reply, where that may be less than the dialect's limit.
    pub max_reply: Option<Limit>,
    /// What the model is told beside the reply.
    pub remarks: Remarks,
}

/// What the model is told beside the reply of a call. Clones share the same list.
#[derive(Clone, Debug, Default)]
pub struct Remarks(Arc<Mutex<Vec<String>>>);

impl Call {
    /// Tells the model something beside the reply, in every dialect: a file's owner could not be kept.
    pub fn remark(&self, texts: impl IntoIterator<Item = String>) {
        self.remarks.0.lock().unwrap_or_else(PoisonError::into_inner).extend(texts);
    }

    /// The remarks so far, which are then gone.
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

    /// Files, and where programs run.
    #[must_use]
    pub fn host(&self) -> &dyn Host {
        &*self.session.ports.host
    }

    /// Running commands.
    #[must_use]
    pub fn tasks(&self) -> &dyn Tasks {
        &*self.session.ports.tasks
    }

    /// Reading of PDF files and pictures.
    #[must_use]
    pub fn documents(&self) -> &dyn Documents {
        &*self.session.ports.documents
    }

    /// Records: conversations, notes, schedules, slates.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.session.ports.store
    }

    /// Pages and searches.
    #[must_use]
    pub fn web(&self) -> &dyn Web {
        &*self.session.ports.web
    }

    /// Other agents.
    #[must_use]
    pub fn agents(&self) -> &dyn Agents {
        &*self.session.ports.agents
    }

    /// The person at the other end.
    #[must_use]
    pub fn user(&self) -> &dyn User {
        &*self.session.ports.user
    }

    /// Messages and files to people.
    #[must_use]
    pub fn channels(&self) -> &dyn Channels {
        &*self.session.ports.channels
    }

    /// Content by its hash.
    #[must_use]
    pub fn blobs(&self) -> &dyn Blobs {
        &*self.session.ports.blobs
    }

    /// A file that the user sent with the turn that this call belongs to, by its number from 0. `None`: there is none.
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

    /// How many files the user sent with the turn that this call belongs to.
    pub async fn count_attachments(&self) -> Result<usize> {
        let mut count = 0;
        while count < 64 && self.channels().attachment(self, count).await?.is_some() {
            count += 1;
        }
        Ok(if count > 0 { count } else { self.session.stored_attachments().await?.len() })
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        self.session.ports.clock.now()
    }

    /// The run and task that this call belongs to.
    pub fn task_context(&self) -> Result<&TaskContext> {
        self.session.task.as_ref().ok_or_else(|| {
            Error::failed(format!("{}; begin one with `helve forge plan`", Port::ForgeRun.why_missing()))
        })
    }

    /// The same call in the session that plans are drafted in.
    pub fn in_draft_session(&self) -> Result<Self> {
        let session = self.session.draft_session.clone();
        let session = session.ok_or_else(|| Error::failed(Port::Draft.why_missing()))?;
        Ok(Self { session, ..self.clone() })
    }

    /// A path this call may read.
    pub fn check_read(&self, path: impl AsRef<Path>) -> Result<SafePath> {
        self.session.workspace.check(path.as_ref(), Access::Read, None)
    }

    /// A path this call may change.
    pub fn check_write(&self, path: impl AsRef<Path>) -> Result<SafePath> {
        self.session.workspace.check(path.as_ref(), Access::Write, None)
    }

    /// The top of the workspace, for tools whose path may be left out.
    pub fn workspace_root(&self) -> Result<SafePath> {
        self.session.workspace.primary_root(Access::Read)
    }

    /// Says something to whoever waits for the call.
    pub fn report_progress(&self, text: &str) {
        if let Some(progress) = &self.progress {
            progress(text);
        }
    }

    /// An error if the caller has given up; long loops ask now and then.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
