//! Random states to start from: full of the values that arithmetic treats specially, and of
//! pointers into the data area.

use super::case::{Case, XSAVE, components, usable};
use super::layout::{self, PAGE, PAGES};
use super::random::Random;

/// Registers that hold pointers more often than others.
const POINTERS: [usize; 7] = [3, 5, 6, 7, 12, 13, 14];

/// The first contents of the data area: numbers of all kinds, and one image that `xrstor` takes.
pub fn data(random: &mut Random) -> Vec<u8> {
    let mut data = vec![0; PAGES.len() * PAGE];
    for chunk in data.chunks_mut(8) {
        chunk.copy_from_slice(&number(random).to_le_bytes());
    }
    let mut image = vec![0; XSAVE];
    extended_state(random, &mut image);
    image[512..520].copy_from_slice(&usable().to_le_bytes());
    data[PAGE..PAGE + XSAVE].copy_from_slice(&image);
    data
}

/// A case without code.
pub fn case(random: &mut Random, bits: u32) -> Case {
    let mut case = Case::zeroed();
    case.bits = bits;
    for index in 0..16 {
        let likely = if POINTERS.contains(&index) { 2 } else { 9 };
        case.gpr[index] = match random.below(likely) {
            0 => address(random, 16),
            _ => number(random),
        };
    }
    if random.one_in(2) {
        case.gpr[1] = random.below(40);
    }
    case.gpr[4] = address(random, 64) & !7;
    if bits == 32 {
        case.gpr.iter_mut().for_each(|value| *value &= 0xffff_ffff);
        case.gpr[8..].fill(0);
    } else {
        case.fs_base = address(random, 16) & !63;
        case.gs_base = address(random, 16) & !63;
    }
    // CF, PF, AF, ZF, SF, OF, rarely DF.
    case.rflags = 0x202 | random.next() & 0x8d5;
    if random.one_in(8) {
        case.rflags |= 0x400;
    }
    extended_state(random, &mut case.xsave);
    case
}

/// Somewhere in the data area, mostly where `size` bytes may be written, often at a page's edge.
pub fn address(random: &mut Random, size: u64) -> u64 {
    let page = match random.below(12) {
        0 => random.below(PAGES.len() as u64) as usize,
        1 => random.pick(&[4, 6]),
        2 => random.pick(&[2, 3, 7]),
        _ => random.pick(&[1, 2, 1, 2, 5, 8]),
    };
    let within = match random.below(6) {
        0 => PAGE as u64 - 1 - random.below(size.max(2)),
        1 => random.below(PAGE as u64),
        2 => 0,
        _ => random.below(PAGE as u64 / 64) * 64,
    };
    layout::page(page) + within
}

/// A number with something special about it.
pub fn number(random: &mut Random) -> u64 {
    let any = random.next();
    match random.below(16) {
        0 => random.pick(&[0, 1, u64::MAX, 1 << 63, u64::MAX >> 1, 0x8000_0000, 0x7fff_ffff]),
        1 => random.below(256),
        2 => random.below(128).wrapping_neg(),
        // Doubles and pairs of floats of moderate size, NaNs, infinities, denormals.
        3 | 4 => ((random.below(64) as f64 - 30.0) * 1.25).to_bits(),
        5 | 6 => {
            let half = |value: u64| u64::from((value as f32 * 0.75 - 20.0).to_bits());
            half(any & 63) | half(any >> 6 & 63) << 32
        }
        7 => random.pick(&[0x7ff0 << 48, 0x7ff8 << 48, 0xfff4 << 48, 1, 0x7f80_0000_7fa0_0001]),
        8 => u64::from(any as u32),
        9 => any & random.next() & random.next(),
        _ => any,
    }
}

fn extended_state(random: &mut Random, image: &mut [u8]) {
    for at in (32..416).step_by(8) {
        image[at..at + 8].copy_from_slice(&number(random).to_le_bytes());
    }
    for register in 0..8 {
        let at = 32 + register * 16;
        let exponent = random.pick(&[0x3fff, 0x4003, 0xbffe, 0x4010, 0, 0x7fff, 0x3f00]);
        let exponent: u16 = exponent | (random.next() as u16 & 0x8000);
        image[at + 7] |= 0x80;
        image[at + 8..at + 10].copy_from_slice(&exponent.to_le_bytes());
        image[at + 10..at + 16].fill(0);
    }
    let rounding = (random.below(4) as u16) << 10;
    let precision = random.pick(&[0x300, 0x300, 0x200, 0]);
    let masks = if random.one_in(6) { random.next() as u16 & 0x3f } else { 0x3f };
    let control = 0x40 | rounding | precision | masks;
    let status = (random.below(8) as u16) << 11 | random.next() as u16 & 0x4700;
    image[0..2].copy_from_slice(&control.to_le_bytes());
    image[2..4].copy_from_slice(&status.to_le_bytes());
    let tags = random.next() as u8;
    image[4] = random.pick(&[0, 0xff, 0xff, tags]);
    let mut mxcsr = 0x1f80 | (random.next() as u32 & 0x6000);
    if random.one_in(8) {
        mxcsr ^= random.next() as u32 & 0xffff;
    }
    image[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    image[28..32].copy_from_slice(&0xffff_u32.to_le_bytes());
    for (component, offset, length) in components() {
        for at in (offset..offset + length).step_by(8) {
            let value = match (component, random.below(4)) {
                (5, 0) => u64::MAX,
                (5, 1) => 0,
                (5, _) => random.next(),
                _ => number(random),
            };
            image[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    image[512..520].copy_from_slice(&usable().to_le_bytes());
}
