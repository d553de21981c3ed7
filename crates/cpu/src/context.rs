//! What translated code can reach through its FS base: the guest's registers and everything that
//! blocks, call-outs and the trampoline share with Rust.

use std::ffi::c_void;
use std::sync::atomic::AtomicU32;

use crate::cpuid_cache::CpuidCache;
use crate::memory::physical_jumps;
use crate::memory::tlb::{ENTRIES, FETCHES, INDEX_BITS, JumpEntry, LINES};
use crate::paravirtual::gateway::Gateway;
use crate::state::{Registers, rflags};
use crate::translate::host_code::HostCode;

/// Bytes reserved for the XSAVE image: x87, SSE, AVX and AVX-512 in the standard format need 2,696.
pub const XSAVE_BYTES: usize = 4096;

/// Room for one memory operand (at most 108 bytes, `fnsave`) at any alignment.
const BOUNCE_BYTES: usize = 192;

/// Coalesced ranges of one block.
pub(crate) const MAX_COALESCED_RANGES: usize = 6;

/// Bits of RFLAGS whose change needs the interpreter, or that keep translated code from running.
pub(crate) const DELICATE_FLAGS: u64 = rflags::TF
    | rflags::DF
    | rflags::IOPL
    | rflags::NT
    | rflags::RF
    | rflags::VM
    | rflags::AC
    | rflags::VIF
    | rflags::VIP
    | rflags::ID;

/// Slots that the signal handler can unchain before Rust must chain them again.
const MAX_UNCHAINED: usize = 64;

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

/// No mark: the processor went on to the next instruction.
pub(crate) const NOT_COMPUTED: u32 = u32::MAX;

/// Why translated code came back to Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// A native call-out has run to its end.
    Done = 0,
    /// A signal arrived in translated code or in a call-out; see [`Fault`].
    Fault = 1,
    /// An access missed the TLB; `detail` is the site.
    Miss = 2,
    /// A direct jump is not linked yet; `detail` is the slot.
    Unlinked = 3,
    /// The jump cache had no entry for RIP. Where that is not canonical, `detail` is the mark of the
    /// instruction that computed it, or [`NOT_COMPUTED`].
    Lookup = 4,
    /// The next instruction is for the interpreter.
    Interpret = 5,
    /// The processor was kicked before translated code was entered, or at a block's end.
    Kicked = 6,
    /// Rust is to carry out an instruction of a block that goes on after it (translate/assist.rs);
    /// `detail` is its mark.
    Assist = 7,
    /// A paravirtual kernel has made a hypercall other than `iret`; RIP is behind it.
    Call = 8,
}

impl Reason {
    /// The name of the code by which a block leaves for this reason.
    pub(crate) fn way_out(self) -> &'static str {
        match self {
            Reason::Unlinked => "leave_unlinked",
            Reason::Lookup => "leave_lookup",
            Reason::Interpret => "leave_interpret",
            Reason::Assist => "leave_assist",
            Reason::Miss => "leave_miss",
            Reason::Call => "leave_call",
            Reason::Done | Reason::Fault | Reason::Kicked => "leave",
        }
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Done => "call-out",
            Reason::Fault => "host fault",
            Reason::Miss => "TLB miss",
            Reason::Unlinked => "unlinked jump",
            Reason::Lookup => "jump cache miss",
            Reason::Interpret => "to be interpreted",
            Reason::Assist => "to be assisted",
            Reason::Call => "hypercall",
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

/// Where a call will return to (translate/returns.rs).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Landing {
    /// The guest's linear address.
    pub(crate) address: u64,
    /// Where translated code goes on there.
    pub(crate) target: u64,
}

/// The latest calls: as many as a byte that counts quarters of a [`Landing`] can tell apart.
pub(crate) type Ring = [Landing; 256 / (size_of::<Landing>() / 4)];

/// What second ways keep (translate/crossing.rs).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Crossing {
    /// `pext` mask of the number of a TLB entry.
    pub(crate) entry_mask: u64,
    /// `pext` mask of what tells whether an address of 32-bit code has wrapped.
    pub(crate) wrap_mask: u64,
    /// Host addresses of the two pages, or of the parts of the operand in them.
    pub(crate) hosts: [u64; 2],
    /// Bytes of the operand in either.
    pub(crate) parts: [u64; 2],
    /// Host address of the operand in the bounce buffer.
    pub(crate) from: u64,
    /// The guest's RCX.
    pub(crate) rcx: u64,
    /// RCX, RSI and RDI while the operand is copied out.
    pub(crate) kept: [u64; 3],
    /// Times that an access was split.
    pub(crate) count: u64,
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
    /// The same for fetch entries, and for the lines of the processor's blocks by physical address,
    /// which are at `physical_jumps`; which of the next finds there are for Rust, a bit for each.
    pub(crate) fetch_index_mask: u64,
    pub(crate) physical_index_mask: u64,
    pub(crate) physical_line_mask: u64,
    pub(crate) physical_jumps: u64,
    pub(crate) sample: u64,
    pub(crate) sample_mask: u64,
    /// The active `SpaceTlb`; translated code has it in GS, or uses this while GS is at the mirror.
    pub(crate) tlb: u64,
    /// GS base on the way into translated code.
    pub(crate) gs_base: u64,
    /// The TLBs for CPL 0 with AC clear and with AC set.
    pub(crate) kernel_tlb: u64,
    pub(crate) access_tlb: u64,
    /// The TLB for CPL 3.
    pub(crate) user_tlb: u64,
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
    /// `pext` mask of the bits that no sensible count of a string instruction has; host minus guest
    /// address of its destination and its source, elements in the piece at hand and after it
    /// (translate/string.rs).
    pub(crate) count_mask: u64,
    pub(crate) distances: [u64; 2],
    pub(crate) piece: u64,
    pub(crate) left: u64,
    /// `pext` masks that round a distance down to words of four and eight bytes.
    pub(crate) word4_mask: u64,
    pub(crate) word8_mask: u64,
    /// Host addresses of the current block's coalesced ranges.
    pub(crate) coalesced: [u64; MAX_COALESCED_RANGES],
    /// Free for use within one instruction's translation.
    pub(crate) temporary: u64,
    pub(crate) crossing: Crossing,
    /// What an `iretq`, or the hypercall in its place, has read: its frame, and two descriptors.
    pub(crate) frame: [u64; 7],
    /// `pext` masks of what `iretq` leaves to the interpreter, and of RF.
    pub(crate) return_mask: u64,
    pub(crate) resume_mask: u64,
    /// Something that only Rust changes asks for the interpreter at `iretq` (translate/interrupt.rs).
    pub(crate) return_obstacle: u8,
    /// RF, 0 or 1, of an `iretq` whose target has not been found yet.
    pub(crate) resume_pending: u8,
    /// The machine waits for interrupts to be enabled, 0 or 1.
    pub(crate) window_wanted: u8,
    /// Address of the page that user code is executed in (translate/mod.rs, invariant 6).
    pub(crate) code_page: u64,
    /// A return to user code is for the run loop, which may run it directly (user/mod.rs), 0 or 1.
    pub(crate) direct_wanted: u8,
    /// How a paravirtual kernel is entered and left.
    pub(crate) gateway: Gateway,
    /// Times that `syscall` was executed.
    pub(crate) system_calls: u64,
    /// A stack for moving the flags.
    pub(crate) stack: [u64; 8],
    /// This structure.
    pub(crate) itself: u64,
    /// Address of the trampoline's way out, and of the one for when it is not known where RIP leads, to which the
    /// canonical scratch registers come spilled.
    pub(crate) leave: u64,
    pub(crate) leave_unknown: u64,
    /// Where calls return to, and the numbers of the next.
    pub(crate) rings: [Ring; 3],
    pub(crate) ring_tops: [u8; 3],
    /// Whether the trampoline is to load the guest's x87 and vector state, and whether the host's
    /// registers hold something else (native/trampoline.rs), 0 or 1.
    pub(crate) vectors_wanted: u8,
    pub(crate) vectors_absent: u8,
    /// The host's stack pointer while translated code runs; its FS and GS base and MXCSR while the
    /// processor runs.
    pub(crate) host_rsp: u64,
    pub(crate) host_fs: u64,
    pub(crate) host_gs: u64,
    pub(crate) host_mxcsr: u64,
    /// Component mask for XSAVE and XRSTOR; and components that the host has switched on beyond it.
    pub(crate) xsave_mask: u64,
    pub(crate) foreign_mask: u64,
    /// What CPUID has answered, and how often from there (translate/cpuid.rs).
    pub(crate) cpuid_cache: CpuidCache,
    pub(crate) answered: u64,
    /// The kick request flag.
    pub(crate) kick: *const AtomicU32,
    /// The last host fault.
    pub(crate) fault: Fault,
    /// First and last+1 address of the code cache.
    pub(crate) cache_start: HostCode,
    pub(crate) cache_end: HostCode,
    /// The same for this processor's call-outs.
    pub(crate) call_outs_start: HostCode,
    pub(crate) call_outs_end: HostCode,
    /// The [`Unchainer`](crate::translate::unchain::Unchainer), with which the signal handler gets the
    /// vCPU out of chained blocks; the group keeps it.
    pub(crate) unchainer: *const c_void,
    /// Slots that the signal handler has unchained and that Rust must chain again.
    unchained: [HostCode; MAX_UNCHAINED],
    unchained_count: usize,
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
    pub(crate) fn new(xsave_mask: u64, kick: *const AtomicU32) -> Box<Self> {
        let mut context = Box::new(Self {
            regs: Registers::reset(),
            native_flags: 2,
            spill: [0; 4],
            jump_target: 0,
            reason: 0,
            detail: 0,
            page_index_mask: ((1 << INDEX_BITS) - 1) << 12,
            page_number_mask: !0xfff,
            jump_index_mask: LINES as u64 - 1,
            jump_line_mask: (LINES as u64 - 1) * size_of::<JumpEntry>() as u64,
            fetch_index_mask: (FETCHES as u64 - 1) << 12,
            physical_index_mask: physical_jumps::LINES as u64 - 1,
            physical_line_mask: (physical_jumps::LINES as u64 - 1)
                * size_of::<physical_jumps::Line>() as u64,
            physical_jumps: 0,
            sample: physical_jumps::SAMPLE,
            sample_mask: 1,
            tlb: 0,
            gs_base: 0,
            kernel_tlb: 0,
            access_tlb: 0,
            user_tlb: 0,
            native_mask: rflags::NATIVE,
            system_mask: rflags::DEFINED & !(rflags::NATIVE | rflags::IF | rflags::AC)
                | rflags::FIXED,
            interrupt_mask: rflags::IF,
            alignment_mask: rflags::AC,
            delicate_mask: DELICATE_FLAGS,
            after_system_call: 0,
            upper_mask: !0 << 47,
            stack_top: 0,
            count_mask: !0x7fff_ffff,
            distances: [0; 2],
            piece: 0,
            left: 0,
            word4_mask: !3,
            word8_mask: !7,
            coalesced: [0; MAX_COALESCED_RANGES],
            temporary: 0,
            crossing: Crossing {
                entry_mask: ENTRIES as u64 - 1,
                wrap_mask: 1 << 32,
                ..Crossing::default()
            },
            frame: [0; 7],
            return_mask: DELICATE_FLAGS & !(rflags::RF | rflags::AC),
            resume_mask: rflags::RF,
            return_obstacle: 0,
            resume_pending: 0,
            window_wanted: 0,
            code_page: 0,
            direct_wanted: 0,
            gateway: Gateway::default(),
            system_calls: 0,
            stack: [0; 8],
            itself: 0,
            leave: 0,
            leave_unknown: 0,
            rings: [[Landing::default(); _]; 3],
            ring_tops: [0; 3],
            vectors_wanted: 0,
            vectors_absent: 1,
            host_rsp: 0,
            host_fs: 0,
            host_gs: 0,
            host_mxcsr: 0x1f80,
            xsave_mask,
            foreign_mask: 0,
            cpuid_cache: CpuidCache::new(),
            answered: 0,
            kick,
            fault: Fault::default(),
            cache_start: HostCode::default(),
            cache_end: HostCode::default(),
            call_outs_start: HostCode::default(),
            call_outs_end: HostCode::default(),
            unchainer: std::ptr::null(),
            unchained: [HostCode::default(); MAX_UNCHAINED],
            unchained_count: 0,
            bounce: Bounce([0; BOUNCE_BYTES]),
            xsave: XsaveArea::initial(),
        });
        context.stack_top = context.stack.as_ptr_range().end as u64;
        context.itself = std::ptr::from_mut(&mut *context) as u64;
        context.forget_returns();
        context
    }
}

impl Context {
    /// Remember that the signal handler unchains the slot at `at`; false if it must not, because
    /// there are too many.
    pub(crate) fn note_unchained(&mut self, at: HostCode) -> bool {
        let Some(slot) = self.unchained.get_mut(self.unchained_count) else { return false };
        *slot = at;
        self.unchained_count += 1;
        true
    }

    /// Slots to be chained again; forgets them.
    pub(crate) fn take_unchained(&mut self) -> &[HostCode] {
        let count = std::mem::take(&mut self.unchained_count);
        &self.unchained[..count]
    }

    /// Whether host address `rip` is in translated code or in a call-out.
    pub(crate) fn runs_guest_at(&self, rip: HostCode) -> bool {
        (self.cache_start..self.cache_end).contains(&rip)
            || (self.call_outs_start..self.call_outs_end).contains(&rip)
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
