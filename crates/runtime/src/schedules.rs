//! Schedules by the settings: the rules for new ones, and what drives those that are due.

use std::{sync::Arc, time::Duration};

use helve_agent::scheduler::{AgentFire, Deliver, Notify, Scheduler, Settings as Driving};
use helve_contract::ports::{Scheduling, WallClock};

use crate::{config::Settings, fault::Fault, workshop::Bench};

/// The rules for schedules that are made in a conversation, by the settings.
pub fn rules(settings: &Settings, dialect: Option<&str>) -> Scheduling {
    Scheduling {
        timezone: settings.text("schedule.timezone").unwrap_or("UTC").to_owned(),
        min_interval: Duration::from_secs(settings.number("schedule.min_interval_secs")),
        most: settings.number("schedule.max_per_user"),
        channel: settings.text("schedule.channel").map(str::to_owned),
        dialect: dialect.map(str::to_owned),
    }
}

/// How schedules are driven, by the settings.
pub fn driving(settings: &Settings) -> Driving {
    Driving {
        max_concurrent: settings.number("schedule.max_concurrent") as usize,
        max_time: Duration::from_secs(settings.number("schedule.max_time_secs")),
        window: Duration::from_secs(settings.number("schedule.window_hours") * 3600),
        keep: settings.number("schedule.keep_runs") as usize,
        tell_after: settings.number("schedule.tell_after") as u32,
        disable_after: settings.number("schedule.disable_after") as u32,
        ..Driving::default()
    }
}

/// What drives the schedules of a workshop; its model must have been found.
pub fn driver(bench: &Arc<Bench>, notify: Arc<dyn Notify>) -> Result<Scheduler, Fault> {
    driver_beside(bench, notify, None)
}

/// The same, where conversations are open in this process: what is for them is said there.
pub fn driver_beside(
    bench: &Arc<Bench>,
    notify: Arc<dyn Notify>,
    live: Option<Arc<dyn Deliver>>,
) -> Result<Scheduler, Fault> {
    let settings = bench.settings();
    let mut fire = AgentFire::new(bench.clone());
    fire.live = live;
    fire.budget.turns = u32::try_from(settings.number("schedule.max_turns")).ok();
    fire.budget.cost = settings.amount("schedule.max_cost");
    let store = bench.store().clone();
    Ok(Scheduler::new(store, Arc::new(WallClock), Arc::new(fire), driving(settings))?.telling(notify))
}
