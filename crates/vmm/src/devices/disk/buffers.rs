//! Guest memory that a transfer is about, in pieces.

use std::io;

use devices::virtio::Segment;
use host::vectored::{MAX_PIECES, Pieces};
use vm_memory::GuestMemoryMmap;

use crate::device_memory::ranges;

/// Ranges of guest memory, in order, as if they were one.
pub struct Buffers<'a> {
    memory: &'a GuestMemoryMmap,
    segments: Vec<Segment>,
}

impl<'a> Buffers<'a> {
    /// These, which may be anywhere: they are looked up when they are used.
    #[must_use]
    pub fn new(memory: &'a GuestMemoryMmap, segments: Vec<Segment>) -> Self {
        Self { memory, segments }
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.length as usize).sum()
    }

    /// The memory that they are in.
    #[must_use]
    pub fn memory(&self) -> &'a GuestMemoryMmap {
        self.memory
    }

    /// What they are.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// So many bytes after the first `skip`.
    #[must_use]
    pub fn part(&self, skip: usize, bytes: usize) -> Self {
        let (mut skip, mut left) = (skip as u64, bytes as u64);
        let mut segments = Vec::new();
        for &Segment { address, length } in &self.segments {
            let skipped = skip.min(length.into());
            let taken = (u64::from(length) - skipped).min(left);
            skip -= skipped;
            left -= taken;
            if taken > 0 {
                segments.push(Segment { address: address + skipped, length: taken as u32 });
            }
        }
        Self { memory: self.memory, segments }
    }

    /// Move all bytes by `transfer`, which is given what is left of them, how many bytes come before it,
    /// and moves some.
    ///
    /// # Errors
    ///
    /// Those of `transfer`; [`io::ErrorKind::UnexpectedEof`] when it moves none.
    pub fn each(
        &self,
        mut transfer: impl FnMut(&Pieces<'_>, u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut done = 0;
        for segments in self.segments.chunks(MAX_PIECES / 2) {
            let mut pieces = Pieces::new(self.memory, ranges(segments))?;
            while pieces.bytes() > 0 {
                let moved = match transfer(&pieces, done) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    moved => moved?,
                };
                if moved == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                pieces.advance(moved);
                done += moved as u64;
            }
        }
        Ok(())
    }
}
