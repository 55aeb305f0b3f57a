//! The web UI: one document with its style and script, without external resources.

use helve_mcp::HttpReply;
use hyper::{
    StatusCode,
    header::{CONTENT_SECURITY_POLICY, HeaderValue},
};

use super::say::{self, ApiError};
use crate::{config::Settings, state};

const PAGE_HTML: &str = include_str!("page/page.html");
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
const TOKEN_REQUIRED_HTML: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Helve</title>\
    <meta name=\"viewport\" content=\"width=device-width\"><h1>Helve</h1><p>This page needs its token. Open the \
    address that <code>helve serve</code> printed at the start: it ends in <code>?token=…</code>. The token is also \
    in <code>serve.token</code> in the state folder.</p></html>";

/// The page for whoever may see it.
pub(super) fn page(settings: &Settings, theme: &str) -> Result<HttpReply, ApiError> {
    let nonce = format!(
        "{}{}",
        state::random_id().map_err(ApiError::internal)?,
        state::random_id().map_err(ApiError::internal)?
    );
    // External content is inserted last, so that nothing in it is taken for a placeholder.
    let text = PAGE_HTML
        .replace("{nonce}", &nonce)
        .replace("{style}", STYLE)
        .replace("{script}", SCRIPT)
        .replace("{theme}", theme)
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{workspace}", &escape_html(&settings.workspace.to_string_lossy()));
    html_response(StatusCode::OK, text, &format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"))
}

/// The page for visitors without the token.
pub(super) fn token_required_page() -> Result<HttpReply, ApiError> {
    html_response(StatusCode::UNAUTHORIZED, TOKEN_REQUIRED_HTML.to_owned(), "script-src 'none'")
}

fn html_response(status: StatusCode, text: String, more: &str) -> Result<HttpReply, ApiError> {
    let mut reply = say::text_response(status, "text/html; charset=utf-8", text);
    // The only image is the icon, which is in the page itself.
    let policy = format!(
        "default-src 'self'; {more}; img-src data:; object-src 'none'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let policy = HeaderValue::from_str(&policy).map_err(ApiError::internal)?;
    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    Ok(reply)
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
