//! Where the mirror of the kernel's memory lies (mirror.rs), and where this process lies in it.
//!
//! Translated kernel code adds [`BASE`] to the linear addresses that it accesses. `BASE` is 2 MiB below the end
//! of what the host gives a process, so that
//!
//! - 0xffff_8000_0020_0000 and above, the kernel's half, becomes 0 and above: all that a process can have;
//! - 0x20_0000 to 0x7fff_ffff_ffff, which are users', becomes 0x8000_0000_0000 and above, which is not canonical:
//!   the host's processor refuses it, whatever the kernel meant by it and whatever SMAP and EFLAGS.AC say (where
//!   the host has page tables of five levels, it is a page fault instead: Linux maps nothing there unless a process
//!   names such an address, mmap(2));
//! - 0 to 0x1f_ffff becomes the last 2 MiB that a process can have, where nothing is.
//!
//! (The end itself would make users' addresses not canonical from the first page on; but large pages of the
//! guest's are large pages of the host's only if the distance is a multiple of 2 MiB.)
//!
//! So nothing that a user can name leads to this process, and no instruction sees to that. The process itself
//! must then be in the mirror's way somewhere: a byte of it is where the kernel has the linear address that is
//! `BASE` less. Linux has address ranges that it never uses (Documentation/arch/x86/x86_64/mm.rst), and the host
//! puts libraries, stacks and heaps near the last of them by itself:
//!
//! ```text
//! PML4 entry   the guest's Linux             the host's address
//! 508          cpu_entry_area                0x7dff_ffe0_0000
//! 509          nothing                       0x7e7f_ffe0_0000   biv and its heap
//! 510          %esp fixup stacks             0x7eff_ffe0_0000
//! 511          nothing but what follows      0x7f7f_ffe0_0000   libraries, mmap(2), threads
//!              firmware (EFI), 64 GiB        0x7fee_ffe0_0000   also
//!              nothing, 2 GiB                0x7ffe_ffe0_0000   the main thread's stack, below the last of:
//!              kernel, modules, fixmap       0x7fff_7fe0_0000   nothing
//! ```
//!
//! The rules:
//!
//! 1. `biv` is linked in entry 509, and starts itself again until the rest is where the table says
//!    ([`Room::Own`], crates/domain/src/layout.rs). It is linked at a fixed address because Linux puts programs
//!    that are linked at none at two thirds of the process's half, which is in the kernel's vmalloc range. (Those
//!    that ld.so is told to run lie with the libraries; but then ld.so is what the host shows as the program, and what
//!    /proc/self/exe starts.)
//! 2. No page of the guest's is ever mapped in a GiB that is this process's ([`Place`]): where it has something,
//!    and what is below that by less than [`GROWTH_BYTES`], because the host maps downwards.
//! 3. A guest that has page tables for such a GiB does without the mirror from there on. It is looked for at each
//!    miss and each full flush, and when a PML4 is loaded that has other entries there. A kernel that enters
//!    something, and before any of these accesses just what this process has, reaches the process; so may another
//!    processor until it has come to its run loop.
//! 4. A kernel that names these addresses though it has nothing there reaches the process, where a processor would
//!    fault. A program cannot have an honest kernel do that; a hostile kernel owns its process anyway, and is
//!    confined with it (ARCHITECTURE.md, A guest that breaks out).

use std::ops::Range;

use super::Linear;
use super::paging::{ENTRY_ADDRESS, entry, load};
use super::ram::Ram;

/// GS base of translated kernel code.
pub(crate) const BASE: u64 = 0x7fff_ffe0_0000;

/// First linear address that can be in the mirror; its place is a little above the host's address 0.
pub(crate) const FIRST: u64 = 0u64.wrapping_sub(BASE) + (2 << 20);

const GIB: u64 = 1 << 30;

/// What one PML4 entry maps.
const ENTRY_BYTES: u64 = 512 * GIB;

/// First linear address of the PML4 entries in which this process can be, and their numbers.
const LAST_ENTRIES: u64 = 0u64.wrapping_sub(3 * ENTRY_BYTES);
const ENTRIES: [u64; 3] = [509, 510, 511];

/// Linux's own part of the last entry: the last 2 GiB of the address space.
const KERNEL: u64 = 0u64.wrapping_sub(2 * GIB);

/// What [`Room::Own`] has in the last entry below what is there at the start: for the guest's memory, for
/// code (translate/views.rs), and for whatever the host maps later.
const ROOM_BYTES: u64 = 96 * GIB;

/// So much below anything is this process's too.
const GROWTH_BYTES: u64 = 16 * GIB;

/// How much of the kernel's half this process leaves to a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Something is where no kernel can do without: there is no mirror.
    None,
    /// Something is where Linux has its code: there is a mirror for other kernels.
    Disputed,
    /// All is where Linux has nothing, or next to nothing.
    Shared,
    /// All is where Linux has nothing.
    Own,
}

/// How this process lies.
pub fn room() -> Room {
    let mappings = host::layout::mappings().unwrap_or_default();
    mappings.iter().map(room_beside).min().unwrap_or(Room::None)
}

/// The linear address whose place this is.
fn linear_of(host: u64) -> u64 {
    host.wrapping_sub(BASE)
}

fn room_beside(mapping: &Range<u64>) -> Room {
    if mapping.end > BASE || mapping.start < LAST_ENTRIES.wrapping_add(BASE) {
        return Room::None;
    }
    let (first, last) = (linear_of(mapping.start), linear_of(mapping.end - 1));
    let end = |number: u64| LAST_ENTRIES + number * ENTRY_BYTES;
    if last >= KERNEL {
        Room::Disputed
    } else if last < end(1) || first >= end(2) + ROOM_BYTES {
        Room::Own
    } else {
        Room::Shared
    }
}

/// The GiBs of the kernel's half that are this process's.
#[derive(Debug)]
pub(crate) struct Place([u64; 3 * 512 / 64]);

impl Place {
    /// As this process lies now; none if it leaves no room.
    pub(crate) fn of_this_process() -> Option<Self> {
        let mappings = host::layout::mappings()?;
        let fits = mappings.iter().all(|mapping| room_beside(mapping) > Room::None);
        fits.then(|| Self::of(&mappings))
    }

    /// Mappings that all leave some room.
    fn of(mappings: &[Range<u64>]) -> Self {
        let mut bits = [0; _];
        for mapping in mappings {
            let first = linear_of(mapping.start).saturating_sub(GROWTH_BYTES).max(LAST_ENTRIES);
            for gib in number_of(first)..=number_of(linear_of(mapping.end - 1)) {
                bits[gib / 64] |= 1 << (gib % 64);
            }
        }
        Self(bits)
    }

    /// Whether an address is in a GiB that is this process's.
    pub(crate) fn has(&self, at: Linear) -> bool {
        at.0 >= LAST_ENTRIES && {
            let gib = number_of(at.0);
            self.0[gib / 64] >> (gib % 64) & 1 != 0
        }
    }

    /// Whether page tables of 64-bit mode have an entry for one of these GiBs.
    pub(crate) fn is_used_by(&self, cr3: u64, ram: &Ram) -> bool {
        roots(cr3, ram).into_iter().zip(self.0.chunks(8)).any(|(root, words)| {
            root & entry::PRESENT != 0
                && gibs(words).any(|index| {
                    load(ram, (root & ENTRY_ADDRESS) + 8 * index, 8) & entry::PRESENT != 0
                })
        })
    }
}

/// The PML4 entries in which a process can be.
pub(crate) fn roots(cr3: u64, ram: &Ram) -> [u64; 3] {
    ENTRIES.map(|number| load(ram, (cr3 & ENTRY_ADDRESS) + 8 * number, 8))
}

/// The number of the GiB of an address from [`LAST_ENTRIES`] on.
fn number_of(at: u64) -> usize {
    ((at - LAST_ENTRIES) / GIB) as usize
}

/// The bits that are set.
fn gibs(words: &[u64]) -> impl Iterator<Item = u64> {
    let set = |word: u64| (0..64).filter(move |bit| word >> bit & 1 != 0);
    words
        .iter()
        .zip(0..)
        .flat_map(move |(&word, number)| set(word).map(move |bit| 64 * number + bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_addresses_have_no_place() {
        for user in [0x20_0000, 0x40_0000, 1 << 40, (1 << 47) - 1] {
            let host = BASE + user;
            assert!((1 << 47..0xffff << 48).contains(&host), "{user:#x} is at {host:#x}");
        }
        assert_eq!(FIRST.wrapping_add(BASE), 2 << 20);
        assert_eq!(u64::MAX.wrapping_add(BASE), BASE - 1);
    }

    #[test]
    fn where_something_lies_tells_how_much_room_there_is() {
        let check = |start: u64, expected| {
            assert_eq!(room_beside(&(start..start + 0x1000)), expected, "{start:#x}");
        };
        check(0x5555_5555_4000, Room::None);
        check(0x7e10_0000_0000, Room::None);
        check(0x7e90_0000_0000, Room::Own);
        check(0x7f00_0000_0000, Room::Shared);
        check(0x7f80_0000_0000, Room::Shared);
        check(0x7fa0_0000_0000, Room::Own);
        check(0x7ffd_0000_0000, Room::Own);
        check(0x7fff_8000_0000, Room::Disputed);
        check(BASE, Room::None);
    }

    #[test]
    fn a_process_has_what_is_below_it_too() {
        let place =
            Place::of(&[0x7e90_0000_0000..0x7e90_0010_0000, 0x7fa0_0000_0000..0x7fa0_8000_0000]);
        let check = |host: u64, expected| {
            assert_eq!(place.has(Linear(linear_of(host))), expected, "{host:#x}");
        };
        check(0x7e90_0000_1000, true);
        check(0x7e90_0000_0000 - GROWTH_BYTES, true);
        check(0x7e90_0000_0000 - GROWTH_BYTES - GIB, false);
        check(0x7e91_0000_0000, false);
        check(0x7fa0_7fff_ffff, true);
        check(0x7fa1_0000_0000, false);
        check(0x1000, false);
        assert_eq!(gibs(&[1, 0, 1 << 63]).collect::<Vec<_>>(), [0, 191]);
    }
}
