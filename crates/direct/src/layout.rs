//! The memory layout of a helper, in the helper and in the domain.
//!
//! A helper keeps 64 KiB of its address space for itself: [`RESERVED`]. They are one slot of a
//! memory file that the domain process maps as a whole, readable and writable. What the slot's
//! first page would be is the stub, which all helpers share.
//!
//! | offset | in the helper | what |
//! | --- | --- | --- |
//! | 0x0000 | read, execute | the stub (`stub.rs`) |
//! | 0x1000 | read | the registers to enter the guest with, extended state at 0x1200 |
//! | 0x2000 | read | answers to notifications, data of the set-up |
//! | 0x3000 | read | steps: the mapper's orders |
//! | 0x9000 | read, write | what the stub reports beside the signal frame |
//! | 0xa000 | read, write | the alternate signal stack |

use std::ops::Range;

/// Linear addresses that a guest cannot have mapped in a [`crate::Space`]: far from where Linux
/// puts programs, heaps, libraries and stacks. A guest process that maps something there all the
/// same has to be translated.
pub const RESERVED: Range<u64> = BASE..BASE + SLOT_BYTES;

/// First address of the helper's own pages.
pub(crate) const BASE: u64 = 0x2a00_0000_0000;

/// Bytes of one slot of the shared file, and of the helper's own pages.
pub(crate) const SLOT_BYTES: u64 = 0x1_0000;

/// Spaces that one set of helpers may have at once, beside the zygote's own slot.
pub(crate) const MAX_SPACES: usize = 1023;

/// First address that user code cannot have on the host, nor in a guest with four-level paging.
pub(crate) const USER_END: u64 = 0x7fff_ffff_f000;

/// The unit of mapping.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// What the helper may read only.
pub(crate) const CONTROL: Range<u64> = BASE + 0x1000..BASE + 0x9000;
/// What the helper may write.
pub(crate) const SCRATCH: Range<u64> = BASE + 0x9000..BASE + SLOT_BYTES;

/// [`crate::registers::Entry`].
pub(crate) const ENTRY: u64 = BASE + 0x1000;
/// The extended state to enter the guest with.
pub(crate) const ENTRY_EXTENDED: u64 = BASE + 0x1200;
/// Bytes of extended state that a slot and the signal frame have room for.
pub(crate) const EXTENDED_MAX_BYTES: usize = 0xe00;
/// The mapper's answer to the runner's notification when all orders were carried out.
pub(crate) const ANSWER_DONE: u64 = BASE + 0x2000;
/// The same when one was not.
pub(crate) const ANSWER_FAILED: u64 = BASE + 0x2020;
/// Data of the set-up: filters, messages, signal actions.
pub(crate) const SETUP_DATA: Range<u64> = BASE + 0x2100..BASE + 0x3000;
/// The first step: the mapper's waiting for orders.
pub(crate) const STEPS: Range<u64> = BASE + 0x3000..BASE + 0x9000;
/// Steps that there is room for.
pub(crate) const MAX_STEPS: usize = ((STEPS.end - STEPS.start) / STEP_BYTES) as usize;
/// Orders that fit behind the waiting step, with one step to spare for the answer.
pub(crate) const MAX_ORDERS: usize = MAX_STEPS - 2;
/// Bytes of a [`Step`].
pub(crate) const STEP_BYTES: u64 = size_of::<Step>() as u64;

/// [`Report`].
pub(crate) const REPORT: u64 = BASE + 0x9000;
/// Where a failing step of the set-up is recorded.
pub(crate) const FAILURE: u64 = BASE + 0x9100;
/// Memory that the set-up scribbles on.
pub(crate) const SETUP_SCRATCH: u64 = BASE + 0x9200;
/// The alternate signal stack.
pub(crate) const SIGNAL_STACK: Range<u64> = BASE + 0xa000..BASE + SLOT_BYTES;
/// The most that one signal frame may need, so that a kick can be nested in a fault.
pub(crate) const SIGNAL_FRAME_MAX_BYTES: u64 = 0x1800;

/// Descriptors, the same in every process: the zygote's socket, the shared file, guest memory.
pub(crate) const SOCKET_FD: u64 = 0;
pub(crate) const AREA_FD: u64 = 1;
pub(crate) const MEMORY_FD: u64 = 2;
/// In the mapper: the runner's notifications.
pub(crate) const RUNNER_FD: u64 = 4;

/// The system call that means "I have stopped": one that every outer filter allows.
pub(crate) const STOP: u64 = libc::SYS_getppid as u64;

/// What the stub writes as signal number when an order failed.
pub(crate) const REFUSED: u64 = 255;

/// One system call of a script and what to do with its result.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// The call.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The least good result.
    pub low: i64,
    /// The greatest good result.
    pub high: i64,
    /// Address of the step after a good result.
    pub next: u64,
    /// Address of the step after a result of zero.
    pub zero: u64,
    /// Address of the code to jump to after a bad result.
    pub failed: u64,
}

const _: () = assert!(size_of::<Step>() == 96);

/// What the stub adds to the signal frame. Written by code that the guest can forge.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    /// The signal, or [`REFUSED`].
    pub signal: u64,
    /// Address of the `ucontext`.
    pub context: u64,
    /// DS, ES, FS and GS.
    pub selectors: [u64; 4],
    /// FS base.
    pub fs_base: u64,
    /// GS base.
    pub gs_base: u64,
}

/// Whether `address` is one of the helper's own.
pub(crate) fn is_reserved(address: u64) -> bool {
    RESERVED.contains(&address)
}

/// Address of a step.
pub(crate) const fn step_address(index: usize) -> u64 {
    STEPS.start + index as u64 * STEP_BYTES
}
