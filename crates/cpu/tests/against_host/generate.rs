//! From bytes to a case: random state in which the instruction's memory operands and targets lie
//! where something interesting happens.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register, UsedMemory,
};

use super::case::{Case, POKE_BYTES, Poke, components};
use super::encode::{SELECTORS, target};
use super::layout::{self, PAGE};
use super::random::Random;

/// The initial contents of the data area.
pub fn data(random: &mut Random) -> Vec<u8> {
    (0..layout::PAGES.len() * PAGE / 4).flat_map(|_| random.lane().to_le_bytes()).collect()
}

/// The instruction in these bytes.
pub fn decode(bytes: &[u8], bits: u32, rip: u64) -> Instruction {
    Decoder::with_ip(bits, bytes, rip, DecoderOptions::NONE).decode()
}

/// Random registers, none of which knows of any instruction.
pub fn random_state(bits: u32, random: &mut Random) -> Case {
    let mut case = Case::zeroed();
    case.bits = bits;
    let registers = if bits == 32 { 8 } else { 16 };
    for register in &mut case.gpr[..registers] {
        *register = random.integer();
        if bits == 32 {
            *register &= 0xffff_ffff;
        }
    }
    case.gpr[4] = if random.chance(90) {
        layout::page(2) + 8 * random.below(500)
    } else {
        target(random)
    };
    case.rflags = random.bits() & 0x8d5 | 0x202;
    if random.chance(20) {
        case.rflags |= 1 << 10;
    }
    if random.chance(3) {
        case.rflags |= 1 << 18;
    }
    if bits == 64 {
        case.fs_base = random.below(1 << 20);
        case.gs_base = random.below(1 << 20).wrapping_neg() & 0x7fff_ffff_ffff;
    }
    fill_extended(&mut case.xsave, random);
    case
}

/// Random x87 and vector state (SDM 1 10.5.1 for the legacy region).
fn fill_extended(image: &mut [u8], random: &mut Random) {
    let unmasked = random.chance(10);
    let masks = if unmasked { random.below(64) as u16 } else { 0x3f };
    let control = masks | 0x40 | (random.bits() as u16 & 0xc00) | random.pick(&[0x300, 0x200, 0]);
    let status = (random.bits() as u16) & if random.chance(50) { 0x7f00 } else { 0x4700 };
    image[..2].copy_from_slice(&control.to_le_bytes());
    image[2..4].copy_from_slice(&(status & 0x7f00).to_le_bytes());
    image[4] = random.pick(&[0, 0xff, random.clone().bits() as u8]);
    let unmasked = random.chance(10);
    let masks = if unmasked { random.bits() as u32 & 0x1f80 } else { 0x1f80 };
    let mxcsr = masks | (random.bits() as u32 & if random.chance(30) { 0xe07f } else { 0x603f });
    image[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    image[28..32].copy_from_slice(&0xffffu32.to_le_bytes());
    for register in 0..8 {
        let at = 32 + register * 16;
        let significand = random.bits() | if random.chance(85) { 1 << 63 } else { 0 };
        let exponent = match random.below(8) {
            0 => 0,
            1 => 0x7fff,
            2 => random.bits() as u16,
            _ => 0x3fff - 20 + random.below(60) as u16 | (random.bits() as u16 & 0x8000),
        };
        image[at..at + 8].copy_from_slice(&significand.to_le_bytes());
        image[at + 8..at + 10].copy_from_slice(&exponent.to_le_bytes());
    }
    fill_lanes(&mut image[160..416], random);
    for (_, offset, length) in components() {
        fill_lanes(&mut image[offset..offset + length], random);
    }
}

fn fill_lanes(bytes: &mut [u8], random: &mut Random) {
    for lane in bytes.chunks_exact_mut(4) {
        lane.copy_from_slice(&random.lane().to_le_bytes());
    }
}

/// A case of one instruction.
pub fn single(bytes: &[u8], bits: u32, rip: u64, random: &mut Random) -> Case {
    let mut case = random_state(bits, random);
    case.code[..bytes.len()].copy_from_slice(bytes);
    case.length = bytes.len() as u32;
    let instruction = decode(bytes, bits, rip);
    let mut aim = Aim { case: &mut case, pinned: 1 << 4, random };
    aim.operands(&instruction);
    aim.registers(&instruction, rip);
    case
}

/// Gives registers the values that the instruction needs.
struct Aim<'a> {
    case: &'a mut Case,
    /// Registers whose value is decided, one bit each.
    pinned: u32,
    random: &'a mut Random,
}

/// Number of a general-purpose register in its encoding.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register() as usize - Register::RAX as usize)
}

impl Aim<'_> {
    fn pin(&mut self, register: usize, value: u64) {
        let value = if self.case.bits == 32 { value & 0xffff_ffff } else { value };
        self.case.gpr[register] = value;
        self.pinned |= 1 << register;
    }

    fn is_pinned(&self, register: usize) -> bool {
        self.pinned & 1 << register != 0
    }

    fn operands(&mut self, instruction: &Instruction) {
        if instruction.has_rep_prefix() || instruction.has_repne_prefix() {
            let count = self.random.below(20);
            self.pin(1, count);
        }
        let mut factory = InstructionInfoFactory::new();
        let accesses = factory.info(instruction).used_memory().to_vec();
        for access in &accesses {
            self.memory(access);
        }
        let explicit = (0..instruction.op_count()).any(|op| {
            instruction.op_kind(op) == OpKind::Memory
        });
        if accesses.is_empty() && explicit {
            // Prefetches and the like name memory that they do not use.
            if let Some(base) = number(instruction.memory_base()) {
                let value = target(self.random);
                self.pin(base, value);
            }
        }
    }

    /// Make this access go to a place of our choice.
    fn memory(&mut self, access: &UsedMemory) {
        let mut place = target(self.random).wrapping_sub(access.displacement());
        match access.segment() {
            Register::FS => place = place.wrapping_sub(self.case.fs_base),
            Register::GS => place = place.wrapping_sub(self.case.gs_base),
            _ => {}
        }
        if access.index().is_vector_register() {
            self.lanes(access);
            if let Some(base) = number(access.base()).filter(|&base| !self.is_pinned(base)) {
                self.pin(base, place);
            }
            return;
        }
        let base = number(access.base());
        let index = number(access.index());
        if let Some(index) = index {
            if base == Some(index) || self.is_pinned(index) {
                place = place.wrapping_sub(self.case.gpr[index] * u64::from(access.scale() != 0));
            } else {
                let value = match self.random.below(3) {
                    0 => self.random.bits() & 0xffff_ffff_ffff,
                    _ => self.random.below(256),
                };
                self.pin(index, value);
            }
            let scaled = self.case.gpr[index].wrapping_mul(u64::from(access.scale()));
            place = place.wrapping_sub(scaled);
        }
        if let Some(base) = base.filter(|&base| !self.is_pinned(base)) {
            self.pin(base, place);
        }
    }

    /// Small offsets in every lane of a gather's or scatter's index.
    fn lanes(&mut self, access: &UsedMemory) {
        let register = access.index().number();
        let wide = access.vsib_size() == 8;
        let mut write = |at: usize, bytes: usize, random: &mut Random| {
            for lane in self.case.xsave[at..at + bytes].chunks_exact_mut(if wide { 8 } else { 4 }) {
                lane.fill(0);
                lane[0] = random.bits() as u8;
            }
        };
        let parts: Vec<_> = components().collect();
        let offset = |wanted: u32| parts.iter().find(|part| part.0 == wanted).map(|part| part.1);
        if register < 16 {
            write(160 + register * 16, 16, self.random);
            if let Some(at) = offset(2) {
                write(at + register * 16, 16, self.random);
            }
            if let Some(at) = offset(6) {
                write(at + register * 32, 32, self.random);
            }
        } else if let Some(at) = offset(7) {
            write(at + (register - 16) * 64, 64, self.random);
        }
    }

    /// Register operands that random values would make dull.
    fn registers(&mut self, instruction: &Instruction, rip: u64) {
        let landing = rip + 20 + self.random.below(100);
        self.poke(instruction, landing);
        let register = number(instruction.op0_register());
        let value = match instruction.flow_control() {
            FlowControl::IndirectBranch | FlowControl::IndirectCall if !self.random.chance(10) => {
                Some((instruction.op0_register(), landing))
            }
            _ => self.special(instruction),
        };
        let _ = register;
        if let Some((register, value)) = value
            && let Some(register) = number(register)
            && !self.is_pinned(register)
        {
            self.pin(register, value);
        }
    }

    fn special(&mut self, instruction: &Instruction) -> Option<(Register, u64)> {
        let last = instruction.op_count().saturating_sub(1);
        match instruction.mnemonic() {
            // The bit number reaches far from the address; keep it in the data area, mostly.
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
                if !self.random.chance(10) =>
            {
                Some((instruction.op_register(last), self.random.below(2048)))
            }
            Mnemonic::Mov if instruction.op0_register().is_segment_register() => {
                Some((instruction.op1_register(), u64::from(self.random.pick(&SELECTORS))))
            }
            Mnemonic::Lar | Mnemonic::Lsl | Mnemonic::Verr | Mnemonic::Verw => {
                Some((instruction.op_register(last), u64::from(self.random.pick(&SELECTORS))))
            }
            Mnemonic::Div | Mnemonic::Idiv if self.random.chance(70) => {
                let high = self.random.pick(&[0, 0, 1, u64::MAX]);
                Some((Register::RDX, high))
            }
            _ => None,
        }
    }

    /// Have memory hold the target of a branch, or a selector.
    fn poke(&mut self, instruction: &Instruction, landing: u64) {
        let mut factory = InstructionInfoFactory::new();
        let reads_target = matches!(
            instruction.flow_control(),
            FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return
        ) || matches!(
            instruction.mnemonic(),
            Mnemonic::Lds | Mnemonic::Les | Mnemonic::Lfs | Mnemonic::Lgs | Mnemonic::Lss
                | Mnemonic::Lar | Mnemonic::Lsl | Mnemonic::Verr | Mnemonic::Verw | Mnemonic::Mov
                | Mnemonic::Pop | Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq
        );
        if !reads_target || self.random.chance(10) {
            return;
        }
        let info = factory.info(instruction).clone();
        let Some(access) = info.used_memory().first() else { return };
        let case = &*self.case;
        let at = access.virtual_address(0, |register, _, _| {
            Some(match register {
                Register::FS => case.fs_base,
                Register::GS => case.gs_base,
                _ => number(register).map_or(0, |number| case.gpr[number]),
            })
        });
        let Some(at) = at else { return };
        let inside = layout::writable().any(|page| {
            (layout::page(page)..=layout::page(page) + (PAGE - POKE_BYTES) as u64).contains(&at)
        });
        if inside {
            self.case.poke = Poke { address: at, bytes: self.frame(instruction, landing) };
        }
    }

    /// A return frame: offset, selector, flags, stack pointer, selector.
    fn frame(&mut self, instruction: &Instruction, landing: u64) -> [u8; POKE_BYTES] {
        let selector = self.random.pick(&SELECTORS);
        let same = if self.case.bits == 32 { layout::USER_CODE_32 } else { layout::USER_CODE_64 };
        let code = if self.random.chance(70) { same } else { selector };
        let data = if self.random.chance(70) { layout::USER_DATA } else { selector };
        let flags = self.random.bits() & 0xcd5 | 2;
        let stack = layout::page(1) + 8 * self.random.below(500);
        let far = instruction.op_kind(0) == OpKind::Memory
            || matches!(instruction.mnemonic(), Mnemonic::Retf);
        let values = if matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Lar
            | Mnemonic::Lsl | Mnemonic::Verr | Mnemonic::Verw)
        {
            [u64::from(selector); 5]
        } else if instruction.mnemonic() == Mnemonic::Pop {
            [u64::from(self.random.pick(&SELECTORS)), 0, 0, 0, 0]
        } else if matches!(instruction.mnemonic(), Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq)
        {
            [flags, 0, 0, 0, 0]
        } else {
            [landing, u64::from(code), flags, stack, u64::from(data)]
        };
        let width = width(instruction, self.case.bits);
        let mut bytes = [0; POKE_BYTES];
        for (index, value) in values.iter().enumerate() {
            // A far pointer in memory has only two bytes of selector, which comes to the same.
            let _ = far;
            let at = index * width;
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        bytes
    }
}

/// Bytes of one element of what a branch pops or loads.
fn width(instruction: &Instruction, bits: u32) -> usize {
    let text = format!("{:?}", instruction.code()).to_lowercase();
    match () {
        () if text.starts_with("iretq") || text.contains("1664") || text.starts_with("retfq") => 8,
        () if text.starts_with("iretd") || text.contains("1632") || text.starts_with("retfd") => 4,
        () if text.starts_with("iretw") || text.contains("1616") || text.starts_with("retfw") => 2,
        () if text.contains("rm16") || text.contains("m16") || text.starts_with("retnw") => 2,
        () if bits == 32 => 4,
        () => 8,
    }
}
