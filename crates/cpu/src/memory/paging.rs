//! The page walk: linear to guest-physical, in every paging mode, with accessed and dirty bits and
//! page-fault error codes as SDM 3A chapter 4 has them.
//!
//! The walk is a function of the registers and of memory; it caches nothing. Accessed bits are set
//! on the way, atomically, because other vCPUs use the same tables; the dirty bit is set by
//! the last step of a write that is allowed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::ram::Ram;
use super::tlb::PageSize;
use super::{Access, Linear, PAGE_SIZE, Physical};
use crate::exception::Exception;
use crate::state::{Registers, cr0, cr4, efer};

/// Bits of a paging-structure entry (SDM 3A table 4-19).
pub(super) mod entry {
    pub(in super::super) const PRESENT: u64 = 1 << 0;
    pub(in super::super) const WRITABLE: u64 = 1 << 1;
    pub(in super::super) const USER: u64 = 1 << 2;
    pub(in super::super) const ACCESSED: u64 = 1 << 5;
    pub(in super::super) const DIRTY: u64 = 1 << 6;
    pub(in super::super) const LARGE: u64 = 1 << 7;
    pub(super) const GLOBAL: u64 = 1 << 8;
    pub(super) const NO_EXECUTE: u64 = 1 << 63;
}

/// Bits of the page-fault error code (SDM 3A 4.7).
mod error {
    pub(super) const PRESENT: u32 = 1 << 0;
    pub(super) const WRITE: u32 = 1 << 1;
    pub(super) const USER: u32 = 1 << 2;
    pub(super) const RESERVED: u32 = 1 << 3;
    pub(super) const FETCH: u32 = 1 << 4;
}

/// Physical-address width that CPUID announces: what QEMU's processors have. edk2 of 2022 takes a larger one for a
/// processor's own, and maps all that it can address, by pages of 2 MiB: 256 MiB of page tables for 46 bits.
pub const PHYSICAL_BITS: u32 = 40;

/// Bits 51:PHYSICAL_BITS of an entry, which must be zero.
const RESERVED_ADDRESS: u64 = ((1 << 52) - 1) & !((1 << PHYSICAL_BITS) - 1);

/// On whose behalf memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accessor {
    /// The access is a user-mode access (CPL 3 and not an implicit supervisor access).
    pub(crate) user: bool,
    /// Explicit supervisor access with EFLAGS.AC set: SMAP does not apply.
    pub(crate) smap_override: bool,
}

/// What a successful walk found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Translation {
    /// The guest-physical address.
    pub(crate) physical: Physical,
    /// Writing is allowed to this accessor, and the dirty bit is set.
    pub(crate) writable_now: bool,
    /// The entry is global and CR4.PGE is set.
    pub(crate) global: bool,
    /// Size of the page.
    pub(crate) size: PageSize,
    /// The table that has the last entry; 0 without one.
    pub(crate) table: Physical,
}

impl Translation {
    /// The physical page of 4 KiB that `at` is in, where [`Self::physical`] is the first byte of a page of this size,
    /// as [`peek`] has it.
    pub(super) fn page_of(self, at: Linear) -> Physical {
        match self.size {
            PageSize::Small => self.physical,
            PageSize::Large | PageSize::Huge => {
                Physical(self.physical.0 + at.page().0 % LARGE_BYTES)
            }
        }
    }
}

/// One paging structure on the way.
struct Level {
    /// Right shift that brings the index to bit 0.
    shift: u32,
    /// Bits in the index.
    bits: u32,
    /// Whether bit 7 may make this the last level.
    may_be_large: bool,
}

const fn level(shift: u32, bits: u32, may_be_large: bool) -> Level {
    Level { shift, bits, may_be_large }
}

const LONG: [Level; 4] =
    [level(39, 9, false), level(30, 9, true), level(21, 9, true), level(12, 9, false)];
const PAE: [Level; 3] = [level(30, 2, false), level(21, 9, true), level(12, 9, false)];
const CLASSIC: [Level; 2] = [level(22, 10, true), level(12, 10, false)];

/// The walk's view of the mode.
struct Mode {
    levels: &'static [Level],
    entry_bytes: u64,
    long: bool,
    no_execute: bool,
    page_size_extensions: bool,
}

impl Mode {
    fn of(regs: &Registers) -> Self {
        let (levels, entry_bytes): (&'static [Level], u64) = if regs.efer & efer::LMA != 0 {
            (&LONG, 8)
        } else if regs.cr4 & cr4::PAE != 0 {
            (&PAE, 8)
        } else {
            (&CLASSIC, 4)
        };
        Self {
            levels,
            entry_bytes,
            long: regs.efer & efer::LMA != 0,
            no_execute: regs.efer & efer::NXE != 0 && entry_bytes == 8,
            page_size_extensions: entry_bytes == 8 || regs.cr4 & cr4::PSE != 0,
        }
    }

    /// Address bits of CR3 (SDM 3A 4.3, 4.4.1, 4.5).
    fn root(&self, cr3: u64) -> u64 {
        match (self.entry_bytes, self.long) {
            (4, _) => cr3 & 0xffff_f000,
            (_, false) => cr3 & 0xffff_ffe0,
            (_, true) => cr3 & ((1 << PHYSICAL_BITS) - 1) & !0xfff,
        }
    }

    /// Whether `value`, an entry of level `depth`, has a reserved bit set.
    fn is_reserved(&self, value: u64, depth: usize, last: bool) -> bool {
        if self.entry_bytes == 4 {
            // PSE-36 is not announced: bits 21:13 of a 4 MiB page are reserved.
            return last && depth == 0 && value & 0x003f_e000 != 0;
        }
        let mut reserved = RESERVED_ADDRESS;
        if !self.no_execute {
            reserved |= entry::NO_EXECUTE;
        }
        if !self.long {
            // Bits 62:52 are reserved with PAE paging (SDM 3A table 4-8 and on).
            reserved |= 0x7ff0_0000_0000_0000;
            if depth == 0 {
                reserved |= 0x1e6 | entry::NO_EXECUTE;
            }
        }
        if self.long && depth == 0 {
            reserved |= entry::LARGE;
        }
        let shift = self.levels[depth].shift;
        if last && shift > 12 {
            reserved |= ((1u64 << shift) - 1) & !0x1fff;
        }
        value & reserved != 0
    }
}

/// Read one entry; entries outside RAM read as not present.
pub(crate) fn load(ram: &Ram, at: u64, bytes: u64) -> u64 {
    let Some(host) = ram.host(Physical(at)) else { return 0 };
    // SAFETY: `host` points into a live RAM mapping; entries are naturally aligned and so do not
    // leave it; the guest may change them at any time, hence the atomic load.
    unsafe {
        if bytes == 8 {
            (*host.cast::<AtomicU64>()).load(Ordering::Relaxed)
        } else {
            u64::from((*host.cast::<AtomicU32>()).load(Ordering::Relaxed))
        }
    }
}

/// Set `bits` in an entry, unless the guest has changed it since; then nothing happens, and the
/// caller's walk is repeated.
fn set_bits(ram: &Ram, at: u64, bytes: u64, old: u64, bits: u64) -> bool {
    if ram.is_rom(Physical(at)) {
        return true;
    }
    let Some(host) = ram.host(Physical(at)) else { return true };
    // SAFETY: as in `load`.
    unsafe {
        if bytes == 8 {
            let entry = &*host.cast::<AtomicU64>();
            entry.compare_exchange(old, old | bits, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        } else {
            let entry = &*host.cast::<AtomicU32>();
            let (old, new) = (old as u32, (old | bits) as u32);
            entry.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        }
    }
}

/// Rights gathered on the way down.
struct Rights {
    writable: bool,
    user: bool,
    no_execute: bool,
}

impl Rights {
    /// Whether an access with these rights is forbidden (SDM 3A 4.6.1).
    fn forbid(&self, regs: &Registers, access: Access, by: Accessor) -> bool {
        match access {
            _ if by.user && !self.user => true,
            Access::Execute => {
                let smep = !by.user && self.user && regs.cr4 & cr4::SMEP != 0;
                smep || self.no_execute
            }
            Access::Read => self.smap_forbids(regs, by),
            Access::Write => self.smap_forbids(regs, by) || !self.may_write(regs, by),
        }
    }

    fn smap_forbids(&self, regs: &Registers, by: Accessor) -> bool {
        !by.user && self.user && regs.cr4 & cr4::SMAP != 0 && !by.smap_override
    }

    fn may_write(&self, regs: &Registers, by: Accessor) -> bool {
        self.writable || (!by.user && regs.cr0 & cr0::WP == 0)
    }
}

/// The error code of a fault on a page that is not present.
pub(crate) fn error_code(regs: &Registers, access: Access, by: Accessor) -> u32 {
    let mut code = 0;
    if by.user {
        code |= error::USER;
    }
    match access {
        Access::Read => {}
        Access::Write => code |= error::WRITE,
        Access::Execute => {
            let reported =
                regs.efer & efer::NXE != 0 && regs.cr4 & cr4::PAE != 0 || regs.cr4 & cr4::SMEP != 0;
            if reported {
                code |= error::FETCH;
            }
        }
    }
    code
}

/// Translate `at` for an access, setting accessed and dirty bits.
///
/// # Errors
///
/// #PF with the error code of SDM 3A 4.7.
pub(crate) fn walk(
    ram: &Ram,
    regs: &Registers,
    at: Linear,
    access: Access,
    by: Accessor,
) -> Result<Translation, Exception> {
    if regs.cr0 & cr0::PG == 0 {
        return Ok(Translation {
            physical: Physical(at.0 & 0xffff_ffff),
            writable_now: true,
            global: false,
            size: PageSize::Small,
            table: Physical(0),
        });
    }
    // Another vCPU may change an entry after this walk has read it and before it sets the accessed
    // bit; then the walk starts over. The bound is never reached by an honest guest.
    for _ in 0..1000 {
        if let Some(done) = try_walk(ram, regs, at, access, by) {
            return done;
        }
    }
    Err(Exception::page_fault(at.0, error_code(regs, access, by)))
}

/// One attempt; `None` when an entry changed underneath.
fn try_walk(
    ram: &Ram,
    regs: &Registers,
    at: Linear,
    access: Access,
    by: Accessor,
) -> Option<Result<Translation, Exception>> {
    let mode = Mode::of(regs);
    let code = error_code(regs, access, by);
    let fault = |extra| Some(Err(Exception::page_fault(at.0, code | extra)));
    let mut table = mode.root(regs.cr3);
    let mut rights = Rights { writable: true, user: true, no_execute: false };
    for (depth, level) in mode.levels.iter().enumerate() {
        let index = (at.0 >> level.shift) & ((1 << level.bits) - 1);
        let place = table + index * mode.entry_bytes;
        let value = load(ram, place, mode.entry_bytes);
        if value & entry::PRESENT == 0 {
            return fault(0);
        }
        let large = level.may_be_large && mode.page_size_extensions && value & entry::LARGE != 0;
        let last = large || depth + 1 == mode.levels.len();
        if mode.is_reserved(value, depth, last) {
            return fault(error::PRESENT | error::RESERVED);
        }
        let pae_directory_pointer = !mode.long && mode.entry_bytes == 8 && depth == 0;
        if !pae_directory_pointer {
            rights.writable &= value & entry::WRITABLE != 0;
            rights.user &= value & entry::USER != 0;
            rights.no_execute |= mode.no_execute && value & entry::NO_EXECUTE != 0;
        }
        if !last {
            if value & entry::ACCESSED == 0
                && !pae_directory_pointer
                && !set_bits(ram, place, mode.entry_bytes, value, entry::ACCESSED)
            {
                return None;
            }
            table = value & ((1 << PHYSICAL_BITS) - 1) & !0xfff;
            continue;
        }
        if rights.forbid(regs, access, by) {
            return fault(error::PRESENT);
        }
        let mut wanted = entry::ACCESSED;
        if access == Access::Write {
            wanted |= entry::DIRTY;
        }
        if value & wanted != wanted && !set_bits(ram, place, mode.entry_bytes, value, wanted) {
            return None;
        }
        let page_mask = (1u64 << level.shift) - 1;
        let dirty = (value | wanted) & entry::DIRTY != 0;
        return Some(Ok(Translation {
            physical: Physical(
                value & ((1 << PHYSICAL_BITS) - 1) & !page_mask & !0xfff | at.0 & page_mask,
            ),
            writable_now: dirty && rights.may_write(regs, by) && !rights.smap_forbids(regs, by),
            global: value & entry::GLOBAL != 0 && regs.cr4 & cr4::PGE != 0,
            size: match level.shift {
                12 => PageSize::Small,
                30 => PageSize::Huge,
                _ => PageSize::Large,
            },
            table: Physical(table),
        }));
    }
    fault(0)
}

/// Where `at` is mapped by the current page tables, whatever the access may do there, and setting no bits; `None` if it
/// is mapped nowhere.
pub(crate) fn look_up(ram: &Ram, regs: &Registers, at: Linear) -> Option<Physical> {
    if regs.cr0 & cr0::PG == 0 {
        return Some(Physical(at.0 & 0xffff_ffff));
    }
    let mode = Mode::of(regs);
    if mode.long && !at.is_canonical() {
        return None;
    }
    let mut table = mode.root(regs.cr3);
    for (depth, level) in mode.levels.iter().enumerate() {
        let index = (at.0 >> level.shift) & ((1 << level.bits) - 1);
        let value = load(ram, table + index * mode.entry_bytes, mode.entry_bytes);
        let large = level.may_be_large && mode.page_size_extensions && value & entry::LARGE != 0;
        let last = large || depth + 1 == mode.levels.len();
        if value & entry::PRESENT == 0 || mode.is_reserved(value, depth, last) {
            return None;
        }
        table = value & ((1 << PHYSICAL_BITS) - 1) & !0xfff;
        if last {
            let page_mask = (1u64 << level.shift) - 1;
            return Some(Physical(table & !page_mask | at.0 & page_mask));
        }
    }
    None
}

/// What the page tables at `cr3` say of `at` in long mode, for a supervisor's access, setting no bits;
/// `None` if the page is absent, a user's, or its accessed bit is clear. The physical address is that
/// of the page (for 1 GiB pages: of 2 MiB in it).
pub(crate) fn peek(ram: &Ram, cr3: u64, at: Linear) -> Option<Translation> {
    peek_noting(ram, cr3, at, |_, _, _| ())
}

/// The same, telling of each entry on the way how deep it is (0: in the PML4), its physical address and its value.
pub(super) fn peek_noting(
    ram: &Ram,
    cr3: u64,
    at: Linear,
    mut note: impl FnMut(usize, u64, u64),
) -> Option<Translation> {
    let mut table = cr3 & ENTRY_ADDRESS;
    let (mut writable, mut user) = (true, true);
    for (depth, level) in LONG.iter().enumerate() {
        let index = (at.0 >> level.shift) & ((1 << level.bits) - 1);
        let place = table + 8 * index;
        let value = load(ram, place, 8);
        note(depth, place, value);
        if value & entry::PRESENT == 0
            || value & entry::ACCESSED == 0
            || value & RESERVED_ADDRESS != 0
        {
            return None;
        }
        writable &= value & entry::WRITABLE != 0;
        user &= value & entry::USER != 0;
        let large = level.may_be_large && value & entry::LARGE != 0;
        table = value & ENTRY_ADDRESS;
        if !large && depth + 1 < LONG.len() {
            continue;
        }
        let (size, unit) = if large { (PageSize::Large, 2 << 20) } else { (PageSize::Small, 4096) };
        let page = (1u64 << level.shift) - 1;
        let physical = table & !page | at.0 & page & !(unit - 1);
        return (!user).then_some(Translation {
            physical: Physical(physical),
            writable_now: writable && value & entry::DIRTY != 0,
            global: value & entry::GLOBAL != 0,
            size,
            table: Physical(place).page(),
        });
    }
    None
}

/// A page of user memory, as the page tables have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserPage {
    /// Address of the 4 KiB.
    pub(crate) linear: Linear,
    pub(crate) physical: Physical,
    /// User code may write it, and its dirty bit is set.
    pub(crate) writable_now: bool,
    pub(crate) executable: bool,
    /// It is a piece of a larger page.
    pub(crate) is_piece: bool,
}

/// What the page tables at `cr3` say in long mode of the `window` around `at` (a power of two, 2 MiB at
/// most; all of a large page), for user code, setting no bits: pages that are present, a user's, and accessed, in
/// ascending order.
pub(crate) fn user_pages(
    ram: &Ram,
    cr3: u64,
    at: Linear,
    window: u64,
    mut found: impl FnMut(UserPage),
) {
    let start = at.0 & !(LARGE_BYTES - 1);
    let Some((rights, entry)) = user_directory_entry(ram, cr3, start) else { return };
    let window = if entry.large { LARGE_BYTES } else { window };
    let first = (at.0 & (LARGE_BYTES - 1) & !(window - 1)) / PAGE_SIZE;
    let indices = first..first + window / PAGE_SIZE;
    let pages = indices.map(|index| (index, start + index * PAGE_SIZE));
    if entry.large {
        let first = entry.table;
        pages.for_each(|(index, linear)| {
            found(rights.page(linear, first + index * PAGE_SIZE, entry.dirty, true));
        });
        return;
    }
    for (index, linear) in pages {
        let value = load(ram, entry.table + 8 * index, 8);
        if let Some(rights) = rights.and(value) {
            found(rights.page(linear, value & ENTRY_ADDRESS, value & entry::DIRTY != 0, false));
        }
    }
}

/// The same for one page.
pub(crate) fn user_page(ram: &Ram, cr3: u64, at: Linear) -> Option<UserPage> {
    let (rights, entry) = user_directory_entry(ram, cr3, at.0)?;
    let linear = at.page().0;
    if entry.large {
        let physical = entry.table + (linear & (LARGE_BYTES - 1));
        return Some(rights.page(linear, physical, entry.dirty, true));
    }
    let value = load(ram, entry.table + 8 * (linear >> 12 & 511), 8);
    let rights = rights.and(value)?;
    Some(rights.page(linear, value & ENTRY_ADDRESS, value & entry::DIRTY != 0, false))
}

/// What one table of the lowest level is for, and a large page.
pub(crate) const LARGE_BYTES: u64 = 2 << 20;

/// Bits 51:12 of an entry, as far as there is physical memory.
pub(super) const ENTRY_ADDRESS: u64 = ((1 << PHYSICAL_BITS) - 1) & !0xfff;

/// What user code may do with a page beside reading it.
#[derive(Debug, Clone, Copy)]
struct UserRights {
    writable: bool,
    executable: bool,
}

impl UserRights {
    /// With what one more entry says; `None` if user code may not get past it.
    fn and(self, value: u64) -> Option<Self> {
        const NEEDED: u64 = entry::PRESENT | entry::USER | entry::ACCESSED;
        (value & NEEDED == NEEDED && value & RESERVED_ADDRESS == 0).then_some(Self {
            writable: self.writable && value & entry::WRITABLE != 0,
            executable: self.executable && value & entry::NO_EXECUTE == 0,
        })
    }

    fn page(self, linear: u64, physical: u64, dirty: bool, is_piece: bool) -> UserPage {
        UserPage {
            linear: Linear(linear),
            physical: Physical(physical),
            writable_now: self.writable && dirty,
            executable: self.executable,
            is_piece,
        }
    }
}

/// Where the walk for a 2 MiB region ends: at a table of pages, or in a large page.
struct DirectoryEntry {
    /// Physical address of the table, or of the region.
    table: u64,
    large: bool,
    dirty: bool,
}

fn user_directory_entry(ram: &Ram, cr3: u64, at: u64) -> Option<(UserRights, DirectoryEntry)> {
    let mut rights = UserRights { writable: true, executable: true };
    let mut table = cr3 & ENTRY_ADDRESS;
    for level in &LONG[..3] {
        let value = load(ram, table + 8 * (at >> level.shift & 511), 8);
        rights = rights.and(value)?;
        table = value & ENTRY_ADDRESS;
        if level.may_be_large && value & entry::LARGE != 0 {
            // Of a 1 GiB page the 2 MiB that `at` is in; bit 12 of a large page's entry is PAT.
            let page = (1u64 << level.shift) - 1;
            let table = table & !page | at & page & !(LARGE_BYTES - 1);
            return Some((
                rights,
                DirectoryEntry { table, large: true, dirty: value & entry::DIRTY != 0 },
            ));
        }
    }
    Some((rights, DirectoryEntry { table, large: false, dirty: false }))
}
