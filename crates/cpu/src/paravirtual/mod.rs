//! The mode of a vCPU whose kernel is paravirtual, by Xen's interface (public/arch-x86/xen-x86_64.h, callback.h).
//!
//! A paravirtual kernel is written to run without privilege. On Xen it runs in ring 3, as its users do, and a
//! toggle that Xen keeps tells the two apart. Here it runs in the engine's ring 0, so that everything that the
//! engine has for kernels applies to it (TLBs of its own, for one), and the mode changes what is different:
//!
//! 1. *The guest sees ring 3.* Selectors in CS and SS have RPL 3, whoever runs. The engine's CPL says who runs: 0
//!    for the kernel, 3 for users. Nothing compares that CPL with the RPLs of these selectors.
//! 2. *Interrupts are always enabled* for the engine. Events are masked by a byte of the guest's memory
//!    (`vcpu_info`), which the kernel writes as it likes; the run loop looks at it at each return to Rust
//!    ([`trap`]). So masking costs nothing, and the kernel asks for what has come meanwhile by a hypercall.
//! 3. *There is no IDT and no TSS.* A trap, a system call and an event enter the kernel by a frame on its stack, at
//!    the address that the kernel has registered ([`trap`]). `iret` is a hypercall ([`iret`]).
//! 4. *Two roots.* The kernel's and its users' address spaces have page tables of their own. CR3 is the root of who
//!    runs; the toggle changes it, and exchanges the bases of GS, but flushes nothing: the engine keeps a TLB for
//!    each.
//! 5. *Some addresses are not the guest's* ([`reserved`]): there the kernel reads the machine-to-physical table,
//!    and the processor its descriptors. The GDT is a list of frames.
//! 6. `syscall` by the kernel is a hypercall: an exit, but for the few that concern the vCPU's registers alone
//!    ([`own_call`]). What else of privileged instructions means something is in [`instructions`]; the rest is #GP.
//! 7. *A write to a page that is mapped read-only is provisional* ([`write`]): the page may be a page table of the
//!    kernel's own, and the hypervisor decides.
//! 8. *TLBs are exact* ([`exact`]): nearly nothing flushes them.
//! 9. What no frame can be made for ends the domain ([`Paravirtual::crash`]): there is no kernel to tell.
//!
//! Translations are made for the mode: `translate::Mode` has a bit for it, and what the mode changes is left to the
//! interpreter.

mod api;
mod exact;
pub(crate) mod gateway;
pub(crate) mod identity;
mod instructions;
mod iret;
mod own_call;
pub(crate) mod reserved;
mod revoke;
mod saved;
mod segments;
mod trap;
mod write;

pub use reserved::MACHINE_TO_PHYSICAL;
pub use saved::SavedParavirtual;

use serde::{Deserialize, Serialize};

use crate::memory::Physical;

/// Where the kernel is entered for a trap. Address 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gate {
    pub(crate) address: u64,
    /// The lowest privilege from which `int` may raise it.
    pub(crate) privilege: u8,
    pub(crate) masks_events: bool,
}

/// Traps that a table has.
const TRAPS: usize = 256;

/// Callbacks, by their kind ([`xen_abi::callback::kind`]).
const CALLBACKS: usize = 8;

/// Frames of a GDT, the last two of which are Xen's.
const GDT_FRAMES: usize = 16;

/// What a paravirtual vCPU has beside its registers.
#[derive(Debug)]
pub(crate) struct Paravirtual {
    traps: Box<[Gate; TRAPS]>,
    callbacks: [Gate; CALLBACKS],
    /// SS and RSP with which the kernel is entered from user mode.
    kernel_stack: (u16, u64),
    /// Machine addresses; a user root of 0 is none.
    kernel_root: u64,
    user_root: u64,
    /// The level up to which ports are open: the kernel counts as ring 1, users as ring 3.
    io_privilege: u8,
    /// Ports that are open to all, whatever the level: a bit each, which is clear, from this linear address of the
    /// kernel's on, for so many ports.
    open_ports: (u64, u32),
    /// Of `vm_assist`.
    assists: u64,
    /// Where `vcpu_info` is.
    info: Option<Physical>,
    /// The frames' machine addresses; 0 is none.
    gdt: [u64; GDT_FRAMES],
    /// The machine-to-physical table: its machine address and its bytes.
    table: (u64, u64),
    /// What is to be put back of an instruction whose write waits for the hypervisor.
    before: Option<write::Before>,
    /// What is cached of page tables.
    exact: exact::Exact,
    /// Why the domain has ended.
    crash: Option<&'static str>,
}

impl Default for Paravirtual {
    fn default() -> Self {
        Self {
            traps: Box::new([Gate::default(); TRAPS]),
            callbacks: Default::default(),
            kernel_stack: (0, 0),
            kernel_root: 0,
            user_root: 0,
            io_privilege: 0,
            open_ports: (0, 0),
            assists: 0,
            info: None,
            gdt: [0; GDT_FRAMES],
            table: (0, 0),
            before: None,
            exact: exact::Exact::default(),
            crash: None,
        }
    }
}

impl Paravirtual {
    /// The number that the current address space has in place of a PCID.
    pub(crate) fn space_number(&self) -> u16 {
        self.exact.number()
    }

    /// Why the domain has ended, if it has by a fault of its own.
    pub(crate) fn crash(&self) -> Option<&'static str> {
        self.crash
    }
}
