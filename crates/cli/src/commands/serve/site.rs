//! Everything beside `/mcp`: what is there, who may ask, and what is handed on.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use helve_agent::scheduler::Scheduler;
use helve_contract::{CancellationToken, async_trait};
use helve_mcp::{Entrance, HttpConnection, HttpReply, Routes};
use helve_runtime::Caller;
use helve_web::channels::Inbound;
use http_body_util::{BodyExt as _, Collected};
use hyper::{
    HeaderMap, Request, StatusCode,
    body::Incoming,
    header::{ACCEPT, HeaderValue, LOCATION, SET_COOKIE},
};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    board::Board,
    calls::Calls,
    forge::Forge,
    guests::Guests,
    hooks::{Accepted, Hooks},
    hub::Hub,
    page,
    pass::Pass,
    routes::{self, Asked, Query, number},
    say::{self, No},
    stream::{Listener, Manner},
    talks::Talks,
    turns::Turns,
};
use crate::{commands::policy::Explainer, workshop::Bench};

/// How many may listen to events at once.
const LISTENERS: usize = 64;

/// Everything beside `/mcp`.
pub(super) struct Site {
    pub(super) bench: Arc<Bench>,
    pub(super) board: Arc<Board>,
    pub(super) calls: Calls,
    pub(super) talks: Arc<Talks>,
    pub(super) turns: Arc<Turns>,
    pub(super) forge: Forge,
    /// Clients of MCP.
    pub(super) guests: Arc<Guests>,
    /// Who runs what is scheduled, once there is a model.
    pub(super) driver: OnceLock<Scheduler>,
    /// Set when the server is to end.
    pub(super) closing: CancellationToken,
    pub(super) hub: Arc<Hub>,
    pass: Pass,
    hooks: Hooks,
    listeners: Arc<Semaphore>,
    /// Looking at the machine starts programs: one look at a time.
    pub(super) doctor: Semaphore,
    pub(super) explainer: Explainer,
    has_model: AtomicBool,
}

#[async_trait]
impl Routes for Site {
    async fn answer(&self, request: Request<Incoming>, entrance: Entrance) -> HttpReply {
        self.route(request, entrance).await.unwrap_or_else(No::reply)
    }
}

impl Site {
    /// The user whose memory, schedules and conversations are shown.
    pub(super) fn user(&self) -> String {
        crate::setup::user(self.bench.settings())
    }

    pub(super) fn new(
        bench: Arc<Bench>,
        board: Arc<Board>,
        turns: Arc<Turns>,
        hub: Arc<Hub>,
        (pass, hooks): (Pass, Hooks),
        closing: CancellationToken,
    ) -> Self {
        Self {
            calls: Calls::new(bench.clone()),
            talks: Talks::new(bench.clone(), turns.clone(), closing.clone()),
            forge: Forge::new(closing.clone()),
            guests: Arc::default(),
            driver: OnceLock::new(),
            listeners: Arc::new(Semaphore::new(LISTENERS)),
            doctor: Semaphore::new(1),
            explainer: Explainer::new(Caller::Program),
            has_model: AtomicBool::new(false),
            bench,
            board,
            turns,
            hub,
            pass,
            hooks,
            closing,
        }
    }

    /// Somebody is there who answers.
    pub(super) fn found_model(&self) {
        self.has_model.store(true, Ordering::Relaxed);
    }

    /// Ends what was begun here.
    pub(super) async fn end(&self) {
        self.board.close();
        self.forge.end().await;
        self.talks.end().await;
        self.calls.end().await;
    }

    async fn route(&self, request: Request<Incoming>, entrance: Entrance) -> Result<HttpReply, No> {
        if let Entrance::Refused(status, why) = entrance {
            let code = match status {
                StatusCode::FORBIDDEN => "forbidden",
                StatusCode::SERVICE_UNAVAILABLE => "unavailable",
                _ => "bad_request",
            };
            return Err(No::new(status, code, why));
        }
        let is_known = entrance == Entrance::Known || self.pass.is_page(request.headers());
        if let Some(connection) = request.extensions().get::<HttpConnection>().filter(|_| is_known) {
            connection.set_authenticated();
        }
        if request.uri().path().starts_with("/hooks/") {
            if request.method() != "POST" {
                return Err(No::method("POST"));
            }
            return self.hook(request).await;
        }
        let (route, ids) = routes::find(request.method(), request.uri().path())?;
        if route.right == routes::Right::Token && !is_known {
            let why = "a token is needed: Authorization: Bearer TOKEN, with the one that was printed at the start";
            return Err(No::new(StatusCode::UNAUTHORIZED, "unauthorized", why));
        }
        let asked = Asked::of(request, ids, is_known, route.takes).await?;
        (route.act)(self, asked).await
    }

    /// The page; the address with the token leads to it, and leaves a cookie instead.
    pub(super) fn page(&self, asked: &Asked) -> Result<HttpReply, No> {
        match asked.query.get("token") {
            Some(token) if self.pass.fits(token) => {
                let mut reply = say::text(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", "the page is at /\n");
                let cookie = HeaderValue::from_str(&self.pass.cookie()).map_err(No::broken)?;
                reply.headers_mut().insert(SET_COOKIE, cookie);
                reply.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
                Ok(reply)
            }
            None if asked.is_known => {
                let theme = self.bench.knobs().base().text("theme");
                page::whole(self.bench.settings(), theme.as_deref().unwrap_or("auto"))
            }
            _ => page::closed(),
        }
    }

    /// Numbers, as Prometheus reads them.
    pub(super) fn metrics(&self) -> HttpReply {
        let text = self.hub.metrics(self.board.waiting(), self.turns.count());
        say::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    /// What happens, as it happens.
    pub(super) fn events(&self, headers: &HeaderMap, query: &Query) -> Result<HttpReply, No> {
        let place = self.listeners.clone().try_acquire_owned();
        let place = place.map_err(|_| No::busy("too many listen already; come back later"))?;
        let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let manner = if accept.contains("text/event-stream") { Manner::Events } else { Manner::Lines };
        // A browser that lost us says in a header where it was.
        let lost = headers.get("last-event-id").and_then(|it| it.to_str().ok()?.parse().ok());
        let after = lost.map_or_else(|| number(query, "after", 0), Ok)?;
        let follow = match query.get("follow").map(String::as_str) {
            None | Some("true") => true,
            Some("false") => false,
            Some(_) => return Err(No::bad("follow must be true or false")),
        };
        let (hub, closing) = (self.hub.clone(), self.closing.clone());
        Ok(Listener { hub, manner, after, follow, closing, _place: place }.reply())
    }

    async fn hook(&self, request: Request<Incoming>) -> Result<HttpReply, No> {
        let has_model = self.has_model.load(Ordering::Relaxed);
        let accepted = OnceLock::new();
        let deliver = async |taken| {
            if !has_model {
                return Err(String::new());
            }
            let put = self.hooks.put(taken).await?;
            accepted.get_or_init(|| put);
            Ok(())
        };
        let answered = timeout(routes::PATIENCE, Inbound::answer(self.hooks.all(), request, deliver)).await;
        let reply = answered.map_err(|_| No::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long"))?;
        let status = reply.status();
        let code = match status {
            it if it.is_success() => {
                let mut body = json!({ "status": "accepted" });
                if let Some(Accepted { job, is_duplicate }) = accepted.get() {
                    body["job"] = json!(job);
                    body["duplicate"] = json!(is_duplicate);
                }
                return Ok(say::json(status, &body));
            }
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::PAYLOAD_TOO_LARGE => "too_large",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            _ => "bad_request",
        };
        if status == StatusCode::SERVICE_UNAVAILABLE && !has_model {
            return Err(No::busy("no model is here that could hear it"));
        }
        let said = reply.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
        Err(No::new(status, code, String::from_utf8_lossy(&said)))
    }
}
