//! The addresses: what each takes, and who may ask.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use helve_contract::{CancellationToken, async_trait};
use helve_mcp::{Entrance, HttpReply, Routes};
use helve_web::channels::Inbound;
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION, SET_COOKIE},
};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};
use url::form_urlencoded;

use super::{
    calls::Calls,
    hooks::Hooks,
    hub::Hub,
    page,
    pass::Pass,
    say::{self, No},
    stream::{Listener, Manner},
};
use crate::workshop::Bench;

/// Bytes of a body, and how long it may take.
const BODY: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// How many may listen to events at once.
const LISTENERS: usize = 64;

/// Everything beside `/mcp`.
pub(super) struct Site {
    pub(super) bench: Arc<Bench>,
    pub(super) calls: Calls,
    /// Set when the server is to end.
    pub(super) closing: CancellationToken,
    hub: Arc<Hub>,
    pass: Pass,
    hooks: Hooks,
    listeners: Arc<Semaphore>,
    /// Looking at the machine starts programs: one look at a time.
    pub(super) doctor: Semaphore,
    has_model: AtomicBool,
}

/// The parameters behind the `?`.
pub(super) type Query = HashMap<String, String>;

/// What is where.
enum Room<'a> {
    Page,
    Health,
    Metrics,
    Events,
    Tools,
    Call,
    Sessions,
    Session(&'a str),
    Schedules,
    Memory,
    Doctor,
    Hook,
}

impl<'a> Room<'a> {
    fn at(path: &'a str) -> Option<Self> {
        Some(match path {
            "/" => Self::Page,
            "/health" => Self::Health,
            "/metrics" => Self::Metrics,
            "/events" => Self::Events,
            "/api/tools" => Self::Tools,
            "/api/call" => Self::Call,
            "/api/sessions" => Self::Sessions,
            "/api/schedules" => Self::Schedules,
            "/api/memory" => Self::Memory,
            "/api/doctor" => Self::Doctor,
            _ if path.starts_with("/hooks/") => Self::Hook,
            _ => Self::Session(path.strip_prefix("/api/sessions/").filter(|it| !it.is_empty() && !it.contains('/'))?),
        })
    }

    fn takes(&self) -> &'static str {
        if matches!(self, Self::Call | Self::Hook) { "POST" } else { "GET" }
    }
}

#[async_trait]
impl Routes for Site {
    async fn answer(&self, request: Request<Incoming>, entrance: Entrance) -> HttpReply {
        self.route(request, entrance).await.unwrap_or_else(No::reply)
    }
}

impl Site {
    pub(super) fn new(bench: Arc<Bench>, hub: Arc<Hub>, pass: Pass, hooks: Hooks, closing: CancellationToken) -> Self {
        Self {
            calls: Calls::new(bench.clone()),
            listeners: Arc::new(Semaphore::new(LISTENERS)),
            doctor: Semaphore::new(1),
            has_model: AtomicBool::new(false),
            bench,
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

    async fn route(&self, request: Request<Incoming>, entrance: Entrance) -> Result<HttpReply, No> {
        if let Entrance::Refused(status, why) = entrance {
            let code = match status {
                StatusCode::FORBIDDEN => "forbidden",
                StatusCode::SERVICE_UNAVAILABLE => "unavailable",
                _ => "bad_request",
            };
            return Err(No::new(status, code, why));
        }
        let path = request.uri().path().to_owned();
        let room = Room::at(&path).ok_or_else(|| No::missing("nothing is here; docs/api.md lists the addresses"))?;
        let takes = room.takes();
        if request.method() != takes && !(takes == "GET" && request.method() == Method::HEAD) {
            return Err(No::method(takes));
        }
        let query: Query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
            .into_owned()
            .take(32)
            .collect();
        let is_known = entrance == Entrance::Known || self.pass.is_page(request.headers());
        match room {
            Room::Health => return Ok(say::json(StatusCode::OK, &json!({ "status": "ok" }))),
            Room::Hook => return self.hook(request).await,
            Room::Page => return self.page(&query, is_known),
            _ if !is_known => {
                let why = "a token is needed: Authorization: Bearer TOKEN, with the one that was printed at the start";
                return Err(No::new(StatusCode::UNAUTHORIZED, "unauthorized", why));
            }
            Room::Metrics => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                return Ok(say::text(StatusCode::OK, kind, self.hub.metrics()));
            }
            Room::Events => return self.events(request.headers(), &query),
            Room::Call => {
                let body = whole(request).await?;
                return self.call(&body).await;
            }
            _ => {}
        }
        let value = match room {
            Room::Tools => self.tools(&query)?,
            Room::Sessions => self.sessions(&query).await?,
            Room::Session(id) => self.session(id, &query).await?,
            Room::Schedules => self.schedules().await?,
            Room::Memory => self.memory(&query).await?,
            _ => self.machine().await?,
        };
        Ok(say::json(StatusCode::OK, &value))
    }

    /// The page; the address with the token leads to it, and leaves a cookie instead.
    fn page(&self, query: &Query, is_known: bool) -> Result<HttpReply, No> {
        match query.get("token") {
            Some(token) if self.pass.fits(token) => {
                let mut reply = say::text(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", "the page is at /\n");
                let cookie = HeaderValue::from_str(&self.pass.cookie()).map_err(No::broken)?;
                reply.headers_mut().insert(SET_COOKIE, cookie);
                reply.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
                Ok(reply)
            }
            None if is_known => page::whole(self.bench.settings()),
            _ => page::closed(),
        }
    }

    fn events(&self, headers: &HeaderMap, query: &Query) -> Result<HttpReply, No> {
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
        let deliver = |taken| has_model && self.hooks.put(taken);
        let answered = timeout(PATIENCE, Inbound::answer(self.hooks.all(), request, deliver)).await;
        let reply = answered.map_err(|_| No::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long"))?;
        let status = reply.status();
        let code = match status {
            it if it.is_success() => return Ok(say::json(status, &json!({ "status": "accepted" }))),
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

/// A number of the query.
pub(super) fn number(query: &Query, name: &str, otherwise: u64) -> Result<u64, No> {
    let Some(text) = query.get(name) else { return Ok(otherwise) };
    text.parse().map_err(|_| No::bad(format!("{name} must be a whole number")))
}

/// The body of JSON, as far as there is room for it.
async fn whole(request: Request<Incoming>) -> Result<Bytes, No> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let why = "Content-Type must be application/json";
        return Err(No::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why));
    }
    match timeout(PATIENCE, Limited::new(request.into_body(), BODY).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("a body has {BODY} bytes at most");
            Err(No::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why))
        }
        Ok(Err(_)) => Err(No::bad("the body broke off")),
        Err(_) => Err(No::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long")),
    }
}
