//! `/hooks/NAME`: a post becomes a job, and the job becomes a message in the hook's session.
//!
//! The response is sent when the job is stored. After a crash, the next process for the same workspace continues the
//! job. A message that is already in the session is not added again.

use std::{sync::Arc, time::Duration};

use helve_agent::{Agent, AgentHandle, Budget, SessionFactory as _, SessionSpec, TurnOutcome, TurnStopReason, prompt};
use helve_contract::{
    CancellationToken, Error, USER_NAME_FORM, is_user_name,
    jiff::Timestamp,
    ports::{
        ClaimedJob, Enqueued, InboxItem, Job, JobId, JobKind, JobResult, MessagePart, MessageRole, NewJob,
        ScheduleRunStatus, Store, Worker, retry_delay,
    },
};
use helve_web::channels::{EncodedAttachment, InboundMessage, InboundWebhook, WebhookFormat};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::talks::{DeliveryResult, SessionManager};
use crate::{config::Settings, fault::CliError, print::escape_for_terminal, remark, setup, workshop::HelveRuntime};

/// The maximum number of queued posts.
const MAX_QUEUED: u64 = 64;
/// The number of attempts for a post.
const MAX_ATTEMPTS: u32 = 5;
/// The duration of a lease without renewal.
const LEASE: Duration = Duration::from_secs(30);
/// How often the store is polled for posts of other processes.
const POLL: Duration = Duration::from_secs(2);
/// How long ended jobs, and the ids of their deliveries, are kept.
const KEEP_ENDED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Messages that are read at once.
const PAGE: usize = 200;

/// The hooks, and where their posts go.
pub(super) struct Webhooks {
    all: Vec<(InboundWebhook, Option<String>)>,
    inbound: Vec<InboundWebhook>,
    bench: Arc<HelveRuntime>,
}

/// The payload of a post for a worker.
#[derive(Serialize, Deserialize)]
struct Post {
    hook: String,
    text: String,
    #[serde(default)]
    attachments: Vec<EncodedAttachment>,
}

/// An accepted post.
pub(super) struct Accepted {
    /// Its job.
    pub(super) job: JobId,
    /// Whether the same delivery was accepted before.
    pub(super) is_duplicate: bool,
}

/// The hooks by the settings.
pub(super) fn open(bench: &Arc<HelveRuntime>) -> Result<Webhooks, CliError> {
    let all: Vec<_> = bench.settings().config.hooks.iter().map(|text| parse_webhook(text)).collect::<Result<_, _>>()?;
    let inbound = all.iter().map(|(hook, _)| hook.clone()).collect();
    Ok(Webhooks { all, inbound, bench: bench.clone() })
}

/// The users whose jobs the operator sees: the configured one, and those that hooks name.
pub(crate) fn users(settings: &Settings) -> Vec<String> {
    let named = settings.config.hooks.iter().filter_map(|text| text.split_once('@'));
    let mut users: Vec<String> = named.map(|(_, user)| user.trim().to_owned()).collect();
    users.push(setup::user(settings));
    users.sort();
    users.dedup();
    users
}

/// Parses `NAME=VARIABLE` or `NAME=VARIABLE@USER`: the hook, and the user of its messages.
fn parse_webhook(text: &str) -> Result<(InboundWebhook, Option<String>), CliError> {
    let told = |why: &str| CliError::usage(format!("hooks: `{text}` {why}"));
    let (name, variable) = text.split_once('=').ok_or_else(|| told("must be NAME=VARIABLE"))?;
    let (variable, user) = match variable.split_once('@') {
        Some((variable, user)) => (variable, Some(user.trim().to_owned())),
        None => (variable, None),
    };
    if let Some(user) = user.as_deref().filter(|it| !is_user_name(it)) {
        return Err(told(&format!("names the user `{}`; write {USER_NAME_FORM}", user.escape_debug())));
    }
    let (name, variable) = (name.trim(), variable.trim());
    let plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(told("must have a name of letters, digits, `-` and `_`"));
    }
    let secret = std::env::var(variable).ok().filter(|it| it.len() >= 16);
    let secret = secret.ok_or_else(|| told("names a variable that must hold a secret of 16 letters or more"))?;
    let path = format!("/hooks/{name}");
    Ok((InboundWebhook { id: name.to_owned(), path, format: WebhookFormat::Text, secret: Some(secret) }, user))
}

impl Webhooks {
    /// The hooks.
    pub(super) fn all(&self) -> &[InboundWebhook] {
        &self.inbound
    }

    /// Stores a post. The error is for its sender.
    pub(super) async fn enqueue(&self, taken: InboundMessage) -> Result<Accepted, String> {
        let user = self.all.iter().find(|(hook, _)| hook.id == taken.hook).and_then(|(_, user)| user.clone());
        let user = user.unwrap_or_else(|| setup::user(self.bench.settings()));
        let session = self.bench.labelled_id(&label(&taken.hook), Some(&user), None);
        let post = Post {
            hook: taken.hook,
            text: taken.text,
            attachments: taken.attachments.iter().map(EncodedAttachment::from).collect(),
        };
        let job = NewJob {
            // A session belongs to one hook, user and workspace, and so does a delivery id.
            key: taken.delivery.map(|delivery| format!("webhook:{session}:{delivery}")),
            session: Some(session),
            workspace: Some(workspace(self.bench.settings())),
            max_attempts: MAX_ATTEMPTS,
            max_queued: Some(MAX_QUEUED),
            ..NewJob::new(JobKind::WEBHOOK, user, json!(post))
        };
        match self.bench.jobs().enqueue(&job).await {
            Ok(Enqueued::Added(job)) => Ok(Accepted { job, is_duplicate: false }),
            Ok(Enqueued::Existing(job)) => Ok(Accepted { job, is_duplicate: true }),
            Ok(Enqueued::QueueFull(queued)) => {
                Err(format!("too many messages wait ({queued} of {MAX_QUEUED}); try again later"))
            }
            Err(error) => {
                remark!(
                    "helve: the hook {}: {}",
                    escape_for_terminal(&post.hook),
                    escape_for_terminal(&error.to_string())
                );
                Err("the post could not be stored; try again later".to_owned())
            }
        }
    }
}

fn label(hook: &str) -> String {
    format!("hook:{hook}")
}

fn workspace(settings: &Settings) -> String {
    settings.workspace.to_string_lossy().into_owned()
}

/// Processes posts one by one until shutdown. Unprocessed ones stay in the store.
pub(super) async fn work(bench: &Arc<HelveRuntime>, talks: &SessionManager, closing: &CancellationToken) {
    let jobs = bench.jobs();
    let worker = Worker { workspaces: vec![workspace(bench.settings())], ..Worker::new([JobKind::WEBHOOK]) };
    if let Err(error) = jobs.remove_ended(KEEP_ENDED).await {
        remark!("helve: webhooks: {}", escape_for_terminal(&error.to_string()));
    }
    let (mut seen, mut trouble) = (0, String::new());
    while !closing.is_cancelled() {
        match jobs.claim(&worker, LEASE, 1).await {
            Ok(claimed) => {
                trouble.clear();
                if let Some(claimed) = claimed.into_iter().next() {
                    work_one(bench, talks, claimed, closing).await;
                    continue;
                }
            }
            // The same problem is reported once.
            Err(error) if error.to_string() == trouble => {}
            Err(error) => {
                trouble = error.to_string();
                remark!("helve: webhooks: {}", escape_for_terminal(&trouble));
            }
        }
        seen = tokio::select! {
            seen = jobs.watch(seen, POLL) => seen,
            () = closing.cancelled() => return,
        };
    }
}

/// The result of an attempt.
enum Worked {
    Done,
    /// Another attempt may succeed.
    Failed(String),
    /// Another attempt would fail in the same way.
    Stuck(String),
    /// It was stopped before its end.
    Stopped,
}

/// Processes one post while renewing its lease, and stores the result.
async fn work_one(bench: &Arc<HelveRuntime>, talks: &SessionManager, claimed: ClaimedJob, closing: &CancellationToken) {
    let ClaimedJob { job, lease } = claimed;
    let jobs = bench.jobs();
    let stop = closing.child_token();
    let mut is_cancelled = false;
    let worked = {
        let mut work = std::pin::pin!(attempt(bench, talks, &job, &stop));
        loop {
            let held = tokio::select! {
                worked = &mut work => break worked,
                () = tokio::time::sleep(LEASE / 3) => jobs.hold(&lease, LEASE).await,
            };
            match held {
                Ok(held) => is_cancelled |= held.is_cancel_requested,
                Err(Error::LeaseLost(_)) => is_cancelled = true,
                // The store may answer next time; the lease is valid until somebody claims the job.
                Err(error) => remark!("helve: job {}: {}", job.id, escape_for_terminal(&error.to_string())),
            }
            if is_cancelled {
                stop.cancel();
            }
        }
    };
    let ended = match worked {
        Worked::Done => jobs.finish(&lease, JobResult::Done(json!({ "session": job.session }))).await,
        Worked::Stopped if is_cancelled => jobs.finish(&lease, JobResult::Cancelled).await,
        Worked::Stopped => jobs.hand_back(&lease).await,
        Worked::Failed(error) => {
            let retry = Some(retry_delay(job.attempt));
            jobs.finish(&lease, JobResult::Failed { error, retry }).await
        }
        Worked::Stuck(error) => jobs.finish(&lease, JobResult::Failed { error, retry: None }).await,
    };
    match ended {
        Ok(job) => report(&job),
        // Another worker has it now.
        Err(Error::LeaseLost(_)) => {}
        Err(error) => remark!("helve: job {}: {}", job.id, escape_for_terminal(&error.to_string())),
    }
}

/// Tells the operator of a post that failed.
fn report(job: &Job) {
    let Some(error) = &job.error else { return };
    let next = if job.state.is_ended() {
        format!("it is {}; `helve jobs retry {}` queues it again", job.state, job.id)
    } else {
        "it is tried again".to_owned()
    };
    remark!(
        "helve: webhook job {} failed (attempt {} of {}): {}; {next}",
        job.id,
        job.attempt,
        job.max_attempts,
        escape_for_terminal(error)
    );
}

/// One attempt at a post, until the model's answer is complete. The session stores both.
async fn attempt(bench: &Arc<HelveRuntime>, talks: &SessionManager, job: &Job, stop: &CancellationToken) -> Worked {
    let post: Post = match serde_json::from_value(job.payload.clone()) {
        Ok(post) => post,
        Err(error) => return Worked::Stuck(format!("the payload cannot be read: {error}")),
    };
    match run_turn(bench, talks, job, post, stop).await {
        Ok(worked) => worked,
        Err(_) if stop.is_cancelled() => Worked::Stopped,
        Err(error) => Worked::Failed(error.to_string()),
    }
}

async fn run_turn(
    bench: &Arc<HelveRuntime>,
    talks: &SessionManager,
    job: &Job,
    post: Post,
    stop: &CancellationToken,
) -> helve_contract::Result<Worked> {
    let settings = bench.settings();
    let files = post.attachments.into_iter().map(EncodedAttachment::decode).collect::<Result<Vec<_>, _>>()?;
    let id = bench.labelled_id(&label(&post.hook), Some(&job.user), None);
    let is_delivered = job.epoch > 1 && is_delivered(&**bench.store(), &id, &post.text, job.started).await?;
    // The session may be in use. Without a message, it continues where it is.
    let words = if is_delivered { "" } else { post.text.as_str() };
    match talks.deliver_and_wait(&id, words, if is_delivered { &[] } else { &files }, stop).await {
        DeliveryResult::NotOpen => {}
        DeliveryResult::NotDelivered => return Ok(Worked::Stopped),
        DeliveryResult::Answered(_) if stop.is_cancelled() => return Ok(Worked::Stopped),
        DeliveryResult::Answered(fired) => {
            return Ok(match fired.status {
                ScheduleRunStatus::Success | ScheduleRunStatus::Refused => Worked::Done,
                // A person stopped it in the session.
                ScheduleRunStatus::Cancelled => Worked::Stuck(fired.output),
                ScheduleRunStatus::Failed | ScheduleRunStatus::Running => Worked::Failed(fired.output),
            });
        }
    }
    let need =
        SessionSpec { id: label(&post.hook), user: Some(job.user.clone()), unattended: true, ..SessionSpec::default() };
    let (engine, session) = bench.create_session(&need)?;
    let budget = Budget {
        max_turns: Some(settings.config.schedule.max_turns),
        max_cost: Some(settings.config.schedule.max_cost),
        ..Budget::default()
    };
    let system = prompt::system_prompt(&engine, &session, "").await;
    let title = Some(format!("webhook: {}", post.hook));
    let handle = AgentHandle::child_of(stop);
    let model = bench.session_model(&session.id, bench.model(None)?);
    let agent = Agent { budget, system_prompt: system, title, handle, ..Agent::new(engine, session.clone(), model) };
    let turn = talks.turns().begin(&session.id, agent.engine.dialect().name, None);
    let said = if is_delivered {
        session.ports.channels.set_attachments(&session.id, files);
        agent.continue_turn().await
    } else {
        agent.turn_with(vec![MessagePart::Text { text: post.text.clone() }], files).await
    };
    turn.end(&said);
    setup::stop_tasks(session.clone()).await;
    match said {
        // Another process holds the session: it reads the message next.
        Err(Error::SessionHeld(_)) if !is_delivered => {
            session.ports.store.post(&session.id, &InboxItem::text(MessageRole::User, &post.text)).await?;
            Ok(Worked::Done)
        }
        said => said.map(worked),
    }
}

fn worked(outcome: TurnOutcome) -> Worked {
    match outcome.stop_reason {
        TurnStopReason::Completed => Worked::Done,
        TurnStopReason::Cancelled => Worked::Stopped,
        TurnStopReason::ModelFailed(why) => Worked::Failed(why),
        TurnStopReason::BudgetExhausted(why) | TurnStopReason::LoopDetected(why) => Worked::Stuck(why),
    }
}

/// Whether an earlier attempt has added the message: a message with the same text since the first claim.
async fn is_delivered(
    store: &dyn Store,
    session: &str,
    text: &str,
    started: Option<Timestamp>,
) -> helve_contract::Result<bool> {
    let Some(started) = started else { return Ok(false) };
    let mut before = None;
    loop {
        let page = store.messages(session, before, PAGE).await?;
        let is_it = |part: &MessagePart| matches!(part, MessagePart::Text { text: there } if there == text);
        let mut recent = page.iter().filter(|it| it.created >= started);
        if recent.any(|it| it.role == MessageRole::User && it.parts.first().is_some_and(is_it)) {
            return Ok(true);
        }
        match page.first() {
            Some(first) if first.created >= started => before = Some(first.seq),
            _ => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hook_needs_a_name_and_a_secret() {
        let told = |text: &str| super::parse_webhook(text).err().map(|it| it.to_string()).unwrap_or_default();
        assert_eq!(told("build"), "hooks: `build` must be NAME=VARIABLE");
        assert_eq!(told("a/b=HOME"), "hooks: `a/b=HOME` must have a name of letters, digits, `-` and `_`");
        assert_eq!(
            told("build=HELVE_NO_SUCH"),
            "hooks: `build=HELVE_NO_SUCH` names a variable that must hold a secret of 16 letters or more"
        );
    }
}
