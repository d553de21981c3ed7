//! Where everything is, in pages from the domain's first on.

use std::ops::Range;

use xen_abi::{PAGE_BYTES, PAGE_SHIFT, mmu};

use super::domain::Parameters;
use super::error::Error;
use super::kernel::Kernel;
use super::mapping::{Mapping, missing, table_count};
use crate::limits::MAX_COMMAND_LINE_BYTES;

/// The places. Each range counts pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The kernel's mapping, from the domain's first page on.
    pub kernel: Mapping,
    /// Where the P2M list is mapped, if that is elsewhere.
    pub elsewhere: Option<Mapping>,
    /// The initial RAM disk.
    pub ram_disk: Option<Range<u64>>,
    /// The P2M list.
    pub list: Range<u64>,
    /// The page of the start information; store and console follow.
    pub start_info: u64,
    /// The page tables that map the kernel.
    pub tables: Range<u64>,
    /// The page of the stack.
    pub stack: u64,
    /// The page tables that map the P2M list elsewhere.
    pub list_tables: Range<u64>,
}

/// Empty pages behind the stack: 512 KiB.
const SPARE_PAGES: u64 = (512 << 10) >> PAGE_SHIFT;

/// The kernel's mapping ends at such a border.
const BORDER_BYTES: u64 = 4 << 20;

impl Layout {
    pub fn new(kernel: &Kernel, parameters: &Parameters) -> Result<Self, Error> {
        let (bytes, limit) = (parameters.command_line.len(), MAX_COMMAND_LINE_BYTES);
        if bytes > limit {
            return Err(Error::CommandLineTooLong { bytes, limit });
        }
        let mut room = Room { next: 0, pages: parameters.pages };
        room.take(pages_of(kernel.extent().1))?;
        let disk_pages = parameters.ram_disk.map(|disk| pages_of(disk.len() as u64));
        let is_mapped = !kernel.notes.mod_start_pfn;
        let mapped_disk = disk_pages.filter(|_| is_mapped);
        let mapped_disk = mapped_disk.map(|pages| room.take(pages)).transpose()?;
        let list_pages = pages_of(parameters.pages.saturating_mul(8));
        let mapped_list = match kernel.notes.init_p2m {
            None => Some(room.take(list_pages)?),
            Some(_) => None,
        };
        let start_info = room.take(3)?.start;
        let (end, count) = mapping_end(kernel.base, &room)?;
        let tables = room.take(count)?;
        let stack = room.take(1)?.start;
        room.take(((end - kernel.base) >> PAGE_SHIFT) - room.next)?;
        let mapping = Mapping { addresses: kernel.base..end, frame: 0 };

        let other_disk = disk_pages.filter(|_| !is_mapped);
        let other_disk = other_disk.map(|pages| room.take(pages)).transpose()?;
        let (elsewhere, list, list_tables) = match (kernel.notes.init_p2m, mapped_list) {
            (Some(address), _) => {
                let list = room.take(list_pages)?;
                let elsewhere = list_mapping(address, &list, &mapping)?;
                let count = missing(&elsewhere, &mapping).count() as u64;
                (Some(elsewhere), list, room.take(count)?)
            }
            (None, list) => (None, list.unwrap_or_default(), 0..0),
        };
        let ram_disk = mapped_disk.or(other_disk);
        let kernel = mapping;
        let layout =
            Self { kernel, elsewhere, ram_disk, list, start_info, tables, stack, list_tables };
        Ok(layout)
    }

    /// The address in the kernel's mapping of a page.
    pub fn address(&self, page: u64) -> u64 {
        self.kernel.addresses.start + (page << PAGE_SHIFT)
    }

    /// The first page that has nothing in it, nor any after it.
    pub fn end(&self) -> u64 {
        let mapped = self.kernel.addresses.end - self.kernel.addresses.start;
        let disk_end = self.ram_disk.as_ref().map_or(0, |disk| disk.end);
        let others = [self.list.end, self.list_tables.end, disk_end];
        others.into_iter().fold(mapped >> PAGE_SHIFT, u64::max)
    }

    /// Whether a page is a page table.
    pub fn is_table(&self, page: u64) -> bool {
        self.tables.contains(&page) || self.list_tables.contains(&page)
    }
}

/// The pages that are left.
struct Room {
    next: u64,
    pages: u64,
}

impl Room {
    fn take(&mut self, count: u64) -> Result<Range<u64>, Error> {
        let end = self.next.saturating_add(count);
        if end > self.pages {
            return Err(Error::TooLittleMemory { needed: end, pages: self.pages });
        }
        let start = std::mem::replace(&mut self.next, end);
        Ok(start..end)
    }
}

/// Pages that so many bytes begin.
pub fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES as u64)
}

/// Where the kernel's mapping ends, and how many tables it takes: they are in it themselves, so that both grow
/// until they agree. The end only grows and is bounded by the domain's memory.
fn mapping_end(base: u64, room: &Room) -> Result<(u64, u64), Error> {
    let beyond = Error::Address {
        what: "its base",
        address: base,
        reason: "leaves too little room up to the end of all addresses",
    };
    let mut count = 0;
    loop {
        let needed = room.next + count + 1 + SPARE_PAGES;
        if needed > room.pages {
            return Err(Error::TooLittleMemory { needed, pages: room.pages });
        }
        let end = needed.checked_mul(PAGE_BYTES as u64).and_then(|bytes| base.checked_add(bytes));
        let end = end.and_then(|end| end.checked_next_multiple_of(BORDER_BYTES));
        let end = end.ok_or(beyond.clone())?;
        check_addresses("its base", &(base..end))?;
        let needed = table_count(&(base..end));
        if needed == count {
            return Ok((end, count));
        }
        count = needed;
    }
}

/// The mapping of the P2M list at the address that the kernel asks for.
fn list_mapping(address: u64, list: &Range<u64>, kernel: &Mapping) -> Result<Mapping, Error> {
    let what = "the place of its P2M list";
    let bad = |reason| Error::Address { what, address, reason };
    if !address.is_multiple_of(PAGE_BYTES as u64) {
        return Err(bad("is not the start of a page"));
    }
    let end = address.checked_add((list.end - list.start) << PAGE_SHIFT);
    let end = end.ok_or(bad("leaves too little room up to the end of all addresses"))?;
    if address < kernel.addresses.end && kernel.addresses.start < end {
        return Err(bad("is in the kernel's own mapping"));
    }
    check_addresses(what, &(address..end))?;
    Ok(Mapping { addresses: address..end, frame: list.start })
}

/// Whether addresses, of which there are some, exist and are the guest's.
fn check_addresses(what: &'static str, addresses: &Range<u64>) -> Result<(), Error> {
    let Range { start, end } = *addresses;
    let bad = |reason| Error::Address { what, address: start, reason };
    if start < mmu::reserved::END && mmu::reserved::START < end {
        return Err(bad("is where Xen's own addresses are"));
    }
    // Bits 47 to 63 are the same.
    let is_canonical = |address: u64| matches!(address >> 47, 0 | 0x1_ffff);
    if !is_canonical(start) || !is_canonical(end - 1) || (start ^ (end - 1)) >> 63 != 0 {
        return Err(bad("is not canonical, or what begins there is not"));
    }
    Ok(())
}
