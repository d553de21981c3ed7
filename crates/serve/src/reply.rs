//! Answers: a value, a text, or a stream of lines.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::http::Problem;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::error::Error;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer.
pub type Reply = Response<Body>;

/// The kind of a stream of JSON values, one in each line.
pub const LINES: &str = "application/x-ndjson";

/// A body that is there already.
pub fn body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// A text of some kind.
pub fn text(kind: &'static str, text: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(body(text));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// A value, as JSON, with an end of line for who reads it at a terminal.
pub fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    let mut reply = text("application/json", line(value));
    *reply.status_mut() = status;
    reply
}

/// What is wrong, as JSON.
pub fn problem(error: &Error) -> Reply {
    json(error.status(), &Problem { error: error.to_string() })
}

/// A value as one line of a stream.
pub fn line(value: &impl Serialize) -> Bytes {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}

/// A stream of lines, as they come.
pub fn lines(receiver: mpsc::Receiver<Bytes>, permit: OwnedSemaphorePermit) -> Reply {
    let mut reply = text(LINES, Bytes::new());
    *reply.body_mut() = Pieces { receiver, _permit: permit }.boxed_unsync();
    reply
}

struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.receiver.poll_recv(context);
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
