//! Creates what a session needs: an engine, a session with its ports, a model.

use std::{path::PathBuf, sync::Arc};

use helve_contract::{Result, Session, TaskContext, ports::Agents};
use helve_engine::{Engine, Mode};

use crate::model::Model;

/// Makes what a session needs.
pub trait SessionFactory: Send + Sync {
    /// Tools and a session.
    fn create_session(&self, need: &SessionSpec) -> Result<(Arc<Engine>, Arc<Session>)>;
    /// A model by name; `None`: the usual one.
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>>;
    /// The model of a session that begins with `model` and may choose another one while it works.
    fn session_model(&self, _session: &str, model: Arc<dyn Model>) -> Arc<dyn Model> {
        model
    }
}

/// The specification of a session. A child never gets more than its parent has.
#[derive(Clone, Default)]
pub struct SessionSpec {
    /// The session's id. What is no UUID names one session of the user in the workspace.
    pub id: String,
    /// What people call it, where that is not the id.
    pub label: Option<String>,
    /// The dialect; `None`: the configured one, or the parent's.
    pub dialect: Option<String>,
    /// Whose it is.
    pub user: Option<String>,
    /// Which agent speaks.
    pub agent: Option<String>,
    /// The role, where the dialect has roles.
    pub role: Option<String>,
    /// Only these tools.
    pub tools: Option<Vec<String>>,
    /// Not these tools.
    pub exclude_tools: Vec<String>,
    /// What is asked before a call.
    pub mode: Option<Mode>,
    /// The directory it works in; `None`: the configured one, or the parent's.
    pub workspace: Option<PathBuf>,
    /// No user can be asked.
    pub unattended: bool,
    /// Whose child it is.
    pub parent: Option<Arc<Session>>,
    /// Who starts agents for it.
    pub agents: Option<Arc<dyn Agents>>,
    /// Further directories that it may read.
    pub extra_read_dirs: Vec<PathBuf>,
    /// What it does in a planned run.
    pub task: Option<TaskContext>,
    /// The file that its calls are recorded in, instead of one of its own.
    pub event_file: Option<PathBuf>,
}
