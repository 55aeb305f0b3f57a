//! The page: one document with its style and its script, and nothing from elsewhere.

use helve_mcp::HttpReply;
use hyper::{
    StatusCode,
    header::{CONTENT_SECURITY_POLICY, HeaderValue},
};

use super::say::{self, No};
use crate::{config::Settings, state};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = concat!(
    include_str!("page/base.css"),
    include_str!("page/frame.css"),
    include_str!("page/calls.css"),
    include_str!("page/views.css"),
);
/// In this order: what later files use comes first.
const SCRIPT: &str = concat!(
    include_str!("page/base.js"),
    include_str!("page/diff.js"),
    include_str!("page/form.js"),
    include_str!("page/drawing.js"),
    include_str!("page/live.js"),
    include_str!("page/approvals.js"),
    include_str!("page/tools.js"),
    include_str!("page/sessions.js"),
    include_str!("page/schedules.js"),
    include_str!("page/memory.js"),
    include_str!("page/forge.js"),
    include_str!("page/policy.js"),
    include_str!("page/start.js"),
);
const CLOSED: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Helve</title>\
    <meta name=\"viewport\" content=\"width=device-width\"><h1>Helve</h1><p>This page needs its token. Open the \
    address that <code>helve serve</code> printed at the start: it ends in <code>?token=…</code>. The token is also \
    in <code>serve.token</code> in the state folder.</p></html>";

/// The page for whoever may see it.
pub(super) fn whole(settings: &Settings, theme: &str) -> Result<HttpReply, No> {
    let nonce = format!("{}{}", state::random_id().map_err(No::broken)?, state::random_id().map_err(No::broken)?);
    // What comes from outside goes in last, so that nothing in it is taken for a mark.
    let text = PAGE
        .replace("{nonce}", &nonce)
        .replace("{style}", STYLE)
        .replace("{script}", SCRIPT)
        .replace("{theme}", theme)
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{workspace}", &escaped(&settings.workspace.to_string_lossy()));
    guarded(StatusCode::OK, text, &format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"))
}

/// What everybody else sees.
pub(super) fn closed() -> Result<HttpReply, No> {
    guarded(StatusCode::UNAUTHORIZED, CLOSED.to_owned(), "script-src 'none'")
}

fn guarded(status: StatusCode, text: String, more: &str) -> Result<HttpReply, No> {
    let mut reply = say::text(status, "text/html; charset=utf-8", text);
    // The only picture is the icon, which is in the page itself.
    let policy = format!(
        "default-src 'self'; {more}; img-src data:; object-src 'none'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let policy = HeaderValue::from_str(&policy).map_err(No::broken)?;
    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    Ok(reply)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
