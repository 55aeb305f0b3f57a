//! `schedule_delete`: deletes a schedule with its runs.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

/// Removes a schedule and its history for good. To stop it for a while, pause it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ScheduleDeleteTool {
    /// Which schedule.
    pub id: String,
}

/// The deleted schedule.
#[derive(Clone, Debug)]
pub struct ScheduleDeleteOutput {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
}

impl Tool for ScheduleDeleteTool {
    const NAME: &'static str = "schedule_delete";
    const EFFECTS: Effects = Effects::WRITES.union(Effects::DESTROYS);
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScheduleDeleteOutput;

    async fn run(self, call: &Call) -> Result<ScheduleDeleteOutput> {
        let schedule = super::find_owned(call, &self.id).await?;
        call.store().remove_schedule(&schedule.id).await?;
        Ok(ScheduleDeleteOutput { id: schedule.id, name: schedule.name })
    }
}

impl From<ScheduleDeleteOutput> for Reply {
    fn from(ScheduleDeleteOutput { id, name }: ScheduleDeleteOutput) -> Self {
        let name = name.map(|it| format!(" ({it})")).unwrap_or_default();
        Self { text: format!("deleted schedule {id}{name}"), ..Self::default() }
    }
}
