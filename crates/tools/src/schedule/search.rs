//! `schedule_search`: which schedules there are, page by page.

use std::time::Duration;

use helve_contract::{
    Call, Effects, Port, PortSet, Reply, Result, Tool,
    ports::{Notification, Schedule, ScheduleFilter, ScheduleStatus},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::CadenceType;

/// How large a page is at most, in bytes of JSON: less than any dialect's answer may have.
const MAX_PAGE_BYTES: usize = 12 << 10;

/// Lists your schedules, newest first, in pages.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct ScheduleSearchTool {
    /// Part of the name.
    #[serde(default)]
    pub name: Option<String>,
    /// In this state.
    #[serde(default)]
    pub status: Option<ScheduleStatus>,
    /// Of this kind.
    #[serde(default)]
    pub cadence_type: Option<CadenceType>,
    /// With this notification.
    #[serde(default)]
    pub notification: Option<Notification>,
    /// How many at most: 20 unless told, 50 at most.
    #[serde(default)]
    pub limit: Option<u64>,
    /// How many to skip.
    #[serde(default)]
    pub offset: u64,
}

/// A page of schedules.
#[derive(Clone, Debug)]
pub struct ScheduleSearchOutput {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// How many there are in all.
    pub total: u64,
    /// How many were skipped.
    pub offset: u64,
    /// How many were wanted.
    pub limit: u64,
}

impl Tool for ScheduleSearchTool {
    const NAME: &'static str = "schedule_search";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScheduleSearchOutput;

    async fn run(self, call: &Call) -> Result<ScheduleSearchOutput> {
        let limit = self.limit.unwrap_or(20).clamp(1, 50);
        let which = ScheduleFilter {
            user: Some(super::user(call)?.to_owned()),
            name: self.name.filter(|it| !it.trim().is_empty()),
            status: self.status,
            cadence: self.cadence_type.map(|it| it.as_str().to_owned()),
            notification: self.notification,
            session: None,
            offset: self.offset,
            limit,
        };
        let (schedules, total) = call.store().schedules(&which).await?;
        Ok(ScheduleSearchOutput { schedules, total, offset: self.offset, limit })
    }
}

impl From<ScheduleSearchOutput> for Reply {
    fn from(page: ScheduleSearchOutput) -> Self {
        let (mut schedules, mut bytes) = (Vec::new(), 0);
        for schedule in &page.schedules {
            let data = super::to_json(schedule);
            bytes += data.to_string().len() + 1;
            if bytes > MAX_PAGE_BYTES && !schedules.is_empty() {
                break;
            }
            schedules.push(data);
        }
        let end = page.offset.saturating_add(schedules.len() as u64);
        let remaining = page.total.saturating_sub(end);
        let mut data = json!({
            "schedules": schedules,
            "total": page.total,
            "offset": page.offset,
            "limit": page.limit,
            "remaining": remaining,
        });
        let hint = match (remaining, page.total) {
            (0, 0) => Some("no schedules match".to_owned()),
            (0, total) if page.offset >= total => Some(format!("there are only {total}; use a smaller offset")),
            (0, _) => None,
            (more, _) => Some(format!("{more} more; use offset={end} for the next page")),
        };
        if let Some(hint) = hint {
            data["hint"] = hint.into();
        }
        Self::json(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ScheduleCreateTool, testing::ScheduleFixture};

    #[tokio::test]
    async fn says_where_to_go_on() {
        let desk = ScheduleFixture::new();
        for at in 0..5 {
            let kind = if at % 2 == 0 { ("interval", "60") } else { ("cron", "@daily") };
            desk.call::<ScheduleCreateTool>(&format!(
                r#"{{"goal": "g{at}", "name": "Ärger {at}", "cadence_type": "{}", "cadence_value": "{}"}}"#,
                kind.0, kind.1
            ))
            .await;
        }
        let data = desk.call::<ScheduleSearchTool>(r#"{"limit": 2, "offset": 1}"#).await.data.unwrap();
        let names: Vec<_> =
            data["schedules"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Ärger 3", "Ärger 2"]);
        assert_eq!(data["hint"], "2 more; use offset=3 for the next page");
        let data = desk.call::<ScheduleSearchTool>(r#"{"name": "äRGER", "cadence_type": "cron"}"#).await.data.unwrap();
        assert_eq!((&data["total"], &data["remaining"], data.get("hint")), (&2.into(), &0.into(), None));
        let data = desk.of("somebody else").call::<ScheduleSearchTool>("{}").await.data.unwrap();
        assert_eq!(data["hint"], "no schedules match");
        let data = desk.call::<ScheduleSearchTool>(r#"{"offset": 99}"#).await.data.unwrap();
        assert_eq!(data["hint"], "there are only 5; use a smaller offset");
    }

    #[tokio::test]
    async fn a_page_is_never_too_large() {
        let desk = ScheduleFixture::new();
        let goal = "ü".repeat(4_000);
        for _ in 0..40 {
            desk.call::<ScheduleCreateTool>(&format!(
                r#"{{"goal": "{goal}", "cadence_type": "interval", "cadence_value": "60"}}"#
            ))
            .await;
        }
        let (mut seen, mut offset) = (0, 0);
        loop {
            let reply = desk.call::<ScheduleSearchTool>(&format!(r#"{{"limit": 50, "offset": {offset}}}"#)).await;
            assert!(reply.text.len() < 16_384);
            let data = reply.data.unwrap();
            seen += data["schedules"].as_array().unwrap().len();
            offset = seen;
            if data["remaining"] == 0 {
                break;
            }
        }
        assert_eq!(seen, 40);
    }
}
