//! Many instructions at a time: random straight-line code with forward jumps, calls, loops, pushes
//! and pops, so that registers are allocated, flags kept and blocks linked, with faults in the
//! middle. What disagrees is reduced to as few instructions as possible.

use iced_x86::{
    Code, Decoder, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::case::{Case, Outcome};
use super::compare;
use super::conditions;
use super::engine::{self, Engine, Setting};
use super::form::{Freedom, Maker, decoder_options, encode};
use super::known;
use super::layout;
use super::native::Native;
use super::random::{Random, seed};

/// Batches, unless `BIVOUAC_INSTRUCTION_ROUNDS` says otherwise.
const ROUNDS: u64 = 6;
/// Registers that hold pointers and are never written: RBX, RBP, RDI, R12, R13.
const PINNED: u16 = 1 << 3 | 1 << 5 | 1 << 7 | 1 << 12 | 1 << 13;
/// Counts the rounds of loops: R15.
const COUNTER: Register = Register::R15;

/// One element of a block.
#[derive(Clone)]
enum Piece {
    Plain(Instruction),
    /// A conditional jump, by its condition, over so many pieces.
    Skip(u8, usize),
    /// `call` to the next instruction, and a `pop` of the return address into R11.
    Call,
    /// Push the address that follows, and return to it.
    Return,
    /// Back to the start, three times at most.
    Loop,
}

/// Forms that fit into a block.
fn fitting(setting: Setting) -> Vec<Code> {
    use Mnemonic as M;
    let fits = |code: &Code| {
        let info = code.op_code();
        let name = format!("{code:?}").to_lowercase();
        let control = code.is_jcc_short_or_near()
            || code.is_jmp_short_or_near()
            || code.is_loop()
            || code.is_loopcc()
            || code.is_jcx_short()
            || code.is_call_near()
            || code.is_call_near_indirect()
            || code.is_jmp_near_indirect();
        let odd = matches!(
            code.mnemonic(),
            M::Ret
                | M::Retf
                | M::Iret
                | M::Iretd
                | M::Iretq
                | M::Popf
                | M::Popfd
                | M::Popfq
                | M::Wrfsbase
                | M::Wrgsbase
                | M::Enter
                | M::Leave
                | M::Int3
                | M::Ud0
                | M::Ud1
                | M::Ud2
                | M::Fxrstor
                | M::Fxrstor64
                | M::Xrstor
                | M::Xrstor64
                | M::Maskmovq
                | M::Fnsave
                | M::Fnstenv
                | M::Fxsave
                | M::Fxsave64
                | M::Xsave
                | M::Xsave64
                | M::Xsavec
                | M::Xsavec64
                | M::Xsaveopt
                | M::Xsaveopt64
                | M::Maskmovdqu
                | M::Vmaskmovdqu
                | M::Hlt
                | M::Ldmxcsr
                | M::Vldmxcsr
                | M::Fldcw
                | M::Fldenv
                | M::Frstor
                | M::Std
        );
        let vector = info.can_use_op_mask_register() || name.contains("gather");
        info.is_instruction()
            && info.mode64()
            && !info.is_privileged()
            && !info.is_input_output()
            && !name.starts_with("mov_sreg")
            && !matches!(*code, Code::Popw_FS | Code::Popq_FS | Code::Popw_GS | Code::Popq_GS)
            && known::exempt(*code, setting).is_none()
            && !known::is_never_announced(*code)
            && !(control || odd || vector || name.contains("scatter") || name.contains("reserved"))
    };
    Code::values().filter(fits).collect()
}

struct Writer<'a> {
    random: &'a mut Random,
    codes: &'a [Code],
    factory: InstructionInfoFactory,
}

impl Writer<'_> {
    fn block(&mut self, case: &mut Case) -> Vec<Piece> {
        let length = 5 + self.random.below(12);
        (0..length).map(|_| self.piece(case)).collect()
    }

    fn piece(&mut self, case: &mut Case) -> Piece {
        match self.random.below(20) {
            0 | 1 => Piece::Skip(self.random.below(16) as u8, 1 + self.random.below(3) as usize),
            2 => Piece::Call,
            3 => Piece::Return,
            4 => Piece::Loop,
            _ => loop {
                let code = self.random.pick(self.codes);
                let code =
                    if self.random.one_in(2) { simple(self.random, self.codes) } else { code };
                let freedom = Freedom { bases: PINNED, values: false, crossing: false };
                let mut maker = Maker { random: self.random, case, freedom, target: 0 };
                let instruction = maker.make(code);
                if self.keeps_pinned(&instruction)
                    && encode(&instruction, 64, 0x2000_0000).is_some()
                {
                    break Piece::Plain(instruction);
                }
            },
        }
    }

    /// Whether pointers and the counter survive; RSP may only be pushed and popped.
    fn keeps_pinned(&mut self, instruction: &Instruction) -> bool {
        let stack = instruction.is_stack_instruction();
        self.factory.info(instruction).used_registers().iter().all(|used| {
            let register = used.register().full_register();
            let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let pinned = register.is_gpr64() && PINNED >> register.number() & 1 != 0;
            let special = register == COUNTER || register == Register::RSP && !stack;
            reads || !(pinned || special)
        }) && instruction.op0_kind() != OpKind::FarBranch32
    }
}

/// The instructions that programs consist of.
fn simple(random: &mut Random, codes: &[Code]) -> Code {
    let code = random.pick(&[
        Code::Add_r64_rm64,
        Code::Add_rm32_r32,
        Code::Adc_r64_rm64,
        Code::Sbb_rm64_r64,
        Code::Sub_rm64_imm8,
        Code::Cmp_rm64_r64,
        Code::Cmp_rm8_imm8,
        Code::Test_rm64_r64,
        Code::Mov_rm64_r64,
        Code::Mov_r64_rm64,
        Code::Mov_rm8_r8,
        Code::Mov_r32_rm32,
        Code::Mov_rm64_imm32,
        Code::Movzx_r32_rm8,
        Code::Movsxd_r64_rm32,
        Code::Lea_r64_m,
        Code::Push_r64,
        Code::Pop_r64,
        Code::Push_rm64,
        Code::Pop_rm64,
        Code::Inc_rm64,
        Code::Dec_rm32,
        Code::Cmove_r64_rm64,
        Code::Setb_rm8,
        Code::Shl_rm64_CL,
        Code::Pushfq,
        Code::Imul_r64_rm64,
        Code::Xadd_rm64_r64,
        Code::Cmpxchg_rm64_r64,
        Code::Bts_rm64_r64,
    ]);
    if codes.contains(&code) { code } else { Code::Mov_rm64_r64 }
}

/// The bytes of the block at `at`; `None` when they do not fit.
fn assemble(pieces: &[Piece], at: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    let mut fixes = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        starts.push(bytes.len());
        match *piece {
            Piece::Plain(instruction) => {
                bytes.extend(encode(&instruction, 64, at + bytes.len() as u64)?);
            }
            Piece::Skip(condition, over) => {
                bytes.extend([0x0f, 0x80 | condition, 0, 0, 0, 0]);
                fixes.push((bytes.len(), (index + 1 + over).min(pieces.len())));
            }
            Piece::Call => bytes.extend([0xe8, 0, 0, 0, 0, 0x41, 0x5b]),
            Piece::Return => {
                let next = at as u32 + bytes.len() as u32 + 6;
                bytes.push(0x68);
                bytes.extend(next.to_le_bytes());
                bytes.push(0xc3);
            }
            // dec r15; jg start
            Piece::Loop => {
                bytes.extend([0x49, 0xff, 0xcf, 0x0f, 0x8f]);
                let back = (bytes.len() as i32 + 4).wrapping_neg();
                bytes.extend(back.to_le_bytes());
            }
        }
    }
    starts.push(bytes.len());
    for (end, piece) in fixes {
        let distance = (starts[piece] - end) as u32;
        bytes[end - 4..end].copy_from_slice(&distance.to_le_bytes());
    }
    (bytes.len() < layout::SLOT_BYTES - 8).then_some(bytes)
}

fn place(case: &mut Case, pieces: &[Piece], index: usize) -> Option<()> {
    let bytes = assemble(pieces, layout::slot(index))?;
    case.code[..bytes.len()].copy_from_slice(&bytes);
    case.length = bytes.len() as u32;
    Some(())
}

/// How the two disagree, with what the instruction that ends a block may leave aside.
fn disagreement(case: &Case, at: u64, native: &Outcome, engine: &Outcome) -> String {
    let mut allowed = match last_instruction(case, at, native, engine) {
        Some(code) => known::leniency(code, native, engine),
        None => known::Leniency::default(),
    };
    allowed.page_only = true;
    if native.vector == 13 && engine.vector == 14 && native.rip == engine.rip {
        allowed.everything = true;
    }
    // A pending #MF and a fault of the operand: the engine looks at the operand first.
    if native.vector == 16 && matches!(engine.vector, 12..=14) && native.rip == engine.rip {
        allowed.everything = true;
    }
    compare::differences(native, engine, &allowed)
}

/// The instruction of the block at `at` that the engine, or else the host, has stopped at.
fn last_instruction(case: &Case, at: u64, native: &Outcome, engine: &Outcome) -> Option<Code> {
    let code = &case.code[..case.length as usize];
    let decode = |rip: u64| {
        let rest = code.get(usize::try_from(rip.wrapping_sub(at)).ok()?..)?;
        let found = Decoder::with_ip(case.bits, rest, rip, decoder_options()).decode();
        (!found.is_invalid()).then(|| found.code())
    };
    decode(engine.rip).or_else(|| decode(native.rip))
}

struct Bench {
    native: Native,
    engine: Engine,
}

impl Bench {
    fn try_one(&mut self, case: &Case, pieces: &[Piece]) -> String {
        let mut case = case.clone();
        if place(&mut case, pieces, 0).is_none() {
            return String::new();
        }
        let cases = [case];
        let expected = self.native.run(&cases);
        let mut text = String::new();
        self.engine.run(&cases, |_, outcome| {
            text = disagreement(&cases[0], layout::slot(0), &expected[0], outcome);
        });
        text
    }

    /// Leave out pieces as long as it still fails.
    fn shrink(&mut self, case: &Case, pieces: &[Piece]) -> Vec<Piece> {
        let mut pieces = pieces.to_vec();
        let mut index = 0;
        while index < pieces.len() {
            let mut fewer = pieces.clone();
            fewer.remove(index);
            if self.try_one(case, &fewer).is_empty() {
                index += 1;
            } else {
                pieces = fewer;
                index = 0;
            }
        }
        pieces
    }

    fn explain(&mut self, case: &Case, pieces: &[Piece]) -> String {
        let short = self.shrink(case, pieces);
        let difference = self.try_one(case, &short);
        let mut case = case.clone();
        if difference.is_empty() || place(&mut case, &short, 0).is_none() {
            return format!("not when alone: {}", compare::describe(&case, layout::slot(0)));
        }
        format!("{}{difference}", compare::describe(&case, layout::slot(0)))
    }
}

fn compare_blocks(setting: Setting) {
    let mut random = Random::new(seed(), "blocks", 0);
    let data = conditions::data(&mut random);
    let engine = Engine::new(&data, setting);
    let mut bench = Bench { native: Native::new(&data), engine };
    let codes = fitting(setting);
    let rounds = std::env::var("BIVOUAC_INSTRUCTION_ROUNDS").ok();
    let mut failures = Vec::new();
    for _ in 0..rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS) {
        let (mut cases, mut blocks) = (Vec::new(), Vec::new());
        while cases.len() < layout::BATCH {
            let mut case = conditions::case(&mut random, 64);
            for register in (0..16).filter(|register| PINNED >> register & 1 != 0) {
                case.gpr[register] = conditions::address(&mut random, 16);
            }
            case.gpr[4] = layout::page(2) + 8 * random.below(400);
            case.gpr[15] = 3;
            let mut writer = Writer {
                random: &mut random,
                codes: &codes,
                factory: InstructionInfoFactory::new(),
            };
            let block = writer.block(&mut case);
            if place(&mut case, &block, cases.len()).is_some() {
                cases.push(case);
                blocks.push(block);
            }
        }
        let expected: Vec<Outcome> = bench.native.run(&cases).to_vec();
        let mut wrong = Vec::new();
        bench.engine.run(&cases, |index, outcome| {
            let at = layout::slot(index);
            if !disagreement(&cases[index], at, &expected[index], outcome).is_empty() {
                wrong.push(index);
            }
        });
        for index in wrong {
            if failures.len() < 12 {
                failures.push(bench.explain(&cases[index], &blocks[index]));
            }
        }
    }
    bench.engine.check_way(false);
    assert!(failures.is_empty(), "{} blocks disagree:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn blocks_translated() {
    compare_blocks(Setting::User);
}

#[test]
fn blocks_interpreted() {
    compare_blocks(Setting::UserInterpreted);
}

#[test]
fn blocks_run_directly() {
    if engine::has_helpers() {
        compare_blocks(Setting::UserDirect);
    }
}

#[test]
fn blocks_in_the_kernel() {
    compare_blocks(Setting::Kernel);
}

#[test]
fn blocks_in_the_kernel_on_user_memory() {
    compare_blocks(Setting::KernelOnUser);
}
