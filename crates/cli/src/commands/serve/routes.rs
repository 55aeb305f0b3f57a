//! The routing table: body type, access and handler of each address.

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
    say::{self, ApiError},
    site::AppState,
};

/// The maximum size and duration of a body.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Bytes of a body with files in base64: 20 MiB of files, and the message.
const MAX_UPLOAD: usize = 28 << 20;
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The parameters behind the `?`.
pub(super) type QueryParams = HashMap<String, String>;

/// Who may send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteAccess {
    /// Clients with the token.
    Authenticated,
    /// Everybody; the response depends on the client.
    Public,
}

/// What an address takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestBodyKind {
    /// No body; what is sent is not read.
    None,
    /// A body of JSON.
    Json,
    /// A body of JSON that may carry files.
    Upload,
    /// A body of JSON, or none.
    OptionalJson,
}

type Handler = for<'a> fn(&'a AppState, ApiRequest) -> BoxFuture<'a, Result<HttpReply, ApiError>>;

/// One method of one address.
pub(super) struct Route {
    method: &'static str,
    /// `*` stands for an id.
    path: &'static str,
    pub(super) right: RouteAccess,
    pub(super) takes: RequestBodyKind,
    pub(super) act: Handler,
}

/// A request, as far as it was read.
pub(super) struct ApiRequest {
    /// What stands in place of the `*`.
    ids: Vec<String>,
    pub(super) query: QueryParams,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether whoever asks may see everything.
    pub(super) is_authenticated: bool,
}

/// A row of the table. The result of a handler is JSON with status 200, unless the row names another.
macro_rules! row {
    ($method:literal $path:literal, $takes:ident, |$site:ident, $asked:ident| $work:expr) => {
        row!($method $path, $takes, OK, |$site, $asked| $work)
    };
    ($method:literal $path:literal, $takes:ident, $status:ident, |$site:ident, $asked:ident| $work:expr) => {
        Route {
            method: $method,
            path: $path,
            right: RouteAccess::Authenticated,
            takes: RequestBodyKind::$takes,
            act: |$site, $asked| {
                Box::pin(async move {
                    let value: Result<Value, ApiError> = $work;
                    Ok(say::json_response(StatusCode::$status, &value?))
                })
            },
        }
    };
}

/// A row whose handler builds the whole response.
macro_rules! whole {
    ($method:literal $path:literal, $right:ident, |$site:ident, $asked:ident| $work:expr) => {
        Route {
            method: $method,
            path: $path,
            right: RouteAccess::$right,
            takes: RequestBodyKind::None,
            act: |$site, $asked| Box::pin(async move { $work }),
        }
    };
}

/// Every address.
#[rustfmt::skip]
const ROUTES: &[Route] = &[
    whole!("GET" "/", Public, |site, asked| site.page(&asked)),
    whole!("GET" "/health", Public, |_site, _asked| Ok(say::json_response(StatusCode::OK, &json!({ "status": "ok" })))),
    whole!("GET" "/metrics", Authenticated, |site, _asked| Ok(site.metrics())),
    whole!("GET" "/events", Authenticated, |site, asked| site.events(&asked.headers, &asked.query)),

    row!("GET" "/api/tools", None, |site, asked| site.tools(&asked.query)),
    row!("POST" "/api/call", Json, |site, asked| site.call(&asked.body).await),
    row!("GET" "/api/doctor", None, |site, _asked| site.doctor_report().await),
    row!("GET" "/api/policy", None, |site, _asked| Ok(site.policy())),
    row!("POST" "/api/policy/explain", Json, |site, asked| site.explain_policy(&asked.body).await),

    row!("GET" "/api/approvals", None, |site, _asked| Ok(site.approvals.to_json())),
    row!("POST" "/api/approvals/*", Json, |site, asked| site.approvals.answer(asked.id(), &asked.body)),

    row!("GET" "/api/sessions", None, |site, asked| site.sessions(&asked.query).await),
    row!("POST" "/api/sessions", Upload, ACCEPTED, |site, asked| site.create_session(&asked.body).await),
    row!("GET" "/api/sessions/*", None, |site, asked| site.session(asked.id(), &asked.query).await),
    row!("POST" "/api/sessions/*/messages", Upload, ACCEPTED, |site, asked| site.send_message(asked.id(), &asked.body).await),
    row!("POST" "/api/sessions/*/stop", None, |site, asked| site.stop_turn(asked.id()).await),

    row!("GET" "/api/tasks", None, |site, _asked| site.tasks().await),
    row!("GET" "/api/tasks/*", None, |site, asked| site.task(asked.id(), &asked.query).await),
    row!("POST" "/api/tasks/*/stop", None, |site, asked| site.stop_task(asked.id()).await),

    row!("GET" "/api/schedules", None, |site, _asked| site.schedules().await),
    row!("POST" "/api/schedules/*", Json, |site, asked| site.act_on_schedule(asked.id(), &asked.body).await),
    row!("GET" "/api/schedules/*/runs", None, |site, asked| site.schedule_runs(asked.id()).await),

    row!("GET" "/api/jobs", None, |site, asked| site.jobs(&asked.query).await),
    row!("POST" "/api/jobs/*/retry", None, |site, asked| site.retry_job(asked.id()).await),
    row!("POST" "/api/jobs/*/cancel", None, |site, asked| site.cancel_job(asked.id()).await),

    row!("GET" "/api/memory", None, |site, asked| site.memory(&asked.query).await),
    row!("POST" "/api/memory", Json, CREATED, |site, asked| site.create_note(&asked.body).await),
    row!("PUT" "/api/memory/*", Json, |site, asked| site.update_note(asked.id(), &asked.body).await),
    row!("DELETE" "/api/memory/*", None, |site, asked| site.delete_note(asked.id()).await),
    row!("POST" "/api/memory/*/release", None, |site, asked| site.release_note(asked.id()).await),

    row!("GET" "/api/forge", None, |site, _asked| site.forge_runs().await),
    row!("GET" "/api/forge/*", None, |site, asked| site.forge_run(asked.id()).await),
    row!("POST" "/api/forge/*/run", OptionalJson, ACCEPTED, |site, asked| site.forge_start(asked.id(), &asked.body)),
    row!("POST" "/api/forge/*/cancel", None, |site, asked| site.forge_cancel(asked.id())),
    row!("POST" "/api/forge/*/requests/*", Json, |site, asked| site.forge_decide(asked.id(), asked.second_id(), &asked.body).await),
];

/// The row of a request, with the ids in its path.
pub(super) fn find_route(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), ApiError> {
    let mut there: Option<(&str, Vec<&str>)> = None;
    for route in ROUTES {
        let Some(ids) = match_path(route.path, path) else { continue };
        if *method == route.method || (*method == Method::HEAD && route.method == "GET") {
            let ids = ids.into_iter().map(percent_decode).collect::<Option<_>>();
            return Ok((route, ids.ok_or_else(|| ApiError::bad_request("the path is not UTF-8, or badly encoded"))?));
        }
        there.get_or_insert((route.path, Vec::new())).1.push(route.method);
    }
    Err(match there {
        Some((_, methods)) => ApiError::method_not_allowed(methods.join(", ")),
        None => ApiError::not_found("nothing is here; docs/api.md lists the addresses"),
    })
}

/// The ids of a path that fits a pattern.
fn match_path<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
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

/// A path component, percent-decoded.
fn percent_decode(text: &str) -> Option<String> {
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

impl ApiRequest {
    /// Reads what an address takes.
    pub(super) async fn read(
        request: Request<Incoming>,
        ids: Vec<String>,
        is_known: bool,
        takes: RequestBodyKind,
    ) -> Result<Self, ApiError> {
        let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
            .into_owned()
            .take(32)
            .collect();
        let headers = request.headers().clone();
        let body = match takes {
            RequestBodyKind::None => Bytes::new(),
            RequestBodyKind::OptionalJson if headers.get(CONTENT_TYPE).is_none() => Bytes::new(),
            RequestBodyKind::Json | RequestBodyKind::OptionalJson => read_body(request, MAX_BODY_BYTES).await?,
            RequestBodyKind::Upload => read_body(request, MAX_UPLOAD).await?,
        };
        Ok(Self { ids, query, headers, body, is_authenticated: is_known })
    }

    /// The id in the path.
    pub(super) fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// The second one.
    pub(super) fn second_id(&self) -> &str {
        self.ids.get(1).map_or("", String::as_str)
    }
}

/// A number of the query.
pub(super) fn query_number(query: &QueryParams, name: &str, otherwise: u64) -> Result<u64, ApiError> {
    let Some(text) = query.get(name) else { return Ok(otherwise) };
    text.parse().map_err(|_| ApiError::bad_request(format!("{name} must be a whole number")))
}

/// A body, as what it should be.
pub(super) fn parse_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("the body: {error}")))
}

/// The body of JSON, as far as there is room for it.
async fn read_body(request: Request<Incoming>, most: usize) -> Result<Bytes, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let why = "Content-Type must be application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why));
    }
    match timeout(BODY_TIMEOUT, Limited::new(request.into_body(), most).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("a body has {most} bytes at most");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why))
        }
        Ok(Err(_)) => Err(ApiError::bad_request("the body broke off")),
        Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> String {
        match find_route(&method.parse().unwrap(), path) {
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
        let open: Vec<_> = ROUTES.iter().filter(|it| it.right == RouteAccess::Public).map(|it| it.path).collect();
        assert_eq!(open, ["/", "/health"]);
    }
}
