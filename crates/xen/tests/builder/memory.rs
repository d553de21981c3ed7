//! A domain's memory in this process, and the walk that the processor makes through its page tables.

use std::collections::BTreeMap;
use std::convert::Infallible;

use xen::builder::{Built, Memory, Page};
use xen_abi::{Mfn, PAGE_BYTES, Pfn, Wire};

// Bits of an entry (SDM 3A, 4.5).
pub const PRESENT: u64 = 1 << 0;
pub const WRITABLE: u64 = 1 << 1;
pub const USER: u64 = 1 << 2;
pub const ACCESSED: u64 = 1 << 5;
pub const DIRTY: u64 = 1 << 6;

/// The frame in an entry.
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;

/// Pages that have been written; the others are zero. Machine frames are far from page frames and in another order,
/// so that nothing can take one for the other.
pub struct Pages {
    pub pages: u64,
    pub written: BTreeMap<Pfn, Page>,
}

/// What a page is mapped with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    pub frame: Pfn,
    pub entry: u64,
}

impl Pages {
    pub fn new(pages: u64) -> Self {
        Self { pages, written: BTreeMap::new() }
    }

    /// The inverse of [`Memory::machine_frame`].
    pub fn page_frame(&self, frame: Mfn) -> Pfn {
        let offset = frame.0.checked_sub(0x10000).expect("it is a machine frame");
        assert!(offset < self.pages, "{frame} is not the domain's");
        Pfn(self.pages - 1 - offset)
    }

    pub fn page(&self, frame: Pfn) -> Page {
        self.written.get(&frame).copied().unwrap_or([0; _])
    }

    fn entries(&self, table: Pfn) -> impl Iterator<Item = (u64, u64)> {
        let page = self.page(table);
        let entries: Vec<_> = page.chunks_exact(8).map(u64::decode).collect();
        (0..).zip(entries).filter(|(_, entry)| entry & PRESENT != 0)
    }

    /// All that is mapped, by linear address. Checks what all entries for tables have to have, that each table is
    /// one that the builder has named, with its level, and that none is left out.
    pub fn mapped(&self, built: &Built) -> BTreeMap<u64, Mapped> {
        let levels: BTreeMap<Pfn, u8> =
            built.tables.iter().map(|table| (table.frame, table.level)).collect();
        assert_eq!(levels.len(), built.tables.len(), "a table is named twice");
        let root = self.page_frame(Mfn(built.entry.cr3 >> 12));
        assert_eq!(levels.get(&root), Some(&4));
        let mut seen = 1;
        let mut mapped = BTreeMap::new();
        let mut ways = vec![(root, 4_u8, 0_u64)];
        while let Some((table, level, prefix)) = ways.pop() {
            for (index, entry) in self.entries(table) {
                let below = prefix << 9 | index;
                let frame = self.page_frame(Mfn((entry & FRAME_MASK) >> 12));
                if level == 1 {
                    let address = ((below << 12) as i64) << 16 >> 16;
                    mapped.insert(address as u64, Mapped { frame, entry: entry & !FRAME_MASK });
                    continue;
                }
                assert_eq!(entry & !FRAME_MASK, PRESENT | WRITABLE | USER | ACCESSED | DIRTY);
                assert_eq!(levels.get(&frame), Some(&(level - 1)), "{frame}");
                assert!(level != 4 || !(256..272).contains(&index), "slot {index} is Xen's");
                seen += 1;
                ways.push((frame, level - 1, below));
            }
        }
        assert_eq!(seen, built.tables.len(), "some tables are in no other");
        mapped
    }

    /// Bytes at a linear address.
    pub fn read(&self, mapped: &BTreeMap<u64, Mapped>, address: u64, count: usize) -> Vec<u8> {
        let (offset, mut bytes) = ((address % PAGE_BYTES as u64) as usize, Vec::new());
        let mut at = address - offset as u64;
        while bytes.len() < offset + count {
            let page = mapped.get(&at).expect("it is mapped");
            bytes.extend(self.page(page.frame));
            at += PAGE_BYTES as u64;
        }
        bytes[offset..offset + count].to_vec()
    }
}

impl Memory for Pages {
    type Error = Infallible;

    fn machine_frame(&self, frame: Pfn) -> Mfn {
        assert!(frame.0 < self.pages, "{frame} is not the domain's");
        Mfn(0x10000 + self.pages - 1 - frame.0)
    }

    fn write_page(&mut self, frame: Pfn, page: &Page) -> Result<(), Infallible> {
        assert!(frame.0 < self.pages, "{frame} is not the domain's");
        assert_eq!(page.len(), PAGE_BYTES);
        let before = self.written.insert(frame, *page);
        assert!(before.is_none(), "{frame} is written twice");
        Ok(())
    }
}
