//! Writing a block's host code.
//!
//! A block looks like this (scratch registers s0, s1, s2):
//!
//! ```text
//! warm:  ...                              ; entry from a block with the same scratch registers
//!        guest instructions, look-ups as in memory/tlb.rs
//!        jcc warm entry of a target       ; slot, at first to an exit stub
//! exit:  jmp warm entry of the target      ; likewise
//!        landings (returns.rs), second ways (crossing.rs)
//!
//! exit stubs, in their own part of the code cache (cache.rs):
//! cold:  mov fs:[spill], s0 ...           ; entry from anywhere
//!        jmp warm
//! canonical: ...                          ; entry with the canonical ones spilled (scratch.rs)
//! of each slot, for targets with others:
//!        convert to the canonical ones
//!        jmp canonical entry              ; slot, at first to the next line
//!        way out to Rust
//! code for misses and other rare cases
//! ```

use iced_x86::{Instruction, MemoryOperand, OpKind, Register};

use super::Translator;
use super::action::{Action, Assistance};
use super::block::{Block, Mark};
use super::builder::{Builder, Later};
use super::cache::Part;
use super::emit::{field, gpr32};
use super::host_code::HostCode;
use super::jump_slot::NONE;
use super::key::Key;
use super::planned::{Planned, Run};
use super::scratch::{self, CANONICAL, Chosen};
use super::unchain::Unchainer;
use super::way_out::ThunkKey;
use crate::context::context_offset;
use crate::memory::Linear;
use crate::techniques::Techniques;

/// The inputs of a block besides its run.
pub(super) struct Makings<'a> {
    pub(super) techniques: Techniques,
    /// Where the block's slots are noted for the signal handler.
    pub(super) unchainer: &'a Unchainer,
    /// IA32_STAR.
    pub(super) star: u64,
    /// The scratch registers of the block that leads to it, if it is to take them over.
    pub(super) before: Option<Chosen>,
}

impl Translator {
    /// Write the block for `run` into the code cache, which has room; its number.
    pub(super) fn generate(&mut self, key: Key, run: &Run, makings: &Makings<'_>) -> u32 {
        let techniques = makings.techniques;
        let Chosen { scratch, inherited } = scratch::choose(run, makings.before);
        let thunks = [false, true].map(|kernel| self.thunks(ThunkKey { scratch, kernel }));
        let canonical = ThunkKey { scratch: Some(CANONICAL), kernel: false };
        let canonical = self.thunks(canonical);
        let bare = self.thunks(ThunkKey { scratch: None, kernel: false });
        let load_vectors = self.load_vectors();
        let [start, exit_stubs] = [Part::Bodies, Part::ExitStubs].map(|part| self.cache.next(part));
        let cache_start = self.cache.start();
        self.emitter.restart(start);
        self.exit_stubs.restart(exit_stubs);
        let mut builder = Builder {
            out: &mut self.emitter,
            exit_stubs: &mut self.exit_stubs,
            key,
            techniques,
            block: self.blocks.len() as u32,
            scratch,
            thunks,
            bare,
            canonical,
            load_vectors,
            later: Vec::new(),
            unchainings: Vec::new(),
            slots: Vec::new(),
            first_slot: self.slots.len() as u32,
            marks: Vec::new(),
            left: Vec::new(),
            instructions: Vec::new(),
            onwards: Vec::new(),
            sheltered: Vec::new(),
            first_mark: self.marks.len() as u32,
            cache_start,
            star: makings.star,
            kernel: key.mode.native && key.mode.guest.is_kernel(),
            user_open: key.mode.user_open,
            native: false,
            coalesced: None,
            crosses: false,
        };
        let (warm, live) = builder.build(run);
        let [cold, canonical] = builder.entries(warm);
        let Builder { unchainings, slots, marks, left, sheltered, instructions, onwards, .. } =
            builder;
        let Builder { scratch, block, first_mark, .. } = builder;
        if run.second.is_none() {
            self.left.extend(left);
        }
        self.add_assisted(instructions, onwards);
        self.sheltered.extend(sheltered);
        self.slots.extend_from_slice(&slots);
        self.marks.extend_from_slice(&marks);
        self.cache.append(Part::Bodies, self.emitter.bytes());
        self.cache.append(Part::ExitStubs, self.exit_stubs.bytes());
        let end = self.emitter.here();
        makings.unchainer.add(start, end, &unchainings);
        self.places.push((start - cache_start) as u32);
        self.exit_stub_places.push((exit_stubs - cache_start) as u32);
        self.blocks.push(Block {
            key,
            second: run.second,
            length: run.length(),
            start,
            end,
            exit_stubs,
            cold,
            warm,
            canonical,
            live,
            scratch,
            inherited,
            interpreted: run.interpreted.is_some(),
            marks: first_mark..first_mark + marks.len() as u32,
            incoming: NONE,
            alive: true,
        });
        block
    }
}

impl Builder<'_> {
    /// Emit the whole block; its warm entry, and the entry for when x87 and vector state is loaded.
    fn build(&mut self, run: &Run) -> (HostCode, Option<HostCode>) {
        let warm = self.out.here();
        let live = run.vectors.then(|| self.require_vectors());
        let mut open = true;
        for planned in &run.instructions {
            let bytes = &run.bytes[planned.delta as usize..][..planned.instruction.len()];
            open = self.instruction(planned, bytes);
            if !open {
                break;
            }
        }
        if open && let Some(last) = run.instructions.last() {
            self.leave_to(self.next(&last.instruction));
        }
        self.write_later();
        (warm, live)
    }

    /// Load x87 and vector state unless that was done (native/trampoline.rs); the address after.
    fn require_vectors(&mut self) -> HostCode {
        let [_, _, s2] = self.s();
        self.out.copy(s2, Register::RCX);
        self.out.load_byte(Register::RCX, field(context_offset!(vectors_absent)));
        let absent = self.out.jump_unless_rcx_zero();
        self.out.copy(Register::RCX, s2);
        let live = self.out.here();
        self.postpone(Later::Vectors { at: absent, live });
        live
    }

    /// The entry from anywhere, and that for when the canonical scratch registers are spilled.
    fn entries(&mut self, warm: HostCode) -> [HostCode; 2] {
        let own = self.scratch;
        self.in_exit_stubs(|builder| {
            let cold = if own.is_some() { builder.out.here() } else { warm };
            if let Some(own) = own {
                scratch::spill(builder.out, own);
                builder.out.jump(warm);
            }
            if own == Some(CANONICAL) {
                return [cold, warm];
            }
            let canonical = builder.out.here();
            match own {
                Some(own) => scratch::convert(builder.out, CANONICAL, own),
                None => scratch::reload(builder.out, CANONICAL),
            }
            builder.out.jump(warm);
            [cold, canonical]
        })
    }

    /// Remember that a guest instruction starts here.
    fn mark(&mut self, planned: &Planned) -> u32 {
        let host = (self.out.here() - self.cache_start) as u32;
        self.marks.push(Mark { host, block: self.block, guest: planned.delta });
        let mark = self.first_mark + self.marks.len() as u32 - 1;
        if planned.sheltered {
            self.sheltered.push(mark);
        }
        mark
    }

    /// One guest instruction; whether the block goes on after it.
    fn instruction(&mut self, planned: &Planned, bytes: &[u8]) -> bool {
        let instruction = &planned.instruction;
        let (mark, word) = (self.mark(planned), self.word());
        self.native = planned.native;
        self.coalesced = planned.coalesced;
        self.crosses = planned.crosses;
        match planned.action {
            Action::Copy if self.key.is_64_bit() => self.out.raw(bytes),
            Action::Copy => {
                if !self.out.try_instruction(instruction) {
                    self.interpret(mark);
                    return false;
                }
            }
            Action::Skip => {}
            Action::Address(register, value) => self.address(register, value),
            Action::Memory(usage) => {
                if !self.on_memory(instruction, usage, mark) {
                    self.interpret(mark);
                    return false;
                }
            }
            Action::Push(register) => self.push(mark, |builder, place| {
                builder.out.store_sized(place, register, word);
            }),
            Action::PushMemory => {
                let [s0, _, s2] = self.s();
                let place = self.reach_operand(instruction, word as usize, false, mark);
                self.out.load_sized(s0, place, word);
                self.out.store(field(context_offset!(temporary)), s0);
                self.push(mark, |builder, place| {
                    builder.out.load(s2, field(context_offset!(temporary)));
                    builder.out.store_sized(place, s2, word);
                });
            }
            Action::PushConstant(value) => self.push(mark, |builder, place| {
                builder.store_word(place, value as u64);
            }),
            Action::Pop(register) => {
                self.pop(register, mark);
                if register != Register::RSP {
                    self.adjust_stack(word as i32);
                }
            }
            Action::Leave => {
                let [s0, ..] = self.s();
                let place = self.reach(self.beside(Register::RBP, 0), word as usize, false, mark);
                self.out.load_sized(s0, place, word);
                self.point(Register::RSP, self.beside(Register::RBP, word as i32));
                self.out.copy(Register::RBP, s0);
            }
            Action::StoreSelector(selector) => {
                let [_, _, s2] = self.s();
                let place = self.reach_operand(instruction, 2, true, mark);
                self.out.load_word(s2, field(selector));
                self.out.store_word(place, s2);
            }
            Action::StoreTable(limit, base) => {
                let [_, _, s2] = self.s();
                let place = self.reach_operand(instruction, 2 + word as usize, true, mark);
                self.out.load_word(s2, field(limit));
                self.out.store_word(place, s2);
                self.out.load(s2, field(base));
                let rest = MemoryOperand { displacement: 2, displ_size: 1, ..place };
                self.out.store_sized(rest, s2, word);
            }
            Action::Repeat(repeated) => self.repeat(repeated, mark),
            Action::MoveOne(single) => self.move_one(single, mark),
            Action::ExtendedState => return self.extended_state(instruction, mark),
            Action::Assist(kind) => {
                self.assist(kind, &planned.guest, mark);
                return kind != Assistance::Anew;
            }
            Action::Inline(kind) => self.inline(kind, mark),
            Action::Branch(condition, target) => {
                let at = self.out.jump_if(condition);
                self.postpone(Later::Taken { at, target });
            }
            _ => {
                self.last(planned, mark);
                return false;
            }
        }
        true
    }

    /// The instructions that end a block.
    fn last(&mut self, planned: &Planned, mark: u32) {
        let instruction = &planned.instruction;
        match planned.action {
            Action::Jump(target) => self.leave_to(target),
            Action::Call(target) => {
                let back = self.next(instruction);
                self.push(mark, |builder, place| builder.store_address(place, back));
                self.note_return(back);
                self.leave_to(target);
            }
            Action::JumpIndirect => {
                self.load_target(instruction, mark);
                self.leave_computed(mark);
            }
            Action::CallIndirect => {
                let [s0, ..] = self.s();
                let back = self.next(instruction);
                self.load_target(instruction, mark);
                self.out.store(field(context_offset!(jump_target)), s0);
                self.push(mark, |builder, place| builder.store_address(place, back));
                self.note_return(back);
                self.out.load(s0, field(context_offset!(jump_target)));
                self.leave_computed(mark);
            }
            Action::SystemCall => self.system_call(instruction),
            Action::SystemCallOfGuest => self.system_call_of_guest(instruction, mark),
            Action::Hypercall => self.hypercall(instruction, mark),
            Action::SystemReturn => self.system_return(mark),
            Action::InterruptReturn => self.interrupt_return(mark),
            Action::ReturnInKernel => {
                self.left.push((mark, *instruction));
                self.return_in_kernel(mark);
            }
            Action::Return(extra) => {
                let [s0, ..] = self.s();
                self.pop(s0, mark);
                self.adjust_stack(self.word() as i32 + i32::from(extra));
                self.leave_returned(mark);
            }
            _ => {
                if !instruction.is_invalid() {
                    self.left.push((mark, planned.guest));
                }
                self.interpret(mark);
            }
        }
    }

    /// Look up the word below the stack pointer, fill it, and move the stack pointer.
    fn push(&mut self, mark: u32, fill: impl FnOnce(&mut Self, MemoryOperand)) {
        let word = self.word();
        let place = self.reach(self.on_stack(-(word as i32)), word as usize, true, mark);
        fill(self, place);
        self.adjust_stack(-(word as i32));
    }

    /// Load the word at the stack pointer, which stays.
    fn pop(&mut self, register: Register, mark: u32) {
        let word = self.word();
        let place = self.reach(self.on_stack(0), word as usize, false, mark);
        self.out.load_sized(register, place, word);
    }

    /// The address after an instruction, from the page's if the block is relocatable.
    fn next(&self, instruction: &Instruction) -> Linear {
        self.key.mode.guest.linear(Linear(instruction.next_ip()))
    }

    /// The target of an indirect jump or call into s0.
    fn load_target(&mut self, instruction: &Instruction, mark: u32) {
        let [s0, ..] = self.s();
        let (register, word) = (instruction.op0_register(), self.word());
        if instruction.op0_kind() != OpKind::Register {
            let place = self.reach_operand(instruction, word as usize, false, mark);
            self.out.load_sized(s0, place, word);
        } else if self.key.is_64_bit() {
            self.out.copy(s0, register);
        } else {
            self.out.copy32(gpr32(s0), register);
        }
    }

    fn write_later(&mut self) {
        // All of them come from before the last instruction, which may have changed GS.
        self.kernel = self.key.mode.native && self.key.mode.guest.is_kernel();
        for (later, user_open) in std::mem::take(&mut self.later) {
            self.user_open = user_open;
            match later {
                Later::Taken { at, target } => self.leave_from(at, target),
                Later::Miss { at, mark } => self.exit_stub(at, |builder| {
                    builder.way_out(builder.thunks().miss.with_rcx, mark);
                }),
                Later::Second(second) => self.second_way(*second),
                Later::Plain { at, mark } => {
                    self.exit_stub(at, |builder| builder.leave_to_plain(mark));
                }
                Later::Vectors { at, live } => self.exit_stub(at, |builder| {
                    let [s0, _, s2] = builder.s();
                    builder.out.copy(Register::RCX, s2);
                    builder.out.constant(s0, live.0);
                    builder.out.store(field(context_offset!(jump_target)), s0);
                    builder.out.jump(builder.load_vectors);
                }),
                Later::Delicate { at, mark } => self.exit_stub(at, |builder| {
                    builder.way_out(builder.thunks().interpret.with_rcx, mark);
                }),
                Later::Assist { at, mark } => self.exit_stub(at, |builder| {
                    builder.way_out(builder.thunks().assist.with_rcx, mark);
                }),
                Later::Computed { at, slot, mark } => self.exit_stub(at, |builder| {
                    builder.way_out(builder.thunks().second, mark);
                    builder.finish_nop_slot(slot);
                    builder.way_out(builder.thunks().lookup.plain, mark);
                }),
                Later::Landing { at, back } => {
                    let jump = self.jump_somewhere();
                    self.out.patch(at, jump - 1);
                    self.link_canonical(jump, back);
                }
            }
        }
    }
}
