//! Snapshots that machines start from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use host::GuestMemory;
use host::backing::{CHUNK_BYTES, Source};

use machine::saved::{self, CounterShift};

use super::format::{Digest, ENTRY_BYTES, Entry, HEADER_BYTES, Header, MAX_STATE_BYTES};
use super::{Error, State};
use crate::clock::HostClock;
use crate::processor::saved_cpu;

/// What is left of a process whose guest has lost its memory: the status with which it ends.
const LOST_STATUS: i32 = 125;

/// Add a label to a snapshot that has none: what `make` makes of the digest of the rest. Whoever holds the file
/// may change it meanwhile: the digest is of what was read here.
///
/// # Errors
///
/// [`Error`] when it is no snapshot, has a label, or cannot be read or written.
pub fn label(file: &File, make: impl FnOnce(&Digest) -> Vec<u8>) -> Result<(), Error> {
    let (mut header, mut rest) = read(file, file.metadata()?.len())?;
    if header.label != 0 {
        return Err(Error::Damaged("it has a label already"));
    }
    let label = make(&header.digest(&rest));
    if label.len() as u64 > MAX_STATE_BYTES {
        return Err(Error::Damaged("its label is too long"));
    }
    file.write_all_at(&label, header.file)?;
    rest.extend(&label);
    header.label = label.len() as u64;
    header.file += header.label;
    header.checksum = crc32fast::hash(&rest);
    file.set_len(header.file)?;
    Ok(file.write_all_at(&header.to_bytes(), 0)?)
}

/// The header, and what follows the memory, of a file of this length.
fn read(file: &File, length: u64) -> Result<(Header, Vec<u8>), Error> {
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0).map_err(|_| Error::Foreign)?;
    let header = Header::from_bytes(&bytes, length)?;
    let mut rest = vec![0; header.rest_bytes() as usize];
    file.read_exact_at(&mut rest, header.table)
        .map_err(|_| Error::Damaged("its end is missing"))?;
    match crc32fast::hash(&rest) == header.checksum {
        true => Ok((header, rest)),
        false => Err(Error::Damaged("its state has changed")),
    }
}

/// A snapshot that has been opened. Clones are the same.
#[derive(Debug, Clone)]
pub struct Snapshot {
    file: Arc<File>,
    header: Header,
    table: Arc<[Entry]>,
    state: Arc<State>,
    note: Arc<[u8]>,
    label: Arc<[u8]>,
    digest: Digest,
    moment: Arc<OnceLock<Moment>>,
}

/// When a machine goes on: its clock and its time-stamp counter do at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// A clock that goes on where the machine's was.
    pub clock: HostClock,
    /// The same of the counter.
    pub shift: CounterShift,
}

impl Snapshot {
    /// Look at everything but the memory.
    ///
    /// # Errors
    ///
    /// [`Error`] when it is no snapshot that this program knows, or is damaged.
    pub fn open(file: File) -> Result<Self, Error> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Error::Foreign);
        }
        let (header, rest) = read(&file, metadata.len())?;
        let digest = header.digest(&rest);
        let (table, rest) = rest.split_at(header.chunks as usize * ENTRY_BYTES);
        let (state, rest) = rest.split_at(header.state as usize);
        let (note, label) = rest.split_at(header.note as usize);
        let entries = table.chunks_exact(ENTRY_BYTES);
        let table = entries.map(|bytes| Entry::from_bytes(bytes, header.table));
        Ok(Self {
            file: Arc::new(file),
            header,
            table: table.collect::<Result<_, _>>()?,
            state: Arc::new(State::from_bytes(state)?),
            note: note.into(),
            label: label.into(),
            digest,
            moment: Arc::default(),
        })
    }

    /// Read all of the memory, and see whether it is what was written.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn verify(&self) -> Result<(), Error> {
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        for entry in self.table.iter().filter(|entry| entry.at != 0) {
            self.read(entry, &mut bytes[..entry.stored as usize])
                .map_err(|_| Error::Damaged("its memory has changed"))?;
        }
        Ok(())
    }

    /// Whether it is of a machine with a processor like this host's, whose time-stamp counter has the same
    /// pace.
    ///
    /// # Errors
    ///
    /// [`Error`] that says why not.
    pub fn check_host(&self) -> Result<(), Error> {
        self.moment()?;
        for number in 0..self.processors() {
            let (own, _) = self.state.processor(number)?;
            let processor = saved_cpu(&own)?;
            processor.check_host().map_err(|unfit| saved::Unfit::State(unfit.to_string()))?;
        }
        Ok(())
    }

    /// When the machine goes on: now, if this is asked for the first time.
    pub(crate) fn moment(&self) -> Result<Moment, Error> {
        if let Some(moment) = self.moment.get() {
            return Ok(*moment);
        }
        let clock = self.state.clock()?;
        let shift = self.state.shift(&clock)?;
        Ok(*self.moment.get_or_init(|| Moment { clock, shift }))
    }

    /// How far the guest's time-stamp counter is ahead of the host's (mod 2^64).
    pub(crate) fn counter_offset(&self) -> Result<u64, Error> {
        let (own, _) = self.state.processor(0)?;
        let processor = saved_cpu(&own)?;
        Ok(processor.tsc_offset().wrapping_add(self.moment()?.shift.guest))
    }

    /// What the file is, but for its label.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What [`label`] has added; nothing, if that was not called.
    pub fn label(&self) -> &[u8] {
        &self.label
    }

    /// Bytes of the machine's memory.
    pub fn memory(&self) -> u64 {
        self.state.memory
    }

    /// Of a paravirtual machine by Xen's interface: bytes of memory that it started with, and the most that it may
    /// have.
    ///
    /// # Errors
    ///
    /// [`Error::Unfit`] when its state makes no sense.
    pub fn paravirtual(&self) -> Result<Option<(u64, u64)>, Error> {
        let bytes = |pages: u64| pages.checked_mul(4096);
        let Some((pages, maximum)) = xen::memory_of(self.state.shared())? else { return Ok(None) };
        let both = bytes(pages).zip(bytes(maximum));
        let unfit = || saved::Unfit::State("the domain's memory".to_owned());
        Ok(Some(both.ok_or_else(unfit)?))
    }

    /// What was noted with it.
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// The machine's processors.
    pub fn processors(&self) -> usize {
        self.state.processors.len()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Whether a machine with this memory and so many processors is like the one that it is of.
    pub(crate) fn check(&self, memory: &GuestMemory, processors: usize) -> Result<(), Error> {
        let is_same = memory.file_bytes() == self.header.memory
            && memory.size() == self.state.memory
            && processors == self.state.processors.len();
        saved::check(is_same, "memory and processors").map_err(Error::Unfit)
    }
}

impl Snapshot {
    /// Reads what the file has for a chunk of memory, as it is stored.
    fn read(&self, entry: &Entry, stored: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(stored, entry.at)?;
        if entry.is_of(stored) { Ok(()) } else { Err(changed()) }
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its memory has changed")
}

impl Source for Snapshot {
    fn has(&self, chunk: usize) -> bool {
        self.table.get(chunk).is_some_and(|entry| entry.at != 0)
    }

    fn fetch(&self, chunk: usize, bytes: &mut [u8]) -> io::Result<()> {
        let entry = self.table.get(chunk).copied().unwrap_or_default();
        if entry.stored as usize == bytes.len() {
            return self.read(&entry, bytes);
        }
        let mut compressed = vec![0; entry.stored as usize];
        self.read(&entry, &mut compressed)?;
        // In Rust without unsafe code: the file may be anybody's, and this process is not confined yet when a
        // machine takes up its devices' state.
        let mut decoder = ruzstd::decoding::FrameDecoder::new();
        let length = decoder.decode_all(&compressed, bytes).map_err(|_| changed())?;
        if length == bytes.len() { Ok(()) } else { Err(changed()) }
    }

    fn give_up(&self, error: &io::Error) -> ! {
        tracing::error!("the snapshot that the machine started from cannot be read: {error}");
        std::process::exit(LOST_STATUS)
    }
}
