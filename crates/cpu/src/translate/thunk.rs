//! The common ends of ways out of blocks: reload the scratch registers, say why, leave. One of each
//! kind for every choice of scratch registers, so that a way out is two instructions in the block.

use iced_x86::Register;

use super::Translator;
use super::emit::{Emitter, field};
use super::generate::SPILL;
use crate::context::{Reason, context_offset};

/// Host addresses of the ways out for one choice of scratch registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thunks {
    pub(super) unlinked: Thunk,
    pub(super) lookup: Thunk,
    pub(super) interpret: Thunk,
    pub(super) miss: Thunk,
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
    /// The ways out for `scratch`, made when first asked for. The caller has made room.
    pub(super) fn thunks(&mut self, scratch: Option<[Register; 3]>) -> Thunks {
        if let Some(&known) = self.thunks.get(&scratch) {
            return known;
        }
        let thunks = Thunks {
            unlinked: self.thunk(scratch, Reason::Unlinked),
            lookup: self.thunk(scratch, Reason::Lookup),
            interpret: self.thunk(scratch, Reason::Interpret),
            miss: self.thunk(scratch, Reason::Miss),
        };
        self.thunks.insert(scratch, thunks);
        thunks
    }

    fn thunk(&mut self, scratch: Option<[Register; 3]>, reason: Reason) -> Thunk {
        let mut out = Emitter::new(self.cache.next());
        let with_rcx = out.here();
        if let Some([_, _, s2]) = scratch {
            out.copy(Register::RCX, s2);
        }
        let plain = out.here();
        for (slot, register) in scratch.into_iter().flatten().enumerate() {
            out.load(register, field(SPILL + 8 * slot as i32));
        }
        out.set_field32(context_offset!(reason), reason as u32);
        out.jump_field(context_offset!(leave));
        self.cache.append(out.bytes());
        Thunk { plain, with_rcx }
    }
}
