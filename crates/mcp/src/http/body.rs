//! HTTP responses: refusals, messages and streams.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::Frame,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
};

use super::stream::EventReader;
use crate::{
    answer,
    wire::{RequestId, RpcError},
};

/// The body of any response.
pub type HttpBody = UnsyncBoxBody<Bytes, Infallible>;
/// Any response.
pub type HttpReply = Response<HttpBody>;

/// Why a request is not served.
pub(crate) struct HttpRefusal {
    pub(crate) status: StatusCode,
    /// In words.
    pub(crate) why: String,
    message: Vec<u8>,
}

impl HttpRefusal {
    /// A refusal of the transport.
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self::of(status, None, &RpcError::new(-32000, why))
    }

    /// A refusal of a request that could be read.
    pub(crate) fn of(status: StatusCode, id: Option<&RequestId>, fault: &RpcError) -> Self {
        Self { status, why: fault.message.clone(), message: answer::error(id, fault) }
    }

    /// As a response.
    pub(crate) fn into_reply(self) -> HttpReply {
        let mut reply = json(self.status, self.message);
        match self.status {
            StatusCode::UNAUTHORIZED => {
                reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
            }
            _ => {}
        }
        reply
    }
}

/// A message as the whole response.
pub(crate) fn json(status: StatusCode, message: Vec<u8>) -> HttpReply {
    with_content_type(status, "application/json", Full::new(Bytes::from(message)).boxed_unsync())
}

/// A response that says nothing.
pub(crate) fn empty(status: StatusCode) -> HttpReply {
    let mut reply = Response::new(Empty::new().boxed_unsync());
    *reply.status_mut() = status;
    reply
}

/// Events, as they come.
pub(crate) fn events(reader: EventReader) -> HttpReply {
    let frames = futures::stream::unfold(reader, |mut reader| async move {
        let bytes = reader.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), reader))
    });
    with_content_type(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync())
}

fn with_content_type(status: StatusCode, kind: &'static str, body: HttpBody) -> HttpReply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
