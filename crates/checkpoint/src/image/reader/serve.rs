//! The reader itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{DESCRIPTION, FAILED, FILE, NAME_BYTES, PAGES, PARENT, REQUEST_BYTES, RUNS};
use crate::error::Error;
use crate::image::inherited::{ImageName, Parents};
use crate::image::parse::parse;
use crate::limits::MAX_REASON_BYTES;

/// The two lines to the keeper.
struct Lines<'a> {
    requests: BorrowedFd<'a>,
    answers: BorrowedFd<'a>,
}

/// Read one image, for whoever is at the other ends of the two lines, until he has gone.
///
/// # Errors
///
/// The host's.
pub fn serve(requests: impl AsFd, answers: impl AsFd) -> io::Result<()> {
    let mut lines = Lines { requests: requests.as_fd(), answers: answers.as_fd() };
    let Some((request, Some(image))) = lines.request()? else { return Ok(()) };
    if request.first() != Some(&FILE) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (description, pieces) = match parse(image, &mut lines) {
        Ok(parsed) => parsed,
        Err(error) => return lines.fail(&error),
    };
    let encoded = postcard::to_stdvec(&description).map_err(io::Error::other)?;
    drop(description);
    lines.answer(DESCRIPTION, &encoded)?;
    drop(encoded);
    while let Some((request, _)) = lines.request()? {
        let word = |at: usize| {
            let bytes = request.get(at..)?.first_chunk()?;
            usize::try_from(u32::from_le_bytes(*bytes)).ok()
        };
        let (Some(&RUNS), Some(first), Some(count)) = (request.first(), word(1), word(5)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        for number in first..first.saturating_add(count) {
            match pieces.unpack(number) {
                Ok(Some(pages)) => lines.answer(PAGES, &pages)?,
                // Whoever asks has it already.
                Ok(None) => {}
                Err(error) => return lines.fail(&error),
            }
        }
    }
    Ok(())
}

impl Lines<'_> {
    /// The next request, with its descriptor; none at the end.
    fn request(&self) -> io::Result<Option<(Vec<u8>, Option<File>)>> {
        let mut bytes = vec![0; REQUEST_BYTES];
        let received = loop {
            match host::rights::receive(self.requests, &mut bytes, 1, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        bytes.truncate(received.bytes);
        let file = received.files.into_iter().next().map(File::from);
        Ok((received.bytes > 0).then_some((bytes, file)))
    }

    fn answer(&self, what: u8, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut head = vec![what];
        head.extend(length.to_le_bytes());
        self.write(&head)?;
        self.write(bytes)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            match rustix::io::write(self.answers, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Say why there is no answer.
    fn fail(&self, error: &Error) -> io::Result<()> {
        let mut reason = match error {
            Error::Image(reason) => reason.clone(),
            other => other.to_string(),
        };
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        self.answer(FAILED, reason.as_bytes())
    }
}

impl Parents for Lines<'_> {
    fn find(&mut self, name: &ImageName) -> Option<File> {
        let digest = Some(name.digest()).filter(|digest| digest.len() == NAME_BYTES)?;
        self.answer(PARENT, digest).ok()?;
        let (request, file) = self.request().ok()??;
        file.filter(|_| request.first() == Some(&FILE))
    }
}
