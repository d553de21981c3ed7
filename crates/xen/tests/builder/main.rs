//! Domains as the builder makes them: from kernels made by hand, from Debian's, and from files that are neither.

#![forbid(unsafe_code)]

mod debian;
mod hostile;
mod image;
mod made;
mod memory;

use std::collections::BTreeMap;

use memory::{ACCESSED, DIRTY, Mapped, PRESENT, Pages, WRITABLE};
use xen::builder::{self, Built, Error, Parameters};
use xen_abi::start::StartInfo;
use xen_abi::{Pfn, Wire};

/// What most domains here are built with.
fn parameters(pages: u64) -> Parameters<'static> {
    Parameters {
        pages,
        shared_info: 0x1234_5000,
        flags: 0,
        store_port: 1,
        console_port: 2,
        command_line: b"console=hvc0 quiet",
        ram_disk: None,
    }
}

/// A domain with its memory.
struct Domain {
    memory: Pages,
    built: Built,
    mapped: BTreeMap<u64, Mapped>,
    info: StartInfo,
}

impl Domain {
    /// Build it and check what is so for every domain.
    fn new(kernel: &[u8], parameters: &Parameters) -> Result<Self, Error> {
        let plan = builder::plan(kernel, parameters)?;
        let mut memory = Pages::new(parameters.pages);
        let Ok(built) = plan.write(&mut memory);
        let mapped = memory.mapped(&built);
        let page = memory.page(built.start_info);
        let info = StartInfo::read(&page, 0).expect("a page is long enough");
        let domain = Self { memory, built, mapped, info };
        domain.check_entries();
        domain.check_list(parameters.pages);
        domain.check_start(parameters);
        Ok(domain)
    }

    /// Each page is present and accessed; it is writable unless it is a page table.
    fn check_entries(&self) {
        let is_table = |frame: Pfn| self.built.tables.iter().any(|table| table.frame == frame);
        for (address, page) in &self.mapped {
            let writable = if is_table(page.frame) { 0 } else { WRITABLE };
            let expected = PRESENT | ACCESSED | DIRTY | writable;
            assert_eq!(page.entry, expected, "{address:#x}, {}", page.frame);
            assert!(page.frame < self.built.first_free, "{address:#x}, {}", page.frame);
        }
        assert!(self.memory.written.keys().all(|frame| *frame < self.built.first_free));
    }

    /// The list of frames, through its mapping, says what the memory does.
    fn check_list(&self, pages: u64) {
        let list = self.info.frame_list;
        let bytes = self.memory.read(&self.mapped, list, pages as usize * 8);
        for (frame, number) in (0..).map(Pfn).zip(bytes.chunks_exact(8)) {
            let number = xen_abi::Mfn::decode(number);
            assert_eq!(self.memory.page_frame(number), frame);
        }
    }

    /// The start information leads to what it names.
    fn check_start(&self, parameters: &Parameters) {
        let (info, built) = (&self.info, &self.built);
        let frame_at = |address: u64| self.mapped.get(&address).map(|page| page.frame);
        assert!(info.magic.starts_with(b"xen-3.0-x86_64\0"));
        assert_eq!((info.pages, info.shared_info), (parameters.pages, parameters.shared_info));
        assert_eq!((info.store_port, info.console_port), (1, 2));
        assert_eq!(self.memory.page_frame(info.store_frame), built.store);
        assert_eq!(self.memory.page_frame(info.console_frame), built.console);
        assert!(info.command_line.starts_with(parameters.command_line));
        assert_eq!(frame_at(built.entry.rsi), Some(built.start_info));
        let tables = info.page_tables..info.page_tables + info.page_table_frames * 4096;
        let listed = built.tables.iter().take(info.page_table_frames as usize);
        let found: Vec<_> = tables.step_by(4096).map(frame_at).collect();
        assert_eq!(found, listed.map(|table| Some(table.frame)).collect::<Vec<_>>());
        assert_eq!(built.tables[0].level, 4);
        assert!(built.tables.windows(2).all(|pair| pair[0].frame.0 < pair[1].frame.0));
        let stack = built.entry.rsp - 4096;
        assert_eq!(stack, info.page_tables + info.page_table_frames * 4096);
        assert_eq!(self.mapped[&stack].entry & WRITABLE, WRITABLE);
        assert_eq!((built.entry.cs, built.entry.ss), (0xe033, 0xe02b));
        assert_eq!(built.entry.rflags, 0x200);
    }
}
