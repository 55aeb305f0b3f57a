//! Notifies the owners of schedules about runs: over the schedule's channel, or in the log.

use std::sync::Arc;

use helve_agent::scheduler::ScheduleNotifier;
use helve_contract::{
    Call, PathRules, PathStyle, Ports, Session, Workspace, async_trait,
    ports::{ChannelAddress, Channels, Schedule},
};

use crate::{channels, config::Settings, print::escape_for_terminal, remark, say};

/// Notices by the settings.
pub struct Told {
    channels: Arc<dyn Channels>,
}

impl Told {
    /// Notices over the configured channels.
    pub fn new(settings: &Settings) -> Self {
        Self { channels: channels::open(settings, channels::Files::Never) }
    }
}

#[async_trait]
impl ScheduleNotifier for Told {
    async fn notify(&self, schedule: &Schedule, text: &str) -> bool {
        let name = schedule.name.as_deref().unwrap_or(&schedule.id);
        if let Some(to) = &schedule.channel {
            let sent = match ChannelAddress::parse(to) {
                Ok(address) => self.channels.send(&from(schedule), &address, text).await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(()) => return true,
                Err(error) => remark!("helve: a notice did not go to {}: {error}", escape_for_terminal(to)),
            }
        }
        say!("[{}] {}", escape_for_terminal(name), escape_for_terminal(text));
        schedule.channel.is_none()
    }
}

/// The sender: a session without ports.
fn from(schedule: &Schedule) -> Call {
    let ports = Ports::new(Arc::new(helve_hosts::LocalHost::new()));
    let workspace = Workspace::new([], PathRules::default(), PathStyle::Relative);
    let mut session = Session::new(format!("scheduled:{}", schedule.id), workspace, ports);
    session.user.clone_from(&schedule.user);
    // An equal id would count as a repetition of the same message.
    let id = crate::state::random_id().unwrap_or_else(|_| "notice".to_owned());
    Call::new(id, Arc::new(session))
}
