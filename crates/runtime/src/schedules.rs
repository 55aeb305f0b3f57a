//! Schedules by the settings: the rules for new ones, and what drives those that are due.

use std::sync::Arc;

use helve_agent::scheduler::{AgentFire, Deliver, Notify, Scheduler, Settings as Driving, ToOrigin};
use helve_contract::ports::Scheduling;

use crate::{config::Settings, fault::Fault, setup, workshop::Bench};

/// The rules for schedules that are made in a conversation, by the settings.
pub fn rules(settings: &Settings, dialect: Option<&str>) -> Scheduling {
    let config = &settings.config.schedule;
    Scheduling {
        timezone: config.timezone.clone(),
        min_interval: config.min_interval_secs.duration(),
        most: config.max_per_user,
        channel: config.channel.clone(),
        dialect: dialect.map(str::to_owned),
        is_driven: false,
    }
}

/// How schedules are driven, by the settings.
pub fn driving(settings: &Settings) -> Driving {
    let config = &settings.config.schedule;
    Driving {
        max_concurrent: config.max_concurrent,
        max_time: config.max_time_secs.duration(),
        window: config.window_hours.duration(),
        keep: config.keep_runs,
        tell_after: config.tell_after,
        disable_after: config.disable_after,
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
    fire.live.clone_from(&live);
    fire.mode = settings.config.schedule.mode.map(setup::mode_of);
    fire.budget.turns = Some(settings.config.schedule.max_turns);
    fire.budget.cost = Some(settings.config.schedule.max_cost);
    let store = bench.store().clone();
    let notify = Arc::new(ToOrigin { store: store.clone(), live, next: notify });
    Ok(Scheduler::new(store, Arc::new(fire), driving(settings))?.telling(notify))
}
