//! Call-outs: how the interpreter has the host's processor execute one instruction that needs no privilege.
//!
//! A call-out is the instruction with its memory operand, if it has one, replaced by the bounce buffer,
//! followed by a jump to the trampoline's way out. Call-outs are kept by the bytes of the instruction.

use iced_x86::{Encoder, Instruction};
use rustc_hash::FxHashMap;

use crate::config::Error;
use crate::context::{Context, Reason, context_offset};
use crate::translate::cache::{CodeCache, Part};
use crate::translate::emit::Emitter;
use crate::translate::host_code::HostCode;

/// Identifies a call-out: the instruction as re-encoded, zero padded, and its length.
type Key = ([u8; 24], u8);

/// Longest call-out.
const MAX_CALL_OUT_BYTES: usize = 64;

/// Bytes of address space for one processor's call-outs.
const CALL_OUT_BYTES: usize = 1 << 20;

/// Call-outs by instruction. They are few, and each processor has its own.
pub(crate) struct CallOuts {
    cache: CodeCache,
    known: FxHashMap<Key, HostCode>,
}

impl CallOuts {
    /// No call-outs yet, in a place that `context` is told.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::new`].
    pub(crate) fn new(context: &mut Context) -> Result<Self, Error> {
        let cache = CodeCache::new(CALL_OUT_BYTES, 0)?;
        context.call_outs_start = cache.start();
        context.call_outs_end = cache.end();
        Ok(Self { cache, known: FxHashMap::default() })
    }

    /// The host address of the call-out for an instruction without memory operands but in the context; none if it
    /// cannot be encoded.
    pub(super) fn target(&mut self, instruction: &Instruction) -> Option<HostCode> {
        let mut encoder = Encoder::new(64);
        let length = encoder.encode(instruction, 0).ok()?;
        let mut key: Key = ([0; 24], length as u8);
        key.0[..length].copy_from_slice(&encoder.take_buffer());
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        if !self.cache.has_room(MAX_CALL_OUT_BYTES) {
            self.cache.clear();
            self.known.clear();
        }
        let mut emitter = Emitter::new(self.cache.next(Part::Bodies));
        emitter.raw(&key.0[..length]);
        emitter.set_field32(context_offset!(reason), Reason::Done as u32);
        emitter.jump_field(context_offset!(leave));
        let target = self.cache.append(Part::Bodies, emitter.bytes());
        crate::translate::views::serialize();
        self.known.insert(key, target);
        Some(target)
    }
}
