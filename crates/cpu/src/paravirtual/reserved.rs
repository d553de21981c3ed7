//! The linear addresses that are Xen's: entries 256 to 271 of the top page table, which are never the guest's.
//!
//! | from | what | who reads it |
//! | --- | --- | --- |
//! | `0xffff_8000_0000_0000` | the machine-to-physical table, where Xen has it | the kernel |
//! | `0xffff_8300_0000_0000` | the same, where a kernel is told that it is | the kernel |
//! | [`GDT`] | the frames of the GDT, and behind them Xen's own descriptors | the processor |
//!
//! Every other access there is a page fault: the page is not present.

use crate::architectural::Architectural;
use crate::exception::Exception;
use crate::memory::paging::{Accessor, Translation, walk};
use crate::memory::tlb::PageSize;
use crate::memory::{Access, Linear, PAGE_SIZE, Physical, Privilege};
use crate::state::Registers;

/// Xen's first address, and the first that is not.
const START: u64 = 0xffff_8000_0000_0000;
const END: u64 = 0xffff_8800_0000_0000;

/// Where the kernel is told that the machine-to-physical table is.
const TABLE: u64 = 0xffff_8300_0000_0000;

/// Where the processor has the GDT.
pub(super) const GDT: u64 = 0xffff_8400_0000_0000;

/// Where Xen's own descriptors begin in a GDT.
const OWN_DESCRIPTORS: u16 = 0xe000;

/// Bits of the page fault's error code (SDM 3A 4.7).
const WRITE: u32 = 1 << 1;
const USER: u32 = 1 << 2;
const FETCH: u32 = 1 << 4;

/// Whether an address is Xen's.
#[inline]
fn is_reserved(at: Linear) -> bool {
    (START..END).contains(&at.0)
}

/// Whether so many bytes are none of Xen's: a hypercall takes no argument from there.
pub(super) fn leaves_out(at: u64, bytes: usize) -> bool {
    at >= END || at.checked_add(bytes as u64).is_some_and(|end| end <= START)
}

impl Architectural {
    /// The root by which the TLBs of all views are known. It is the kernel's, whoever runs: so the toggle between
    /// kernel and users finds the TLBs of both as they were.
    #[inline]
    pub(crate) fn views_root(&self) -> u64 {
        self.paravirtual.as_ref().map_or(self.context.regs.cr3, |state| state.kernel_root)
    }

    /// The root of the address space of user programs, whoever runs.
    pub(crate) fn user_root(&self) -> u64 {
        self.paravirtual.as_ref().map_or(self.context.regs.cr3, |state| state.user_root)
    }

    /// Translate an address of a paravirtual guest.
    ///
    /// # Errors
    ///
    /// The page fault.
    pub(crate) fn paravirtual_walk(
        &self,
        at: Linear,
        access: Access,
        by: Accessor,
        privilege: Privilege,
    ) -> Result<Translation, Exception> {
        if is_reserved(at) {
            return self.reserved(at, access, by, privilege);
        }
        let regs = &self.context.regs;
        if by.user || regs.cpl == 0 {
            return walk(&self.ram, regs, at, access, by);
        }
        // The processor's own access, to an LDT for instance, while a user program runs: tables are the kernel's.
        let mut regs: Registers = *regs;
        regs.cr3 = self.views_root();
        walk(&self.ram, &regs, at, access, by)
    }

    /// Where one of Xen's addresses leads.
    ///
    /// # Errors
    ///
    /// #PF where nothing is for this accessor.
    fn reserved(
        &self,
        at: Linear,
        access: Access,
        by: Accessor,
        privilege: Privilege,
    ) -> Result<Translation, Exception> {
        let found = (!by.user).then(|| self.reserved_page(at, access, privilege)).flatten();
        let Some(physical) = found else {
            let write = if access == Access::Write { WRITE } else { 0 };
            let fetch = if access == Access::Execute { FETCH } else { 0 };
            let user = if by.user { USER } else { 0 };
            return Err(Exception::page_fault(at.0, write | fetch | user));
        };
        let writable_now = access == Access::Write;
        let physical = Physical(physical.0 + at.offset());
        Ok(Translation { physical, writable_now, global: false, size: PageSize::Small })
    }

    fn reserved_page(&self, at: Linear, access: Access, privilege: Privilege) -> Option<Physical> {
        let state = self.paravirtual.as_ref()?;
        if privilege == Privilege::Supervisor && at.0 >= GDT {
            let frame = state.gdt.get(((at.0 - GDT) / PAGE_SIZE) as usize)?;
            return (*frame != 0).then_some(Physical(*frame));
        }
        if access != Access::Read {
            return None;
        }
        let (table, bytes) = state.table;
        let offset = at.page().0 - if at.0 >= TABLE { TABLE } else { START };
        (offset < bytes).then_some(Physical(table + offset))
    }

    /// One of Xen's own descriptors, if a selector names such.
    pub(crate) fn own_descriptor(&self, selector: u16) -> Option<u64> {
        /// In the GDT, not the LDT.
        const LOCAL: u16 = 4;
        self.paravirtual.as_ref()?;
        if selector & LOCAL != 0 || selector < OWN_DESCRIPTORS {
            return None;
        }
        match selector & !3 {
            0xe020 => Some(0x00cf_fb00_0000_ffff),
            0xe028 => Some(0x00cf_f300_0000_ffff),
            0xe030 => Some(0x00af_fb00_0000_ffff),
            _ => Some(0),
        }
    }
}
