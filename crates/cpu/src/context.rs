//! What translated code can reach through its FS base: the guest's registers and everything that
//! blocks, stubs and the trampoline share with Rust.

use std::sync::atomic::AtomicU32;

use crate::memory::tlb::{JumpEntry, LINES};
use crate::state::{Registers, rflags};

/// Bytes reserved for the XSAVE image: x87, SSE, AVX and AVX-512 in the standard format need 2,696.
pub const XSAVE_BYTES: usize = 4096;

/// Room for one memory operand (at most 108 bytes, `fnsave`) at any alignment.
const BOUNCE_BYTES: usize = 192;

/// Extended state components that Bivouac can carry: x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM
/// (SDM 1 13.1).
pub(crate) const CARRIED_COMPONENTS: u64 = 0xe7;

/// The standard-format XSAVE image of the guest's x87 and vector state (SDM 1 13.4).
#[derive(Clone)]
#[repr(C, align(64))]
pub struct XsaveArea(pub [u8; XSAVE_BYTES]);

impl XsaveArea {
    /// State after RESET: FCW 0x37f, MXCSR 0x1f80, everything else zero.
    pub(crate) fn initial() -> Self {
        let mut area = Self([0; XSAVE_BYTES]);
        area.0[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        area.0[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        area
    }
}

/// Why translated code came back to Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// A native stub has run to its end.
    Done = 0,
    /// A signal arrived in translated code or in a stub; see [`Fault`].
    Fault = 1,
    /// An access missed the TLB; `detail` is the site.
    Miss = 2,
    /// A direct jump is not linked yet; `detail` is the gate.
    Unlinked = 3,
    /// The jump cache had no entry for RIP.
    Lookup = 4,
    /// The next instruction is for the interpreter.
    Interpret = 5,
    /// The processor was kicked before translated code was entered, or at a block's end.
    Kicked = 6,
}

impl Reason {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Done => "stub",
            Reason::Fault => "host fault",
            Reason::Miss => "TLB miss",
            Reason::Unlinked => "unlinked jump",
            Reason::Lookup => "jump cache miss",
            Reason::Interpret => "to be interpreted",
            Reason::Kicked => "kicked",
        }
    }
}

/// A host fault in translated code, as the signal frame reports it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Fault {
    /// Host RIP.
    pub(crate) rip: u64,
    /// Trap number (the exception vector).
    pub(crate) trap: u64,
    /// Error code.
    pub(crate) error: u64,
    /// Faulting host address.
    pub(crate) address: u64,
}

/// The block of memory at translated code's FS base.
#[repr(C, align(64))]
pub(crate) struct Context {
    /// The guest's registers.
    pub(crate) regs: Registers,
    /// The bits of RFLAGS that the host's register carries, valid outside translated code.
    pub(crate) native_flags: u64,
    /// Guest values of the scratch registers of the current block.
    pub(crate) spill: [u64; 4],
    /// Where an indirect jump goes once the scratch registers are reloaded.
    pub(crate) jump_target: u64,
    /// Why translated code came back.
    pub(crate) reason: u32,
    /// More about it.
    pub(crate) detail: u32,
    /// `pext` mask that selects the TLB index.
    pub(crate) page_index_mask: u64,
    /// `pext` mask that selects the page number.
    pub(crate) page_number_mask: u64,
    /// `pext` mask that selects the line of the jump cache.
    pub(crate) jump_index_mask: u64,
    /// `pdep` mask that turns the line's number into its byte offset.
    pub(crate) jump_line_mask: u64,
    /// The active TLB set.
    pub(crate) set: u64,
    /// The sets for CPL 0 with AC clear and with AC set.
    pub(crate) kernel_set: u64,
    pub(crate) access_set: u64,
    /// The set for CPL 3.
    pub(crate) user_set: u64,
    /// Masks of RFLAGS: what the host's register holds, the rest without IF and AC, IF, AC, and
    /// what only the interpreter may change.
    pub(crate) native_mask: u64,
    pub(crate) system_mask: u64,
    pub(crate) interrupt_mask: u64,
    pub(crate) alignment_mask: u64,
    pub(crate) delicate_mask: u64,
    /// Flags kept in [`Registers`] that survive a system call, and bits 63:47 of an address.
    pub(crate) after_system_call: u64,
    pub(crate) upper_mask: u64,
    /// The end of [`Self::stack`].
    pub(crate) stack_top: u64,
    /// `pext` mask of the bits of a count that no run in one page can have, and a place for the
    /// offset meanwhile.
    pub(crate) count_mask: u64,
    pub(crate) count: u64,
    /// `pext` masks that round a distance down to words of four and eight bytes.
    pub(crate) word4_mask: u64,
    pub(crate) word8_mask: u64,
    /// Free for use within one instruction's translation.
    pub(crate) temporary: u64,
    /// The machine waits for interrupts to be enabled, 0 or 1.
    pub(crate) window_wanted: u8,
    /// A stack for moving the flags.
    pub(crate) stack: [u64; 8],
    /// This structure.
    pub(crate) itself: u64,
    /// Address of the trampoline's way out.
    pub(crate) leave: u64,
    /// The host's stack pointer, FS and GS base and MXCSR while translated code runs.
    pub(crate) host_rsp: u64,
    pub(crate) host_fs: u64,
    pub(crate) host_gs: u64,
    pub(crate) host_mxcsr: u64,
    /// Component mask for XSAVE and XRSTOR.
    pub(crate) xsave_mask: u64,
    /// The kick request flag.
    pub(crate) kick: *const AtomicU32,
    /// The last host fault.
    pub(crate) fault: Fault,
    /// First and last+1 address of the code cache.
    pub(crate) cache_start: u64,
    pub(crate) cache_end: u64,
    /// What the signal handler needs to stop translated code; owned by the translator.
    pub(crate) stopper: u64,
    /// A memory operand that cannot be used in place.
    pub(crate) bounce: Bounce,
    /// x87 and vector state.
    pub(crate) xsave: XsaveArea,
}

/// The bounce buffer, aligned so that any operand alignment can be imitated.
#[repr(C, align(64))]
pub(crate) struct Bounce(pub(crate) [u8; BOUNCE_BYTES]);

impl Context {
    /// A context in the state after RESET.
    pub(crate) fn new(xsave_mask: u64, leave: u64, kick: *const AtomicU32) -> Box<Self> {
        let mut context = Box::new(Self {
            regs: Registers::reset(),
            native_flags: 2,
            spill: [0; 4],
            jump_target: 0,
            reason: 0,
            detail: 0,
            page_index_mask: 0x00ff_f000,
            page_number_mask: !0xfff,
            jump_index_mask: LINES as u64 - 1,
            jump_line_mask: (LINES as u64 - 1) * size_of::<JumpEntry>() as u64,
            set: 0,
            kernel_set: 0,
            access_set: 0,
            user_set: 0,
            native_mask: rflags::NATIVE,
            system_mask: rflags::DEFINED & !(rflags::NATIVE | rflags::IF | rflags::AC)
                | rflags::FIXED,
            interrupt_mask: rflags::IF,
            alignment_mask: rflags::AC,
            delicate_mask: crate::translate::inline::DELICATE_FLAGS,
            after_system_call: 0,
            upper_mask: !0 << 47,
            stack_top: 0,
            count_mask: !0x1fff,
            count: 0,
            word4_mask: !3,
            word8_mask: !7,
            temporary: 0,
            window_wanted: 0,
            stack: [0; 8],
            itself: 0,
            leave,
            host_rsp: 0,
            host_fs: 0,
            host_gs: 0,
            host_mxcsr: 0x1f80,
            xsave_mask,
            kick,
            fault: Fault::default(),
            cache_start: 0,
            cache_end: 0,
            stopper: 0,
            bounce: Bounce([0; BOUNCE_BYTES]),
            xsave: XsaveArea::initial(),
        });
        context.stack_top = context.stack.as_ptr_range().end as u64;
        context.itself = std::ptr::from_mut(&mut *context) as u64;
        context
    }
}

/// Offset of a field of the registers.
macro_rules! register_offset {
    ($($field:tt)+) => {
        (std::mem::offset_of!($crate::context::Context, regs)
            + std::mem::offset_of!($crate::state::Registers, $($field)+)) as i32
    };
}
pub(crate) use register_offset;

/// Offset of a field of the context.
macro_rules! context_offset {
    ($($field:tt)+) => { std::mem::offset_of!($crate::context::Context, $($field)+) as i32 };
}
pub(crate) use context_offset;
