//! The client's end of a domain's control socket.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use spec::{Name, shown};

use super::files;
use super::http::Problem;
use super::kept::{Kept, Kind};
use super::registry::Entry;

/// How long a domain may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most of an answer: the OpenAPI document is the longest.
const ANSWER_MAX_BYTES: u64 = 16 << 20;

/// The most header lines of an answer.
const HEADERS_MAX: usize = 32;

/// Why a request to a domain fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not live.
    #[error("{0} {1} is not running")]
    NotRunning(Kind, Name),
    /// It does not answer.
    #[error("{kind} {name} does not answer: {error}")]
    Io {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: Name,
        /// What is wrong.
        error: io::Error,
    },
    /// It refuses the request.
    #[error("{kind} {name}: {reason}")]
    Refused {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: Name,
        /// The status of the answer.
        status: u16,
        /// The reason in the answer.
        reason: String,
    },
}

/// A connection to a domain, for one request.
#[derive(Debug)]
pub struct Client {
    kind: Kind,
    name: Name,
    stream: UnixStream,
}

impl Client {
    /// Connects.
    pub fn connect<R: Kept>(entry: &Entry<R>) -> Result<Client, Error> {
        let name = entry.name.clone();
        if !entry.alive {
            return Err(Error::NotRunning(R::KIND, name));
        }
        let place = files::path(&entry.directory, files::SOCKET);
        let kind = R::KIND;
        let client = Self::at(name.clone(), &place);
        let client = client.map_err(|error| Error::Io { kind, name, error })?;
        Ok(Client { kind, ..client })
    }

    /// Connects to a socket at a path, of what is called so.
    ///
    /// # Errors
    ///
    /// Nobody listens there.
    pub(crate) fn at(name: Name, place: &str) -> io::Result<Client> {
        let stream = UnixStream::connect(place)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { kind: Kind::Domain, name, stream })
    }

    /// The same, which waits no longer than that for each part of an answer.
    ///
    /// # Errors
    ///
    /// It is no time at all.
    pub fn within(self, patience: Duration) -> io::Result<Client> {
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))?;
        Ok(self)
    }

    /// The domain's process: the kernel knows which process listens on the socket.
    #[must_use]
    pub fn process(&self) -> Option<rustix::process::Pid> {
        rustix::net::sockopt::socket_peercred(&self.stream).ok().map(|who| who.pid)
    }

    /// Sends a `GET` request.
    pub fn get<T: DeserializeOwned>(self, path: &str) -> Result<T, Error> {
        self.request("GET", path, &[])
    }

    /// Sends a `POST` request.
    pub fn post<T: DeserializeOwned>(self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        self.request("POST", path, &body)
    }

    /// Sends a `PUT` request.
    pub fn put<T: DeserializeOwned>(self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        self.request("PUT", path, &body)
    }

    /// Sends a `POST` request with a descriptor of a file, and waits for the answer without a time limit.
    pub fn post_with_file<T: DeserializeOwned>(
        mut self,
        path: &str,
        body: &impl Serialize,
        file: BorrowedFd<'_>,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let asked = self.hand_over(file).and_then(|()| self.stream.set_read_timeout(None));
        asked.map_err(|error| self.failed(error))?;
        self.request("POST", path, &body)
    }

    /// Sends a descriptor, with the first byte of what follows: an empty line, which means nothing before a
    /// request (RFC 9112, 2.2).
    fn hand_over(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        let pieces = [IoSlice::new(b"\r\n")];
        sendmsg(&self.stream, &pieces, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn request<T: DeserializeOwned>(
        mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<T, Error> {
        let asked = self.ask(method, path, "close", "", body).and_then(|()| {
            let mut answer = Vec::new();
            (&self.stream).take(ANSWER_MAX_BYTES).read_to_end(&mut answer)?;
            let (status, head) = parse(&answer)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok((status, answer.split_off(head)))
        });
        let (status, body) = asked.map_err(|error| self.failed(error))?;
        if !(200..300).contains(&status) {
            return Err(self.refused(status, &body));
        }
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(body).map_err(|error| self.failed(error.into()))
    }

    /// Upgrades the connection to `protocol`; returns it with the bytes of that protocol that have come already.
    pub fn upgrade(mut self, path: &str, protocol: &str) -> Result<(UnixStream, Vec<u8>), Error> {
        let header = format!("Upgrade: {protocol}\r\n");
        let mut answer = Vec::new();
        let asked = self.ask("POST", path, "Upgrade", &header, &[]).and_then(|()| {
            loop {
                if let Some((status, head)) = parse(&answer)? {
                    let mut rest = answer.split_off(head);
                    if status != 101 {
                        (&self.stream).take(ANSWER_MAX_BYTES).read_to_end(&mut rest)?;
                    }
                    return Ok((status, rest));
                }
                let mut piece = [0; 1024];
                match self.stream.read(&mut piece)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => answer.extend_from_slice(&piece[..count]),
                }
            }
        });
        match asked {
            Ok((101, rest)) => Ok((self.stream, rest)),
            Ok((status, body)) => Err(self.refused(status, &body)),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn ask(
        &mut self,
        method: &str,
        path: &str,
        connection: &str,
        header: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: domain\r\nConnection: {connection}\r\n{header}\
             Content-Length: {length}\r\n\r\n"
        );
        self.stream.write_all(&[head.as_bytes(), body].concat())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::Io { kind: self.kind, name: self.name.clone(), error }
    }

    fn refused(&self, status: u16, body: &[u8]) -> Error {
        let problem = serde_json::from_slice::<Problem>(body);
        let reason =
            problem.map_or_else(|_| format!("status {status}"), |it| shown::line(&it.error));
        Error::Refused { kind: self.kind, name: self.name.clone(), status, reason }
    }
}

/// Status and length of the head of an answer, if it is complete.
fn parse(bytes: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    match parsed.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(head) => Ok(Some((parsed.code.unwrap_or(0), head))),
    }
}
