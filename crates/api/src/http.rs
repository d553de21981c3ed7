//! HTTP/1.1, as much of it as a socket on the same host needs: one request and one answer. Then the
//! connection ends, or becomes a connection of another protocol (`Upgrade`).
//!
//! The client is a process of this user's or of root's, and may still be broken. So the server
//! limits everything that it reads, and makes each input a [`Request`] or an [`Error`].

use serde::Serialize;

/// The most of a request before its body.
pub const HEAD_MAX_BYTES: usize = 16 << 10;

/// The most of its body: a command and its environment, as JSON.
pub const BODY_MAX_BYTES: usize = 4 << 20;

/// The most header lines.
const HEADERS_MAX: usize = 64;

/// What [`Request::upgrade`] asks for: frames as the channel to the guest has them.
pub const FRAMES: &str = "bivouac-frames";

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// `GET`, `POST`.
    pub method: String,
    /// What is asked for, without what follows `?`.
    pub path: String,
    /// What the connection is to become.
    pub upgrade: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// What is no request that we answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not HTTP.
    #[error("this is not HTTP/1.1: {0}")]
    Syntax(httparse::Error),
    /// Too many or too long headers.
    #[error("the request has more than {HEAD_MAX_BYTES} bytes before its body")]
    Head,
    /// Too long a body.
    #[error("the request has a body of more than {BODY_MAX_BYTES} bytes")]
    Body,
    /// A length that is none, or two.
    #[error("the request's Content-Length is not a valid number")]
    Length,
    /// A body whose length is not said before it.
    #[error("the request has a Transfer-Encoding, which is not supported; send a Content-Length")]
    Encoding,
}

impl Error {
    /// The status that tells it.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Error::Syntax(_) | Error::Length => 400,
            Error::Head => 431,
            Error::Body => 413,
            Error::Encoding => 411,
        }
    }
}

/// The request at the beginning of `bytes` and how long it is; none if it is not complete yet.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Error> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= HEAD_MAX_BYTES => head,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX_BYTES => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Error::Head),
        Err(error) => return Err(Error::Syntax(error)),
    };
    let (mut length, mut upgrade) = (None, None);
    for header in &*parsed.headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if is("transfer-encoding") {
            return Err(Error::Encoding);
        }
        if is("content-length") {
            // Signs, which `parse` would take, are not digits.
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse::<usize>().ok().filter(|_| digits && length.is_none());
            length = Some(number.ok_or(Error::Length)?);
        }
        if is("upgrade") {
            upgrade = Some(value.to_owned());
        }
    }
    let length = length.unwrap_or(0);
    if length > BODY_MAX_BYTES {
        return Err(Error::Body);
    }
    let Some(body) = bytes.get(head..head + length) else { return Ok(None) };
    let target = parsed.path.unwrap_or_default();
    let request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        upgrade,
        body: body.to_vec(),
    };
    Ok(Some((request, head + length)))
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Its body: JSON, or nothing.
    pub body: Vec<u8>,
}

/// What goes with every status that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// What is wrong, for people.
    pub error: String,
}

impl Response {
    /// This value, as JSON.
    pub fn json(status: u16, value: &impl Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response { status, body },
            Err(error) => Response::problem(500, error.to_string()),
        }
    }

    /// Nothing to say but that it is done.
    #[must_use]
    pub fn done() -> Response {
        Response { status: 204, body: Vec::new() }
    }

    /// Something is wrong.
    #[must_use]
    pub fn problem(status: u16, error: impl Into<String>) -> Response {
        Self::json(status, &Problem { error: error.into() })
    }

    /// As bytes; the connection ends with them.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            202 => "Accepted",
            204 => "No Content",
            _ => "Problem",
        };
        let (status, length) = (self.status, self.body.len());
        let mut bytes = format!("HTTP/1.1 {status} {reason}\r\nConnection: close\r\n").into_bytes();
        if status != 204 {
            let kind = "Content-Type: application/json\r\n";
            bytes.extend_from_slice(format!("{kind}Content-Length: {length}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// What says that the connection is something else from here on.
#[must_use]
pub fn upgraded(to: &str) -> Vec<u8> {
    let line = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
    format!("{line}Upgrade: {to}\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, body: &str) -> Request {
        let (method, path) = (method.to_owned(), path.to_owned());
        Request { method, path, upgrade: None, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn requests_are_complete_when_their_body_is() {
        let text = b"POST /v1/x?y=z HTTP/1.1\r\nHost: d\r\ncontent-length: 4\r\n\r\nbodyREST";
        for end in 0..text.len() - 4 {
            assert_eq!(parse(&text[..end]), Ok(None), "{end}");
        }
        let expected = request("POST", "/v1/x", "body");
        assert_eq!(parse(text), Ok(Some((expected, text.len() - 4))));
    }

    #[test]
    fn upgrades_are_seen() {
        let text = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUPGRADE: bivouac-frames\r\n\r\n";
        let (request, _) = parse(text).unwrap().unwrap();
        assert_eq!(request.upgrade.as_deref(), Some(FRAMES));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let check = |text: &str, status: u16| {
            let error = parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.status(), status, "{error}");
        };
        check("\x16\x03\x01\x02\x00", 400);
        check("GET / HTTP/2.0\r\n\r\n", 400);
        check("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400);
        check("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400);
        check("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400);
        check("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400);
        check("GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413);
        check("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411);
        check(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD_MAX_BYTES)), 431);
        check(&format!("GET /{}", "x".repeat(HEAD_MAX_BYTES)), 431);
        check(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100)), 431);
    }
}
