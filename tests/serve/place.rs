//! A registry of domains for one test, and a server in it.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use whole_machine::user::{User, end_of, signal, start};
use whole_machine::waiting::wait_for;

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A registry that disappears, with its server and all domains that are in it.
pub struct Place {
    pub path: PathBuf,
    pub user: User,
    server: Option<Child>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The values in the lines of a stream.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let value = |line| serde_json::from_str(line).expect("each line is JSON");
        self.body.lines().map(value).collect()
    }
}

impl Place {
    /// A registry without a server.
    pub fn empty() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("biv-serve-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Place { user: User::new(&[], &path), path, server: None }
    }

    /// A registry with a server.
    pub fn new() -> Place {
        let mut place = Place::empty();
        place.serve(&[]);
        place
    }

    /// Starts a server with these options, and waits until it listens.
    pub fn serve(&mut self, options: &[&str]) {
        self.server = Some(start(self.user.command(&[&["serve"], options].concat())));
        wait_for("the server listens", || UnixStream::connect(self.socket()).is_ok());
    }

    /// The first line that the server prints.
    #[track_caller]
    pub fn printed(&mut self) -> String {
        let server = self.server.as_mut().expect("there is a server");
        let mut reader = BufReader::new(server.stdout.as_mut().expect("it is piped"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("it prints a line");
        line.trim_end().to_owned()
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.path.join("bivouac/.serve")
    }

    /// Ends the server by a signal.
    #[track_caller]
    pub fn end(&mut self, by: Signal) -> Output {
        let server = self.server.take().expect("there is a server");
        assert!(signal(&server, by), "there is no server any more");
        end_of(server)
    }

    /// Waits for the end of the server.
    #[track_caller]
    pub fn ended(&mut self) -> Output {
        end_of(self.server.take().expect("there is a server"))
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        stream
    }

    /// A request of an old client, to which a body has no other end than that of the connection.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let length = body.len();
        let text = format!("{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
        self.send(text.as_bytes()).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// A request that is answered by this status.
    #[track_caller]
    pub fn done(&self, method: &str, path: &str, body: &str, status: u16) -> Answer {
        let answer = self.ask(method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        answer
    }

    /// Sends these bytes, and reads the answer.
    pub fn send(&self, bytes: &[u8]) -> io::Result<Answer> {
        let mut stream = self.connect();
        // One that has heard enough may hang up.
        let _ = stream.write_all(bytes);
        read(&mut BufReader::new(stream))
    }

    /// Begins to read a stream, whose head has come.
    #[track_caller]
    pub fn begin(&self, path: &str) -> BufReader<UnixStream> {
        let mut stream = self.connect();
        let text = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(text.as_bytes()).expect("the server reads");
        let mut reader = BufReader::new(stream);
        assert_eq!(head(&mut reader).expect("it answers"), 200);
        reader
    }

    /// Makes a domain that runs a shell script; the job that has done so.
    #[track_caller]
    pub fn create(&self, name: &str, script: &str) -> Value {
        let spec = serde_json::json!({
            "version": 1,
            "machine": { "memory": "128M" },
            "root": "busybox",
            "process": { "args": ["sh", "-c", script] },
            "life": { "name": name },
        });
        self.done("POST", "/v1/domains?wait=300", &spec.to_string(), 200).json()
    }

    /// The state of a domain, by the list of all.
    pub fn state(&self, name: &str) -> Option<String> {
        let all = self.get("/v1/domains?all=true").json();
        let found = all.as_array()?.iter().find(|row| row["name"] == name)?;
        Some(found["state"].as_str()?.to_owned())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            signal(&server, Signal::TERM);
            let _ = server.wait_with_output();
        }
        self.user.remove_domains(&self.path.join("bivouac"));
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Reads the head of an answer; its status.
pub fn head(reader: &mut impl BufRead) -> io::Result<u16> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no answer: {line:?}")))?;
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(status)
}

fn read(reader: &mut impl BufRead) -> io::Result<Answer> {
    let status = head(reader)?;
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
}

/// The next value of a stream.
#[track_caller]
pub fn next(reader: &mut impl BufRead) -> Value {
    let mut line = String::new();
    reader.read_line(&mut line).expect("there is a next line");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}
