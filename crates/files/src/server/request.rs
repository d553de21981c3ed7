//! One request of the guest's kernel, and the place for its answer.

use std::ffi::CStr;
use std::io;

use host::vectored::Pieces;
use rustix::io::Errno;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use zerocopy::{FromBytes, IntoBytes};

use crate::limits::MAX_ARGUMENT_BYTES;
use crate::message::Range;
use crate::wire::{InHeader, OutHeader, WriteIn, opcode};

/// Bytes that a write has before its data, and more than most other requests have in all.
const HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Bytes before the data of an answer.
const ANSWER_HEAD_BYTES: usize = size_of::<OutHeader>();

/// A request.
pub struct Ask<'a> {
    pub header: InHeader,
    memory: &'a GuestMemoryMmap,
    /// What follows the header; of a write, without its data.
    arguments: Vec<u8>,
    /// The data of a write.
    pub data: Option<Pieces<'a>>,
    writable: Vec<Range>,
    /// Bytes of `writable`.
    room: u64,
    /// Bytes before the data of an answer.
    head: usize,
}

/// What is left to read of the arguments.
pub struct Arguments<'a>(&'a [u8]);

impl<'a> Ask<'a> {
    /// The request that is in these ranges.
    ///
    /// # Errors
    ///
    /// When it is none: too short, or not in memory.
    pub fn new(
        memory: &'a GuestMemoryMmap,
        readable: &[Range],
        writable: &[Range],
    ) -> io::Result<Self> {
        let total = total(readable)?;
        let mut bytes = gather(memory, readable, total.min(HEAD_BYTES as u64))?;
        let (header, _) =
            InHeader::read_from_prefix(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut data = None;
        if header.opcode == opcode::WRITE {
            let mut pieces = Pieces::new(memory, ranges(readable))?;
            pieces.advance(HEAD_BYTES);
            data = Some(pieces);
        } else if total > bytes.len() as u64 {
            if total > MAX_ARGUMENT_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            bytes = gather(memory, readable, total)?;
        }
        let arguments = bytes.split_off(size_of::<InHeader>());
        let room = self::total(writable)?;
        Ok(Self {
            header,
            memory,
            arguments,
            data,
            writable: writable.to_vec(),
            room,
            head: ANSWER_HEAD_BYTES,
        })
    }

    /// A request that another protocol's has been translated into. Its answer is not for the guest, but for data that
    /// are put behind a head of so many bytes.
    pub fn translated(
        memory: &'a GuestMemoryMmap,
        (header, arguments): (InHeader, Vec<u8>),
        data: Option<Pieces<'a>>,
        (writable, room): (&[Range], u64),
        head: usize,
    ) -> Self {
        Self { header, memory, arguments, data, writable: writable.to_vec(), room, head }
    }

    /// The arguments, from the first on.
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments(&self.arguments)
    }

    /// Bytes for the answer, beyond its header.
    pub fn room(&self) -> usize {
        (self.room as usize).saturating_sub(self.head)
    }

    /// Where up to `bytes` of the answer's data go.
    pub fn target(&self, bytes: usize) -> Result<Pieces<'a>, Errno> {
        let mut pieces =
            Pieces::new(self.memory, ranges(&self.writable)).map_err(|_| Errno::FAULT)?;
        pieces.advance(self.head);
        pieces.truncate(bytes);
        Ok(pieces)
    }

    /// Answer with data of which so many bytes are in their place; the length of the answer.
    pub fn answer_in_place(&self, bytes: usize) -> usize {
        self.put(0, &[], size_of::<OutHeader>() + bytes)
    }

    /// Answer; its length.
    pub fn answer(&self, result: Result<&[u8], Errno>) -> usize {
        match result {
            Ok(bytes) => self.put(0, bytes, size_of::<OutHeader>() + bytes.len()),
            Err(errno) => self.put(-errno.raw_os_error(), &[], size_of::<OutHeader>()),
        }
    }

    /// Write an answer's beginning, of `length` bytes in all. Without room for it, there is none.
    fn put(&self, error: i32, bytes: &[u8], length: usize) -> usize {
        if length as u64 > self.room {
            return 0;
        }
        let header = OutHeader { len: length as u32, error, unique: self.header.unique };
        let bytes = [header.as_bytes(), bytes].concat();
        if scatter(self.memory, &self.writable, &bytes) { length } else { 0 }
    }
}

/// Write bytes into ranges, the first of them first; whether they are in memory.
pub fn scatter(memory: &GuestMemoryMmap, ranges: &[Range], bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for range in ranges {
        let (now, after) = rest.split_at(rest.len().min(range.bytes as usize));
        if memory.write_slice(now, GuestAddress(range.address)).is_err() {
            return false;
        }
        rest = after;
    }
    true
}

/// Ranges as the host's calls have them.
pub fn ranges(ranges: &[Range]) -> impl Iterator<Item = (u64, usize)> + '_ {
    ranges.iter().map(|range| (range.address, range.bytes as usize))
}

/// Bytes of ranges.
pub fn total(ranges: &[Range]) -> io::Result<u64> {
    let add = |sum: u64, range: &Range| sum.checked_add(range.bytes);
    // No chain of descriptors has more than 4 GiB.
    let total = ranges.iter().try_fold(0, add).filter(|&total| total <= u32::MAX.into());
    total.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The first `wanted` bytes of ranges.
pub fn gather(memory: &GuestMemoryMmap, ranges: &[Range], wanted: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; wanted as usize];
    let mut rest = &mut bytes[..];
    for range in ranges {
        let now = rest.len().min(range.bytes as usize);
        let (here, after) = rest.split_at_mut(now);
        memory.read_slice(here, GuestAddress(range.address)).map_err(io::Error::other)?;
        rest = after;
    }
    if rest.is_empty() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

impl<'a> Arguments<'a> {
    /// The next structure.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// The next string, as it is.
    pub fn string(&mut self) -> Result<&'a CStr, Errno> {
        let string = CStr::from_bytes_until_nul(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = &self.0[string.count_bytes() + 1..];
        Ok(string)
    }

    /// The next string, which is to be the name of something in a directory.
    pub fn name(&mut self) -> Result<&'a CStr, Errno> {
        let name = self.string()?;
        if is_component(name.to_bytes()) { Ok(name) } else { Err(Errno::INVAL) }
    }

    /// All the rest.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Whether it is the name of a file in a directory, and not a path or the directory itself or the one above.
pub fn is_component(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/')
}
