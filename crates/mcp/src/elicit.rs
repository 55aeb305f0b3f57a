//! Elicitation: asks the client's user for approvals.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use helve_contract::Call;
use helve_engine::{ApprovalDecision, ApprovalRequest, Approver};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::oneshot;

use crate::{
    answer,
    peer::{Outbox, Peer},
};

/// Whether a client that has these capabilities can put a form to its user.
pub(crate) fn supports_elicitation(capabilities: &Value) -> bool {
    // An empty object means forms; one that names modes must name this one.
    match capabilities.get("elicitation") {
        Some(Value::Object(modes)) => modes.is_empty() || modes.contains_key("form"),
        _ => false,
    }
}

/// Requests to a client that are not answered yet.
#[derive(Default)]
pub(crate) struct ClientRequests {
    next: AtomicU64,
    open: Mutex<HashMap<String, oneshot::Sender<Value>>>,
}

impl ClientRequests {
    /// Opens a question: its id, and where the answer comes.
    pub(crate) fn begin(&self) -> (String, oneshot::Receiver<Value>) {
        let id = format!("helve-{}", self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer, answered) = oneshot::channel();
        self.lock().insert(id.clone(), answer);
        (id, answered)
    }

    /// The client has answered, with a result or with an error.
    pub(crate) fn complete(&self, id: &str, result: Option<&RawValue>) {
        let waiting = self.lock().remove(id);
        if let Some(waiting) = waiting
            && let Some(Ok(result)) = result.map(|it| serde_json::from_str(it.get()))
        {
            let _ = waiting.send(result);
        }
    }

    /// Cancels all requests.
    pub(crate) fn cancel_all(&self) {
        self.lock().clear();
    }

    fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Value>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the user of the calling client, if that client supports elicitation.
///
/// Give it to the engine's gate and to [`McpServerConfig`](crate::McpServerConfig); it finds the client by the call.
#[derive(Default)]
pub struct ElicitApprover {
    routes: Mutex<HashMap<String, ClientRoute>>,
    fallback: Option<Arc<dyn Approver>>,
    /// The timeout of tools' questions.
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone)]
struct ClientRoute {
    peer: Arc<Peer>,
    out: Arc<dyn Outbox>,
}

impl ElicitApprover {
    /// An approver that denies if the client cannot ask.
    pub fn new() -> Self {
        Self::default()
    }

    /// An approver that uses a fallback if the client cannot ask.
    pub fn with_fallback(otherwise: Arc<dyn Approver>) -> Self {
        Self { fallback: Some(otherwise), ..Self::default() }
    }

    /// Sets the timeout of tools' questions; `approval.patience_secs` in the settings.
    ///
    /// Approvals use the timeout of the engine's gate. Set both to the same value.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Registers the client of a call until the guard is dropped.
    pub(crate) fn register(self: &Arc<Self>, call: &str, peer: Arc<Peer>, out: Arc<dyn Outbox>) -> ClientRouteGuard {
        self.lock().insert(call.to_owned(), ClientRoute { peer, out });
        ClientRouteGuard { approver: self.clone(), call: call.to_owned() }
    }

    /// Sends a form to the user of the calling client. `None` if the client cannot ask; an inner `None` after a
    /// timeout or cancellation.
    pub(crate) async fn elicit(&self, call: &Call, form: &Value, timeout: Option<Duration>) -> Option<Value> {
        let ClientRoute { peer, out } = self.lock().get(&call.id).cloned()?;
        let (id, answered) = peer.client_requests.begin();
        out.send(answer::request(&id, "elicitation/create", form));
        let mut question = OpenQuestion { peer, out, id, is_answered: false };
        let late = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        Some(tokio::select! {
            biased;
            () = call.cancel.cancelled() => Value::Null,
            answer = answered => {
                question.is_answered = true;
                answer.unwrap_or_default()
            }
            () = late => Value::Null,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, ClientRoute>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request at the client. It is cancelled when dropped.
struct OpenQuestion {
    peer: Arc<Peer>,
    out: Arc<dyn Outbox>,
    id: String,
    is_answered: bool,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if !self.is_answered {
            self.peer.client_requests.forget(&self.id);
            let params = json!({ "requestId": self.id, "reason": "the call ended or its time is up" });
            self.out.send(answer::notification("notifications/cancelled", &params));
        }
    }
}

/// A call's entry in the approver's book.
pub(crate) struct ClientRouteGuard {
    approver: Arc<ElicitApprover>,
    call: String,
}

impl Drop for ClientRouteGuard {
    fn drop(&mut self) {
        self.approver.lock().remove(&self.call);
    }
}

#[async_trait]
impl Approver for ElicitApprover {
    async fn request_approval(&self, question: &ApprovalRequest, call: &Call) -> ApprovalDecision {
        match self.elicit(call, &approval_form(question), None).await {
            Some(result) => parse_decision(result),
            None => match &self.fallback {
                Some(other) => other.request_approval(question, call).await,
                None => ApprovalDecision::Deny("it needs the user's yes, and this client cannot ask its user".into()),
            },
        }
    }
}

/// The longest message of a form, in characters.
const MAX_MESSAGE: usize = 20_000;

/// The message of a form. A truncated one says what is left out.
fn message(question: &ApprovalRequest) -> String {
    let mut message = format!("Allow {}?\n{}\n{}", question.tool, question.summary, question.reason);
    if let Some(folder) = &question.cwd {
        message.push_str(&format!("\nIn {folder}"));
    }
    for command in question.commands.iter().filter(|it| **it != question.summary) {
        message.push_str(&format!("\nRuns: {command}"));
    }
    for argument in &question.arguments {
        message.push_str(&format!("\n{}: {}", argument.name, argument.text));
    }
    if let Some(diff) = &question.diff {
        message.push_str(&format!("\n{diff}"));
    }
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
        let more = message[end..].chars().count();
        message.truncate(end);
        message.push_str(&format!("… {more} more characters. The whole text is in the arguments of this call."));
    }
    if !question.rules.is_empty() {
        let broader = question.broader.as_deref().unwrap_or_default();
        let rules = question.rules.join(", ");
        message.push_str(&format!("\nTo allow it from now on, add {rules} to approval.allow. {broader}"));
    }
    message
}

/// The question as a form with one choice. Nothing is chosen beforehand.
fn approval_form(question: &ApprovalRequest) -> Value {
    json!({
        "message": message(question),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "description": format!("“Allow for the session” allows {}", question.session_grant),
                    "enum": ["once", "session", "deny"],
                    "enumNames": ["Allow once", "Allow for the session", "Deny"],
                },
            },
            "required": ["decision"],
        },
    })
}

/// Anything but a clear yes is a denial.
fn parse_decision(result: Value) -> ApprovalDecision {
    let decision = result.pointer("/content/decision").and_then(Value::as_str);
    match (result.get("action").and_then(Value::as_str), decision) {
        (Some("accept"), Some("once")) => ApprovalDecision::AllowOnce,
        (Some("accept"), Some("session")) => ApprovalDecision::AllowForSession,
        (Some("accept" | "decline"), _) => ApprovalDecision::Deny("the user said no".into()),
        _ => ApprovalDecision::Deny("the user did not decide".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        assert_eq!(
            parse_decision(json!({ "action": "accept", "content": { "decision": "once" } })),
            ApprovalDecision::AllowOnce
        );
        assert_eq!(
            parse_decision(json!({ "action": "accept", "content": { "decision": "session" } })),
            ApprovalDecision::AllowForSession
        );
        for no in [
            json!({ "action": "accept", "content": { "decision": "deny" } }),
            json!({ "action": "accept", "content": {} }),
            json!({ "action": "decline", "content": { "decision": "once" } }),
            json!({ "action": "cancel" }),
            json!([]),
        ] {
            assert!(matches!(parse_decision(no), ApprovalDecision::Deny(_)));
        }
    }

    fn question(summary: &str, diff: &str) -> ApprovalRequest {
        ApprovalRequest {
            tool: "Bash".into(),
            summary: summary.into(),
            commands: vec!["rm x".into()],
            paths: Vec::new(),
            diff: Some(diff.into()),
            arguments: vec![helve_engine::Argument { name: "env.A".into(), text: "b".into() }],
            cwd: Some("/w".into()),
            reason: "it may change things".into(),
            session_grant: "`rm x` exactly".into(),
            rules: vec!["Bash(rm x)".into()],
            broader: Some("Bash(rm:*) would allow more.".into()),
            effects: helve_contract::Effects::UNKNOWN,
        }
    }

    #[test]
    fn a_form_shows_everything_or_marks_what_it_leaves_out() {
        let text = message(&question("sh -c 'rm x'", "+hidden"));
        for part in ["sh -c 'rm x'", "Runs: rm x", "In /w", "env.A: b", "+hidden", "Bash(rm x) to approval.allow"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let long = message(&question("rm x", &"y".repeat(30_000)));
        let (head, rest) = long.split_once("… ").unwrap();
        let more: usize = rest.split(' ').next().unwrap().parse().unwrap();
        let whole = head.chars().count() + more;
        assert_eq!((head.chars().count(), whole > 30_000), (MAX_MESSAGE, true));
        assert!(rest.contains("The whole text is in the arguments of this call."), "{rest}");
    }

    #[test]
    fn a_client_must_offer_forms() {
        let offered = [
            json!({ "elicitation": {} }),
            json!({ "elicitation": { "form": {} } }),
            json!({ "elicitation": { "url": {} } }),
            json!({}),
        ]
        .map(|it| supports_elicitation(&it));
        assert_eq!(offered, [true, true, false, false]);
    }
}
