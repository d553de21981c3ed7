//! Random scripts for `guest/paravirtual/kernel/script.c`: operations that mostly are such as a kernel makes, and wrong
//! ones among them. What is not to be compared is left out: no frame is used as tables of several levels, because of
//! what Xen leaves in them (its own entries in an L4, bits in those of the others, which another level may not have).

use fastrand::Rng;

/// Three arguments after a kind, as `struct operation` has them.
pub type Operation = [u64; 4];

/// Kinds of operations on events begin with this number.
const EVENTS: u64 = 16;

const POOL: u64 = 40;

/// A root from the start of a script to its end, which others may name.
const PINNED_ROOT: u64 = 6;

/// What a frame of the pool mostly is used as: a level, or 0 for memory.
fn usual(frame: u64) -> u64 {
    [1, 1, 1, 2, 2, 3, 4, 0][(frame % 8) as usize]
}

fn any_of<T: Copy>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(..values.len())]
}

/// A frame that mostly is used as a level.
fn frame_of(random: &mut Rng, level: u64) -> u64 {
    let candidates: Vec<u64> = (0..POOL).filter(|frame| usual(*frame) == level).collect();
    any_of(random, &candidates)
}

/// A script of the number that is its seed.
pub fn script(number: u64) -> Vec<Operation> {
    let mut random = Rng::with_seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let count = random.usize(20..60);
    let kind = number % 3;
    let begins_with_fifo = random.bool();
    let first = if kind == 1 { None } else { Some([2, PINNED_ROOT, 3, 0]) };
    let others = (0..count).map(|index| match kind {
        0 => page_operation(&mut random),
        1 | 2 if kind == 1 || random.u8(..8) > 0 => {
            if begins_with_fifo && index < 3 {
                fifo(&mut random, index)
            } else {
                event_operation(&mut random)
            }
        }
        _ => page_operation(&mut random),
    });
    first.into_iter().chain(others).collect()
}

/// A value for a table of this level.
fn entry(random: &mut Rng, level: u64) -> u64 {
    if random.u8(..6) == 0 {
        return random.u64(..) & !1;
    }
    let target = match (level, random.u8(..10)) {
        // A linear entry.
        (4, 0) => PINNED_ROOT,
        (4, _) => frame_of(random, 3),
        (2 | 3, 0) => any_of(random, &[PINNED_ROOT, 0xffff]),
        (3, _) => frame_of(random, 2),
        (2, _) => frame_of(random, 1),
        (_, 0) => 0xffff,
        // Whatever this table is pinned as, no root becomes another table by it.
        _ => any_of(random, &(0..POOL).filter(|frame| usual(*frame) != 4).collect::<Vec<_>>()),
    };
    let mut flags = 1 | random.u64(..) & (2 | 4 | 0x60 | 1 << 63);
    if level > 1 && random.u8(..4) > 0 {
        flags |= 7;
    }
    if random.u8(..20) == 0 {
        // Global, which only an L1 may be, and available. Memory types are left out: domain 0 may choose them.
        flags |= 1 << random.u64(8..12);
    }
    target << 12 | flags
}

fn page_operation(random: &mut Rng) -> Operation {
    let frame = random.u64(..POOL);
    let level = usual(frame);
    let slot = any_of(random, &[0, 1, 2, 255, 272, 511]);
    match random.u8(..20) {
        0..=6 => [random.u64(..8) / 7, frame, slot, entry(random, level)],
        7..=9 => [6, frame, slot, entry(random, level)],
        10..=13 => {
            let (frame, wanted) = match random.u8(..8) {
                0 => (PINNED_ROOT, random.u64(1..4)),
                _ => (frame, level.max(1)),
            };
            [2, frame, wanted - 1, 0]
        }
        14 | 15 if frame != PINNED_ROOT => [3, frame, 0, 0],
        16 => [4, frame_of(random, 4), 0, random.u64(..3)],
        _ => [5, frame, 0, random.u64(..2)],
    }
}

/// The change to FIFO: a control block, then pages of words.
fn fifo(random: &mut Rng, index: usize) -> Operation {
    let offset = any_of(random, &[0, 8, 128]);
    if index == 0 { [EVENTS + 10, 0, offset, 0] } else { [EVENTS + 11, 1, 0, 0] }
}

fn port(random: &mut Rng) -> u64 {
    match random.u8(..30) {
        0 => 0,
        1 => random.u64(64..3000),
        2 => any_of(random, &[4095, 4096, 1 << 17, 0xffff_ffff]),
        _ => random.u64(1..9),
    }
}

fn event_operation(random: &mut Rng) -> Operation {
    let (first, second, vcpu) =
        (port(random), port(random), any_of(random, &[0, 0, 0, 0, 1, 1 << 20]));
    let kind = |number: u64| EVENTS + number;
    match random.u8(..64) {
        0..=5 => [kind(0), random.u64(..4), random.u64(..4), 0],
        6..=11 => [kind(1), random.u64(..4), first, 0],
        12..=14 => {
            // Not those that Xen raises for itself.
            let interrupt = any_of(random, &[0, 1, 3, 4, 6, 7, 9, 16, 23, 24, 0xffff_ffff]);
            [kind(2), interrupt, vcpu, 0]
        }
        15..=18 => [kind(3), vcpu, 0, 0],
        19..=23 => [kind(4), first, 0, 0],
        24..=35 => [kind(5), first, 0, 0],
        36..=38 => [kind(6), random.u64(..4), first, 0],
        39 | 40 => [kind(7), first, vcpu, 0],
        41..=45 => [kind(8), first, 0, 0],
        46 if random.u8(..3) == 0 => [kind(9), random.u64(..4), 0, 0],
        46 | 47 => {
            let offset = any_of(random, &[0, 8, 16, 4, 4024, 4032, 1 << 31]);
            [kind(10), random.u64(..16), offset, vcpu]
        }
        48 => [kind(11), random.u64(..8), 0, 0],
        49..=52 => [kind(12), first, any_of(random, &[0, 1, 7, 15, 16, 1 << 31]), 0],
        53..=56 => [kind(13), first, 0, 0],
        57..=60 => [kind(14), 0, 0, 0],
        61 => {
            let word = random.u64(..16) << 28 | any_of(random, &[0, first, second]);
            [kind(15), first, word & 0xffff_ffff, 0]
        }
        62 if random.u8(..4) == 0 => [kind(16), random.u64(..24), second, 0],
        _ => [kind(17), second, 0, 0],
    }
}
