//! The table of addresses: what each takes, who may ask, and who answers.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use helve_mcp::HttpReply;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{HeaderMap, Method, Request, StatusCode, body::Incoming, header::CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use url::form_urlencoded;

use super::{
    say::{self, No},
    site::Site,
};

/// Bytes of a body, and how long it may take.
const BODY: usize = 1 << 20;
/// Bytes of a body with files in base64: 20 MiB of files, and the message.
const MAX_UPLOAD: usize = 28 << 20;
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The parameters behind the `?`.
pub(super) type Query = HashMap<String, String>;

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// Whoever has the token.
    Token,
    /// Everybody; the answer itself depends on who asks.
    All,
}

/// What an address takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// No body; what is sent is not read.
    Nothing,
    /// A body of JSON.
    Json,
    /// A body of JSON that may carry files.
    Upload,
    /// A body of JSON, or none.
    Perhaps,
}

type Act = for<'a> fn(&'a Site, Asked) -> BoxFuture<'a, Result<HttpReply, No>>;

/// One method of one address.
pub(super) struct Route {
    method: &'static str,
    /// `*` stands for an id.
    path: &'static str,
    pub(super) right: Right,
    pub(super) takes: Takes,
    pub(super) act: Act,
}

/// A request, as far as it was read.
pub(super) struct Asked {
    /// What stands in place of the `*`.
    ids: Vec<String>,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether whoever asks may see everything.
    pub(super) is_known: bool,
}

/// A row of the table. What an act answers is JSON with status 200, unless the row names another.
macro_rules! row {
    ($method:literal $path:literal, $takes:ident, |$site:ident, $asked:ident| $work:expr) => {
        row!($method $path, $takes, OK, |$site, $asked| $work)
    };
    ($method:literal $path:literal, $takes:ident, $status:ident, |$site:ident, $asked:ident| $work:expr) => {
        Route {
            method: $method,
            path: $path,
            right: Right::Token,
            takes: Takes::$takes,
            act: |$site, $asked| {
                Box::pin(async move {
                    let value: Result<Value, No> = $work;
                    Ok(say::json(StatusCode::$status, &value?))
                })
            },
        }
    };
}

/// A row whose act makes the whole answer.
macro_rules! whole {
    ($method:literal $path:literal, $right:ident, |$site:ident, $asked:ident| $work:expr) => {
        Route {
            method: $method,
            path: $path,
            right: Right::$right,
            takes: Takes::Nothing,
            act: |$site, $asked| Box::pin(async move { $work }),
        }
    };
}

/// Every address.
#[rustfmt::skip]
const TABLE: &[Route] = &[
    whole!("GET" "/", All, |site, asked| site.page(&asked)),
    whole!("GET" "/health", All, |_site, _asked| Ok(say::json(StatusCode::OK, &json!({ "status": "ok" })))),
    whole!("GET" "/metrics", Token, |site, _asked| Ok(site.metrics())),
    whole!("GET" "/events", Token, |site, asked| site.events(&asked.headers, &asked.query)),

    row!("GET" "/api/tools", Nothing, |site, asked| site.tools(&asked.query)),
    row!("POST" "/api/call", Json, |site, asked| site.call(&asked.body).await),
    row!("GET" "/api/doctor", Nothing, |site, _asked| site.machine().await),
    row!("GET" "/api/policy", Nothing, |site, _asked| Ok(site.policy())),
    row!("POST" "/api/policy/explain", Json, |site, asked| site.explain_policy(&asked.body).await),

    row!("GET" "/api/approvals", Nothing, |site, _asked| Ok(site.board.shown())),
    row!("POST" "/api/approvals/*", Json, |site, asked| site.board.decide(asked.id(), &asked.body)),

    row!("GET" "/api/sessions", Nothing, |site, asked| site.sessions(&asked.query).await),
    row!("POST" "/api/sessions", Upload, ACCEPTED, |site, asked| site.begin(&asked.body).await),
    row!("GET" "/api/sessions/*", Nothing, |site, asked| site.session(asked.id(), &asked.query).await),
    row!("POST" "/api/sessions/*/messages", Upload, ACCEPTED, |site, asked| site.message(asked.id(), &asked.body).await),
    row!("POST" "/api/sessions/*/stop", Nothing, |site, asked| site.stop(asked.id()).await),

    row!("GET" "/api/tasks", Nothing, |site, _asked| site.tasks().await),
    row!("GET" "/api/tasks/*", Nothing, |site, asked| site.task(asked.id(), &asked.query).await),
    row!("POST" "/api/tasks/*/stop", Nothing, |site, asked| site.stop_task(asked.id()).await),

    row!("GET" "/api/schedules", Nothing, |site, _asked| site.schedules().await),
    row!("POST" "/api/schedules/*", Json, |site, asked| site.change_schedule(asked.id(), &asked.body).await),
    row!("GET" "/api/schedules/*/runs", Nothing, |site, asked| site.runs(asked.id()).await),

    row!("GET" "/api/jobs", Nothing, |site, asked| site.jobs(&asked.query).await),
    row!("POST" "/api/jobs/*/retry", Nothing, |site, asked| site.retry_job(asked.id()).await),
    row!("POST" "/api/jobs/*/cancel", Nothing, |site, asked| site.cancel_job(asked.id()).await),

    row!("GET" "/api/memory", Nothing, |site, asked| site.memory(&asked.query).await),
    row!("POST" "/api/memory", Json, CREATED, |site, asked| site.keep_note(&asked.body).await),
    row!("PUT" "/api/memory/*", Json, |site, asked| site.change_note(asked.id(), &asked.body).await),
    row!("DELETE" "/api/memory/*", Nothing, |site, asked| site.forget_note(asked.id()).await),
    row!("POST" "/api/memory/*/release", Nothing, |site, asked| site.release_note(asked.id()).await),

    row!("GET" "/api/forge", Nothing, |site, _asked| site.forge_runs().await),
    row!("GET" "/api/forge/*", Nothing, |site, asked| site.forge_run(asked.id()).await),
    row!("POST" "/api/forge/*/run", Perhaps, ACCEPTED, |site, asked| site.forge_start(asked.id(), &asked.body)),
    row!("POST" "/api/forge/*/cancel", Nothing, |site, asked| site.forge_cancel(asked.id())),
    row!("POST" "/api/forge/*/requests/*", Json, |site, asked| site.forge_decide(asked.id(), asked.second(), &asked.body).await),
];

/// The row of a request, with the ids in its path.
pub(super) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), No> {
    let mut there: Option<(&str, Vec<&str>)> = None;
    for route in TABLE {
        let Some(ids) = fit(route.path, path) else { continue };
        if *method == route.method || (*method == Method::HEAD && route.method == "GET") {
            let ids = ids.into_iter().map(decoded).collect::<Option<_>>();
            return Ok((route, ids.ok_or_else(|| No::bad("the path is not UTF-8, or badly encoded"))?));
        }
        there.get_or_insert((route.path, Vec::new())).1.push(route.method);
    }
    Err(match there {
        Some((_, methods)) => No::method(methods.join(", ")),
        None => No::missing("nothing is here; docs/api.md lists the addresses"),
    })
}

/// The ids of a path that fits a pattern.
fn fit<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    let mut ids = Vec::new();
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return Some(ids),
            (Some("*"), Some(id)) if !id.is_empty() => ids.push(id),
            (Some(wanted), Some(there)) if wanted == there && wanted != "*" => {}
            _ => return None,
        }
    }
}

/// A part of a path, as it was before it was encoded.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

impl Asked {
    /// Reads what an address takes.
    pub(super) async fn of(
        request: Request<Incoming>,
        ids: Vec<String>,
        is_known: bool,
        takes: Takes,
    ) -> Result<Self, No> {
        let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
            .into_owned()
            .take(32)
            .collect();
        let headers = request.headers().clone();
        let body = match takes {
            Takes::Nothing => Bytes::new(),
            Takes::Perhaps if headers.get(CONTENT_TYPE).is_none() => Bytes::new(),
            Takes::Json | Takes::Perhaps => body(request, BODY).await?,
            Takes::Upload => body(request, MAX_UPLOAD).await?,
        };
        Ok(Self { ids, query, headers, body, is_known })
    }

    /// The id in the path.
    pub(super) fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// The second one.
    pub(super) fn second(&self) -> &str {
        self.ids.get(1).map_or("", String::as_str)
    }
}

/// A number of the query.
pub(super) fn number(query: &Query, name: &str, otherwise: u64) -> Result<u64, No> {
    let Some(text) = query.get(name) else { return Ok(otherwise) };
    text.parse().map_err(|_| No::bad(format!("{name} must be a whole number")))
}

/// A body, as what it should be.
pub(super) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, No> {
    serde_json::from_slice(body).map_err(|error| No::bad(format!("the body: {error}")))
}

/// The body of JSON, as far as there is room for it.
async fn body(request: Request<Incoming>, most: usize) -> Result<Bytes, No> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let why = "Content-Type must be application/json";
        return Err(No::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why));
    }
    match timeout(PATIENCE, Limited::new(request.into_body(), most).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("a body has {most} bytes at most");
            Err(No::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why))
        }
        Ok(Err(_)) => Err(No::bad("the body broke off")),
        Err(_) => Err(No::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> String {
        match find(&method.parse().unwrap(), path) {
            Ok((route, ids)) => format!("{} {} {ids:?}", route.method, route.path),
            Err(no) => no.to_string(),
        }
    }

    #[test]
    fn a_path_leads_to_one_row() {
        assert_eq!(found("GET", "/"), "GET / []");
        assert_eq!(found("HEAD", "/api/sessions"), "GET /api/sessions []");
        assert_eq!(found("GET", "/api/sessions/hook%3Abuild"), "GET /api/sessions/* [\"hook:build\"]");
        assert_eq!(found("POST", "/api/forge/p/requests/cr-1"), "POST /api/forge/*/requests/* [\"p\", \"cr-1\"]");
        assert_eq!(found("GET", "/api/sessions/%ff"), "400 the path is not UTF-8, or badly encoded");
        assert_eq!(found("GET", "/api/sessions/%4"), "400 the path is not UTF-8, or badly encoded");
        assert_eq!(found("DELETE", "/api/sessions"), "405 this address takes GET, POST");
        let nothing = "404 nothing is here; docs/api.md lists the addresses";
        for path in ["/api/sessions/", "/api/sessions/a/b", "/api//", "/x", ""] {
            assert_eq!(found("GET", path), nothing, "{path}");
        }
    }

    #[test]
    fn everything_but_the_page_and_its_health_needs_the_token() {
        let open: Vec<_> = TABLE.iter().filter(|it| it.right == Right::All).map(|it| it.path).collect();
        assert_eq!(open, ["/", "/health"]);
    }
}
