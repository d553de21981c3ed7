//! Stubs: innocuous instructions as host code.
//!
//! A stub is the instruction with its memory operand, if it has one, replaced by the bounce buffer,
//! followed by a jump to the trampoline's way out. Stubs are kept by the bytes of the instruction.

use iced_x86::{Encoder, Instruction};
use rustc_hash::FxHashMap;

use crate::config::Error;
use crate::context::{Context, Reason, context_offset};
use crate::translate::cache::{CodeCache, Part};
use crate::translate::emit::Emitter;

/// Identifies a stub: the instruction as re-encoded, zero padded, and its length.
type Key = ([u8; 24], u8);

/// Longest stub.
const MAX_STUB_BYTES: usize = 64;

/// Bytes of address space for one processor's stubs.
const STUB_BYTES: usize = 1 << 20;

/// Stubs by instruction. They are few, and each processor has its own.
pub(crate) struct Stubs {
    cache: CodeCache,
    known: FxHashMap<Key, u64>,
}

impl Stubs {
    /// No stubs yet, in a place that `context` is told.
    ///
    /// # Errors
    ///
    /// As [`CodeCache::new`].
    pub(crate) fn new(context: &mut Context) -> Result<Self, Error> {
        let cache = CodeCache::new(STUB_BYTES, 0)?;
        context.stubs_start = cache.start();
        context.stubs_end = cache.end();
        Ok(Self { cache, known: FxHashMap::default() })
    }

    /// The host address of the stub for an instruction without memory operands but in the context; none if it
    /// cannot be encoded.
    pub(super) fn target(&mut self, instruction: &Instruction) -> Option<u64> {
        let mut encoder = Encoder::new(64);
        let length = encoder.encode(instruction, 0).ok()?;
        let mut key: Key = ([0; 24], length as u8);
        key.0[..length].copy_from_slice(&encoder.take_buffer());
        if let Some(&known) = self.known.get(&key) {
            return Some(known);
        }
        if !self.cache.has_room(MAX_STUB_BYTES) {
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
