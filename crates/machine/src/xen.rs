//! A vCPU as a hypervisor with Xen's paravirtual interface sees it: what a board asks of the processor when it
//! carries out a hypercall.
//!
//! A paravirtual kernel runs with paging on from its first instruction, and leaves to the hypervisor what is
//! privileged: its traps are a table that it hands over, its page tables are validated by the board, and events enter
//! it by callbacks. The processor knows traps, callbacks, stacks, roots and segments. It knows no event channel, no
//! frame's type and no domain: the board does.
//!
//! A hypercall is an exit after the `syscall` instruction: RIP is behind it, RCX and R11 are as `syscall` leaves them.
//! The board then does one of: [`XenVcpu::set_result`], [`XenVcpu::restart_call`], or something that loads all
//! registers ([`XenVcpu::return_from_call`], [`XenVcpu::initialise`]).
//!
//! Machine addresses are guest-physical addresses: machine frame `m` is the page at `m << 12`.

use vm_memory::GuestAddress;
use xen_abi::Mfn;
use xen_abi::callback::TrapInfo;
use xen_abi::hypercall::number;
use xen_abi::vcpu::GuestContext;

/// The kind of the saved state of what a domain's vCPUs share.
pub const SAVED_DOMAIN: &str = "xen-domain";

/// The kind of the saved state of a domain's vCPU.
pub const SAVED_VCPU: &str = "xen-vcpu";

/// Where a kernel is told that the table of the page numbers of machine frames is. Xen has it at the start of its
/// addresses; there it is as well, but this place is one that the engine can mirror.
pub const MACHINE_TO_PHYSICAL: u64 = 0xffff_8300_0000_0000;

/// A hypercall: `syscall` by a paravirtual kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XenCall {
    /// RAX.
    pub number: u64,
    /// RDI, RSI, RDX, R10, R8.
    pub arguments: [u64; 5],
}

impl XenCall {
    /// It concerns the page tables of the domain and the registers of the vCPU that makes it, and nothing else: no
    /// event, no timer, no device, no waiting. The guest goes on behind it.
    #[inline]
    pub fn is_brief(&self) -> bool {
        let Ok(call) = u32::try_from(self.number) else { return false };
        matches!(
            call,
            number::MMU_UPDATE
                | number::UPDATE_VA_MAPPING
                | number::MMUEXT_OP
                | number::UPDATE_DESCRIPTOR
                | number::STACK_SWITCH
                | number::SET_SEGMENT_BASE
                | number::FPU_TASKSWITCH
        )
    }
}

/// What a vCPU's thread does after a hypercall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Go on with the guest.
    Run,
    /// Wait for an event, for the next deadline, or for another vCPU, as after `hlt`. Coming back too early is
    /// harmless.
    Block,
    /// Let others have the core, if they share it.
    Yield,
}

/// A write by a paravirtual kernel to memory that its page tables map read-only, which is perhaps a page table of its
/// own. The instruction has completed but for this write; the board answers with [`XenVcpu::refuse_write`] or
/// [`XenVcpu::retry_write`], or has carried it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableWrite {
    /// Guest-physical address of the aligned eight bytes that are written, or of which a part is.
    pub address: GuestAddress,
    /// What the instruction has found there.
    pub old: u64,
    /// What is to be there.
    pub new: u64,
}

/// The guest's memory cannot be accessed at a linear address: `-EFAULT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing that could be accessed like this is mapped there")]
pub struct Inaccessible;

/// A segment base that `set_segment_base` sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentBase {
    /// FS.
    Fs,
    /// GS of user programs.
    UserGs,
    /// GS of the kernel.
    KernelGs,
}

/// Whose address translations a flush concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushOf {
    /// All linear addresses.
    All,
    /// The page of this linear address.
    Page(u64),
}

/// A vCPU that has stopped at a hypercall, or has not started.
pub trait XenVcpu {
    /// The call returns this in RAX.
    fn set_result(&mut self, value: u64);

    /// The call is made again, with these arguments, when the vCPU runs: events are delivered before.
    fn restart_call(&mut self, arguments: [u64; 5]);

    /// Do what the `iret` hypercall does (a multicall may contain it; alone, the processor does it without an exit).
    fn return_from_call(&mut self);

    /// Whether another thread wants the vCPU to come back: a long call is interrupted then.
    fn is_kicked(&self) -> bool;

    /// Fill `bytes` from a linear address on, as the kernel reads memory.
    ///
    /// # Errors
    ///
    /// [`Inaccessible`]; `bytes` is unspecified then.
    fn read_linear(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Inaccessible>;

    /// Store `bytes` from a linear address on, as the kernel writes memory.
    ///
    /// # Errors
    ///
    /// [`Inaccessible`]; nothing was written then.
    fn write_linear(&mut self, at: u64, bytes: &[u8]) -> Result<(), Inaccessible>;

    /// Forget all traps of the table.
    fn clear_traps(&mut self);

    /// Set one trap of the table; the vector is in it.
    fn set_trap(&mut self, trap: &TrapInfo);

    /// Set a callback, one of [`xen_abi::callback::kind`]; address 0 is none.
    fn set_callback(&mut self, kind: u16, address: u64, masks_events: bool);

    /// The stack on which traps from user mode enter the kernel.
    fn set_kernel_stack(&mut self, selector: u16, pointer: u64);

    /// CR0.TS.
    fn set_task_switched(&mut self, is_set: bool);

    /// Set a base, which is canonical.
    fn set_segment_base(&mut self, which: SegmentBase, base: u64);

    /// Load the GS of user programs with a selector; a bad one becomes null.
    fn load_user_gs(&mut self, selector: u16);

    /// A debug register, 0 to 7.
    fn debug_register(&self, number: usize) -> u64;

    /// Set a debug register, 0 to 7, to a value that the board has checked.
    fn set_debug_register(&mut self, number: usize, value: u64);

    /// The level up to which ports and `cli` are the kernel's: it counts as ring 1, user programs as ring 3.
    fn set_io_privilege(&mut self, level: u8);

    /// Set the bitmap of ports that are open to all whatever the level, for so many ports.
    fn set_open_ports(&mut self, bitmap: u64, ports: u32);

    /// The assists of `vm_assist` that are on, a bit for each type.
    fn set_assists(&mut self, assists: u64);

    /// The frames of the GDT, 14 at most; what lies behind them is the hypervisor's.
    fn set_gdt(&mut self, frames: &[Mfn]);

    /// The LDT: a linear address and how many descriptors there are.
    fn set_ldt(&mut self, base: u64, entries: u32);

    /// The root of the kernel's address space, from now on. Translations by the old one are flushed.
    fn load_kernel_root(&mut self, root: Mfn);

    /// The root of the address space of user programs; without, there is no user mode.
    fn load_user_root(&mut self, root: Option<Mfn>);

    /// Flush translations of this vCPU.
    fn flush(&mut self, of: FlushOf);

    /// Have other vCPUs flush theirs, and wait until they have or do not run: vCPU `n` if bit `n` is set.
    fn flush_others(&mut self, vcpus: u64, of: FlushOf);

    /// An entry of a page table, of a level from 1 up, has changed: this vCPU uses nothing any more that was derived
    /// from what the entry does not allow any more. Other vCPUs see to it when they flush.
    fn entry_changed(&mut self, table: (Mfn, u8), index: usize, old: u64, new: u64);

    /// A frame is no page table of this level any more; nobody tells of what is written to it.
    fn table_demoted(&mut self, table: Mfn, level: u8);

    /// No vCPU writes this frame any more by a translation that it has from before.
    fn revoke_writable(&mut self, frame: Mfn);

    /// Where the table of the page numbers of machine frames is, in whole pages, which the kernel reads at
    /// [`MACHINE_TO_PHYSICAL`] and where Xen has it.
    fn set_machine_to_physical(&mut self, at: GuestAddress, bytes: u64);

    /// Where the vCPU's `vcpu_info` is, whose bytes 0 and 1 say whether an event is pending and may be delivered.
    fn set_vcpu_info(&mut self, at: GuestAddress);

    /// The write that the vCPU has stopped at is a page fault.
    fn refuse_write(&mut self);

    /// The instruction that has stopped at a write is to be executed again.
    fn retry_write(&mut self);

    /// Load everything, as `VCPUOP_initialise` and the start of a domain have it. Roots are machine addresses in
    /// `control[3]` (kernel) and `control[1]` (user programs, 0 for none), both as `xen_pfn_to_cr3` makes them.
    fn initialise(&mut self, context: &GuestContext);
}
