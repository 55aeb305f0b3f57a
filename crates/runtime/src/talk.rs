//! Conversations: finding one, beginning one, taking one up again.

use std::{path::PathBuf, sync::Arc};

use helve_agent::{Agent, Inbox, Need, Seat, Supervisor, Watcher, Workshop as _, prompt};
use helve_contract::{
    Error, ids,
    ports::{SessionRecord, Store, Which},
};

use crate::{fault::Fault, setup, workshop::Bench};

/// Which conversation is wanted.
#[derive(Clone, Debug, Default)]
pub enum Wanted {
    /// A new one.
    #[default]
    New,
    /// The last one of this workspace.
    Last,
    /// This one.
    Of(Box<SessionRecord>),
}

/// A conversation that is open.
pub struct Talk {
    /// The loop.
    pub agent: Agent,
    /// Who keeps the agents that it starts.
    pub supervisor: Arc<Supervisor>,
    /// Its place there: its agents end with it.
    pub seat: Seat,
    /// Whether it was there before.
    pub resumed: bool,
}

/// How a conversation is opened.
#[derive(Default)]
pub struct How {
    /// The dialect of a new one.
    pub dialect: Option<String>,
    /// The model, where it is not the usual one.
    pub model: Option<String>,
    /// Where the words of agents go that end in the background; without it they wait for the next turn.
    pub inbox: Option<Inbox>,
}

/// Opens a conversation.
pub async fn open(bench: &Arc<Bench>, wanted: Wanted, how: How, watcher: Watcher) -> Result<Talk, Fault> {
    let record = match wanted {
        Wanted::New => None,
        Wanted::Of(record) => Some(*record),
        Wanted::Last => Some(last(bench).await?),
    };
    if let Some(record) = &record {
        let here = bench.settings().workspace.to_string_lossy();
        if record.workspace != here {
            return Err(Fault::usage(format!(
                "the conversation {} works in {}; go there, or name it with --workspace",
                record.id, record.workspace
            )));
        }
        if let Some(holder) = bench.store().session_holder(&record.id).await? {
            return Err(Error::SessionHeld(Box::new(holder)).into());
        }
    }
    let need = Need {
        id: record.as_ref().map_or_else(ids::new_id, |it| it.id.clone()),
        dialect: record.as_ref().map(|it| it.dialect.clone()).or(how.dialect),
        user: record.as_ref().map(|it| it.user.clone()),
        agent: record.as_ref().map(|it| it.agent.clone()),
        reads: record.as_ref().and_then(|it| former_spill(bench, it)).into_iter().collect(),
        ..Need::default()
    };
    let supervisor = bench.supervisor(need.dialect.as_deref().unwrap_or(bench.settings().dialect()));
    let need = Need { agents: Some(supervisor.clone()), ..need };
    let (engine, session) = bench.equip(&need)?;
    let model = bench.session_model(&session.id, bench.model(how.model.as_deref())?);
    let mut agent = Agent::new(engine.clone(), session.clone(), model);
    agent.system = prompt::system(&engine, &session, "").await;
    if let Some(more) = &bench.settings().config.agent.system {
        agent.system.push_str("\n\n");
        agent.system.push_str(more);
    }
    agent.budget = bench.budget();
    agent.watcher = watcher;
    let seat = match how.inbox {
        Some(inbox) => supervisor.seat_with(&mut agent, inbox),
        None => supervisor.seat(&mut agent),
    };
    Ok(Talk { agent, supervisor, seat, resumed: record.is_some() })
}

/// The folder of saved outputs that a session had before sessions had UUIDs. Its messages name files in it.
fn former_spill(bench: &Bench, record: &SessionRecord) -> Option<PathBuf> {
    let is_former = |it: &&String| it.len() == 16 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    let folder = bench.tenant_dir().join("spill").join(record.label.as_ref().filter(is_former)?);
    folder.is_dir().then_some(folder)
}

/// The last conversation of this workspace.
async fn last(bench: &Bench) -> Result<SessionRecord, Fault> {
    let workspace = bench.settings().workspace.to_string_lossy().into_owned();
    let user = Some(setup::user(bench.settings()));
    let which = Which { user, top_only: true, workspace: Some(workspace.clone()), most: 1, ..Which::default() };
    let (found, _) = bench.store().conversations(&which).await?;
    found.into_iter().next().ok_or_else(|| {
        Fault::usage(format!(
            "there is no conversation in {workspace} to go on with; leave --continue out to begin one"
        ))
    })
}

/// The conversation of this user with this id or label, or whose id begins or ends so. Ids begin with the time,
/// so ends tell better. Those of other users are answered like missing ones.
pub async fn named(store: &dyn Store, id: &str, user: &str) -> Result<SessionRecord, Fault> {
    if let Some(record) = store.conversation(id).await?.filter(|it| it.user == user) {
        return Ok(record);
    }
    let labelled = Which { user: Some(user.to_owned()), label: Some(id.to_owned()), most: 2, ..Which::default() };
    match store.conversations(&labelled).await? {
        (mut found, 1) => return Ok(found.remove(0)),
        (_, 0) => {}
        _ => {
            return Err(Fault::usage(format!(
                "several conversations have the label `{id}`; name one by its id, which `helve sessions list` shows"
            )));
        }
    }
    let (mut found, mut offset) = (Vec::new(), 0);
    loop {
        let which = Which { user: Some(user.to_owned()), offset, most: 500, ..Which::default() };
        let (page, _) = store.conversations(&which).await?;
        offset += page.len() as u64;
        let ended = page.is_empty();
        found.extend(page.into_iter().filter(|it| !id.is_empty() && (it.id.starts_with(id) || it.id.ends_with(id))));
        if ended || found.len() > 1 {
            break;
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Fault::usage(format!("there is no conversation `{id}`; `helve sessions list` shows them"))),
        _ => Err(Fault::usage(format!(
            "several conversations begin or end with `{id}`; write more of the id, best its end"
        ))),
    }
}
