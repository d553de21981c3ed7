//! The page for a browser, which cannot speak to a Unix socket: a port of this host's own address, if one is asked for.
//!
//! Every user of the host can connect there, and so can every page that a browser of the host shows. So a request
//! must have a token that was printed when the server started, in a header (`Authorization: Bearer`). It is in the
//! part of the printed address that a browser keeps to itself (after `#`), and the page sends it. There is no cookie:
//! browsers send those of one port to all others of the same host. The page itself has nothing that is secret, and is
//! given without the token, which a browser could not send for it. The name that the browser has connected to
//! (`Host`) must be one of this host's own, so that no page elsewhere gets an answer by giving its own name our
//! address (DNS rebinding).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use hyper::Request;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName,
    HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::call::Call;
use crate::error::Error;
use crate::reply::{self, Reply};

/// The page.
const PAGE: &str = include_str!("web.html");

/// What stands in the page where its nonce is to be.
const NONCE: &str = "{nonce}";

/// Bytes of a token.
const TOKEN_BYTES: usize = 32;

/// A port, and what is asked of those who connect to it.
#[derive(Debug)]
pub struct Web {
    /// The socket.
    pub listener: TcpListener,
    /// Who may be answered.
    pub gate: Gate,
}

/// Who may be answered.
#[derive(Debug, Clone)]
pub struct Gate {
    address: SocketAddr,
    token: String,
}

impl Web {
    /// Listens at an address of the host's own; port 0 is one that is free.
    ///
    /// # Errors
    ///
    /// It is another, or the host's.
    pub fn listen(address: SocketAddr) -> io::Result<Web> {
        if !address.ip().is_loopback() {
            return Err(io::Error::other("the address must be one of this host only (127.0.0.1)"));
        }
        let listener = TcpListener::bind(address)?;
        let gate = Gate { address: listener.local_addr()?, token: random()? };
        Ok(Web { listener, gate })
    }

    /// The address of the page, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/#{}", self.gate.address, self.gate.token)
    }
}

impl Gate {
    /// Whether a request is to be answered.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn admit<B>(&self, request: &Request<B>) -> Result<(), Error> {
        if !self.is_our_name(request.headers()) {
            return Err(Error::Name);
        }
        let is_page = request.method() == hyper::Method::GET && request.uri().path() == "/";
        match is_page || self.has_token(request.headers()) {
            true => Ok(()),
            false => Err(Error::Token),
        }
    }

    /// Whether the browser has connected to a name of this host's own.
    fn is_our_name(&self, headers: &HeaderMap) -> bool {
        let port = self.address.port();
        let ours = [
            format!("localhost:{port}"),
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string(),
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)).to_string(),
            self.address.to_string(),
        ];
        let mut named = headers.get_all(HOST).iter();
        let is_ours = |name: &HeaderValue| ours.iter().any(|it| it.as_bytes() == name.as_bytes());
        named.next().is_some_and(is_ours) && named.next().is_none()
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let said = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let token = said.and_then(|said| said.strip_prefix(b"Bearer ")).unwrap_or_default();
        // As long for one that is nearly right as for any other.
        let pairs = token.iter().zip(self.token.as_bytes());
        let different = pairs.fold(0, |different, (one, other)| different | (one ^ other));
        token.len() == self.token.len() && different == 0
    }
}

/// As many random digits as nobody guesses.
fn random() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    match getrandom(&mut bytes, GetRandomFlags::empty())? {
        TOKEN_BYTES => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => Err(Errno::IO.into()),
    }
}

/// The page for a browser (`biv serve --web`).
#[utoipa::path(get, path = "/", responses(
    (status = 200, description = "A page", body = String, content_type = "text/html")))]
pub async fn page(_: Call) -> Result<Reply, Error> {
    let nonce = random()?;
    // Nothing is executed or shown but what is in the page, and nobody else is asked for anything.
    let policy = format!(
        "default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src \
         'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut reply = reply::text("text/html; charset=utf-8", PAGE.replace(NONCE, &nonce));
    let headers = reply.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    let fixed: [(HeaderName, &str); 4] = [
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), token: "ab".repeat(32) }
    }

    fn status(path: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("it is a request");
        gate().admit(&request).map_or_else(|error| error.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_who_has_the_token_is_answered() {
        let check = |path: &str, said: &str, expected: u16| {
            let headers = [("Host", "localhost:8080"), ("Authorization", said)];
            assert_eq!(status(path, &headers), expected, "{path} {said}");
        };
        let right = format!("Bearer {}", "ab".repeat(32));
        check("/v1/domains", &right, 200);
        check("/", "", 200);
        check("/v1/domains", "", 401);
        check("/v1/domains", "Bearer ", 401);
        check("/v1/domains", &right[..right.len() - 1], 401);
        check("/v1/domains", &format!("{right}a"), 401);
        check("/v1/domains", &right.replacen('a', "b", 1), 401);
        check("/?token=x", "", 200);
        check("//v1/domains", "", 401);
    }

    #[test]
    fn only_our_own_names_are_answered() {
        let check = |host: &str, expected: u16| {
            assert_eq!(status("/", &[("Host", host)]), expected, "{host}");
        };
        check("127.0.0.1:8080", 200);
        check("localhost:8080", 200);
        check("[::1]:8080", 200);
        check("127.0.0.1", 403);
        check("127.0.0.1:8081", 403);
        check("evil.example:8080", 403);
        check("localhost:8080.evil.example", 403);
        check("", 403);
        assert_eq!(status("/", &[]), 403);
        let both = [("Host", "localhost:8080"), ("Host", "evil.example")];
        assert_eq!(status("/", &both), 403);
    }

    #[test]
    fn only_this_host_can_connect() {
        let web = Web::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let url = web.url();
        assert!(url.starts_with("http://127.0.0.1:") && url.len() > 80, "{url}");
        assert_ne!(random().expect("there is chance"), random().expect("there is chance"));
        assert!(Web::listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).is_err());
    }

    #[test]
    fn the_page_asks_nobody_else() {
        assert_eq!(PAGE.matches(NONCE).count(), 2, "of its script and of its style");
        for outside in ["http://", "https://", "//cdn", "src=", "innerHTML", "eval("] {
            let is_there = PAGE.replace("http://www.w3.org/2000/svg", "").contains(outside);
            assert!(!is_there, "the page has {outside}");
        }
    }
}
