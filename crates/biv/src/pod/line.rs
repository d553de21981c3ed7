//! The line between `biv pod migrate` and `biv pod receive`: lines of text, and a stream in frames.
//!
//! A frame is its length, in four bytes (little-endian), and so many bytes. One without bytes ends a stream: a line
//! that is lost before has brought only a part of it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use host::listener::listen_at;
use host::poll::{PollFlags, Poller};
use rustix::net::{SocketFlags, SocketType};
use session::Signals;

/// The longest line of the conversation.
const LINE_MAX_BYTES: u64 = 4096;
/// The longest frame.
const FRAME_MAX_BYTES: usize = 1 << 20;

/// How many may wait until it is seen whose they are.
const BACKLOG: i32 = 16;

/// What comes.
pub(super) type Reading = BufReader<Box<dyn Read + Send>>;
/// What goes.
pub(super) type Writing = Box<dyn Write + Send>;

/// A line to the other side.
pub(super) struct Line {
    from: Reading,
    to: Writing,
    /// What carries it.
    carrier: Option<Child>,
}

impl Line {
    fn new(from: Box<dyn Read + Send>, to: Writing, carrier: Option<Child>) -> Line {
        Line { from: BufReader::new(from), to, carrier }
    }

    pub fn over(stream: UnixStream) -> io::Result<Line> {
        let to = Box::new(stream.try_clone()?);
        Ok(Line::new(Box::new(stream), to, None))
    }

    pub fn standard() -> Line {
        Line::new(Box::new(io::stdin()), Box::new(io::stdout()), None)
    }

    /// Over a program's standard streams.
    pub fn carried(mut command: Command) -> io::Result<Line> {
        let mut carrier = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (carrier.stdin.take(), carrier.stdout.take());
        let (to, from) = to.zip(from).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Line::new(Box::new(from), Box::new(to), Some(carrier)))
    }

    /// To where `place` says: "-", the standard streams; unix:PATH, who listens at a socket; ssh:HOST, a command on
    /// another host. None: that is no such place.
    pub fn to(place: &str, command: &str) -> Option<io::Result<Line>> {
        match place.split_once(':') {
            _ if place == "-" => Some(Ok(Line::standard())),
            Some(("unix", path)) => Some(UnixStream::connect(path).and_then(Line::over)),
            Some(("ssh", host)) if !host.is_empty() => {
                let mut ssh = Command::new("ssh");
                ssh.args(["-T", "--", host, command]);
                Some(Line::carried(ssh))
            }
            _ => None,
        }
    }

    /// To the first of this user's processes that connects to a socket, which is made for that; none if that is
    /// interrupted.
    pub fn accepted(path: &Path) -> io::Result<Option<Line>> {
        let mut signals = Signals::block()?;
        let (kind, flags) = (SocketType::STREAM, SocketFlags::empty());
        let listener = UnixListener::from(listen_at(path, kind, flags, BACKLOG)?);
        let _bound = Bound(path.to_owned());
        loop {
            let mut poller = Poller::new();
            poller.register(true, listener.as_fd(), PollFlags::IN);
            poller.register(false, signals.as_fd(), PollFlags::IN);
            poller.wait(None)?;
            if poller.ready().any(|(is_listener, _)| !is_listener) && signals.take()?.is_some() {
                return Ok(None);
            }
            let (stream, _) = listener.accept()?;
            if host::peer::is_of(&stream, rustix::process::geteuid()) {
                return Line::over(stream).map(Some);
            }
        }
    }

    pub fn say(&mut self, words: &str) -> io::Result<()> {
        self.to.write_all(format!("{words}\n").as_bytes())?;
        self.to.flush()
    }

    /// The next line; empty at the end.
    pub fn hear(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.from.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line)?;
        match line.pop() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&line).into_owned()),
            _ => Ok(String::new()),
        }
    }

    /// Both directions, for two threads. Nothing is left of them here.
    pub fn halves(&mut self) -> (Reading, Writing) {
        let nothing: Box<dyn Read + Send> = Box::new(io::empty());
        let from = std::mem::replace(&mut self.from, BufReader::new(nothing));
        (from, std::mem::replace(&mut self.to, Box::new(io::sink())))
    }

    /// Send what comes, up to its end, but not that this is all of it.
    pub fn send(&mut self, mut stream: impl Read) -> io::Result<()> {
        let mut frame = vec![0; 4 + FRAME_MAX_BYTES];
        loop {
            let read = match stream.read(&mut frame[4..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Ok(());
            }
            frame[..4].copy_from_slice(&(read as u32).to_le_bytes());
            self.to.write_all(&frame[..4 + read])?;
        }
    }

    /// Say that what was sent is all of it.
    pub fn end_stream(&mut self) -> io::Result<()> {
        self.to.write_all(&[0; 4])?;
        self.to.flush()
    }

    /// Hear all of a stream.
    pub fn receive(&mut self, mut to: impl Write) -> io::Result<()> {
        let mut frame = vec![0; FRAME_MAX_BYTES];
        loop {
            let mut length = [0; 4];
            self.from.read_exact(&mut length)?;
            let length = u32::from_le_bytes(length) as usize;
            let frame = frame.get_mut(..length).ok_or(io::ErrorKind::InvalidData)?;
            if frame.is_empty() {
                return Ok(());
            }
            self.from.read_exact(frame)?;
            to.write_all(frame)?;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(carrier) = &mut self.carrier {
            // It ends with its streams.
            self.to = Box::new(io::sink());
            let _ = carrier.wait();
        }
    }
}

/// The socket's name, which goes with this.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_whole_or_an_error() {
        let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
        let mut there = Line::over(theirs).expect("there are descriptors");
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let sent = content.clone();
        let sender = std::thread::spawn(move || {
            let mut here = Line::over(ours).expect("there are descriptors");
            here.send(sent.as_slice()).expect("somebody hears");
            here.end_stream().expect("somebody hears");
            here.say("READY").expect("somebody hears");
            here.send(&sent[..10]).expect("somebody hears");
        });
        let mut heard = Vec::new();
        there.receive(&mut heard).expect("it is whole");
        assert_eq!(heard, content);
        assert_eq!(there.hear().expect("it is a line"), "READY");
        let mut part = Vec::new();
        let error = there.receive(&mut part).expect_err("the other side has gone");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        sender.join().expect("it does not panic");
    }

    #[test]
    fn a_frame_is_not_too_long() {
        let (mut ours, theirs) = UnixStream::pair().expect("there are descriptors");
        ours.write_all(&(FRAME_MAX_BYTES as u32 + 1).to_le_bytes()).expect("somebody hears");
        let mut line = Line::over(theirs).expect("there are descriptors");
        let error = line.receive(io::sink()).expect_err("it is too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
