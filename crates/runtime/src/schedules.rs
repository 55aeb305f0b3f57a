//! Builds schedule rules and the scheduler from the settings.

use std::sync::Arc;

use helve_agent::scheduler::{
    AgentRunner, ScheduleNotifier, Scheduler, SchedulerConfig as Driving, SessionDelivery, ToOrigin,
};
use helve_contract::ports::ScheduleRules;

use crate::{config::Settings, fault::CliError, setup, workshop::HelveRuntime};

/// The rules for schedules created in a session, from the settings.
pub fn rules(settings: &Settings, dialect: Option<&str>) -> ScheduleRules {
    let config = &settings.config.schedule;
    ScheduleRules {
        timezone: config.timezone.clone(),
        min_interval: config.min_interval_secs.duration(),
        max_per_user: config.max_per_user,
        channel: config.channel.clone(),
        dialect: dialect.map(str::to_owned),
        is_driven: false,
    }
}

/// The options of the scheduler, from the settings.
pub fn driving(settings: &Settings) -> Driving {
    let config = &settings.config.schedule;
    Driving {
        max_concurrent: config.max_concurrent,
        max_time: config.max_time_secs.duration(),
        catch_up_window: config.window_hours.duration(),
        keep_runs: config.keep_runs,
        notify_after_failures: config.tell_after,
        disable_after_failures: config.disable_after,
        ..Driving::default()
    }
}

/// The scheduler of a workshop; its model must be resolved.
pub fn driver(bench: &Arc<HelveRuntime>, notify: Arc<dyn ScheduleNotifier>) -> Result<Scheduler, CliError> {
    driver_beside(bench, notify, None)
}

/// The scheduler for a process with open sessions; their results are delivered there.
pub fn driver_beside(
    bench: &Arc<HelveRuntime>,
    notify: Arc<dyn ScheduleNotifier>,
    live: Option<Arc<dyn SessionDelivery>>,
) -> Result<Scheduler, CliError> {
    let settings = bench.settings();
    let mut fire = AgentRunner::new(bench.clone());
    fire.open_sessions.clone_from(&live);
    fire.mode = settings.config.schedule.mode.map(setup::mode_of);
    fire.budget.max_turns = Some(settings.config.schedule.max_turns);
    fire.budget.max_cost = Some(settings.config.schedule.max_cost);
    let store = bench.store().clone();
    let notify = Arc::new(ToOrigin { store: store.clone(), live, next: notify });
    Ok(Scheduler::new(store, Arc::new(fire), driving(settings))?.with_notifier(notify))
}
