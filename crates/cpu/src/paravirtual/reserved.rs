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
use crate::memory::paging::{Accessor, Translation, error_code, walk};
use crate::memory::tlb::PageSize;
use crate::memory::{Access, Linear, PAGE_SIZE, Physical, Privilege};
use crate::state::Registers;

use xen_abi::mmu::reserved::{END, START};
use xen_abi::segment::{gdt, selector};

/// Where the kernel is told that the machine-to-physical table is, which Xen has at the start of its addresses. It is
/// told so by the board, which has the same constant.
pub const MACHINE_TO_PHYSICAL: u64 = 0xffff_8300_0000_0000;

/// Where the processor has the GDT.
pub(super) const GDT: u64 = 0xffff_8400_0000_0000;

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
            let found = (!by.user).then(|| self.reserved_page(at, access, privilege)).flatten();
            let error = || error_code(&self.context.regs, access, by);
            let page = found.ok_or_else(|| Exception::page_fault(at.0, error()))?;
            let physical = Physical(page.0 + at.offset());
            let writable_now = access == Access::Write;
            return Ok(Translation {
                physical,
                writable_now,
                global: false,
                size: PageSize::Small,
                table: Physical(0),
            });
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

    /// The page that one of Xen's addresses leads to, for an accessor that is not a user program.
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
        let offset =
            at.page().0 - if at.0 >= MACHINE_TO_PHYSICAL { MACHINE_TO_PHYSICAL } else { START };
        (offset < bytes).then_some(Physical(table + offset))
    }

    /// Enter a page that translated code of the kernel missed into the mirror; whether the access can be repeated.
    pub(crate) fn fill_paravirtual_mirror(&self, at: Linear, access: Access) -> bool {
        let (Some(mirror), Some(state)) = (&self.group.mirror, &self.paravirtual) else {
            return false;
        };
        let (table, bytes) = state.table;
        if is_reserved(at) {
            let place = (Linear(MACHINE_TO_PHYSICAL), table, bytes);
            return access == Access::Read && mirror.enter_fixed(at, place);
        }
        let (ram, root) = (&self.ram, state.kernel_root);
        let by = Accessor { user: false, smap_override: false };
        let walk = || {
            let found = walk(ram, &self.context.regs, at, access, by)?;
            // The mirror maps what is there.
            ram.host(found.physical);
            ram.make_present(found.physical);
            Ok::<_, Exception>(found)
        };
        mirror.enter_run(at, access, (self.vcpu_index, root), ram, walk)
    }

    /// One of Xen's own descriptors, if a selector names such, or none at all in place of a frame that the GDT lacks.
    pub(crate) fn own_descriptor(&self, selector: u16) -> Option<u64> {
        /// In the GDT, not the LDT.
        const LOCAL: u16 = 4;
        let state = self.paravirtual.as_ref()?;
        if selector & LOCAL != 0 {
            return None;
        }
        if u32::from(selector) < gdt::FIRST_RESERVED_BYTE {
            let frame = state.gdt[usize::from(selector) / PAGE_SIZE as usize];
            return (frame == 0).then_some(0);
        }
        match selector | 3 {
            selector::CODE32 => Some(0x00cf_fb00_0000_ffff),
            selector::DATA32 => Some(0x00cf_f300_0000_ffff),
            selector::CODE64 => Some(0x00af_fb00_0000_ffff),
            _ => Some(0),
        }
    }
}
