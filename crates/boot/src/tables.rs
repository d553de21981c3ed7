//! The processor's own tables for the first instructions of a kernel: descriptors and pages.

use super::entry::{Entry, Mode, Segment, Table, UNUSABLE};
use super::error::Error;
use super::loader::Loader;
use super::space::Range;

// Attributes as in `Segment::attributes` (SDM 3A 3.4.5): all present, accessed, of DPL 0.
const CODE_64: u16 = 0xa09b;
const CODE_32: u16 = 0xc09b;
const DATA: u16 = 0xc093;
const TASK: u16 = 0x008b;

/// Bits of CR0, CR4 and EFER (SDM 3A 2.5, SDM 4 table 2-2).
const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;
const CR0_NE: u64 = 1 << 5;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;

/// RFLAGS with nothing set but the bit that always is.
const RFLAGS_CLEAR: u64 = 1 << 1;

/// Bits of a page-table entry (SDM 3A 4.5).
const PRESENT_WRITABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7;

const LARGE_PAGE_BYTES: u64 = 2 << 20;
const ENTRIES: usize = 512;
const PAGE_BYTES: u64 = 4096;
const GIB: u64 = 1 << 30;

/// What every kernel may count on being mapped, besides itself: all low memory.
const ALWAYS_MAPPED_GIB: u64 = 4;

fn flat(selector: u16, attributes: u16) -> Segment {
    Segment { base: 0, limit: u32::MAX, selector, attributes }
}

/// A descriptor with base 0 and the largest limit (SDM 3A figure 3-8).
fn flat_descriptor(attributes: u16) -> u64 {
    u64::from(attributes) << 40 | 0x000f_0000_0000_ffff
}

/// A descriptor of a task-state segment at 0. Its high half, in long mode, is zero.
const TASK_DESCRIPTOR: u64 = (TASK as u64) << 40 | 0x67;

fn place_gdt(loader: &mut Loader, descriptors: &[u64]) -> Result<Table, Error> {
    let bytes: Vec<u8> = descriptors.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    let base = loader.place(&bytes, 16)?;
    Ok(Table { base, limit: (bytes.len() - 1) as u16 })
}

/// An entry in 64-bit mode with low memory and the kernel mapped one to one, as the Linux protocol
/// wants it (boot.rst, "64-bit Boot Protocol": `__BOOT_CS` 0x10, `__BOOT_DS` 0x18).
///
/// # Errors
///
/// [`Error`] if there is no room for the tables.
pub fn enter_long(loader: &mut Loader, rip: u64, kernel: Range) -> Result<Entry, Error> {
    let descriptors = [0, 0, flat_descriptor(CODE_64), flat_descriptor(DATA), TASK_DESCRIPTOR, 0];
    let gdt = place_gdt(loader, &descriptors)?;
    let (code, data) = (flat(0x10, CODE_64), flat(0x18, DATA));
    Ok(Entry {
        mode: Mode::Long64,
        rip,
        gprs: [0; 16],
        rflags: RFLAGS_CLEAR,
        segments: [data, code, data, data, data, data],
        ldtr: Segment { attributes: UNUSABLE, ..Segment::default() },
        tr: Segment { base: 0, limit: 0x67, selector: 0x20, attributes: TASK },
        gdt,
        idt: Table::default(),
        cr0: CR0_PE | CR0_ET | CR0_NE | CR0_PG,
        cr3: place_page_tables(loader, kernel)?,
        cr4: CR4_PAE,
        efer: EFER_LME | EFER_LMA,
    })
}

/// An entry in 32-bit protected mode without paging, as PVH and Multiboot want it.
///
/// # Errors
///
/// [`Error`] if there is no room for the table.
pub fn enter_protected(loader: &mut Loader, rip: u64) -> Result<Entry, Error> {
    let descriptors = [0, flat_descriptor(CODE_32), flat_descriptor(DATA), TASK_DESCRIPTOR];
    let gdt = place_gdt(loader, &descriptors)?;
    let (code, data) = (flat(0x08, CODE_32), flat(0x10, DATA));
    Ok(Entry {
        mode: Mode::Protected32,
        rip,
        gprs: [0; 16],
        rflags: RFLAGS_CLEAR,
        segments: [data, code, data, data, data, data],
        ldtr: Segment { attributes: UNUSABLE, ..Segment::default() },
        tr: Segment { base: 0, limit: 0x67, selector: 0x18, attributes: TASK },
        gdt,
        idt: Table::default(),
        cr0: CR0_PE | CR0_ET,
        cr3: 0,
        cr4: 0,
        efer: 0,
    })
}

/// Page tables with 2 MiB pages, one to one; returns CR3.
fn place_page_tables(loader: &mut Loader, kernel: Range) -> Result<u64, Error> {
    let mut gibs: Vec<u64> = (0..ALWAYS_MAPPED_GIB).collect();
    gibs.extend(kernel.start / GIB..kernel.end.div_ceil(GIB));
    gibs.sort_unstable();
    gibs.dedup();
    let mut roots: Vec<u64> = gibs.iter().map(|gib| gib >> 9).collect();
    roots.dedup();

    let pages = 1 + roots.len() + gibs.len();
    let base = loader.space.take_table(pages * PAGE_BYTES as usize, PAGE_BYTES)?;
    let mut entries = vec![0_u64; pages * ENTRIES];
    let page = |index: usize| (base + index as u64 * PAGE_BYTES) | PRESENT_WRITABLE;
    for (index, root) in roots.iter().enumerate() {
        entries[*root as usize % ENTRIES] = page(1 + index);
    }
    for (index, gib) in gibs.iter().enumerate() {
        let directory = 1 + roots.len() + index;
        let parent = 1 + roots.iter().position(|root| *root == gib >> 9).unwrap_or_default();
        entries[parent * ENTRIES + *gib as usize % ENTRIES] = page(directory);
        for slot in 0..ENTRIES {
            let address = gib * GIB + slot as u64 * LARGE_PAGE_BYTES;
            entries[directory * ENTRIES + slot] = address | LARGE | PRESENT_WRITABLE;
        }
    }
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    loader.write(base, &bytes)?;
    Ok(base)
}
