//! Writing what has been planned.

use xen_abi::start::{self, StartInfo};
use xen_abi::{PAGE_BYTES, Pfn, Wire, hypercall, segment};

use super::Plan;
use super::domain::{Built, Entry, Memory, Page};

/// RFLAGS at the entry.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// Machine frame numbers on a page.
const NUMBERS: u64 = (PAGE_BYTES / 8) as u64;

impl Plan<'_> {
    /// Fill the domain's memory, which is zero.
    ///
    /// # Errors
    ///
    /// Only the memory's own.
    pub fn write<M: Memory>(&self, memory: &mut M) -> Result<Built, M::Error> {
        self.write_kernel(memory)?;
        self.write_ram_disk(memory)?;
        self.write_list(memory)?;
        self.write_tables(memory)?;
        let layout = &self.layout;
        let (start_info, root) = (Pfn(layout.start_info), Pfn(layout.tables.start));
        let info = self.start_info(memory);
        let mut page: Page = [0; _];
        info.encode(&mut page);
        memory.write_page(start_info, &page)?;
        let entry = Entry {
            rip: self.kernel.entry,
            rsp: layout.address(layout.stack + 1),
            rsi: layout.address(layout.start_info),
            rflags: INTERRUPT_FLAG,
            cs: segment::selector::CODE64,
            ss: segment::selector::STACK64,
            cr3: memory.machine_frame(root).address(),
        };
        Ok(Built {
            entry,
            tables: self.tables.list(),
            start_info,
            store: Pfn(layout.start_info + 1),
            console: Pfn(layout.start_info + 2),
            first_free: Pfn(layout.end()),
        })
    }

    /// The segments page by page; the end of one and the start of the next may share a page.
    fn write_kernel<M: Memory>(&self, memory: &mut M) -> Result<(), M::Error> {
        let calls = self.kernel.hypercall_page().map(|at| at / PAGE_BYTES as u64);
        let mut pending: Option<(u64, Page)> = None;
        for segment in &self.kernel.segments {
            let (mut at, mut rest) = (segment.start, segment.bytes);
            while !rest.is_empty() {
                let (frame, offset) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
                let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - offset));
                if pending.as_ref().is_none_or(|(other, _)| *other != frame) {
                    flush(pending.take(), calls, memory)?;
                }
                let (_, page) = pending.get_or_insert((frame, [0; _]));
                page[offset..offset + now.len()].copy_from_slice(now);
                (at, rest) = (at + now.len() as u64, later);
            }
        }
        flush(pending, calls, memory)?;
        match calls {
            Some(frame) => memory.write_page(Pfn(frame), &hypercall_page()),
            None => Ok(()),
        }
    }

    fn write_ram_disk<M: Memory>(&self, memory: &mut M) -> Result<(), M::Error> {
        let (Some(bytes), Some(place)) = (self.parameters.ram_disk, &self.layout.ram_disk) else {
            return Ok(());
        };
        for (frame, chunk) in place.clone().zip(bytes.chunks(PAGE_BYTES)) {
            let mut page: Page = [0; _];
            page[..chunk.len()].copy_from_slice(chunk);
            memory.write_page(Pfn(frame), &page)?;
        }
        Ok(())
    }

    /// The list of the frames' machine numbers; behind the last there is none.
    fn write_list<M: Memory>(&self, memory: &mut M) -> Result<(), M::Error> {
        for (index, frame) in self.layout.list.clone().enumerate() {
            let mut page: Page = [0xff; _];
            let first = index as u64 * NUMBERS;
            for (number, bytes) in (first..self.parameters.pages).zip(page.chunks_exact_mut(8)) {
                memory.machine_frame(Pfn(number)).encode(bytes);
            }
            memory.write_page(Pfn(frame), &page)?;
        }
        Ok(())
    }

    fn write_tables<M: Memory>(&self, memory: &mut M) -> Result<(), M::Error> {
        for (place, frame) in self.tables.places() {
            let page = {
                let machine = |frame| memory.machine_frame(Pfn(frame));
                self.tables.page(place, &self.layout, &machine)
            };
            memory.write_page(Pfn(frame), &page)?;
        }
        Ok(())
    }

    fn start_info<M: Memory>(&self, memory: &M) -> StartInfo {
        let (layout, parameters) = (&self.layout, &self.parameters);
        let mut info = StartInfo::zeroed();
        info.magic[..start::MAGIC.len()].copy_from_slice(start::MAGIC);
        info.pages = parameters.pages;
        info.shared_info = parameters.shared_info;
        info.flags = parameters.flags;
        info.store_frame = memory.machine_frame(Pfn(layout.start_info + 1));
        info.store_port = parameters.store_port;
        info.console_frame = memory.machine_frame(Pfn(layout.start_info + 2));
        info.console_port = parameters.console_port;
        info.page_tables = layout.address(layout.tables.start);
        info.page_table_frames = layout.tables.end - layout.tables.start;
        info.frame_list = layout.address(layout.list.start);
        if let Some(elsewhere) = &layout.elsewhere {
            info.frame_list = elsewhere.addresses.start;
            info.first_p2m_frame = layout.list.start;
            info.p2m_frames = layout.list_tables.end - layout.list.start;
        }
        if let (Some(bytes), Some(place)) = (parameters.ram_disk, &layout.ram_disk) {
            info.mod_start = layout.address(place.start);
            info.mod_bytes = bytes.len() as u64;
            if self.kernel.notes.mod_start_pfn {
                info.mod_start = place.start;
                info.flags |= start::flag::MOD_START_PFN;
            }
        }
        // `Layout::new` has seen that it fits.
        for (place, byte) in info.command_line.iter_mut().zip(parameters.command_line) {
            *place = *byte;
        }
        info
    }
}

/// Write a page of the kernel, unless it is the hypercall page, whose contents are ours.
fn flush<M: Memory>(
    page: Option<(u64, Page)>,
    calls: Option<u64>,
    memory: &mut M,
) -> Result<(), M::Error> {
    match page {
        Some((frame, bytes)) if calls != Some(frame) => memory.write_page(Pfn(frame), &bytes),
        _ => Ok(()),
    }
}

/// A page with a call for each number: `syscall` loses RCX and R11, which the kernel is not to notice. The one for
/// IRET is jumped to, and does not return. Between them are breakpoints.
fn hypercall_page() -> Page {
    let mut page: Page = [0xcc; _];
    for (number, entry) in (0_u32..).zip(page.chunks_exact_mut(hypercall::PAGE_ENTRY_BYTES)) {
        let [a, b, c, d] = number.to_le_bytes();
        // push rcx; push r11; mov eax, NUMBER; syscall; pop r11; pop rcx; ret
        let call = [0x51, 0x41, 0x53, 0xb8, a, b, c, d, 0x0f, 0x05, 0x41, 0x5b, 0x59, 0xc3];
        // push rcx; push r11; push rax; mov eax, NUMBER; syscall
        let leave = [0x51, 0x41, 0x53, 0x50, 0xb8, a, b, c, d, 0x0f, 0x05];
        let code: &[u8] = if number == hypercall::number::IRET { &leave } else { &call };
        entry[..code.len()].copy_from_slice(code);
    }
    page
}
