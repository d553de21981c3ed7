//! `movs` and `stos` inside translated code, with `rep` and without.
//!
//! The host's own `rep` does the work on host addresses, a *piece* at a time: as many elements as lie
//! in one page of the source and in one of the destination, both of which the TLB has. Any split is
//! allowed (SDM 2B "REP": interruptible after every element), and between two pieces the registers
//! are what the guest would see.
//!
//! A kernel's own memory needs neither look-up nor split: an address with bit 63 set is reached
//! through the mirror (memory/mirror.rs), where neighbours stay neighbours. So a kernel's copies from
//! and to its user, of which one side is its own, are split for the user's pages alone.
//!
//! ```text
//! piece:  what is left, and a bound so that a kick is seen soon
//!         for each pointer: distance from guest to host address; piece = min(piece, to the page's end)
//!         rdi += distance ...; rcx = piece; rep movs; rdi -= distance ...; rcx = what is left
//!         again if there is any, unless the vCPU has been kicked
//! ```
//!
//! Only within `rep` itself do RDI, RSI and RCX have other values than the guest's. Where the mirror
//! lacks a page the fault is there; [`Architectural::leave_piece`] puts them right.
//!
//! What no piece can be made of (an element that crosses pages, a device, a fault) is for
//! Rust (assist.rs). Without `rep` there is one element, which is looked up and moved like any other operand.
//! Translated code never runs with the direction flag set: `may_translate` refuses to enter a block with
//! it, and every instruction that can set it leaves the block.

use iced_x86::{CodeSize, Instruction, OpKind, Register};

use super::action::Repeated;
use super::builder::{Builder, Later};
use super::emit::{at, field};
use super::host_code::HostCode;
use crate::architectural::Architectural;
use crate::context::context_offset;
use crate::instruction::{StringOperation, string_operation};
use crate::memory::place::BASE;
use crate::memory::tlb::Entries;

/// Elements in one piece at most.
const MAX_PIECE: u64 = 1 << 16;

/// The translation of a repeated string instruction, if it has one.
pub(crate) fn repeated(instruction: &Instruction) -> Option<Repeated> {
    elements(instruction).filter(|_| instruction.has_rep_prefix())
}

/// The same of one that is not repeated.
pub(crate) fn single(instruction: &Instruction) -> Option<Repeated> {
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    elements(instruction).filter(|_| !repeats)
}

fn elements(instruction: &Instruction) -> Option<Repeated> {
    let (operation, size) = string_operation(instruction.code())?;
    let copies = match operation {
        StringOperation::Move => true,
        StringOperation::Store => false,
        _ => return None,
    };
    let size = size as u32;
    let is_64_bit = instruction.code_size() == CodeSize::Code64;
    // Addresses have the size that they have by default.
    let usual = (0..instruction.op_count()).all(|operand| match instruction.op_kind(operand) {
        OpKind::MemoryESEDI | OpKind::MemorySegESI => !is_64_bit,
        OpKind::MemoryESDI | OpKind::MemorySegSI => false,
        _ => true,
    });
    let plain_segment = !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    (usual && !instruction.has_lock_prefix() && plain_segment).then_some(Repeated { size, copies })
}

/// Distances from guest to host addresses.
const TO_DESTINATION: i32 = context_offset!(distances);
const TO_SOURCE: i32 = TO_DESTINATION + 8;
/// Elements of the piece, and after it.
const PIECE: i32 = context_offset!(piece);
const LEFT: i32 = context_offset!(left);

impl Builder<'_> {
    /// Write the translation.
    pub(super) fn repeat(&mut self, repeated: Repeated, mark: u32) {
        let [s0, s1, s2] = self.s();
        let Repeated { size, copies } = repeated;
        // Nothing to do and nothing to check when RCX is zero.
        self.zero_extend(Register::RCX);
        let nothing = self.out.jump_if_rcx_zero();
        let again = self.out.here();
        self.zero_extend(Register::RDI);
        if copies {
            self.zero_extend(Register::RSI);
        }
        self.out.copy(s2, Register::RCX);
        // Counts are compared as signed numbers below.
        self.out.extract(Register::RCX, s2, context_offset!(count_mask));
        self.miss_unless_rcx_zero(mark);
        self.out.store(field(PIECE), s2);
        self.out.constant(Register::RCX, MAX_PIECE);
        self.shorten_piece();
        self.prepare(Register::RDI, TO_DESTINATION, size, true, mark);
        if copies {
            self.prepare(Register::RSI, TO_SOURCE, size, false, mark);
        }
        self.out.load(Register::RCX, field(PIECE));
        self.out.copy(s0, Register::RCX);
        self.out.negate_into_sum(s2, s0);
        self.out.store(field(LEFT), s2);
        self.out.load(s0, field(TO_DESTINATION));
        self.out.lea(Register::RDI, at(Register::RDI, s0, 0));
        if copies {
            self.out.load(s1, field(TO_SOURCE));
            self.out.lea(Register::RSI, at(Register::RSI, s1, 0));
        }
        self.out.raw(host_form(repeated));
        self.out.negate_into_sum(Register::RDI, s0);
        if copies {
            self.out.negate_into_sum(Register::RSI, s1);
        }
        self.out.copy(Register::RCX, s2);
        let done = self.out.jump_if_rcx_zero();
        self.out.load(s0, field(context_offset!(kick)));
        self.out.load32(Register::ECX, at(s0, Register::None, 0));
        self.miss_unless_rcx_zero(mark);
        self.out.copy(Register::RCX, s2);
        self.out.jump(again);
        let here = self.out.here();
        self.out.patch(nothing, here);
        self.out.patch(done, here);
    }

    /// Write the translation of one that is not repeated.
    pub(super) fn move_one(&mut self, Repeated { size, copies }: Repeated, mark: u32) {
        let [s0, _, s2] = self.s();
        let width = size as usize;
        if copies {
            let source = self.reach(self.beside(Register::RSI, 0), width, false, mark);
            self.out.load_sized(s0, source, size);
            self.out.store(field(context_offset!(temporary)), s0);
        }
        let destination = self.reach(self.beside(Register::RDI, 0), width, true, mark);
        if copies {
            self.out.load(s2, field(context_offset!(temporary)));
        }
        self.out.store_sized(destination, if copies { s2 } else { Register::RAX }, size);
        if copies {
            self.point(Register::RSI, self.beside(Register::RSI, size as i32));
        }
        self.point(Register::RDI, self.beside(Register::RDI, size as i32));
    }

    /// Find the distance to the host address of what `pointer` points at, and shorten the piece to
    /// what follows there.
    fn prepare(&mut self, pointer: Register, distance: i32, size: u32, write: bool, mark: u32) {
        if !self.native {
            return self.prepare_page(pointer, distance, size, write, mark);
        }
        let [s0, s1, _] = self.s();
        self.out.constant(s1, 63);
        self.out.shift_right_arithmetic(Register::RCX, pointer, s1);
        self.out.complement(Register::RCX);
        let user = self.out.jump_unless_rcx_zero();
        self.out.constant(s0, BASE);
        self.out.store(field(distance), s0);
        let here = self.out.here();
        let done = self.out.jump(here);
        let here = self.out.here();
        self.out.patch(user, here);
        self.prepare_page(pointer, distance, size, write, mark);
        let here = self.out.here();
        self.out.patch(done, here);
    }

    /// The same for what the TLB must have.
    fn prepare_page(
        &mut self,
        pointer: Register,
        distance: i32,
        size: u32,
        write: bool,
        mark: u32,
    ) {
        let [s0, s1, _] = self.s();
        let tags = if write {
            std::mem::offset_of!(Entries, write)
        } else {
            std::mem::offset_of!(Entries, read)
        } as i32;
        self.out.extract(s1, pointer, context_offset!(page_index_mask));
        let tag = self.indexed(Register::RCX, s1, tags);
        self.out.load(Register::RCX, tag);
        self.out.lea(s0, at(pointer, Register::RCX, 0));
        let host = self.indexed(Register::RCX, s1, std::mem::offset_of!(Entries, host) as i32);
        self.out.load(s1, host);
        self.out.lea(Register::RCX, at(s0, Register::None, size as i32 - 1));
        self.out.extract(Register::RCX, Register::RCX, context_offset!(page_number_mask));
        self.miss_unless_rcx_zero(mark);
        self.out.lea(s1, at(s1, s0, 0));
        self.out.copy(Register::RCX, pointer);
        self.out.negate_into_sum(s1, Register::RCX);
        self.out.store(field(distance), s1);
        // 4096 - offset, in elements.
        self.out.complement(s0);
        self.out.lea(Register::RCX, at(s0, Register::None, 4097));
        if size > 1 {
            self.out.constant(s1, u64::from(size.trailing_zeros()));
            self.out.shift_right_arithmetic(Register::RCX, Register::RCX, s1);
        }
        self.shorten_piece();
    }

    /// The piece is at most RCX elements, which is lost, as are s0 and s1.
    fn shorten_piece(&mut self) {
        let [s0, s1, _] = self.s();
        self.out.load(s0, field(PIECE));
        self.out.copy(s1, Register::RCX);
        self.out.negate_into_sum(s0, s1);
        // RCX + min(piece - RCX, 0): all bits of a negative difference count, none of another's.
        self.out.constant(s1, 63);
        self.out.shift_right_arithmetic(s1, s0, s1);
        self.out.extract_by(s0, s0, s1);
        self.out.lea(s0, at(s0, Register::RCX, 0));
        self.out.store(field(PIECE), s0);
    }

    /// The access misses unless RCX, whose guest value is in s2, is zero.
    fn miss_unless_rcx_zero(&mut self, mark: u32) {
        let displacement = self.out.jump_unless_rcx_zero();
        self.postpone(Later::Miss { at: displacement, mark });
    }
}

/// The host's instruction.
fn host_form(repeated: Repeated) -> &'static [u8] {
    match (repeated.copies, repeated.size) {
        (true, 1) => &[0xf3, 0xa4],
        (true, 2) => &[0x66, 0xf3, 0xa5],
        (true, 4) => &[0xf3, 0xa5],
        (true, _) => &[0xf3, 0x48, 0xa5],
        (false, 1) => &[0xf3, 0xaa],
        (false, 2) => &[0x66, 0xf3, 0xab],
        (false, 4) => &[0xf3, 0xab],
        (false, _) => &[0xf3, 0x48, 0xab],
    }
}

/// The string instruction that host code is, which is one nowhere else.
fn of_host_form(code: [u8; 3]) -> Option<Repeated> {
    let sizes = [1, 2, 4, 8].into_iter();
    let mut all = sizes.flat_map(|size| [true, false].map(|copies| Repeated { size, copies }));
    all.find(|&repeated| code.starts_with(host_form(repeated)))
}

impl Architectural {
    /// A fault has left translated code at host address `rip`, the registers being restored. If that
    /// is a string instruction, give RDI, RSI and RCX the values that the guest sees: so much has
    /// been done, and the rest not. Whether it is one.
    pub(crate) fn leave_piece(&mut self, rip: HostCode) -> bool {
        let code = self.group.translator().cache.code_at(rip);
        let Some(Repeated { copies, .. }) = code.and_then(of_host_form) else { return false };
        let context = &mut *self.context;
        let gpr = &mut context.regs.gpr;
        gpr[7] = gpr[7].wrapping_sub(context.distances[0]);
        if copies {
            gpr[6] = gpr[6].wrapping_sub(context.distances[1]);
        }
        gpr[1] = gpr[1].wrapping_add(context.left);
        true
    }
}
