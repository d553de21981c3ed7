//! What must agree, and how a disagreement is told.

use std::fmt::Write;

use iced_x86::{Decoder, Formatter, GasFormatter};

use super::case::{Case, Outcome, components};
use super::form::decoder_options;
use super::known::{INVALID_OPCODE, Leniency};
use super::layout;

const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Lower-half addresses end here; of others, Linux conceals whether they are mapped
/// (arch/x86/mm/fault.c, `sanitize_error_code`).
const TASK_SIZE_MAX: u64 = 0x7fff_ffff_f000;

/// The differences, one a line; empty when there are none.
pub fn differences(native: &Outcome, engine: &Outcome, allowed: &Leniency) -> String {
    let mut text = String::new();
    if allowed.everything {
        return text;
    }
    let mut differ = |name: &str, native: u64, engine: u64| {
        if native != engine {
            let _ = writeln!(text, "    {name}: host {native:#x}, engine {engine:#x}");
        }
    };
    differ("vector", native.vector.into(), engine.vector.into());
    differ("rip", native.rip, engine.rip);
    for (index, name) in NAMES.iter().enumerate() {
        let bits = !allowed.register_bits;
        differ(name, native.gpr[index] & bits, engine.gpr[index] & bits);
    }
    differ("rflags", native.rflags & !allowed.flags, engine.rflags & !allowed.flags);
    if native.vector != engine.vector || allowed.partial {
        return text;
    }
    if native.vector == 14 && !allowed.address {
        let part = if allowed.page_only { !0xfff } else { !0 };
        differ("cr2", native.cr2 & part, engine.cr2 & part);
        let concealed = u32::from(native.cr2 >= TASK_SIZE_MAX);
        differ("error", (native.error | concealed).into(), (engine.error | concealed).into());
    } else if native.vector != 14 {
        differ("error", native.error.into(), engine.error.into());
    }
    differ("fs base", native.fs_base, engine.fs_base);
    differ("gs base", native.gs_base, engine.gs_base);
    for (index, name) in ["es", "cs", "ss", "ds", "fs", "gs"].iter().enumerate() {
        differ(name, selector(native, index), selector(engine, index));
    }
    extended(&mut text, native, engine, allowed);
    if allowed.memory {
        return text;
    }
    let stack = native.gpr[4];
    for ((native, engine), page) in native.memory.iter().zip(&engine.memory).zip(layout::writable())
    {
        let mut expected = *native;
        if allowed.pushed {
            leave_out_below(&mut expected, engine, layout::page(page), stack);
        }
        bytes(&mut text, "memory", layout::page(page), &expected, engine);
    }
    text
}

/// How the engine's outcome differs from that of an invalid instruction at `at`: #UD, and nothing
/// done.
pub fn differences_from_invalid(case: &Case, at: u64, engine: &Outcome) -> String {
    let mut text = String::new();
    if engine.vector != INVALID_OPCODE || engine.rip != at {
        let (vector, rip) = (engine.vector, engine.rip);
        let _ = writeln!(text, "    vector: to be invalid, engine {vector:#x} at {rip:#x}");
    }
    for (index, name) in NAMES.iter().enumerate() {
        if case.gpr[index] != engine.gpr[index] {
            let (before, after) = (case.gpr[index], engine.gpr[index]);
            let _ = writeln!(text, "    {name}: before {before:#x}, engine {after:#x}");
        }
    }
    text
}

/// Take the eight bytes below the stack pointer from the engine, as far as they are in this page.
fn leave_out_below(expected: &mut [u8], engine: &[u8], page: u64, stack: u64) {
    for address in stack.wrapping_sub(8)..stack {
        let offset = address.wrapping_sub(page) as usize;
        if let Some(byte) = expected.get_mut(offset) {
            *byte = engine[offset];
        }
    }
}

/// A selector; returning from an exception clears null ones on some processors.
fn selector(outcome: &Outcome, index: usize) -> u64 {
    let selector = outcome.selectors[index];
    if selector < 4 { 0 } else { selector.into() }
}

/// Compare x87 and vector state. FOP, FIP and FDP (bytes 6 to 23) are exempt: AMD's processors save
/// them only with an exception pending, and to Linux they are those of the signal frame.
fn extended(text: &mut String, native: &Outcome, engine: &Outcome, allowed: &Leniency) {
    let (mut native, engine) = (normal(&native.xsave), normal(&engine.xsave));
    if allowed.mxcsr {
        native[24..28].copy_from_slice(&engine[24..28]);
    }
    for (name, from, to) in [("x87", 0, 5), ("mxcsr", 24, 28), ("st", 32, 160), ("xmm", 160, 416)] {
        bytes(text, name, from as u64, &native[from..to], &engine[from..to]);
    }
    for (component, from, length) in components() {
        let range = from..from + length;
        let name = format!("component {component}");
        bytes(text, &name, from as u64, &native[range.clone()], &engine[range]);
    }
}

/// The image with components in their initial state written out (SDM 1 13.6).
fn normal(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    let held = u64::from_le_bytes(std::array::from_fn(|index| image[512 + index]));
    if held & 1 == 0 {
        image[..24].fill(0);
        image[0..2].copy_from_slice(&[0x7f, 3]);
        image[32..160].fill(0);
    }
    // Reserved bits, and those of FSW that follow from others (SDM 1 8.1.3, 8.1.5).
    image[0] = image[0] & 0x3f | 0x40;
    image[1] &= 0x1f;
    let pending = image[2] & !image[0] & 0x3f != 0;
    image[2] = image[2] & 0x7f | u8::from(pending) << 7;
    image[3] = image[3] & 0x7f | u8::from(pending) << 7;
    for register in 0..8 {
        image[32 + register * 16 + 10..48 + register * 16].fill(0);
    }
    if held & 2 == 0 {
        image[160..416].fill(0);
    }
    for (component, offset, length) in components() {
        if held >> component & 1 == 0 {
            image[offset..offset + length].fill(0);
        }
    }
    image
}

fn bytes(text: &mut String, name: &str, start: u64, native: &[u8], engine: &[u8]) {
    let Some(first) = native.iter().zip(engine).position(|(one, other)| one != other) else {
        return;
    };
    let at = first & !7;
    let end = (at + 16).min(native.len());
    let (native, engine) = (&native[at..end], &engine[at..end]);
    let place = start + at as u64;
    let _ = writeln!(text, "    {name} at {place:#x}: host {native:02x?}, engine {engine:02x?}");
}

/// The case as text: its bytes, what they mean, and the state that it starts from.
pub fn describe(case: &Case, at: u64) -> String {
    let code = &case.code[..case.length as usize];
    let mut text = String::new();
    let mut decoder = Decoder::with_ip(case.bits, code, at, decoder_options());
    let mut formatter = GasFormatter::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let from = (instruction.ip() - at) as usize;
        let bytes = &code[from..from + instruction.len()];
        let _ = writeln!(text, "  {:#x}: {bytes:02x?} {line}", instruction.ip());
    }
    let _ = writeln!(text, "    from gpr {:x?}", case.gpr);
    let _ = writeln!(
        text,
        "    rflags {:#x} fs {:#x} gs {:#x} fcw {:02x?} fsw {:02x?} mxcsr {:02x?} xmm0.. {:02x?}",
        case.rflags,
        case.fs_base,
        case.gs_base,
        &case.xsave[0..2],
        &case.xsave[2..4],
        &case.xsave[24..28],
        &case.xsave[160..208],
    );
    text
}
