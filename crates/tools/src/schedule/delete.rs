//! `schedule_delete`: removes a schedule with its runs.

use std::time::Duration;

use helve_contract::{Call, Effects, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

/// Removes a schedule and its history for good. To stop it for a while, pause it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Delete {
    /// Which schedule.
    pub id: String,
}

/// A schedule that is gone.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
}

impl Tool for Delete {
    const NAME: &'static str = "schedule_delete";
    const EFFECTS: Effects = Effects::WRITES.and(Effects::DESTROYS);
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = Deleted;

    async fn run(self, call: &Call) -> Result<Deleted> {
        let schedule = super::own(call, &self.id).await?;
        call.store().remove_schedule(&schedule.id).await?;
        Ok(Deleted { id: schedule.id, name: schedule.name })
    }
}

impl From<Deleted> for Reply {
    fn from(Deleted { id, name }: Deleted) -> Self {
        let name = name.map(|it| format!(" ({it})")).unwrap_or_default();
        Self { text: format!("deleted schedule {id}{name}"), ..Self::default() }
    }
}
