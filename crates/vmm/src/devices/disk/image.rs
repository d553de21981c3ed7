//! A disk as the machine's configuration has it, and what an image has to do.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::buffers::Buffers;

pub use xen_io::block::Extent;

/// The unit of a disk's length.
pub const SECTOR_BYTES: u64 = devices::virtio::block::SECTOR_BYTES;

/// What keeps the bytes of a disk. Ranges are whole sectors inside of it.
pub trait Image: Send + Sync {
    /// Its length, in whole sectors.
    fn bytes(&self) -> u64;

    /// Whether [`Self::zero`] does better than writing zeroes.
    fn can_discard(&self) -> bool;

    /// Fill guest memory with what is from `at` on.
    ///
    /// # Errors
    ///
    /// The host's, or that there is no such memory; part of it may have been filled.
    fn read(&self, at: u64, into: &Buffers<'_>) -> io::Result<()>;

    /// The same without waiting for anything; how many bytes there were so.
    fn read_at_hand(&self, _at: u64, _into: &Buffers<'_>) -> usize {
        0
    }

    /// Whether the host begins to read what [`Self::read_at_hand`] did not find.
    fn starts_reading(&self) -> bool {
        false
    }

    /// Write guest memory from `at` on.
    ///
    /// # Errors
    ///
    /// The host's, or that there is no such memory; part of it may have been written.
    fn write(&self, at: u64, from: &Buffers<'_>) -> io::Result<()>;

    /// Write the first part of it that waits for nothing; how many bytes that were, or none if there is no
    /// telling before.
    fn write_at_hand(&self, _at: u64, _from: &Buffers<'_>) -> Option<usize> {
        None
    }

    /// Whether [`Self::write`] copies to the host's page cache, and waits for nothing as a rule.
    fn writes_to_cache(&self) -> bool {
        false
    }

    /// Have all that was written survive the host.
    ///
    /// # Errors
    ///
    /// The host's.
    fn flush(&self) -> io::Result<()>;

    /// Zeroes from `at` on; with `unmap`, their room may be given back.
    ///
    /// # Errors
    ///
    /// The host's.
    fn zero(&self, at: u64, bytes: u64, unmap: bool) -> io::Result<()>;
}

/// Says to the user what has gone wrong with a disk, in one line.
pub type Complain = Arc<dyn Fn(&str) + Send + Sync>;

/// A disk of a machine.
pub struct Disk {
    /// What the guest sees as its serial number, of which it is shown 20 bytes.
    pub serial: String,
    /// What the user knows it by.
    pub name: String,
    /// Its bytes.
    pub image: Box<dyn Image>,
    /// Nothing may be written.
    pub read_only: bool,
    /// Parts of the image that are the disk, one behind the other; none: all of it. They are for split devices only.
    pub extents: Vec<Extent>,
    /// Called with failures of the host.
    pub complain: Complain,
}

impl fmt::Debug for Disk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { serial, name, read_only, .. } = self;
        let mut out = out.debug_struct("Disk");
        out.field("serial", serial).field("name", name).field("read_only", read_only);
        out.finish_non_exhaustive()
    }
}
