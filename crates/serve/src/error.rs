//! Why a request is not answered as its client would like.

use std::io;

use api::{client, http, registry};
use hyper::StatusCode;

use crate::limits::{BODY_MAX_BYTES, BODY_TIMEOUT};

/// See above.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the request says makes no sense.
    #[error("{0}")]
    Request(String),
    /// There is nothing of that path.
    #[error("there is no {0} here; GET /v1/openapi.json lists what there is")]
    NoPath(String),
    /// There is, for other methods.
    #[error("method not allowed for this path")]
    Method,
    /// There is no such job, or it was so long ago that it was forgotten.
    #[error("there is no job {0}")]
    NoJob(String),
    /// A domain without a log.
    #[error("the domain has no log: it was not started with --detach")]
    NoLog,
    /// Too long a body.
    #[error("the request has a body of more than {BODY_MAX_BYTES} bytes")]
    Body,
    /// The body does not come.
    #[error("the request's body did not come within {} seconds", BODY_TIMEOUT.as_secs())]
    Late,
    /// It must ask for frames.
    #[error("the request must have the header Upgrade: {}", http::FRAMES)]
    Upgrade,
    /// There are limits.
    #[error("there are too many {0} at once")]
    Busy(&'static str),
    /// A browser has connected to a name that is not ours.
    #[error("this is no name of this server")]
    Name,
    /// A browser has no token.
    #[error("the request must have the token that biv serve has printed (Authorization: Bearer)")]
    Token,
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// A domain.
    #[error(transparent)]
    Domain(#[from] client::Error),
    /// A verb, which has said why.
    #[error("{0}")]
    Verb(String),
    /// The host.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// A fault of ours.
    #[error("the server has failed to answer this request")]
    Ours,
}

impl Error {
    /// The status that tells it.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Error::Request(_) => StatusCode::BAD_REQUEST,
            Error::NoPath(_) | Error::NoJob(_) | Error::NoLog => StatusCode::NOT_FOUND,
            Error::Method => StatusCode::METHOD_NOT_ALLOWED,
            Error::Name => StatusCode::FORBIDDEN,
            Error::Token => StatusCode::UNAUTHORIZED,
            Error::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Error::Late => StatusCode::REQUEST_TIMEOUT,
            Error::Upgrade => StatusCode::UPGRADE_REQUIRED,
            Error::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Registry(error) => of_registry(error),
            Error::Domain(client::Error::NotRunning(..)) | Error::Verb(_) => StatusCode::CONFLICT,
            Error::Domain(client::Error::Refused { status, .. }) => {
                let told = StatusCode::from_u16(*status).ok();
                told.filter(|status| status.as_u16() >= 400).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            Error::Domain(client::Error::Io { .. }) => StatusCode::BAD_GATEWAY,
            Error::Host(_) | Error::Ours => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

fn of_registry(error: &registry::Error) -> StatusCode {
    match error {
        registry::Error::Unknown(..) => StatusCode::NOT_FOUND,
        registry::Error::Place { .. } | registry::Error::Files { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::CONFLICT,
    }
}

#[cfg(test)]
mod tests {
    use api::{Kind, Name};

    use super::*;

    #[test]
    fn errors_have_the_status_of_their_kind() {
        let check = |error: Error, status: u16| {
            assert_eq!(error.status().as_u16(), status, "{error}");
        };
        let name: Name = "web".parse().expect("a name");
        let refused = |status| client::Error::Refused {
            kind: Kind::Domain,
            name: name.clone(),
            status,
            reason: String::new(),
        };
        check(registry::Error::Unknown(Kind::Domain, "x".to_owned()).into(), 404);
        check(registry::Error::Alive(Kind::Domain, name.clone()).into(), 409);
        check(client::Error::NotRunning(Kind::Domain, name.clone()).into(), 409);
        check(refused(503).into(), 503);
        // A domain whose guest owns it may say anything.
        check(refused(200).into(), 502);
        check(refused(7).into(), 502);
        check(io::Error::other("no room").into(), 500);
    }
}
