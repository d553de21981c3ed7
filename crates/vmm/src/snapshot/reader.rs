//! Snapshots that machines start from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use host::GuestMemory;
use host::backing::{CHUNK_BYTES, Source};

use machine::saved;

use super::format::{ENTRY_BYTES, Entry, HEADER_BYTES, Header};
use super::{Error, State};

/// What is left of a process whose guest has lost its memory: the status with which it ends.
const LOST_STATUS: i32 = 125;

/// A snapshot that has been opened. Clones are the same.
#[derive(Debug, Clone)]
pub struct Snapshot {
    file: Arc<File>,
    header: Header,
    table: Arc<[Entry]>,
    state: Arc<State>,
    note: Arc<[u8]>,
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
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(|_| Error::Foreign)?;
        let header = Header::from_bytes(&bytes, metadata.len())?;
        let table_bytes = header.chunks as usize * ENTRY_BYTES;
        let mut rest = vec![0; table_bytes + header.state as usize + header.note as usize];
        file.read_exact_at(&mut rest, header.table)
            .map_err(|_| Error::Damaged("its end is missing"))?;
        if crc32fast::hash(&rest) != header.checksum {
            return Err(Error::Damaged("its state has changed"));
        }
        let (table, rest) = rest.split_at(table_bytes);
        let (state, note) = rest.split_at(header.state as usize);
        let entries = table.chunks_exact(ENTRY_BYTES);
        let table = entries.map(|bytes| Entry::from_bytes(bytes, header.table));
        Ok(Self {
            file: Arc::new(file),
            header,
            table: table.collect::<Result<_, _>>()?,
            state: Arc::new(State::from_bytes(state)?),
            note: note.into(),
        })
    }

    /// Read all of the memory, and see whether it is what was written.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn verify(&self) -> Result<(), Error> {
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        for chunk in 0..self.table.len() {
            let length = CHUNK_BYTES.min(self.header.memory - chunk as u64 * CHUNK_BYTES) as usize;
            if self.table[chunk].at != 0 {
                self.fetch(chunk, &mut bytes[..length])
                    .map_err(|_| Error::Damaged("its memory has changed"))?;
            }
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
        self.state.clock()?;
        for number in 0..self.processors() {
            let (own, _) = self.state.processor(number)?;
            let processor: cpu::Saved = saved::decode(&own, "a processor")?;
            processor.check_host().map_err(|unfit| saved::Unfit(unfit.to_string()))?;
        }
        Ok(())
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

impl Source for Snapshot {
    fn has(&self, chunk: usize) -> bool {
        self.table.get(chunk).is_some_and(|entry| entry.at != 0)
    }

    fn fetch(&self, chunk: usize, bytes: &mut [u8]) -> io::Result<()> {
        let changed = || io::Error::new(io::ErrorKind::InvalidData, "its memory has changed");
        let entry = self.table.get(chunk).copied().unwrap_or_default();
        let stored = entry.stored as usize;
        if stored == bytes.len() {
            self.file.read_exact_at(bytes, entry.at)?;
            return if crc32fast::hash(bytes) == entry.checksum { Ok(()) } else { Err(changed()) };
        }
        let mut compressed = vec![0; stored];
        self.file.read_exact_at(&mut compressed, entry.at)?;
        if crc32fast::hash(&compressed) != entry.checksum {
            return Err(changed());
        }
        let length = zstd::bulk::decompress_to_buffer(&compressed, bytes)?;
        if length == bytes.len() { Ok(()) } else { Err(changed()) }
    }

    fn give_up(&self, error: &io::Error) -> ! {
        tracing::error!("the snapshot that the machine started from cannot be read: {error}");
        std::process::exit(LOST_STATUS)
    }
}
