//! Images one behind the other, which are one disk that is only read.

use std::io;
use std::ops::Range;

use super::{Buffers, Image, Raw};

/// See above.
pub struct Joined {
    /// Each with where it begins.
    parts: Vec<(u64, Raw)>,
    bytes: u64,
}

impl Joined {
    /// These, in this order.
    #[must_use]
    pub fn new(parts: Vec<Raw>) -> Self {
        let mut bytes = 0;
        let place = |part: Raw| {
            let start = bytes;
            bytes += part.bytes();
            (start, part)
        };
        let parts = parts.into_iter().filter(|part| part.bytes() > 0).map(place).collect();
        Self { parts, bytes }
    }

    /// The part in which a byte is that is inside of the disk, and the range that it is.
    fn part(&self, at: u64) -> Option<(&Raw, Range<u64>)> {
        let next = self.parts.partition_point(|(start, _)| *start <= at);
        let (start, part) = &self.parts[next.checked_sub(1)?];
        let end = start + part.bytes();
        (at < end).then_some((part, *start..end))
    }
}

impl Image for Joined {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn can_discard(&self) -> bool {
        false
    }

    fn read(&self, at: u64, into: &Buffers<'_>) -> io::Result<()> {
        let (mut done, bytes) = (0, into.bytes());
        while done < bytes {
            let here = at + done as u64;
            let (part, range) = self.part(here).ok_or(io::ErrorKind::UnexpectedEof)?;
            let now = (bytes - done).min((range.end - here) as usize);
            part.read(here - range.start, &into.part(done, now))?;
            done += now;
        }
        Ok(())
    }

    fn read_at_hand(&self, at: u64, into: &Buffers<'_>) -> usize {
        let (mut done, bytes) = (0, into.bytes());
        while done < bytes {
            let here = at + done as u64;
            let Some((part, range)) = self.part(here) else { break };
            let now = (bytes - done).min((range.end - here) as usize);
            let read = part.read_at_hand(here - range.start, &into.part(done, now));
            done += read;
            if read < now {
                break;
            }
        }
        done
    }

    fn starts_reading(&self) -> bool {
        true
    }

    fn write(&self, _at: u64, _from: &Buffers<'_>) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, _at: u64, _bytes: u64, _unmap: bool) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
