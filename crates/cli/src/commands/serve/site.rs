//! The HTTP service beside `/mcp`: routing, access and shared state.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use helve_agent::scheduler::Scheduler;
use helve_contract::{CancellationToken, async_trait};
use helve_mcp::{ExtraRoutes, HttpConnection, HttpReply, RequestAccess};
use helve_runtime::Caller;
use helve_web::channels::InboundWebhook;
use http_body_util::{BodyExt as _, Collected};
use hyper::{
    HeaderMap, Request, StatusCode,
    body::Incoming,
    header::{ACCEPT, HeaderValue, LOCATION, SET_COOKIE},
};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    board::ApprovalQueue,
    calls::CallService,
    forge::ForgeRuns,
    guests::ActiveMcpSessions,
    hooks::{Accepted, Webhooks},
    hub::EventBus,
    page,
    pass::Auth,
    routes::{self, ApiRequest, QueryParams, query_number},
    say::{self, ApiError},
    stream::{EventSubscriber, StreamFormat},
    talks::SessionManager,
    turns::ActiveTurns,
};
use crate::{commands::policy::Explainer, workshop::HelveRuntime};

/// The maximum number of event listeners.
const MAX_SUBSCRIBERS: usize = 64;

/// Everything beside `/mcp`.
pub(super) struct AppState {
    pub(super) runtime: Arc<HelveRuntime>,
    pub(super) approvals: Arc<ApprovalQueue>,
    pub(super) calls: CallService,
    pub(super) sessions: Arc<SessionManager>,
    pub(super) active_turns: Arc<ActiveTurns>,
    pub(super) forge: ForgeRuns,
    /// Clients of MCP.
    pub(super) mcp_sessions: Arc<ActiveMcpSessions>,
    /// Who runs what is scheduled, once there is a model.
    pub(super) scheduler: OnceLock<Scheduler>,
    /// Set when the server is to end.
    pub(super) shutdown: CancellationToken,
    pub(super) event_bus: Arc<EventBus>,
    auth: Auth,
    webhooks: Webhooks,
    listeners: Arc<Semaphore>,
    /// The checks start programs: one check at a time.
    pub(super) doctor_permit: Semaphore,
    pub(super) explainer: Explainer,
    has_model: AtomicBool,
}

#[async_trait]
impl ExtraRoutes for AppState {
    async fn handle(&self, request: Request<Incoming>, entrance: RequestAccess) -> HttpReply {
        self.route(request, entrance).await.unwrap_or_else(ApiError::into_response)
    }
}

impl AppState {
    /// The user whose memory, schedules and sessions are shown.
    pub(super) fn user(&self) -> String {
        crate::setup::user(self.runtime.settings())
    }

    pub(super) fn new(
        bench: Arc<HelveRuntime>,
        board: Arc<ApprovalQueue>,
        turns: Arc<ActiveTurns>,
        hub: Arc<EventBus>,
        (pass, hooks): (Auth, Webhooks),
        closing: CancellationToken,
    ) -> Self {
        Self {
            calls: CallService::new(bench.clone()),
            sessions: SessionManager::new(bench.clone(), turns.clone(), closing.clone()),
            forge: ForgeRuns::new(closing.clone()),
            mcp_sessions: Arc::default(),
            scheduler: OnceLock::new(),
            listeners: Arc::new(Semaphore::new(MAX_SUBSCRIBERS)),
            doctor_permit: Semaphore::new(1),
            explainer: Explainer::new(Caller::Program),
            has_model: AtomicBool::new(false),
            runtime: bench,
            approvals: board,
            active_turns: turns,
            event_bus: hub,
            auth: pass,
            webhooks: hooks,
            shutdown: closing,
        }
    }

    /// Somebody is there who answers.
    pub(super) fn on_model_found(&self) {
        self.has_model.store(true, Ordering::Relaxed);
    }

    /// Ends what was begun here.
    pub(super) async fn shut_down(&self) {
        self.approvals.close();
        self.forge.shutdown().await;
        self.sessions.shutdown().await;
        self.calls.shutdown().await;
    }

    async fn route(&self, request: Request<Incoming>, entrance: RequestAccess) -> Result<HttpReply, ApiError> {
        if let RequestAccess::Refused(status, why) = entrance {
            let code = match status {
                StatusCode::FORBIDDEN => "forbidden",
                StatusCode::SERVICE_UNAVAILABLE => "unavailable",
                _ => "bad_request",
            };
            return Err(ApiError::new(status, code, why));
        }
        let is_known = entrance == RequestAccess::Authenticated || self.auth.has_valid_cookie(request.headers());
        if let Some(connection) = request.extensions().get::<HttpConnection>().filter(|_| is_known) {
            connection.set_authenticated();
        }
        if request.uri().path().starts_with("/hooks/") {
            if request.method() != "POST" {
                return Err(ApiError::method_not_allowed("POST"));
            }
            return self.receive_webhook(request).await;
        }
        let (route, ids) = routes::find_route(request.method(), request.uri().path())?;
        if route.right == routes::RouteAccess::Authenticated && !is_known {
            let why = "a token is needed: Authorization: Bearer TOKEN, with the one that was printed at the start";
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", why));
        }
        let asked = ApiRequest::read(request, ids, is_known, route.takes).await?;
        (route.act)(self, asked).await
    }

    /// The page; the address with the token redirects to it and sets a cookie.
    pub(super) fn page(&self, asked: &ApiRequest) -> Result<HttpReply, ApiError> {
        match asked.query.get("token") {
            Some(token) if self.auth.is_valid_token(token) => {
                let mut reply =
                    say::text_response(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", "the page is at /\n");
                let cookie = HeaderValue::from_str(&self.auth.cookie()).map_err(ApiError::internal)?;
                reply.headers_mut().insert(SET_COOKIE, cookie);
                reply.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
                Ok(reply)
            }
            None if asked.is_authenticated => {
                let theme = self.runtime.knobs().base().get_str("theme");
                page::page(self.runtime.settings(), theme.as_deref().unwrap_or("auto"))
            }
            _ => page::token_required_page(),
        }
    }

    /// Numbers, as Prometheus reads them.
    pub(super) fn metrics(&self) -> HttpReply {
        let text = self.event_bus.metrics(self.approvals.pending_count(), self.active_turns.count());
        say::text_response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    /// The event stream.
    pub(super) fn events(&self, headers: &HeaderMap, query: &QueryParams) -> Result<HttpReply, ApiError> {
        let place = self.listeners.clone().try_acquire_owned();
        let place = place.map_err(|_| ApiError::unavailable("too many listen already; come back later"))?;
        let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let manner = if accept.contains("text/event-stream") { StreamFormat::Sse } else { StreamFormat::NdJson };
        // A browser that reconnects sends its position in a header.
        let lost = headers.get("last-event-id").and_then(|it| it.to_str().ok()?.parse().ok());
        let after = lost.map_or_else(|| query_number(query, "after", 0), Ok)?;
        let follow = match query.get("follow").map(String::as_str) {
            None | Some("true") => true,
            Some("false") => false,
            Some(_) => return Err(ApiError::bad_request("follow must be true or false")),
        };
        let (hub, closing) = (self.event_bus.clone(), self.shutdown.clone());
        Ok(EventSubscriber { event_bus: hub, manner, after, follow, shutdown: closing, _place: place }.into_response())
    }

    async fn receive_webhook(&self, request: Request<Incoming>) -> Result<HttpReply, ApiError> {
        let has_model = self.has_model.load(Ordering::Relaxed);
        let accepted = OnceLock::new();
        let deliver = async |taken| {
            if !has_model {
                return Err(String::new());
            }
            let put = self.webhooks.enqueue(taken).await?;
            accepted.get_or_init(|| put);
            Ok(())
        };
        let answered =
            timeout(routes::BODY_TIMEOUT, InboundWebhook::handle(self.webhooks.all(), request, deliver)).await;
        let reply =
            answered.map_err(|_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long"))?;
        let status = reply.status();
        let code = match status {
            it if it.is_success() => {
                let mut body = json!({ "status": "accepted" });
                if let Some(Accepted { job, is_duplicate }) = accepted.get() {
                    body["job"] = json!(job);
                    body["duplicate"] = json!(is_duplicate);
                }
                return Ok(say::json_response(status, &body));
            }
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::PAYLOAD_TOO_LARGE => "too_large",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            _ => "bad_request",
        };
        if status == StatusCode::SERVICE_UNAVAILABLE && !has_model {
            return Err(ApiError::unavailable("no model is here that could hear it"));
        }
        let said = reply.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
        Err(ApiError::new(status, code, String::from_utf8_lossy(&said)))
    }
}
