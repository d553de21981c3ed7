//! Many instructions at a time: random straight-line code with forward jumps, calls, loops, pushes
//! and pops, so that registers are allocated, flags kept and blocks linked, with faults in the
//! middle. What disagrees is reduced to as few instructions as possible.

use iced_x86::{
    Code, Decoder, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpCodeOperandKind,
    OpKind, Register,
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

/// What counts the rounds of loops: R15, or ESI.
fn counter(bits: u32) -> Register {
    if bits == 64 { Register::R15 } else { Register::RSI }
}

/// Registers that hold pointers, of those that code of so many bits has.
fn pinned(bits: u32) -> u16 {
    if bits == 64 { PINNED } else { PINNED & 0xff }
}

/// One element of a block.
#[derive(Clone)]
enum Piece {
    Plain(Instruction),
    /// A conditional jump, by its condition, over so many pieces.
    Skip(u8, usize),
    /// `call` to the next instruction, and a `pop` of the return address into R11 or EDX.
    Call,
    /// Push the address that follows, and return to it.
    Return,
    /// Back to the start, three times at most.
    Loop,
}

/// Whether a form needs a block of its own, or leaves what cannot be compared.
fn is_odd(code: Code) -> bool {
    use Mnemonic as M;
    matches!(
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
            // Flags that the manual leaves undefined.
            | M::Aaa
            | M::Aad
            | M::Aam
            | M::Aas
            | M::Daa
            | M::Das
            // Loads of segment registers.
            | M::Lds
            | M::Les
            | M::Lss
            | M::Lfs
            | M::Lgs
    )
}

/// Forms that fit into a block of code of so many bits.
fn fitting(setting: Setting, bits: u32) -> Vec<Code> {
    use OpCodeOperandKind as K;
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
        // A pushed selector has an upper half that the manual leaves undefined, and a popped one may fault.
        let selector = matches!(info.op0_kind(), K::es | K::cs | K::ss | K::ds | K::fs | K::gs);
        let vector = info.can_use_op_mask_register() || name.contains("gather");
        info.is_instruction()
            && (if bits == 64 { info.mode64() } else { info.mode32() })
            && !info.is_privileged()
            && !info.is_input_output()
            && !name.starts_with("mov_sreg")
            && known::exempt(*code, setting).is_none()
            && !known::is_never_announced(*code)
            && !(control
                || is_odd(*code)
                || selector
                || vector
                || name.contains("scatter")
                || name.contains("reserved"))
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
                let bits = case.bits;
                let code = match self.random.one_in(2) {
                    true => simple(self.random, self.codes, bits),
                    false => code,
                };
                let freedom = Freedom { bases: pinned(bits), values: false, crossing: false };
                let mut maker = Maker { random: self.random, case, freedom, target: 0 };
                let instruction = maker.make(code);
                if self.keeps_pinned(&instruction, bits)
                    && encode(&instruction, bits, 0x2000_0000).is_some()
                {
                    break Piece::Plain(instruction);
                }
            },
        }
    }

    /// Whether pointers and the counter survive; RSP may only be pushed and popped.
    fn keeps_pinned(&mut self, instruction: &Instruction, bits: u32) -> bool {
        let stack = instruction.is_stack_instruction();
        self.factory.info(instruction).used_registers().iter().all(|used| {
            let register = used.register().full_register();
            let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let pinned = register.is_gpr64() && pinned(bits) >> register.number() & 1 != 0;
            let special = register == counter(bits) || register == Register::RSP && !stack;
            reads || !(pinned || special)
        }) && !matches!(instruction.op0_kind(), OpKind::FarBranch16 | OpKind::FarBranch32)
    }
}

/// The instructions that programs consist of.
const SIMPLE: [Code; 30] = [
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
];

/// The same of 32-bit programs.
const SIMPLE_32: [Code; 30] = [
    Code::Add_r32_rm32,
    Code::Adc_rm32_r32,
    Code::Sub_rm32_imm8,
    Code::Cmp_rm32_r32,
    Code::Cmp_AL_imm8,
    Code::Test_rm8_r8,
    Code::Mov_rm32_r32,
    Code::Mov_r32_rm32,
    Code::Mov_rm8_r8,
    Code::Mov_rm32_imm32,
    Code::Mov_EAX_moffs32,
    Code::Mov_moffs32_EAX,
    Code::Movzx_r32_rm8,
    Code::Movsx_r32_rm16,
    Code::Lea_r32_m,
    Code::Push_r32,
    Code::Pop_r32,
    Code::Push_rm32,
    Code::Pushd_imm8,
    Code::Inc_r32,
    Code::Dec_r32,
    Code::Inc_r16,
    Code::Cmovl_r32_rm32,
    Code::Setb_rm8,
    Code::Shld_rm32_r32_imm8,
    Code::Imul_r32_rm32_imm32,
    Code::Xadd_rm32_r32,
    Code::Bts_rm32_r32,
    Code::Xchg_r32_EAX,
    Code::Movsd_m32_m32,
];

/// One of the instructions that programs consist of.
fn simple(random: &mut Random, codes: &[Code], bits: u32) -> Code {
    let (all, instead): (&[Code], _) = match bits {
        64 => (&SIMPLE, Code::Mov_rm64_r64),
        _ => (&SIMPLE_32, Code::Mov_rm32_r32),
    };
    let code = random.pick(all);
    if codes.contains(&code) { code } else { instead }
}

/// The bytes of the block of code of so many bits at `at`; `None` when they do not fit.
fn assemble(pieces: &[Piece], bits: u32, at: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    let mut fixes = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        starts.push(bytes.len());
        match *piece {
            Piece::Plain(instruction) => {
                bytes.extend(encode(&instruction, bits, at + bytes.len() as u64)?);
            }
            Piece::Skip(condition, over) => {
                bytes.extend([0x0f, 0x80 | condition, 0, 0, 0, 0]);
                fixes.push((bytes.len(), (index + 1 + over).min(pieces.len())));
            }
            Piece::Call if bits == 64 => bytes.extend([0xe8, 0, 0, 0, 0, 0x41, 0x5b]),
            Piece::Call => bytes.extend([0xe8, 0, 0, 0, 0, 0x5a]),
            Piece::Return => {
                let next = at as u32 + bytes.len() as u32 + 6;
                bytes.push(0x68);
                bytes.extend(next.to_le_bytes());
                bytes.push(0xc3);
            }
            // dec r15 or esi; jg start
            Piece::Loop => {
                bytes.extend(if bits == 64 { &[0x49, 0xff, 0xcf][..] } else { &[0x4e][..] });
                bytes.extend([0x0f, 0x8f]);
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
    let bytes = assemble(pieces, case.bits, layout::slot(index))?;
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
    // Beyond 4 GiB, an access to a segment of that size may fault for its limit or not (SDM 3A 5.3).
    let by_limit = case.bits == 32 && native.vector == 14 && matches!(engine.vector, 12 | 13);
    if by_limit && native.rip == engine.rip {
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

fn compare_blocks(bits: u32, setting: Setting) {
    let name = if bits == 64 { "blocks" } else { "blocks of 32-bit code" };
    let mut random = Random::new(seed(), name, 0);
    let data = conditions::data(&mut random);
    let engine = Engine::new(&data, setting);
    let mut bench = Bench { native: Native::new(&data), engine };
    let codes = fitting(setting, bits);
    let rounds = std::env::var("BIVOUAC_INSTRUCTION_ROUNDS").ok();
    let mut failures = Vec::new();
    for _ in 0..rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS) {
        let (mut cases, mut blocks) = (Vec::new(), Vec::new());
        while cases.len() < layout::BATCH {
            let mut case = conditions::case(&mut random, bits);
            for register in (0..16).filter(|register| pinned(bits) >> register & 1 != 0) {
                case.gpr[register] = conditions::address(&mut random, 16);
            }
            case.gpr[4] = layout::page(2) + 8 * random.below(400);
            case.gpr[counter(bits).number()] = 3;
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
    compare_blocks(64, Setting::User);
}

#[test]
fn blocks_interpreted() {
    compare_blocks(64, Setting::UserInterpreted);
}

#[test]
fn blocks_run_directly() {
    if engine::has_helpers() {
        compare_blocks(64, Setting::UserDirect);
    }
}

#[test]
fn blocks_in_the_kernel() {
    compare_blocks(64, Setting::Kernel);
}

#[test]
fn blocks_in_the_kernel_on_user_memory() {
    compare_blocks(64, Setting::KernelOnUser);
}

#[test]
fn blocks_of_32_bit_code_translated() {
    compare_blocks(32, Setting::User);
}

#[test]
fn blocks_of_32_bit_code_interpreted() {
    compare_blocks(32, Setting::UserInterpreted);
}
