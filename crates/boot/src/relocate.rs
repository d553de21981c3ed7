//! The kernel's own relocation table, which makes a randomized virtual address possible.
//!
//! A kernel with `CONFIG_X86_NEED_RELOCS` is followed, inside the payload, by a table that
//! arch/x86/tools/relocs.c wrote and that arch/x86/boot/compressed/misc.c (`handle_relocations`)
//! applies. It is a sequence of 32-bit numbers, each the low half of the virtual address of a place
//! to change, in groups that each begin with a zero:
//!
//! ```text
//! 0  places of 64-bit addresses  [ 0  places of negated 32-bit addresses ]  0  places of 32-bit addresses
//! ```
//!
//! The middle group served the per-CPU area and is gone since Linux 6.15; the number of zeros tells
//! the two forms apart. All addresses move by the same distance.

use super::bytes::{array_at, u32_at, u64_at};
use super::elf::{Image, Segment};
use super::error::Error;

/// A well-formed table, by groups.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    wide: Vec<u32>,
    negated: Vec<u32>,
    narrow: Vec<u32>,
}

impl Table {
    /// The table in the bytes after an ELF file; `None` if they are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let words: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
        let groups: Vec<&[u32]> = words.split(|&word| word == 0).collect();
        // The first zero comes first, so what is before it is empty.
        match groups.as_slice() {
            [[], wide, negated, narrow] => Some(Self {
                wide: wide.to_vec(),
                negated: negated.to_vec(),
                narrow: narrow.to_vec(),
            }),
            [[], wide, narrow] => {
                Some(Self { wide: wide.to_vec(), negated: Vec::new(), narrow: narrow.to_vec() })
            }
            _ => None,
        }
    }

    /// Move a kernel by `delta` bytes up in virtual memory, in the file's bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Relocation`] if a place is not in the file.
    pub fn apply(&self, file: &mut [u8], image: &Image, delta: u64) -> Result<(), Error> {
        let narrow = delta as u32;
        let mut places = Places::new(image);
        for &place in &self.wide {
            let at = places.find(place)?;
            let old = u64_at(file, at).ok_or(Error::Relocation)?;
            put(file, at, old.wrapping_add(delta).to_le_bytes())?;
        }
        for (group, sign) in [(&self.negated, narrow.wrapping_neg()), (&self.narrow, narrow)] {
            for &place in group {
                let at = places.find(place)?;
                let old = u32_at(file, at).ok_or(Error::Relocation)?;
                put(file, at, old.wrapping_add(sign).to_le_bytes())?;
            }
        }
        Ok(())
    }
}

fn put<const N: usize>(file: &mut [u8], at: usize, bytes: [u8; N]) -> Result<(), Error> {
    array_at::<N>(file, at).ok_or(Error::Relocation)?;
    file[at..at + N].copy_from_slice(&bytes);
    Ok(())
}

/// Finds places in the file. Neighbours are usually in the same segment, which is tried first.
///
/// A place is given by its virtual address as if the whole kernel were mapped where its lowest
/// segment is: `misc.c` goes from virtual to physical addresses with one offset for all segments
/// (`map`), so the per-CPU segment, linked at virtual address 0 in older kernels, is found by its
/// physical address too.
struct Places<'a> {
    segments: &'a [Segment],
    last: usize,
    /// Virtual minus physical address.
    offset: u64,
}

/// The virtual address of physical address 0 in the kernel's mapping of itself
/// (`__START_KERNEL_map`).
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;

impl<'a> Places<'a> {
    fn new(image: &'a Image) -> Self {
        Self { segments: &image.segments, last: 0, offset: KERNEL_MAP }
    }

    fn find(&mut self, place: u32) -> Result<usize, Error> {
        let linear = i64::from(place.cast_signed()).cast_unsigned();
        let physical = linear.wrapping_sub(self.offset);
        let inside = |segment: &Segment| -> Option<usize> {
            let distance = usize::try_from(physical.checked_sub(segment.physical)?).ok()?;
            (distance < segment.file_bytes).then_some(segment.offset + distance)
        };
        if let Some(at) = self.segments.get(self.last).and_then(inside) {
            return Ok(at);
        }
        let found = self
            .segments
            .iter()
            .enumerate()
            .find_map(|(index, segment)| Some((index, inside(segment)?)));
        let (index, at) = found.ok_or(Error::Relocation)?;
        self.last = index;
        Ok(at)
    }
}
