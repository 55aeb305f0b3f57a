//! Delivers results of schedules to the session that created them.

use std::sync::Arc;

use helve_contract::{
    async_trait,
    ports::{InboxItem, MessageRole, Schedule, Store},
};

use super::{ScheduleNotifier, SessionDelivery};

/// Adds each result to the session that created the schedule. It also goes to the schedule's channel, if it has one;
/// otherwise to the next notifier only if the session did not get it.
pub struct ToOrigin {
    /// Where sessions are kept.
    pub store: Arc<dyn Store>,
    /// The sessions that are open in this process, where there are any.
    pub live: Option<Arc<dyn SessionDelivery>>,
    /// Who else is told: a channel, or the log.
    pub next: Arc<dyn ScheduleNotifier>,
}

#[async_trait]
impl ScheduleNotifier for ToOrigin {
    async fn notify(&self, schedule: &Schedule, text: &str) -> bool {
        let reached = self.deliver(schedule, text).await;
        if reached && schedule.channel.is_none() {
            return true;
        }
        self.next.notify(schedule, text).await || reached
    }
}

impl ToOrigin {
    async fn deliver(&self, schedule: &Schedule, text: &str) -> bool {
        // What runs in a session has said there what it has to say.
        let origin = schedule.origin.as_deref().filter(|_| schedule.session.is_none());
        let Some(origin) = origin else { return false };
        let note = note(schedule, text);
        if let Some(live) = &self.live
            && live.note(origin, &note).await
        {
            return true;
        }
        self.append(origin, &schedule.user, note).await.unwrap_or(false)
    }

    /// Leaves a note in the inbox of a session that is not open here.
    async fn append(&self, session: &str, user: &str, text: String) -> helve_contract::Result<bool> {
        let record = self.store.get_session(session).await?;
        if record.is_none_or(|it| it.user != user) {
            return Ok(false);
        }
        self.store.post(session, &InboxItem::text(MessageRole::System, text)).await?;
        Ok(true)
    }
}

/// What the session reads: the result as data, between marks that it cannot end itself.
fn note(schedule: &Schedule, text: &str) -> String {
    let name = schedule.name.as_deref().unwrap_or(&schedule.id).replace(['"', '<', '>'], "'");
    let text = text.trim().replace("</schedule_result", "&lt;/schedule_result");
    format!("<schedule_result schedule=\"{name}\">\n{text}\n</schedule_result>")
}
