//! `sessions_list`: the user's sessions, the last used first.

use helve_contract::{
    Call, Effects, Port, PortSet, Reply, Result, Tool,
    ports::{SessionFilter, SessionRecord},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::single_line;

/// Lists the user's conversations, the last used first.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct SessionsListTool {
    /// How many at most (20).
    #[serde(default)]
    pub limit: Option<u64>,
}

/// Sessions.
#[derive(Clone, Debug)]
pub struct SessionsListOutput {
    /// The last used first.
    pub sessions: Vec<SessionRecord>,
    /// How many there are in all.
    pub total: u64,
}

impl Tool for SessionsListTool {
    const NAME: &'static str = "sessions_list";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Sessions]);
    type Output = SessionsListOutput;

    async fn run(self, call: &Call) -> Result<SessionsListOutput> {
        let most = self.limit.filter(|&limit| limit > 0).unwrap_or(20).min(500);
        let which = SessionFilter { user: Some(call.session.user.clone()), limit: most, ..SessionFilter::default() };
        let (sessions, total) = call.store().list_sessions(&which).await?;
        Ok(SessionsListOutput { sessions, total })
    }
}

impl From<SessionsListOutput> for Reply {
    /// 000's lines: `id`, `title`, `messages=N`, `created=…`, `updated=…`, with tabs between.
    fn from(SessionsListOutput { sessions, total }: SessionsListOutput) -> Self {
        if sessions.is_empty() {
            return "No sessions found".into();
        }
        let mut lines: Vec<_> = sessions.iter().map(line).collect();
        if total > sessions.len() as u64 {
            lines.push(format!("[{} of {total} sessions, the last used first]", sessions.len()));
        }
        Self { text: lines.join("\n"), data: Some(json!({ "sessions": sessions, "total": total })), ..Self::default() }
    }
}

fn line(it: &SessionRecord) -> String {
    let title = single_line(&it.title);
    format!("{}\t{title}\tmessages={}\tcreated={}\tupdated={}", it.id, it.messages, it.created, it.updated)
}
