//! A disk read by a program instead of a guest.

use std::io;

use devices::virtio::Segment;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::buffers::Buffers;
use super::image::{Image, SECTOR_BYTES};

/// What is read at once.
const PIECE_BYTES: usize = 1 << 20;

/// An image, with memory for what is read of it.
pub struct Reading {
    image: Box<dyn Image>,
    memory: GuestMemoryMmap,
}

impl Reading {
    /// Reads this image.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn new(image: Box<dyn Image>) -> io::Result<Self> {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), PIECE_BYTES)]);
        Ok(Self { image, memory: memory.map_err(io::Error::other)? })
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// Fills `into` with what is from `at` on.
    ///
    /// # Errors
    ///
    /// The host's, or that there are fewer bytes.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.bytes());
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (mut at, mut into) = (at, into);
        while !into.is_empty() {
            // Images are read in whole sectors.
            let skipped = at % SECTOR_BYTES;
            let count = into.len().min(PIECE_BYTES - skipped as usize);
            let length = (skipped + count as u64).next_multiple_of(SECTOR_BYTES);
            let segment = Segment { address: 0, length: length as u32 };
            self.image.read(at - skipped, &Buffers::new(&self.memory, vec![segment]))?;
            let (now, later) = into.split_at_mut(count);
            self.memory.read_slice(now, GuestAddress(skipped)).map_err(io::Error::other)?;
            (at, into) = (at + count as u64, later);
        }
        Ok(())
    }
}
