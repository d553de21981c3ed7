//! The common ends of ways out of blocks: reload the scratch registers, say why, leave. One of each
//! kind for every choice of scratch registers, so that a way out is two instructions in the block.

use iced_x86::{Code, Instruction, Register};

use super::Translator;
use super::emit::{Emitter, at, field, in_set, scaled};
use super::generate::{CANONICAL, SPILL};
use crate::context::{Reason, context_offset, register_offset};
use crate::memory::tlb::{Entries, JumpEntry};

/// What a thunk depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ThunkKey {
    /// The block's scratch registers.
    pub(super) scratch: Option<[Register; 3]>,
    /// GS is at the mirror.
    pub(super) kernel: bool,
}

/// Host addresses of the ways out for one choice of scratch registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thunks {
    pub(super) unlinked: Thunk,
    pub(super) lookup: Thunk,
    pub(super) interpret: Thunk,
    pub(super) miss: Thunk,
    /// Look at the second line of the jump cache for the address in s0, with the guest's RCX in s2.
    pub(super) second: u64,
}

/// One way out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thunk {
    /// For when RCX has its guest value.
    pub(super) plain: u64,
    /// For when the guest's RCX is in s2.
    pub(super) with_rcx: u64,
}

impl Translator {
    /// The ways out for `key`, made when first asked for. The caller has made room.
    pub(super) fn thunks(&mut self, key: ThunkKey) -> Thunks {
        if let Some(&known) = self.thunks.get(&key) {
            return known;
        }
        let scratch = key.scratch;
        let lookup = self.thunk(scratch, Reason::Lookup);
        let thunks = Thunks {
            unlinked: self.thunk(scratch, Reason::Unlinked),
            lookup,
            interpret: self.thunk(scratch, Reason::Interpret),
            miss: self.thunk(scratch, Reason::Miss),
            second: scratch.map_or(0, |scratch| self.second(scratch, key.kernel, lookup)),
        };
        self.thunks.insert(key, thunks);
        thunks
    }

    /// Load x87 and vector state and go on at `jump_target`. It is in the code cache, so that the
    /// signal handler takes it for translated code that comes to a gate soon.
    pub(super) fn load_vectors(&mut self) -> u64 {
        if let Some(known) = self.load_vectors {
            return known;
        }
        let mut out = Emitter::new(self.cache.next());
        let start = out.here();
        let kept =
            [(Register::RAX, context_offset!(temporary)), (Register::RDX, context_offset!(count))];
        for (register, place) in kept {
            out.store(field(place), register);
        }
        out.load32(Register::EAX, field(context_offset!(xsave_mask)));
        out.load32(Register::EDX, field(context_offset!(xsave_mask) + 4));
        let load = Instruction::with1(Code::Xrstor64_mem, field(context_offset!(xsave)));
        out.instruction(&load.expect("operands fit the code"));
        out.set_field8(context_offset!(vectors_absent), 0);
        for (register, place) in kept {
            out.load(register, field(place));
        }
        out.jump_field(context_offset!(jump_target));
        self.append_own("load_vectors", out.bytes());
        self.load_vectors = Some(start);
        start
    }

    fn thunk(&mut self, scratch: Option<[Register; 3]>, reason: Reason) -> Thunk {
        let mut out = Emitter::new(self.cache.next());
        let with_rcx = out.here();
        if let Some([_, _, s2]) = scratch {
            out.copy(Register::RCX, s2);
        }
        let plain = out.here();
        reload(&mut out, scratch.into_iter().flatten());
        out.set_field32(context_offset!(reason), reason as u32);
        out.jump_field(context_offset!(leave));
        self.append_own(reason.way_out(), out.bytes());
        Thunk { plain, with_rcx }
    }

    /// The second look at the jump cache.
    fn second(&mut self, scratch: [Register; 3], kernel: bool, lookup: Thunk) -> u64 {
        let [s0, s1, s2] = scratch;
        let mut out = Emitter::new(self.cache.next());
        let start = out.here();
        out.store(field(register_offset!(rip)), s0);
        out.rotate(s1, s0, 7);
        out.lea(s1, scaled(s1, s0, 2, 0));
        out.extract(s1, s1, context_offset!(jump_index_mask));
        out.deposit(s1, s1, context_offset!(jump_line_mask));
        if kernel {
            out.load(Register::RCX, field(context_offset!(set)));
            out.lea(s1, at(s1, Register::RCX, 0));
        }
        let line = |offset: usize| {
            let offset = (std::mem::offset_of!(Entries, jumps) + offset) as i32;
            if kernel { at(s1, Register::None, offset) } else { in_set(s1, Register::None, offset) }
        };
        out.load(Register::RCX, line(std::mem::offset_of!(JumpEntry, negative_tag)));
        out.lea(Register::RCX, at(Register::RCX, s0, 0));
        let miss = out.jump_unless_rcx_zero();
        if !kernel {
            out.load(Register::RCX, line(std::mem::offset_of!(JumpEntry, page)));
            out.store(field(context_offset!(code_page)), Register::RCX);
        }
        out.copy(Register::RCX, s2);
        out.set_field8(context_offset!(resume_pending), 0);
        if scratch == CANONICAL {
            let target = line(std::mem::offset_of!(JumpEntry, canonical));
            let jump = Instruction::with1(Code::Jmp_rm64, target);
            out.instruction(&jump.expect("operands fit the code"));
        } else {
            out.load(s1, line(std::mem::offset_of!(JumpEntry, target)));
            out.store(field(context_offset!(jump_target)), s1);
            reload(&mut out, scratch);
            out.jump_field(context_offset!(jump_target));
        }
        out.patch(miss, lookup.with_rcx);
        self.append_own("second_look", out.bytes());
        start
    }
}

/// Give scratch registers their guest values back.
fn reload(out: &mut Emitter, scratch: impl IntoIterator<Item = Register>) {
    for (slot, register) in scratch.into_iter().enumerate() {
        out.load(register, field(SPILL + 8 * slot as i32));
    }
}
