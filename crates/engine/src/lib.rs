//! The engine: every call of every tool goes through [`Engine::run`].
//!
//! The engine looks up the tool, repairs and validates the arguments, asks the gate, and runs the tool with a timeout.
//! Then it redacts, truncates and records the result. The model always gets a [`Reply`] that it can act on.

mod batch;
mod builder;
mod coerce;
mod commands;
mod dialect;
mod events;
mod gate;
mod limits;
mod lookup;
mod notes;
mod offer;
mod policy;
mod prepare;
pub mod repair;
mod scrub;
mod spill;
mod strangers;
mod table;
#[cfg(any(test, fuzzing))]
pub mod trials;
mod unseen;
mod validate;

use std::{any::Any, future::poll_fn, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use anyhow::anyhow;
use futures::FutureExt;
use helve_contract::{
    Call, Effects, Entry, Error, Fence, Refusal, Reply, ReplyFormat, Result, Spec, events::SecretLeak,
};
use serde_json::Value;
use tokio::sync::watch;

pub use batch::CallRequest;
pub use builder::{BuildError, EngineBuilder, ShellNetwork};
pub use commands::ProgramAllowlist;
pub use dialect::{
    Dialect, ExternalRow, LimitSettings, MessageTemplates, OutputLimits, ParameterRange, Role, TruncationNotice,
};
pub use events::{EventCallback, EventLog, FileEvents, MemoryEvents};
pub use gate::*;
pub use helve_contract::{Limit, Truncated, format_size, truncate_head, truncate_tail};
pub use offer::{Decision, NotOffered, ToolStatus};
pub use policy::*;
pub use scrub::Redactor;
pub use spill::Spill;

use builder::{RegisteredTool, ToolFilter};
use limits::SpillContext;
use prepare::PreparedCall;
use strangers::UntrustedSources;
use table::ToolRegistry;

/// The tools of a dialect behind [`Engine::run`]. Create it once and share it in an `Arc`.
pub struct Engine {
    dialect: Dialect,
    /// The tools of the dialect, which never change.
    builtin_tools: Vec<Arc<RegisteredTool>>,
    filter: ToolFilter,
    registry: watch::Sender<Arc<ToolRegistry>>,
    gate: Gate,
    events: EventLog,
    spill: Option<Spill>,
    limits: LimitSettings,
    redactor: Redactor,
    untrusted_sources: UntrustedSources,
    shell_network: ShellNetwork,
}

/// Waits for changes of the tools.
pub struct ToolChanges(watch::Receiver<Arc<ToolRegistry>>);

impl ToolChanges {
    /// Waits until the tools have changed since the last check; `false` if the engine is gone.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Whether the tools have changed since the last check, without waiting.
    pub fn has_changed(&mut self) -> bool {
        let any = self.0.has_changed().unwrap_or(false);
        if any {
            self.0.mark_unchanged();
        }
        any
    }
}

/// The arguments of a call: text from a model's stream, or a parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum CallArgs {
    /// JSON, possibly invalid.
    Text(String),
    /// A value.
    Value(Value),
}

impl From<String> for CallArgs {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for CallArgs {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Value> for CallArgs {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl Engine {
    /// Starts to build an engine for a dialect.
    pub fn builder(dialect: Dialect) -> EngineBuilder {
        EngineBuilder::new(dialect)
    }

    /// Its dialect.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// The event log of its calls; others may write to the same log.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The project scripts that its allow rules apply to; the gate of a sub-agent uses the same.
    pub fn script_snapshot(&self) -> &ScriptSnapshot {
        self.gate.script_snapshot()
    }

    /// The switch of the approval mode.
    pub fn mode(&self) -> &ModeSwitch {
        self.gate.mode()
    }

    /// The tools of this session, in the order in which the model sees them.
    pub fn specs(&self) -> impl Iterator<Item = Arc<Spec>> {
        self.registry().specs().cloned().collect::<Vec<_>>().into_iter()
    }

    /// The tool with this name or alias, if this session has it.
    pub fn get(&self, name: &str) -> Option<Entry> {
        self.registry().find_exact(name).map(|slot| slot.entry.clone())
    }

    /// The tool that a call with this name would run, in any accepted spelling.
    pub fn find(&self, name: &str) -> Option<Entry> {
        self.registry().find(name).map(|slot| slot.entry.clone())
    }

    /// Replaces all external tools, with the same role and filters. Running calls keep their tools. Returns whether the
    /// model sees a difference; if so, it also notifies [`Engine::tool_changes`].
    pub fn replace_external_tools(&self, entries: Vec<Entry>) -> Result<bool, BuildError> {
        let table =
            Arc::new(ToolRegistry::with_external(&self.builtin_tools, entries, self.dialect.external, &self.filter)?);
        let news = !table.has_same_definitions(&self.registry());
        self.registry.send_if_modified(|now| {
            *now = table;
            news
        });
        Ok(news)
    }

    /// Notifies when the tools change.
    pub fn tool_changes(&self) -> ToolChanges {
        ToolChanges(self.registry.subscribe())
    }

    /// The tools as they are now.
    pub(crate) fn registry(&self) -> Arc<ToolRegistry> {
        self.registry.borrow().clone()
    }

    /// Runs one call: from the model's arguments to the reply.
    pub async fn run(&self, name: &str, args: impl Into<CallArgs>, call: Call) -> Reply {
        let table = self.registry();
        let mut ready = table.prepare(name, args.into(), self.dialect.limits.ranges);
        let mut record = self.events.open(&self.redactor, name, &mut ready, &call);

        let tool = ready.tool.map_or(name, |slot| slot.entry.spec.name.as_str());
        let output = ready.tool.and_then(|slot| slot.entry.spec.output_schema.as_ref());
        let repairs = std::mem::take(&mut ready.notes);
        let mut notes = Vec::new();
        let model_notes = std::mem::take(&mut ready.model_notes);
        let mut work = pin!(self.execute(ready, &call));
        let done = poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            if polled.is_pending() {
                record.flush_start();
            }
            polled
        });
        let (mut reply, fence) = match done.await {
            Ok(done) => done,
            Err(Failure { error, refusal }) => {
                if matches!(error, Error::Denied(_)) {
                    record.mark_denied();
                }
                (Reply { refusal, ..self.render_error(name, error, &mut notes) }, None)
            }
        };
        if !notes.is_empty() {
            reply.notes.splice(0..0, notes);
        }
        reply.repairs = repairs;
        reply.model_notes.extend(model_notes);
        reply.model_notes.extend(call.take_remarks());

        self.redactor.redact_reply(&mut reply);
        let raw = unseen::escape_invisible(&mut reply);
        let marks = fence.map(|fence| {
            [fence.opening(), fence.closing()]
                .map(|line| unseen::escape_text(&self.redactor.redact_text(&line)).into_owned())
        });
        let workspace = &call.session.workspace;
        let kept = self.spill.as_ref().map(|spill| SpillContext { spill, workspace, raw: raw.as_deref() });
        notes::into_data(&mut reply, output);
        let limit = self.limits.apply(&self.dialect.limits, tool);
        limits::truncate_reply(&mut reply, (limit, call.max_reply), &self.dialect.templates, marks.as_ref(), kept);
        self.prefix_error(&mut reply);
        record.finish(&self.redactor, &mut reply);
        reply
    }

    /// A failed reply in this dialect, for a call that did not reach [`Engine::run`].
    pub fn failed(&self, text: impl Into<String>) -> Reply {
        let mut reply = Reply::error(text);
        self.prefix_error(&mut reply);
        reply
    }

    /// Adds the dialect's prefix to the text of a failed reply, once.
    fn prefix_error(&self, reply: &mut Reply) {
        let prefix = self.dialect.templates.error_prefix;
        if reply.is_error && reply.format == ReplyFormat::Text && !reply.text.starts_with(prefix.trim_end()) {
            reply.text.insert_str(0, prefix);
        }
    }

    /// Asks the gate and runs the tool, unless the caller cancels. Catches panics of the tool.
    async fn execute(&self, ready: PreparedCall<'_>, call: &Call) -> Result<(Reply, Option<Fence>), Failure> {
        let (slot, args) = ready.into_valid()?;
        call.check_cancelled()?;
        let spec = &slot.entry.spec;
        self.check_egress(spec, &args, call)?;
        let named = self.untrusted_sources.call_targets(&slot.entry, &args, call, self.spill.as_ref());
        let work = AssertUnwindSafe(async {
            self.gate.authorize(spec, &args, call).await?;
            let work = slot.entry.run(args, confined(call, spec));
            if spec.timeout == Duration::MAX {
                return Ok(work.await?);
            }
            Ok(tokio::time::timeout(spec.timeout, work).await.unwrap_or(Err(Error::Timeout(spec.timeout)))?)
        });
        // A tool that completes at once needs no cancellation.
        let done = tokio::select! {
            biased;
            done = work.catch_unwind() => done.unwrap_or_else(|panic| Err(panic_error(&*panic).into())),
            () = wait_cancelled(call, spec) => Err(Error::Cancelled.into()),
        };
        match done {
            Ok(mut reply) => {
                let fence = self.attribute(&slot.entry, &named, call, &mut reply);
                Ok((reply, fence))
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses a call that would send a registered secret out of the machine, in every mode, and records the attempt.
    fn check_egress(&self, spec: &Spec, args: &Value, call: &Call) -> Result<()> {
        let Err((error, what)) = self.refuse_secrets(spec, args) else { return Ok(()) };
        let leak = SecretLeak {
            tool: spec.name.clone(),
            call_id: call.uuid.clone(),
            agent_id: call.session.agent.clone(),
            what,
            after: call.session.taint.origins(),
        };
        _ = self.events.emit(self.redactor.event(&leak.into()));
        Err(error)
    }

    /// Whether a call would send a registered secret out: the refusal, and what was found.
    fn refuse_secrets(&self, spec: &Spec, args: &Value) -> Result<(), (Error, String)> {
        let online = self.shell_network == ShellNetwork::Online && spec.effects.contains(Effects::EXECUTES);
        if !online && ![Effects::NETWORK, Effects::SENDS].iter().any(|effect| spec.effects.contains(*effect)) {
            return Ok(());
        }
        let Some(leak) = self.redactor.find_leak(args) else { return Ok(()) };
        let what = leak.describe();
        let error = Error::denied(format!(
            "the arguments contain {what}, which may not leave this machine. Remove it and retry. The attempt was logged.",
        ));
        Err((error, what))
    }

    /// Renders an error in this dialect. Internal errors go to the notes, not to the model.
    fn render_error(&self, name: &str, error: Error, notes: &mut Vec<String>) -> Reply {
        let error = match error {
            Error::Cancelled => return Reply::error(self.dialect.templates.cancelled),
            Error::Internal(details) => {
                notes.push(format!("internal error: {details:#}"));
                Error::Internal(anyhow!(
                    "the tool could not do its work, and the arguments are not the reason; try another way, or tell the user"
                ))
            }
            error => error,
        };
        (self.dialect.templates.error)(name, &error)
    }
}

/// The call with the workspace narrowed to the tool's profile.
fn confined(call: &Call, spec: &Spec) -> Call {
    let mut call = call.clone();
    if let Some(profile) = spec.profile {
        call.session = Arc::new(call.session.with_workspace(profile.narrow(&call.session.workspace)));
    }
    call
}

/// Why a call has no reply from its tool.
struct Failure {
    error: Error,
    /// Set if the gate refused the call.
    refusal: Option<Refusal>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, refusal: None }
    }
}

impl From<gate::Refused> for Failure {
    fn from(refused: gate::Refused) -> Self {
        // A call that was cancelled while its prompt was open was not refused.
        let refusal = (!matches!(refused.error, Error::Cancelled)).then_some(refused.why);
        Self { error: refused.error, refusal }
    }
}

/// How long a tool with its own timeout has to finish after a cancellation.
const CANCEL_GRACE: Duration = Duration::from_secs(3);

/// Waits for cancellation. A tool with its own timeout then gets time to stop its work and report it.
async fn wait_cancelled(call: &Call, spec: &Spec) {
    call.cancel.cancelled().await;
    if spec.timeout == Duration::MAX {
        tokio::time::sleep(CANCEL_GRACE).await;
    }
}

fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words");
    Error::Internal(anyhow!("the tool panicked: {words}"))
}
