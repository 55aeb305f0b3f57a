//! Sessions with an agent loop: finds, creates and resumes them.

use std::{path::PathBuf, sync::Arc};

use helve_agent::{Agent, AgentListener, Inbox, Registration, SessionFactory as _, SessionSpec, Supervisor, prompt};
use helve_contract::{
    Error, ids,
    ports::{SessionFilter, SessionRecord, Store},
};

use crate::{fault::CliError, setup, workshop::HelveRuntime};

/// Which session to open.
#[derive(Clone, Debug, Default)]
pub enum Wanted {
    /// A new one.
    #[default]
    New,
    /// The last one of this workspace.
    Last,
    /// This one.
    Existing(Box<SessionRecord>),
}

/// A session that is open.
pub struct OpenConversation {
    /// The loop.
    pub agent: Agent,
    /// The supervisor of the agents that it starts.
    pub supervisor: Arc<Supervisor>,
    /// Its registration there: its agents end with it.
    pub registration: Registration,
    /// Whether it existed before.
    pub is_resumed: bool,
}

/// How a session is opened.
#[derive(Default)]
pub struct How {
    /// The dialect of a new one.
    pub dialect: Option<String>,
    /// The model, if it is not the default.
    pub model: Option<String>,
    /// Receives reports of background agents; without it they wait for the next turn.
    pub inbox: Option<Inbox>,
}

/// Opens a session.
pub async fn open(
    bench: &Arc<HelveRuntime>,
    wanted: Wanted,
    how: How,
    watcher: AgentListener,
) -> Result<OpenConversation, CliError> {
    let record = match wanted {
        Wanted::New => None,
        Wanted::Existing(record) => Some(*record),
        Wanted::Last => Some(last(bench).await?),
    };
    if let Some(record) = &record {
        let here = bench.settings().workspace.to_string_lossy();
        if record.workspace != here {
            return Err(CliError::usage(format!(
                "the conversation {} works in {}; go there, or name it with --workspace",
                record.id, record.workspace
            )));
        }
        if let Some(holder) = bench.store().session_holder(&record.id).await? {
            return Err(Error::SessionHeld(Box::new(holder)).into());
        }
    }
    let need = SessionSpec {
        id: record.as_ref().map_or_else(ids::new_id, |it| it.id.clone()),
        dialect: record.as_ref().map(|it| it.dialect.clone()).or(how.dialect),
        user: record.as_ref().map(|it| it.user.clone()),
        agent: record.as_ref().map(|it| it.agent.clone()),
        extra_read_dirs: record.as_ref().and_then(|it| former_spill(bench, it)).into_iter().collect(),
        ..SessionSpec::default()
    };
    let supervisor = bench.supervisor(need.dialect.as_deref().unwrap_or(bench.settings().dialect()));
    let need = SessionSpec { agents: Some(supervisor.clone()), ..need };
    let (engine, session) = bench.create_session(&need)?;
    let model = bench.session_model(&session.id, bench.model(how.model.as_deref())?);
    let mut agent = Agent::new(engine.clone(), session.clone(), model);
    agent.system_prompt = prompt::system_prompt(&engine, &session, "").await;
    if let Some(more) = &bench.settings().config.agent.system {
        agent.system_prompt.push_str("\n\n");
        agent.system_prompt.push_str(more);
    }
    agent.budget = bench.budget();
    agent.listener = watcher;
    let seat = match how.inbox {
        Some(inbox) => supervisor.register_with_inbox(&mut agent, inbox),
        None => supervisor.register(&mut agent),
    };
    Ok(OpenConversation { agent, supervisor, registration: seat, is_resumed: record.is_some() })
}

/// The directory of saved outputs from before sessions had UUIDs. Messages name files in it.
fn former_spill(bench: &HelveRuntime, record: &SessionRecord) -> Option<PathBuf> {
    let is_former = |it: &&String| it.len() == 16 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    let folder = bench.tenant_dir().join("spill").join(record.label.as_ref().filter(is_former)?);
    folder.is_dir().then_some(folder)
}

/// The last session of this workspace.
async fn last(bench: &HelveRuntime) -> Result<SessionRecord, CliError> {
    let workspace = bench.settings().workspace.to_string_lossy().into_owned();
    let user = Some(setup::user(bench.settings()));
    let which = SessionFilter {
        user,
        top_level_only: true,
        workspace: Some(workspace.clone()),
        limit: 1,
        ..SessionFilter::default()
    };
    let (found, _) = bench.store().list_sessions(&which).await?;
    found.into_iter().next().ok_or_else(|| {
        CliError::usage(format!(
            "there is no conversation in {workspace} to go on with; leave --continue out to begin one"
        ))
    })
}

/// The session of this user with this id or label, or with this prefix or suffix of the id. Ids start with a time, so
/// suffixes are more distinctive. Sessions of other users count as missing.
pub async fn named(store: &dyn Store, id: &str, user: &str) -> Result<SessionRecord, CliError> {
    if let Some(record) = store.get_session(id).await?.filter(|it| it.user == user) {
        return Ok(record);
    }
    let labelled =
        SessionFilter { user: Some(user.to_owned()), label: Some(id.to_owned()), limit: 2, ..SessionFilter::default() };
    match store.list_sessions(&labelled).await? {
        (mut found, 1) => return Ok(found.remove(0)),
        (_, 0) => {}
        _ => {
            return Err(CliError::usage(format!(
                "several conversations have the label `{id}`; name one by its id, which `helve sessions list` shows"
            )));
        }
    }
    let (mut found, mut offset) = (Vec::new(), 0);
    loop {
        let which = SessionFilter { user: Some(user.to_owned()), offset, limit: 500, ..SessionFilter::default() };
        let (page, _) = store.list_sessions(&which).await?;
        offset += page.len() as u64;
        let ended = page.is_empty();
        found.extend(page.into_iter().filter(|it| !id.is_empty() && (it.id.starts_with(id) || it.id.ends_with(id))));
        if ended || found.len() > 1 {
            break;
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(CliError::usage(format!("there is no conversation `{id}`; `helve sessions list` shows them"))),
        _ => Err(CliError::usage(format!(
            "several conversations begin or end with `{id}`; write more of the id, best its end"
        ))),
    }
}
