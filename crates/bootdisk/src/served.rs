//! File systems that this crate does not read itself, and somebody else does: a virtual machine, whose kernel knows
//! them.
//!
//! It is asked for one thing at a time, as GRUB would read the disk, by two lines: what is wanted, and of what. It runs
//! [`SCRIPT`]:
//!
//! | asked | answered |
//! | --- | --- |
//! | `mount`, kind and number of a partition (0: the whole disk) | a line, `mounted`, or `failed` and why |
//! | `stat`, a path | a line: mode, in hexadecimal digits, and length; `-` if there is no such file |
//! | `link`, the path of a symbolic link | its target, and a zero |
//! | `list`, the path of a directory | the paths in it, each with a zero behind it, and a zero |
//! | `read`, the path of a file | its contents, as long as `stat` has said |
//!
//! What rules it:
//!
//! 1. *The answers are hostile*, as the disk is: whoever wrote it may have taken that machine over. They are bounded
//!    (`limits`), and an answer that makes no sense is the last.
//! 2. *Symbolic links are followed here*, within their file system. No path that is asked for has a link or `..` in it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::rc::Rc;

use crate::error::Error;
use crate::limits::{
    ENTRIES_MAX, LINKS_MAX, LIST_MAX_BYTES, PATH_MAX_BYTES, REPLY_MAX_BYTES, REQUESTS_MAX,
};

/// What that machine runs in its shell, which is busybox's: its standard input and output are the connection, and the
/// disk is its first.
pub const SCRIPT: &str = include_str!("serve.sh");

/// The way to it.
pub trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// The kind of a file, among the bits of its mode (inode(7)).
mod mode {
    pub const KIND: u32 = 0o170_000;
    pub const FILE: u32 = 0o100_000;
    pub const DIRECTORY: u32 = 0o040_000;
    pub const LINK: u32 = 0o120_000;
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Nothing,
    Directory,
    /// A file of so many bytes.
    File(u64),
    /// A symbolic link, and its target.
    Link(String),
    /// A socket, a device, or the like.
    Other,
}

/// Who is asked.
pub struct Server {
    state: RefCell<State>,
}

struct State {
    connection: BufReader<Box<dyn Connection>>,
    /// What has been asked about paths.
    known: HashMap<String, Entry>,
    requests: usize,
    /// Why it is not asked any more.
    failure: Option<String>,
}

impl Server {
    /// The one at the other end.
    pub fn new(connection: Box<dyn Connection>) -> Self {
        let connection = BufReader::new(connection);
        let known = HashMap::new();
        Self { state: RefCell::new(State { connection, known, requests: 0, failure: None }) }
    }

    /// Why it has failed, if it has.
    pub fn failure(&self) -> Option<Error> {
        self.state.borrow().failure.clone().map(Error::Server)
    }

    /// Has it mount a partition, or the whole disk.
    ///
    /// # Errors
    ///
    /// It cannot: what it says of that.
    pub fn mount(
        self: &Rc<Self>,
        kind: &'static str,
        number: Option<u32>,
    ) -> Result<Served, String> {
        let number = number.unwrap_or(0);
        let word = format!("{kind} {number}");
        let answer = self.ask("mount", &word, State::line).map_err(|error| error.to_string())?;
        match answer.strip_prefix("failed") {
            None if answer == "mounted" => {
                Ok(Served { server: Rc::clone(self), kind, root: format!("/v/{number}") })
            }
            why => Err(why.map_or_else(|| nonsense().to_string(), |why| why.trim().to_owned())),
        }
    }

    /// What is at a path, which is no link's.
    fn entry(&self, path: &str) -> Result<Entry, Error> {
        if let Some(known) = self.state.borrow().known.get(path) {
            return Ok(known.clone());
        }
        let (mode, bytes) = self.ask("stat", path, |state| match state.line()?.as_str() {
            "-" => Ok((0, 0)),
            line => {
                let numbers = line.split_once(' ').and_then(|(mode, bytes)| {
                    Some((u32::from_str_radix(mode, 16).ok()?, bytes.parse().ok()?))
                });
                numbers.ok_or_else(nonsense)
            }
        })?;
        let entry = match mode & mode::KIND {
            0 => Entry::Nothing,
            mode::FILE => Entry::File(bytes),
            mode::DIRECTORY => Entry::Directory,
            mode::LINK => {
                let target = self.ask("link", path, |state| state.text(PATH_MAX_BYTES))?;
                Entry::Link(target)
            }
            _ => Entry::Other,
        };
        self.state.borrow_mut().known.insert(path.to_owned(), entry.clone());
        Ok(entry)
    }

    /// Asks for something, and takes the answer.
    fn ask<T>(
        &self,
        what: &str,
        of: &str,
        take: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<T, Error> {
        let mut state = self.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Err(Error::Server(failure.clone()));
        }
        let answer = state.request(what, of).and_then(|()| take(&mut state));
        answer.map_err(|error| {
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                    format!("it ended when it was asked to {what} {of}")
                }
                _ => format!("{error}, when it was asked to {what} {of}"),
            };
            state.failure = Some(reason.clone());
            Error::Server(reason)
        })
    }
}

impl State {
    fn request(&mut self, what: &str, of: &str) -> io::Result<()> {
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            return Err(io::Error::other("too much is wanted of it"));
        }
        let connection = self.connection.get_mut();
        connection.write_all(format!("{what}\n{of}\n").as_bytes())?;
        connection.flush()
    }

    /// What is before this byte, if that is not more than so much.
    fn until(&mut self, end: u8, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.connection.by_ref().take(most as u64 + 1).read_until(end, &mut bytes)?;
        match bytes.pop() {
            Some(last) if last == end => Ok(bytes),
            Some(_) if bytes.len() >= most => Err(nonsense()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        String::from_utf8(self.until(b'\n', REPLY_MAX_BYTES)?).map_err(|_| nonsense())
    }

    /// What is before a zero. What is no UTF-8 in it is replaced.
    fn text(&mut self, most: usize) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.until(0, most)?).into_owned())
    }

    /// The names of paths up to an empty one, as many as count.
    fn names(&mut self) -> io::Result<Vec<String>> {
        let (mut names, mut left) = (Vec::new(), LIST_MAX_BYTES);
        loop {
            let path = self.text(left)?;
            left = left.saturating_sub(path.len());
            match path.rsplit('/').next() {
                None | Some("") => return Ok(names),
                Some(name) if names.len() < ENTRIES_MAX => names.push(name.to_owned()),
                Some(_) => {}
            }
        }
    }

    fn contents(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut contents = Vec::new();
        let count = self.connection.by_ref().take(bytes).read_to_end(&mut contents)?;
        if count as u64 == bytes { Ok(contents) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn nonsense() -> io::Error {
    io::Error::other("it answers what makes no sense")
}

/// A file system that it has mounted.
pub struct Served {
    server: Rc<Server>,
    /// What kind it is.
    pub kind: &'static str,
    /// Where, in the machine.
    root: String,
}

impl Served {
    /// How long a file is, if it is there.
    pub fn length(&self, path: &str) -> Result<Option<u64>, Error> {
        Ok(match self.resolve(path)? {
            Some((_, Entry::File(bytes))) => Some(bytes),
            _ => None,
        })
    }

    /// What is in a file, if it is there and has so many bytes.
    pub fn read(&self, path: &str, bytes: u64) -> Result<Option<Vec<u8>>, Error> {
        match self.resolve(path)? {
            Some((path, Entry::File(found))) if found == bytes => {
                self.server.ask("read", &path, |state| state.contents(bytes)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The names in a directory; none if there is no such directory.
    pub fn list(&self, path: &str) -> Result<Vec<String>, Error> {
        match self.resolve(path)? {
            Some((path, Entry::Directory)) => self.server.ask("list", &path, State::names),
            _ => Ok(Vec::new()),
        }
    }

    /// The path in the machine that this one comes to, and what is there; none if it comes to nothing.
    fn resolve(&self, path: &str) -> Result<Option<(String, Entry)>, Error> {
        let mut left: VecDeque<String> = parts(path).collect();
        let (mut at, mut entry, mut links) = (vec![self.root.clone()], Entry::Directory, 0);
        while let Some(name) = left.pop_front() {
            if entry != Entry::Directory {
                return Ok(None);
            }
            if name == ".." {
                at.truncate(at.len().saturating_sub(1).max(1));
                continue;
            }
            let place = format!("{}/{name}", at.join("/"));
            // No line has a second one in it.
            if place.len() > PATH_MAX_BYTES || name.contains(['\n', '\0']) {
                return Ok(None);
            }
            entry = self.server.entry(&place)?;
            let Entry::Link(target) = &entry else {
                at.push(name);
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Ok(None);
            }
            if target.starts_with('/') {
                at.truncate(1);
            }
            parts(target).rev().for_each(|part| left.push_front(part));
            entry = Entry::Directory;
        }
        Ok((entry != Entry::Nothing).then(|| (at.join("/"), entry)))
    }
}

/// The names in a path.
fn parts(path: &str) -> impl DoubleEndedIterator<Item = String> {
    path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned)
}

#[cfg(test)]
mod tests;
