//! Writing a block's host code.
//!
//! A block looks like this (scratch registers s0, s1, s2):
//!
//! ```text
//! warm:  ...                              ; entry from a block with the same scratch registers
//!        guest instructions, look-ups as in memory/tlb.rs
//!        jcc warm entry of a target       ; gate, at first to an exit stub
//! exit:  jmp warm entry of the target      ; likewise
//!        landings (returns.rs), second ways (crossing.rs)
//!
//! exit stubs, in their own part of the code cache (cache.rs):
//! cold:  mov fs:[spill], s0 ...           ; entry from anywhere
//!        jmp warm
//! canonical: ...                          ; entry with the canonical ones spilled (scratch.rs)
//! of each gate, for targets with others:
//!        convert to the canonical ones
//!        jmp canonical entry              ; gate, at first to the next line
//!        way out to Rust
//! what misses and other rare cases do
//! ```

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

use super::assist::Assistance;
use super::cache::Part;
use super::crossing::Second;
use super::decode::{Planned, Run};
use super::emit::{at, field};
use super::plan::Action;
use super::scratch::{self, CANONICAL, Scratch};
use super::spans::SpanUse;
use super::stopper::Closing;
use super::thunk::{ThunkKey, Thunks};
use super::{Block, Emitter, Gate, Key, Mark, NONE, Translator};
use crate::context::context_offset;
use crate::memory::{Linear, PAGE_SIZE};
use crate::state::{Registers, Segment};
use crate::techniques::{Technique, Techniques};
use crate::vcpu::Vcpu;

/// Longest instruction; a jump target closer to the end of its page may straddle it.
const MAX_INSTRUCTION: u64 = 15;

/// What is to be written after the straight line.
pub(super) enum Later {
    /// The taken side of a conditional jump: displacement to patch, target.
    Taken { at: u64, target: u64 },
    /// A look-up missed: displacement to patch, mark.
    Miss { at: u64, mark: u32 },
    /// The operand may cross a page.
    Second(Box<Second>),
    /// The look-up of a span missed: displacement to patch, mark.
    Plain { at: u64, mark: u32 },
    /// x87 and vector state is not loaded: displacement to patch, where to go on.
    Vectors { at: u64, live: u64 },
    /// An instruction turned out to need the interpreter: displacement to patch, mark.
    Delicate { at: u64, mark: u32 },
    /// Or help (assist.rs): likewise.
    Assist { at: u64, mark: u32 },
    /// The jump cache lacks a computed address, or its use is closed: displacement to patch, gate,
    /// mark.
    Computed { at: u64, gate: (u64, usize), mark: u32 },
    /// Where a return goes on: displacement to patch, address.
    Landing { at: u64, back: u64 },
}

/// A block under construction.
pub(super) struct Builder<'a> {
    pub(super) out: &'a mut Emitter,
    /// What [`Self::in_exit_stubs`] writes.
    pub(super) exit_stubs: &'a mut Emitter,
    pub(super) key: Key,
    pub(super) techniques: Techniques,
    pub(super) block: u32,
    pub(super) scratch: Option<Scratch>,
    /// Ways out with the scratch registers spilled (with GS at the TLB set, and at the mirror), and
    /// with none.
    pub(super) thunks: [Thunks; 2],
    pub(super) bare: Thunks,
    /// And with the canonical ones.
    pub(super) canonical: Thunks,
    /// The thunk that loads x87 and vector state.
    load_vectors: u64,
    /// What is to be written later, with [`Self::user_open`] there.
    later: Vec<(Later, bool)>,
    pub(super) closings: Vec<Closing>,
    pub(super) gates: Vec<Gate>,
    pub(super) first_gate: u32,
    pub(super) marks: Vec<Mark>,
    pub(super) first_mark: u32,
    /// Instructions that are left to the interpreter, by mark.
    left: Vec<(u32, Instruction)>,
    /// Those that it is helped with, and where the block goes on after them, by mark.
    pub(super) instructions: Vec<(u32, Instruction)>,
    pub(super) onwards: Vec<(u32, u32)>,
    /// Marks of instructions after an `sti`.
    sheltered: Vec<u32>,
    pub(super) cache_start: u64,
    /// IA32_STAR.
    pub(super) star: u64,
    /// GS is at the mirror (memory/mirror.rs), not at the TLB set.
    pub(super) kernel: bool,
    /// [`super::Mode::user_open`] after the instructions so far.
    pub(super) user_open: bool,
    /// The instruction at hand accesses memory through the mirror.
    pub(super) native: bool,
    /// The span that it is part of.
    pub(super) span: Option<SpanUse>,
    /// It has a second way for an operand that crosses a page.
    pub(super) crosses: bool,
}

impl Vcpu {
    /// Write the block for `run` into the code cache, which has room; its number.
    pub(super) fn generate(&self, translator: &mut Translator, key: Key, run: &Run) -> u32 {
        let techniques = self.arch.package.techniques;
        let scratch = scratch::choose(run);
        let thunks = [false, true].map(|kernel| translator.thunks(ThunkKey { scratch, kernel }));
        let canonical = ThunkKey { scratch: Some(CANONICAL), kernel: false };
        let canonical = translator.thunks(canonical);
        let bare = translator.thunks(ThunkKey { scratch: None, kernel: false });
        let load_vectors = translator.load_vectors();
        let [start, exit_stubs] =
            [Part::Bodies, Part::ExitStubs].map(|part| translator.cache.next(part));
        let cache_start = translator.cache.start();
        translator.emitter.restart(start);
        translator.exit_stubs.restart(exit_stubs);
        let mut builder = Builder {
            out: &mut translator.emitter,
            exit_stubs: &mut translator.exit_stubs,
            key,
            techniques,
            block: translator.blocks.len() as u32,
            scratch,
            thunks,
            bare,
            canonical,
            load_vectors,
            later: Vec::new(),
            closings: Vec::new(),
            gates: Vec::new(),
            first_gate: translator.gates.len() as u32,
            marks: Vec::new(),
            left: Vec::new(),
            instructions: Vec::new(),
            onwards: Vec::new(),
            sheltered: Vec::new(),
            first_mark: translator.marks.len() as u32,
            cache_start,
            star: self.arch.context.regs.star,
            kernel: key.mode.native && key.mode.guest.is_kernel(),
            user_open: key.mode.user_open,
            native: false,
            span: None,
            crosses: false,
        };
        let (warm, live) = builder.build(run);
        let [cold, canonical] = builder.entries(warm);
        let Builder { closings, gates, marks, left, sheltered, instructions, onwards, .. } =
            builder;
        let Builder { scratch, block, first_mark, .. } = builder;
        if run.second.is_none() {
            translator.left.extend(left);
        }
        translator.add_assisted(instructions, onwards);
        translator.sheltered.extend(sheltered);
        translator.gates.extend_from_slice(&gates);
        translator.marks.extend_from_slice(&marks);
        translator.cache.append(Part::Bodies, translator.emitter.bytes());
        translator.cache.append(Part::ExitStubs, translator.exit_stubs.bytes());
        let end = translator.emitter.here();
        self.arch.package.stopper.add(start, end, &closings);
        translator.places.push((start - cache_start) as u32);
        translator.stub_places.push((exit_stubs - cache_start) as u32);
        translator.blocks.push(Block {
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
            held: run.held.is_some(),
            marks: first_mark..first_mark + marks.len() as u32,
            incoming: NONE,
            alive: true,
        });
        block
    }
}

/// Whether a direct link may lead to `target`: same page, and no instruction there can straddle.
pub(super) fn is_linkable(key: Key, target: u64, techniques: Techniques) -> bool {
    let target = Linear(target);
    techniques.has(Technique::Links)
        && target.page() == Linear(key.linear).page()
        && target.offset() <= PAGE_SIZE - MAX_INSTRUCTION
        && key.physical & (PAGE_SIZE - 1) <= PAGE_SIZE - MAX_INSTRUCTION
}

/// Where a segment register's selector is.
pub(super) fn selector_offset(number: usize) -> i32 {
    (std::mem::offset_of!(crate::context::Context, regs)
        + std::mem::offset_of!(Registers, segments)
        + number * size_of::<Segment>()
        + std::mem::offset_of!(Segment, selector)) as i32
}

impl Builder<'_> {
    /// Count one more in a field of the context; `register` is lost, flags are not.
    pub(super) fn count(&mut self, offset: i32, register: Register) {
        self.out.load(register, field(offset));
        self.out.lea(register, at(register, Register::None, 1));
        self.out.store(field(offset), register);
    }

    /// Write everything; the warm entry, and the one that finds x87 and vector state loaded.
    fn build(&mut self, run: &Run) -> (u64, Option<u64>) {
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
            self.leave_to(last.instruction.next_ip());
        }
        self.write_later();
        (warm, live)
    }

    /// Load x87 and vector state unless that was done (native/trampoline.rs); the address after.
    fn require_vectors(&mut self) -> u64 {
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
    fn entries(&mut self, warm: u64) -> [u64; 2] {
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

    /// Whether other blocks are entered with scratch registers spilled.
    pub(super) fn hands_over(&self) -> bool {
        self.techniques.has(Technique::Handover)
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
        let mark = self.mark(planned);
        self.native = planned.native;
        self.span = planned.span;
        self.crosses = planned.crosses;
        match planned.action {
            Action::Copy => self.out.raw(bytes),
            Action::Skip => {}
            Action::Address(register, value) => self.address(register, value),
            Action::Memory(usage) => {
                if !self.on_memory(instruction, usage, mark) {
                    self.interpret(mark);
                    return false;
                }
            }
            Action::Push(register) => self.push(mark, |builder, place| {
                builder.out.store(place, register);
            }),
            Action::PushMemory => {
                let [s0, _, s2] = self.s();
                let place = self.reach_operand(instruction, 8, mark);
                self.out.load(s0, place);
                self.out.store(field(context_offset!(temporary)), s0);
                self.push(mark, |builder, place| {
                    builder.out.load(s2, field(context_offset!(temporary)));
                    builder.out.store(place, s2);
                });
            }
            Action::PushConstant(value) => self.push(mark, |builder, place| {
                builder.store_constant(place, value as u64);
            }),
            Action::Pop(register) => {
                let place = self.reach(stack(0), 8, false, mark);
                self.out.load(register, place);
                if register != Register::RSP {
                    self.adjust_stack(8);
                }
            }
            Action::Leave => {
                let [s0, ..] = self.s();
                let place = self.reach(at(Register::RBP, Register::None, 0), 8, false, mark);
                self.out.load(s0, place);
                self.out.lea(Register::RSP, at(Register::RBP, Register::None, 8));
                self.out.copy(Register::RBP, s0);
            }
            Action::StoreSelector(selector) => {
                let [_, _, s2] = self.s();
                self.operand_address(instruction);
                let place = self.reach_in_s0(2, true, mark);
                self.out.load_word(s2, field(selector));
                self.out.store_word(place, s2);
            }
            Action::Repeat(repeated) => self.repeat(repeated, mark),
            Action::MoveOne(single) => self.move_one(single, mark),
            Action::ExtendedState => return self.extended_state(instruction, mark),
            Action::Assist(kind) => {
                self.assist(kind, instruction, mark);
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
                let back = instruction.next_ip();
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
                let back = instruction.next_ip();
                self.load_target(instruction, mark);
                self.out.store(field(context_offset!(jump_target)), s0);
                self.push(mark, |builder, place| builder.store_address(place, back));
                self.note_return(back);
                self.out.load(s0, field(context_offset!(jump_target)));
                self.leave_computed(mark);
            }
            Action::SystemCall => self.system_call(instruction),
            Action::SystemReturn => self.system_return(mark),
            Action::InterruptReturn => self.interrupt_return(mark),
            Action::Return(extra) => {
                let [s0, ..] = self.s();
                let place = self.reach(stack(0), 8, false, mark);
                self.out.load(s0, place);
                self.adjust_stack(8 + i32::from(extra));
                self.leave_returned(mark);
            }
            _ => {
                if !instruction.is_invalid() {
                    self.left.push((mark, *instruction));
                }
                self.interpret(mark);
            }
        }
    }

    pub(super) fn s(&self) -> Scratch {
        self.scratch.expect("actions with look-ups get scratch registers")
    }

    /// `rsp += bytes`, flags untouched.
    pub(super) fn adjust_stack(&mut self, bytes: i32) {
        self.out.lea(Register::RSP, stack(bytes));
    }

    /// Look up the slot below the stack pointer, fill it, and move the stack pointer.
    fn push(&mut self, mark: u32, fill: impl FnOnce(&mut Self, MemoryOperand)) {
        let place = self.reach(stack(-8), 8, true, mark);
        fill(self, place);
        self.adjust_stack(-8);
    }

    /// Store a 64-bit constant; uses s2.
    fn store_constant(&mut self, place: MemoryOperand, value: u64) {
        if i64::from(value as i32) == value as i64 {
            let built = Instruction::with2(Code::Mov_rm64_imm32, place, value as i32);
            self.out.instruction(&built.expect("operands fit the code"));
        } else {
            let [_, _, s2] = self.s();
            self.out.constant(s2, value);
            self.out.store(place, s2);
        }
    }

    /// Store a linear address; uses s2.
    pub(super) fn store_address(&mut self, place: MemoryOperand, value: u64) {
        if !self.key.is_relocatable() {
            return self.store_constant(place, value);
        }
        let [_, _, s2] = self.s();
        self.address(s2, value);
        self.out.store(place, s2);
    }

    /// Put a linear address into a register: that of the block's page is added, if it has none.
    pub(super) fn address(&mut self, register: Register, value: u64) {
        /// As far as one `lea` reaches; a displacement from an instruction reaches a little farther.
        const REACH: i64 = i32::MAX as i64;
        if !self.key.is_relocatable() {
            return self.out.constant(register, value);
        }
        self.out.load(register, field(context_offset!(code_page)));
        let mut left = value as i64;
        while left != 0 {
            let step = left.clamp(-REACH, REACH);
            self.out.lea(register, at(register, Register::None, step as i32));
            left -= step;
        }
    }

    /// The target of an indirect jump or call into s0.
    fn load_target(&mut self, instruction: &Instruction, mark: u32) {
        let [s0, ..] = self.s();
        if instruction.op0_kind() == OpKind::Register {
            self.out.copy(s0, instruction.op0_register());
        } else {
            let place = self.reach_operand(instruction, 8, mark);
            self.out.load(s0, place);
        }
    }

    /// Have something written after the straight line.
    pub(super) fn postpone(&mut self, later: Later) {
        self.later.push((later, self.user_open));
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
                    builder.out.constant(s0, live);
                    builder.out.store(field(context_offset!(jump_target)), s0);
                    builder.out.jump(builder.load_vectors);
                }),
                Later::Delicate { at, mark } => self.exit_stub(at, |builder| {
                    builder.way_out(builder.thunks().interpret.with_rcx, mark);
                }),
                Later::Assist { at, mark } => self.exit_stub(at, |builder| {
                    builder.way_out(builder.thunks().assist.with_rcx, mark);
                }),
                Later::Computed { at, gate, mark } => self.exit_stub(at, |builder| {
                    builder.way_out(builder.thunks().second, mark);
                    builder.finish_gate(gate);
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

/// `[rsp + displacement]`.
pub(super) fn stack(displacement: i32) -> MemoryOperand {
    at(Register::RSP, Register::None, displacement)
}
