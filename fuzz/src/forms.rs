//! Instructions chosen from the processor's own table: first a class, then one of its codes.
//!
//! Random bytes are mostly `add` and jumps, and hardly ever one of the classes that the interpreter has routines for.
//! What is made here begins with the prefixes and the opcode of the code that was chosen; everything that the
//! opcode leaves open (registers, addressing, constants) comes from the fuzzer's input.

use cpu::codes_by_class;
use iced_x86::{
    Code, EncodingKind, MandatoryPrefix, OpCodeInfo, OpCodeOperandKind, OpCodeTableKind,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// The longest program, in bytes.
pub const MAX_CODE_BYTES: usize = 2048;

/// A part of a program.
#[derive(Debug, Clone, Arbitrary)]
pub enum Piece {
    /// Any bytes at all.
    Bytes(Vec<u8>),
    /// An instruction of a class.
    Form { class: u8, code: u16, open: Open },
}

/// What an opcode leaves open.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Open {
    /// One of the prefixes, or none.
    prefix: u8,
    /// Inverted register extensions of VEX and EVEX, or REX.RXB; and the mask of EVEX.
    extensions: u8,
    /// ModRM, but for what belongs to the opcode.
    modrm: u8,
    /// The register in VEX.vvvv.
    other: u8,
    /// SIB, displacement and constants.
    rest: [u8; 8],
}

/// The bytes of a program.
pub fn program(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(given) => bytes.extend_from_slice(given),
            Piece::Form { class, code, open } => {
                write_form(&mut bytes, choose(*class, *code), open)
            }
        }
        if bytes.len() > MAX_CODE_BYTES {
            break;
        }
    }
    bytes.truncate(MAX_CODE_BYTES);
    bytes
}

/// A code of a class, each class as likely as the others. It is one of 64-bit mode if the class has one.
fn choose(class: u8, code: u16) -> Code {
    let classes = codes_by_class();
    let (_, codes) = &classes[usize::from(class) % classes.len()];
    let first = usize::from(code) % codes.len();
    let (before, after) = codes.split_at(first);
    let mut all = after.iter().chain(before).copied();
    all.find(|code| code.op_code().mode64()).unwrap_or(codes[first])
}

/// Write an instruction with this code.
fn write_form(out: &mut Vec<u8>, code: Code, open: &Open) {
    const PREFIXES: [u8; 8] = [0xf0, 0xf2, 0xf3, 0x64, 0x65, 0x67, 0x2e, 0x36];
    let info = code.op_code();
    if let Some(&prefix) = PREFIXES.get(usize::from(open.prefix)) {
        out.push(prefix);
    }
    match info.encoding() {
        EncodingKind::VEX => write_vex(out, info, open),
        EncodingKind::EVEX => write_evex(out, info, open),
        // XOP, 3DNow! and MVEX are no instructions of processors that run this.
        _ => write_legacy(out, info, open),
    }
    let [.., low] = info.op_code().to_be_bytes();
    let in_opcode = |operand| {
        use OpCodeOperandKind as K;
        let kind = info.op_kind(operand);
        matches!(kind, K::r8_opcode | K::r16_opcode | K::r32_opcode | K::r64_opcode)
    };
    let names_register = (0..info.op_count()).any(in_opcode);
    if info.op_code_len() == 2 {
        out.extend((info.op_code() as u16).to_be_bytes());
    } else {
        out.push(if names_register { low | open.modrm & 7 } else { low });
    }
    let mut modrm = open.modrm;
    if let Ok(group) = u8::try_from(info.group_index()) {
        modrm = modrm & !0x38 | group << 3;
    }
    if let Ok(register) = u8::try_from(info.rm_group_index()) {
        modrm = modrm & !7 | register;
    }
    out.push(modrm);
    out.extend(open.rest);
}

/// The number of an opcode table in VEX and EVEX.
fn map_of(info: &OpCodeInfo) -> u8 {
    match info.table() {
        OpCodeTableKind::T0F38 => 2,
        OpCodeTableKind::T0F3A => 3,
        OpCodeTableKind::MAP5 => 5,
        OpCodeTableKind::MAP6 => 6,
        _ => 1,
    }
}

/// The number of a mandatory prefix in VEX and EVEX.
fn prefix_of(info: &OpCodeInfo) -> u8 {
    match info.mandatory_prefix() {
        MandatoryPrefix::P66 => 1,
        MandatoryPrefix::PF3 => 2,
        MandatoryPrefix::PF2 => 3,
        _ => 0,
    }
}

fn write_legacy(out: &mut Vec<u8>, info: &OpCodeInfo, open: &Open) {
    if info.operand_size() == 16 {
        out.push(0x66);
    }
    out.extend([0x66, 0xf3, 0xf2].get(usize::from(prefix_of(info)).wrapping_sub(1)));
    let wide = info.operand_size() == 64 && !info.default_op_size64();
    let rex = 0x40 | u8::from(wide) << 3 | open.extensions & 7;
    if rex != 0x40 {
        out.push(rex);
    }
    let table: &[u8] = match info.table() {
        OpCodeTableKind::Normal => &[],
        OpCodeTableKind::T0F38 => &[0x0f, 0x38],
        OpCodeTableKind::T0F3A => &[0x0f, 0x3a],
        _ => &[0x0f],
    };
    out.extend(table);
}

fn write_vex(out: &mut Vec<u8>, info: &OpCodeInfo, open: &Open) {
    let register = (open.other & 15) << 3;
    let last = (info.w() as u8) << 7 | register | (info.l() as u8 & 1) << 2 | prefix_of(info);
    out.extend([0xc4, open.extensions & 0xe0 | map_of(info), last]);
}

fn write_evex(out: &mut Vec<u8>, info: &OpCodeInfo, open: &Open) {
    let register = (open.other & 15) << 3;
    out.extend([
        0x62,
        open.extensions & 0xf0 | map_of(info),
        (info.w() as u8) << 7 | register | 4 | prefix_of(info),
        // Zeroing, length, broadcast, the inverted bit of registers from 16 on, mask.
        open.other & 0x90 | (info.l() as u8 & 3) << 5 | 8 | open.extensions & 7,
    ]);
}
