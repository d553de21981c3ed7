//! The start of a domain: its memory as the builder lays it out, the types of what is page tables in it, and the state
//! that its first vCPU is entered with.

use frames::{Level, Tables};
use machine::board::{LoadError, Payload};
use vm_memory::GuestAddress;
use xen_abi::shared::SharedInfo;
use xen_abi::vcpu::{GuestContext, context};
use xen_abi::{Mfn, PAGE_BYTES, Pfn, Wire};

use crate::builder::{self, Built, Page, Parameters};
use crate::domain::Domain;
use crate::engine::{Engine, NotRunning};
use crate::geometry;
use crate::holding::Reservation;
use crate::services::port;
use crate::started::Started;

/// CR0 as Xen's guests see it: PG, AM, WP, NE, ET, MP, PE, and TS clear.
const CR0: u64 = 0x8005_0033;

/// CR4: OSXSAVE, OSXMMEXCPT, OSFXSR, PAE.
const CR4: u64 = 1 << 18 | 1 << 10 | 1 << 9 | 1 << 5;

/// Entries of the machine-to-physical table on a page.
const ENTRIES: u64 = PAGE_BYTES as u64 / 8;

/// Bytes of the machine-to-physical table that are written at once.
const CHUNK_BYTES: usize = 64 << 10;

impl Domain {
    /// Fill the domain's memory, which is zero and all its own from now on, from a kernel.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says what is wrong with the kernel, or what does not fit.
    pub(crate) fn start(
        &self,
        payload: &Payload<'_>,
    ) -> Result<(Started, Box<GuestContext>), LoadError> {
        let refused = |error: &dyn std::fmt::Display| LoadError(error.to_string());
        let parameters = Parameters {
            pages: self.geometry.pages,
            shared_info: self.geometry.shared_info().address(),
            flags: 0,
            store_port: port::STORE,
            console_port: port::CONSOLE,
            command_line: payload.command_line.as_bytes(),
            ram_disk: payload.ram_disk,
        };
        let plan = builder::plan(payload.kernel, &parameters).map_err(|error| refused(&error))?;
        let built = plan.write(&mut Pages(self)).map_err(|error| refused(&error))?;
        self.assign_frames().map_err(|_| LoadError("its frames are in use".into()))?;
        *self.reservation() = Reservation::of(&self.owned);
        self.fill_machine_to_physical().map_err(|error| refused(&error))?;
        self.mask_events().map_err(|error| refused(&error))?;
        self.pin_root(&built)?;
        let (store, console) = (machine_frame(built.store), machine_frame(built.console));
        let started = Started { store, console };
        Ok((started, first_context(&built)))
    }

    /// All frames of its memory are the domain's; so is what the hypervisor shares with it.
    fn assign_frames(&self) -> Result<(), frames::Errno> {
        let (frames, places) = (self.frames(), &self.geometry);
        (0..places.pages).try_for_each(|page| frames.assign(machine_frame(Pfn(page))))?;
        places.assign_special(frames)
    }

    /// Each frame's page number, and none where there is no page.
    fn fill_machine_to_physical(&self) -> Result<(), machine::memory::NoMemory> {
        let table = self.geometry.machine_to_physical().address();
        let first = geometry::BASE.0;
        let entries = self.geometry.machine_to_physical_frames() * ENTRIES;
        let per_chunk = CHUNK_BYTES as u64 / 8;
        let mut bytes = Vec::with_capacity(CHUNK_BYTES);
        for start in (0..entries).step_by(per_chunk as usize) {
            bytes.clear();
            for frame in start..(start + per_chunk).min(entries) {
                let page = frame.checked_sub(first).filter(|page| *page < self.geometry.pages);
                bytes.extend_from_slice(&page.unwrap_or(u64::MAX).to_le_bytes());
            }
            self.memory.bytes().write(GuestAddress(table + start * 8), &bytes)?;
        }
        Ok(())
    }

    /// No vCPU has its events delivered before its kernel says so.
    fn mask_events(&self) -> Result<(), machine::memory::NoMemory> {
        let mut info = SharedInfo::zeroed();
        info.vcpus.iter_mut().for_each(|vcpu| vcpu.upcall_mask = 1);
        let mut page = [0; PAGE_BYTES];
        info.encode(&mut page);
        self.memory.bytes().write(GuestAddress(self.geometry.shared_info().address()), &page)
    }

    /// The root is validated with all tables below it, pinned, and the first vCPU's.
    fn pin_root(&self, built: &Built) -> Result<(), LoadError> {
        let root = Mfn::of_address(built.entry.cr3);
        let mut engine = Engine { domain: self, cpu: NotRunning };
        let mut state = self.tables();
        let mut tables = Tables::new(self.frames(), &mut state, &mut engine, 0);
        let result = tables.pin(root, Level::L4).and_then(|()| tables.new_baseptr(root));
        result.map_err(|stop| LoadError(format!("its page tables are no good: {stop:?}")))
    }
}

/// The machine frame of a page at the start.
fn machine_frame(page: Pfn) -> Mfn {
    Mfn(geometry::BASE.0 + page.0)
}

/// The state that a domain's first vCPU is entered with.
fn first_context(built: &Built) -> Box<GuestContext> {
    let (entry, mut start) = (built.entry, Box::new(GuestContext::zeroed()));
    start.flags = context::IN_KERNEL | context::ONLINE;
    let registers = &mut start.registers;
    (registers.rip, registers.rsp, registers.rsi) = (entry.rip, entry.rsp, entry.rsi);
    (registers.cs, registers.ss, registers.rflags) = (entry.cs, entry.ss, entry.rflags);
    (start.kernel_ss, start.kernel_sp) = (entry.ss.into(), entry.rsp);
    (start.control[0], start.control[3], start.control[4]) = (CR0, entry.cr3, CR4);
    start
}

/// The domain's memory as the builder fills it.
struct Pages<'a>(&'a Domain);

impl builder::Memory for Pages<'_> {
    type Error = machine::memory::NoMemory;

    fn machine_frame(&self, page: Pfn) -> Mfn {
        machine_frame(page)
    }

    fn write_page(&mut self, page: Pfn, bytes: &Page) -> Result<(), Self::Error> {
        self.0.memory.bytes().write(GuestAddress(machine_frame(page).address()), bytes)
    }
}
