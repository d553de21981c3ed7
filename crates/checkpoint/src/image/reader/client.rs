//! Who has an image read.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use host::poll::{PollFlags, wait_for};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::{
    DESCRIPTION, FAILED, FILE, HEAD_BYTES, NAME_BYTES, NO_FILE, PAGES, PARENT, RUNS, most,
};
use crate::error::Error;
use crate::image::description::Description;
use crate::image::inherited::{ImageName, Parents};
use crate::image::pieces::Files;
use crate::limits::{
    MAX_PARENTS, MAX_REASON_BYTES, READER_BYTES_PER_SECOND, READER_PATIENCE, READER_PIPE_BYTES,
};

/// Bytes that an answer is given room for before they are there.
const TRUSTED_BYTES: usize = 1 << 20;

/// What a reader is given.
#[derive(Debug)]
pub struct Ends {
    /// The end of a socket, for its standard input.
    pub requests: OwnedFd,
    /// The end of a pipe, for its standard output.
    pub answers: OwnedFd,
}

/// A reader, as the one knows it who has an image read. Several threads may ask it, one at a time.
#[derive(Debug)]
pub struct Reader(Mutex<Line>);

/// The lines to it, and what is expected of it.
#[derive(Debug)]
struct Line {
    requests: OwnedFd,
    answers: File,
    /// For how long it is waited yet.
    patience: Duration,
    /// Why nothing is heard of it any more: of several threads that ask, each says so.
    failure: Option<Failure>,
}

/// What all hear who ask when nothing is heard any more.
#[derive(Debug)]
enum Failure {
    /// As [`Error::Image`].
    Image(String),
    /// As [`Error::Reader`].
    Reader(&'static str),
}

impl Failure {
    fn of(error: &Error) -> Self {
        match error {
            Error::Image(why) => Self::Image(why.clone()),
            Error::Reader(why) => Self::Reader(why),
            _ => Self::Reader("has failed before"),
        }
    }

    fn error(&self) -> Error {
        match self {
            Self::Image(why) => Error::Image(why.clone()),
            Self::Reader(why) => Error::Reader(why),
        }
    }
}

impl Reader {
    /// The two lines to a reader that is to be started with the ends that are returned, and those ends.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn new() -> io::Result<(Self, Ends)> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (requests, asked) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let (answers, answering) = pipe_with(PipeFlags::CLOEXEC)?;
        // Where that is refused, it is slower.
        let _ = fcntl_setpipe_size(&answers, READER_PIPE_BYTES);
        rustix::io::ioctl_fionbio(&answers, true)?;
        rustix::io::ioctl_fionbio(&requests, true)?;
        let answers = answers.into();
        let line = Line { requests, answers, patience: READER_PATIENCE, failure: None };
        Ok((Self(Mutex::new(line)), Ends { requests: asked, answers: answering }))
    }

    /// Give it the image, and the parents that it asks for; what the image says, of which only the form is checked, and
    /// the files that it was given.
    pub(in crate::image) fn open(
        &mut self,
        image: &File,
        parents: &mut dyn Parents,
    ) -> Result<(Description, Files), Error> {
        let line = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let again = |file: &File| file.try_clone().map_err(Error::io("open the image again"));
        let mut files = Files(vec![again(image)?]);
        let length = |file: &File| -> Result<u64, Error> {
            Ok(file.metadata().map_err(Error::io("look at the image"))?.len())
        };
        let (mut bytes, mut asked) = (length(image)?, 0);
        line.request(&[FILE], Some(image))?;
        loop {
            line.patience = READER_PATIENCE;
            let (what, expected) = line.head()?;
            match what {
                PARENT if expected == NAME_BYTES as u64 && asked < MAX_PARENTS => {
                    asked += 1;
                    let name = ImageName::from_digest(&line.body(NAME_BYTES)?);
                    let found = parents.find(&name).filter(|file| name.is_image(file));
                    let Some(found) = found else {
                        line.request(&[NO_FILE], None)?;
                        continue;
                    };
                    bytes = bytes.saturating_add(length(&found)?);
                    line.request(&[FILE], Some(&found))?;
                    files.0.push(found);
                }
                DESCRIPTION if expected <= most(bytes) => {
                    let encoded = line.body(usize::try_from(expected).unwrap_or(usize::MAX))?;
                    let wrong = Error::Reader("says what makes no sense");
                    return match postcard::take_from_bytes(&encoded) {
                        Ok((description, [])) => Ok((description, files)),
                        _ => Err(wrong),
                    };
                }
                _ => return Err(Error::Reader("says what it was not asked")),
            }
        }
    }

    /// The bytes of those runs of pages among these that are packed, of which each has so many.
    pub(in crate::image) fn unpack(
        &self,
        runs: Range<usize>,
        packed: &[usize],
    ) -> Result<Vec<Vec<u8>>, Error> {
        // Nobody panics in between.
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = &line.failure {
            return Err(failure.error());
        }
        let unpacked = line.unpack(runs, packed);
        line.failure = unpacked.as_ref().err().map(Failure::of);
        unpacked
    }
}

impl Line {
    fn unpack(&mut self, runs: Range<usize>, packed: &[usize]) -> Result<Vec<Vec<u8>>, Error> {
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        self.request(&[&[RUNS][..], &word(runs.start), &word(runs.len())].concat(), None)?;
        packed.iter().map(|bytes| self.pages(*bytes)).collect()
    }

    /// The bytes of the next run of pages, of so many.
    fn pages(&mut self, bytes: usize) -> Result<Vec<u8>, Error> {
        self.patience = READER_PATIENCE;
        match self.head()? {
            (PAGES, found) if found == bytes as u64 => self.body(bytes),
            _ => Err(Error::Reader("gives other pages than it was asked for")),
        }
    }

    fn request(&mut self, bytes: &[u8], file: Option<&File>) -> Result<(), Error> {
        let files: Vec<BorrowedFd<'_>> = file.map(AsFd::as_fd).into_iter().collect();
        host::rights::send(&self.requests, bytes, &files).map_err(|error| match error.kind() {
            // It may have said why.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                self.head().err().unwrap_or(Error::Reader("has ended"))
            }
            // It has heard all that it was asked before, if it has answered that.
            io::ErrorKind::WouldBlock => Error::Reader("does not listen"),
            _ => Error::io("ask who reads the image")(error),
        })
    }

    /// What comes next, and its bytes. A reason is read, and is an error.
    fn head(&mut self) -> Result<(u8, u64), Error> {
        let head = self.body(HEAD_BYTES)?;
        let length = head.get(1..).and_then(|bytes| bytes.first_chunk());
        let length = length.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        match head.first() {
            Some(&FAILED) if length as usize <= MAX_REASON_BYTES => {
                let reason = self.body(length as usize)?;
                Err(Error::Image(shown(&String::from_utf8_lossy(&reason))))
            }
            what => Ok((what.copied().unwrap_or(0), length.into())),
        }
    }

    /// So many bytes.
    fn body(&mut self, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while body.len() < bytes {
            if body.capacity() - body.len() == 0 {
                // Twice as many as there are, so that no one pays for what is only announced.
                let more = (bytes - body.len()).min(TRUSTED_BYTES.max(body.len()));
                body.reserve_exact(more);
            }
            let had = body.len();
            let read = (&self.answers).take((bytes - had) as u64).read_to_end(&mut body);
            self.be_patient(body.len() - had);
            match read {
                Ok(0) => return Err(Error::Reader("has ended")),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(Error::io("hear who reads the image")(error)),
            }
        }
        Ok(body)
    }

    /// So many bytes have come.
    fn be_patient(&mut self, bytes: usize) {
        let more = Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX);
        self.patience += more / READER_BYTES_PER_SECOND;
    }

    /// Wait until there is something to read.
    fn wait(&mut self) -> Result<(), Error> {
        let (began, patience) = (Instant::now(), self.patience);
        let ready = wait_for(&self.answers, PollFlags::IN, began.checked_add(patience));
        if ready.map_err(Error::io("wait for who reads the image"))?.is_empty() {
            return Err(Error::Reader("does not answer"));
        }
        self.patience = patience.saturating_sub(began.elapsed());
        Ok(())
    }
}

/// What somebody says who is not trusted, as it may be shown.
fn shown(text: &str) -> String {
    let harmless = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_waited_for_as_long_as_something_comes() {
        let (reader, ends) = Reader::new().expect("there are descriptors");
        let mut line = reader.0.into_inner().expect("nobody has panicked");
        line.patience = Duration::from_millis(10);
        let silent = line.head().expect_err("nobody says anything");
        assert!(matches!(silent, Error::Reader("does not answer")), "{silent:?}");
        // What comes late is none.
        line.patience = Duration::ZERO;
        let mut answers = File::from(ends.answers);
        std::io::Write::write_all(&mut answers, &[0; 4]).expect("there is room");
        assert!(line.head().is_err(), "a byte is missing");
        // So many bytes are worth a second.
        let before = line.patience;
        line.be_patient(READER_BYTES_PER_SECOND as usize);
        assert_eq!(line.patience - before, Duration::from_secs(1));
    }
}
