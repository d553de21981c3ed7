//! What is handed to the builder, and what it hands back.

use xen_abi::{Mfn, PAGE_BYTES, Pfn};

/// A page's contents.
pub type Page = [u8; PAGE_BYTES];

/// The memory of a domain that is to be filled.
pub trait Memory {
    /// Why a page cannot be written.
    type Error;

    /// The machine frame of one of the domain's pages.
    fn machine_frame(&self, frame: Pfn) -> Mfn;

    /// Fill one of the domain's pages. Each is written once at most.
    ///
    /// # Errors
    ///
    /// Whatever the memory's owner says; the builder gives up with it.
    fn write_page(&mut self, frame: Pfn, page: &Page) -> Result<(), Self::Error>;
}

/// What is to be built, apart from the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Parameters<'a> {
    /// Pages that the domain starts with.
    pub pages: u64,
    /// The machine address of the page that it shares with Xen.
    pub shared_info: u64,
    /// Of `xen_abi::start::flag`; the builder adds what says how it has laid things out.
    pub flags: u32,
    /// The event channel of the store.
    pub store_port: u32,
    /// The event channel of the console.
    pub console_port: u32,
    /// The kernel's command line.
    pub command_line: &'a [u8],
    /// An initial RAM disk.
    pub ram_disk: Option<&'a [u8]>,
}

/// What the first vCPU is entered with; what is not here is zero or as `vcpu_guest_context` has it at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// From the kernel's notes.
    pub rip: u64,
    /// The end of the stack.
    pub rsp: u64,
    /// The address of the start information.
    pub rsi: u64,
    /// Events are masked by a byte in memory, so IF is set.
    pub rflags: u64,
    /// Xen's flat code segment.
    pub cs: u16,
    /// Xen's flat stack segment.
    pub ss: u16,
    /// The machine address of the top page table.
    pub cr3: u64,
}

/// A domain that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// How it is entered.
    pub entry: Entry,
    /// Each page table. All are to be typed, and the first, of level 4, is to be pinned.
    pub tables: Vec<Table>,
    /// The page with the start information.
    pub start_info: Pfn,
    /// The page of the store's rings.
    pub store: Pfn,
    /// The page of the console's rings.
    pub console: Pfn,
    /// The first page that nothing is in, nor in any after it.
    pub first_free: Pfn,
}

/// A page that is a page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Which page.
    pub frame: Pfn,
    /// 1 for tables whose entries map pages, 4 for the top one.
    pub level: u8,
}
