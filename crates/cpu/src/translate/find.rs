//! Finding the block for the next instruction; if there is none, translating it and entering it into the
//! jump caches.

use std::sync::Arc;

use super::Translator;
use super::block::Block;
use super::generate::Makings;
use super::host_code::HostCode;
use super::key::Key;
use super::planned::Run;
use crate::exception::{Exception, Trap};
use crate::memory::paging::{Accessor, Translation, walk};
use crate::memory::tlb::jump_address;
use crate::memory::{Access, Linear, PAGE_SIZE, Physical};
use crate::techniques::{Technique, Techniques};
use crate::time::time_stamp;
use crate::vcpu::Vcpu;

/// Room that must be free before a block is translated.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// The most slots of one block.
const MAX_UNCHAININGS: usize = 64;

/// Times that a block is tried to be translated before its first instruction is interpreted.
const MAX_ATTEMPTS: usize = 8;

impl Vcpu {
    /// The host address of the block for RIP, translated if need be and entered into the jump
    /// cache; `None` if the next instruction has been interpreted instead, or is to run directly. `from` is the slot
    /// that leads to it, if it is one: of a plain block, which the jump cache does not have, it may be.
    ///
    /// # Errors
    ///
    /// The fault of the instruction fetch.
    pub(crate) fn find_block(&mut self, from: Option<u32>) -> Result<Option<HostCode>, Trap> {
        let plain = from.is_some_and(|slot| self.arch.group.translator().slot_is_plain(slot));
        let linear = self.arch.code_linear(self.arch.context.regs.rip)?;
        self.arch.note_users();
        let mode = self.arch.translation_mode();
        let jump_mode = mode.of_jumps(self.jump_mode);
        let jump_address = jump_address(linear, mode.guest.is_64_bit());
        let tlb = self.arch.current_tlb();
        self.heed_dropped_jumps();
        if jump_mode != self.jump_mode {
            self.jump_mode = jump_mode;
            self.forget_blocks();
        } else if !plain && let Some(known) = self.arch.tlb.space_tlb(tlb).jump_to(jump_address) {
            return Ok(Some(HostCode(known)));
        }
        let found = self.translate_fetch(linear)?;
        let Some((physical, global)) = found else { return Ok(None) };
        if self.begins_directly(physical) {
            return Ok(None);
        }
        let may_relocate = self.arch.group.techniques.has(Technique::Relocation);
        let key = Key::new(physical, linear, mode, plain, may_relocate);
        // Another processor may write the page each time it was protected: that has an end.
        for _ in 0..MAX_ATTEMPTS {
            if let Some(target) = self.known_block(key, tlb, global)? {
                return Ok(Some(target));
            }
            let began = time_stamp();
            let translated = self.translate(key, from, tlb, global)?;
            // This is done once: it tells nothing of what the code will need (user/choice.rs).
            self.left_at = self.left_at.wrapping_add(time_stamp().wrapping_sub(began));
            if let Some(target) = translated {
                return Ok(Some(target));
            }
        }
        self.arch.step()?;
        Ok(None)
    }

    /// The block for `key` if it has been translated, entered into the jump cache.
    fn known_block(
        &mut self,
        key: Key,
        tlb: usize,
        global: bool,
    ) -> Result<Option<HostCode>, Trap> {
        let group = Arc::clone(&self.arch.group);
        let mut translator = group.translator();
        let Some(&number) = translator.known.get(&key) else { return Ok(None) };
        if !self.second_page_matches(&translator.blocks[number as usize])? {
            translator.kill(number, &group.peers);
            return Ok(None);
        }
        Ok(Some(self.enter_in_caches(&mut translator, number, tlb, global)))
    }

    /// The techniques that blocks are written by. What another processor changes of a paravirtual kernel's pages is not
    /// told, so that nothing would unlink what leads there (cross_page.rs).
    fn techniques_of_links(&self) -> Techniques {
        let techniques = self.arch.group.techniques;
        let is_told = self.arch.paravirtual.is_none() || self.arch.config.processors == 1;
        if is_told { techniques } else { techniques.without(Technique::CrossPageLinks) }
    }

    /// Enter a block for RIP into the jump caches; the address of its cold entry.
    fn enter_in_caches(
        &mut self,
        translator: &mut Translator,
        number: u32,
        tlb: usize,
        global: bool,
    ) -> HostCode {
        let linear = Linear(self.arch.context.regs.rip);
        let key = translator.blocks[number as usize].key;
        translator.note_linear(key, linear);
        let block = &translator.blocks[number as usize];
        if key.plain || self.is_traced() || self.arch.debugging.is_suspect(linear.0) {
            return block.cold;
        }
        let space_tlb = self.arch.tlb.space_tlb(tlb);
        space_tlb.insert_jump(key.jump_address(linear), block.cold.0, block.canonical.0, global);
        if key.is_relocatable() && key.is_64_bit() && block.second.is_none() {
            let physical = key.physical;
            self.arch.tlb.space_tlb(tlb).insert_fetch(linear, physical);
            if self.arch.group.techniques.has(Technique::PhysicalJumps) {
                self.arch.tlb.physical_jumps.insert(physical, block.cold.0, block.canonical.0);
            }
        }
        block.cold
    }

    /// Where an instruction is fetched from; `None` after interpreting code in device memory.
    fn translate_fetch(&mut self, linear: Linear) -> Result<Option<(Physical, bool)>, Trap> {
        let found = self.walk_for_fetch(linear)?;
        if self.arch.ram.host(found.physical).is_none() {
            // Fetching from a device is refused by the interpreter, with the right exception.
            self.arch.step()?;
            return Ok(None);
        }
        Ok(Some((found.physical, found.global)))
    }

    fn second_page_matches(&self, block: &Block) -> Result<bool, Trap> {
        let Some(second) = block.second else { return Ok(true) };
        let linear = Linear(self.arch.context.regs.rip).page();
        let next = Linear(linear.0.wrapping_add(PAGE_SIZE));
        Ok(self.walk_for_fetch(next)?.physical == second)
    }

    pub(crate) fn walk_for_fetch(&self, at: Linear) -> Result<Translation, Exception> {
        let regs = &self.arch.context.regs;
        let by = Accessor { user: regs.mode().is_user(), smap_override: false };
        let mut found = walk(&self.arch.ram, regs, at, Access::Execute, by)?;
        self.arch.note_source(at, found.table, by.user);
        found.global |= !by.user && self.arch.is_common(at);
        Ok(found)
    }

    /// Translate the block at `key` and enter it into the jump cache; `None` if something
    /// had to be done first (protecting the page, dropping the cache), which has been done.
    fn translate(
        &mut self,
        key: Key,
        from: Option<u32>,
        tlb: usize,
        global: bool,
    ) -> Result<Option<HostCode>, Trap> {
        let group = Arc::clone(&self.arch.group);
        let mut run = self.decode_run(key)?;
        let pages = [Some(key.physical.page()), run.second];
        let pages = || pages.into_iter().flatten();
        if let Some(page) = pages().find(|&page| !group.is_protected(page)) {
            // A vCPU may have changed the bytes that were read before this.
            self.protect(page);
            return Ok(None);
        }
        let mut translator = group.translator();
        if !translator.cache.has_room(MAX_BLOCK_BYTES) || !group.unchainer.has_room(MAX_UNCHAININGS)
        {
            drop(translator);
            self.drop_blocks();
            return Ok(None);
        }
        // Under the lock: no other vCPU drops translations of these pages, or has done so and written,
        // since the bytes were read.
        if !pages().all(|page| group.is_protected(page)) || !self.still_reads(key, &run) {
            return Ok(None);
        }
        let id = translator.inspect(key, &mut run);
        let makings = Makings {
            techniques: self.techniques_of_links(),
            unchainer: &group.unchainer,
            star: self.arch.context.regs.star,
            before: from.and_then(|slot| translator.chosen_before(slot)),
        };
        let number = translator.generate(key, &run, &makings);
        let linear = Linear(self.arch.context.regs.rip);
        if let Some(id) = id {
            translator.tell_of_block(number, id, linear, &run);
        }
        self.arch.statistics.blocks += 1;
        self.arch.statistics.block_instructions += run.instructions.len() as u64;
        translator.known.insert(key, number);
        for page in pages() {
            let entry = translator.pages.entry(page).or_default();
            entry.blocks.push(number);
            entry.near_writes = 0;
        }
        Ok(Some(self.enter_in_caches(&mut translator, number, tlb, global)))
    }

    /// Whether guest memory still holds the bytes of `run`.
    fn still_reads(&self, key: Key, run: &Run) -> bool {
        let length = usize::from(run.length()).min(run.bytes.len());
        let first = length.min((PAGE_SIZE - key.physical.offset()) as usize);
        let reads = |at: Physical, bytes: &[u8]| {
            let Some(host) = self.arch.ram.host(at) else { return bytes.is_empty() };
            // SAFETY: RAM for the length of the piece, which does not leave its page; the guest
            // may race with us, and the bytes are plain data.
            bytes
                .iter()
                .enumerate()
                .all(|(offset, &byte)| unsafe { host.wrapping_add(offset).read_volatile() == byte })
        };
        reads(key.physical, &run.bytes[..first])
            && run.second.is_none_or(|second| reads(second, &run.bytes[first..length]))
    }

    /// Chain again the slots that the signal handler has unchained. Direct jumps that it has unchained count as not
    /// linked.
    pub(crate) fn restore_unchained(&mut self) {
        for &at in self.arch.context.take_unchained() {
            // SAFETY: the handler has noted a slot of the code cache; nothing has dropped it since,
            // because this processor was busy (group.rs).
            unsafe { self.arch.group.unchainer.rechain(at) };
        }
    }

    /// Put the registers back to the start of the guest instruction whose host code contains
    /// `host`; false if there is none.
    pub(crate) fn restore_at(&mut self, host: HostCode) -> bool {
        let translator = self.arch.group.translator();
        let Some(number) = translator.block_at(host) else { return false };
        let block = &translator.blocks[number as usize];
        let range = block.marks.start as usize..block.marks.end as usize;
        let offset = (host - translator.cache.start()) as u32;
        let marks = &translator.marks[range];
        let after = marks.partition_point(|mark| mark.host <= offset);
        let Some(mark) = after.checked_sub(1).and_then(|index| marks.get(index)) else {
            return false;
        };
        let regs = &mut self.arch.context.regs;
        regs.rip = block.linear_of(*mark, Linear(self.arch.context.code_page)).0;
        for (slot, register) in block.scratch.into_iter().flatten().enumerate() {
            regs.gpr[register.number()] = self.arch.context.spill[slot];
        }
        true
    }
}
