//! Tools that start other agents or delegate a goal to a named one.

mod delegate;
pub(crate) mod spawn_agent;
mod start;

pub use delegate::{AgentDelegateOutput, AgentDelegateTool};
pub use spawn_agent::SpawnAgent;
pub use start::{AgentStartOutput, AgentStartTool};

use std::time::Duration;

use helve_contract::{
    Reply,
    ports::{AgentReport, AgentStatus},
};

/// The state name that the dialects with tasks use.
#[must_use]
pub fn state_label(state: &AgentStatus) -> &'static str {
    match state {
        AgentStatus::Running => "running",
        AgentStatus::Done => "completed",
        AgentStatus::Failed(_) => "failed",
        AgentStatus::Stopped => "stopped",
    }
}

/// Fences an agent's report, so that its text is data and not an instruction.
#[must_use]
pub fn fence_report(report: &AgentReport) -> Reply {
    let words = report.text.trim();
    let words = if words.is_empty() { "(no words)" } else { words };
    Reply {
        before: format!("<agent_result id=\"{}\">\n", report.id),
        after: "</agent_result>".to_owned(),
        ..words.replace("</agent_result", "&lt;/agent_result").into()
    }
}

/// Like `fence_report`, with a sentence before the fence and lines after it, which are never truncated.
pub(crate) fn fenced_between(before: &str, report: &AgentReport, after: &str) -> Reply {
    let mut reply = fence_report(report);
    reply.before.insert_str(0, before);
    if !after.is_empty() {
        reply.after = format!("{}\n{after}", reply.after);
    }
    reply
}

/// What an agent took, in brackets: `[researcher 1f…: 3 turns, 5 calls, 1,234 tokens, 2.1 s]`.
pub(crate) fn usage_summary(report: &AgentReport) -> String {
    let tokens = report.usage.prompt_tokens + report.usage.completion_tokens;
    let count = |number: u32, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!(
        "[{} {}: {}, {}, {tokens} tokens, {}]",
        report.kind,
        state_label(&report.status),
        count(report.turns, "turn"),
        count(report.tool_calls, "call"),
        format_duration(report.elapsed),
    )
}

fn format_duration(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        ms => format!("{:.1} s", ms as f64 / 1000.0),
    }
}

#[cfg(test)]
pub(crate) mod testing;
