//! The division of what a pod sends between two packet sockets at the same interface: one is the gateway's, the other
//! leads to the pod's neighbours. The kernel decides (socket(7), `SO_ATTACH_FILTER`), so that neither process is woken
//! for what is the other's. What is for a group is for both.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// An instruction of a filter (linux/filter.h).
type Instruction = libc::sock_filter;

/// What a filter answers: all of the frame, or nothing.
const ALL: u32 = u32::MAX;
const NOTHING: u32 = 0;

/// The filters for the gateway and for the others, where the gateway has this Ethernet address; without one there are
/// no others.
pub fn of(gateway: Option<[u8; 6]>) -> (Vec<Instruction>, Vec<Instruction>) {
    match gateway {
        None => (vec![answer(ALL)], vec![answer(NOTHING)]),
        Some(card) => (filter(card, ALL, NOTHING), filter(card, NOTHING, ALL)),
    }
}

/// What is for a group is taken; else there is an answer for what is for `card`, and another for the rest.
fn filter(card: [u8; 6], for_it: u32, for_others: u32) -> Vec<Instruction> {
    /// The bit of the first byte that groups have (IEEE 802, 8.2).
    const GROUP: u32 = 1;
    let [a, b, c, d, e, f] = card;
    let (first, last) = (u32::from_be_bytes([a, b, c, d]), u32::from(u16::from_be_bytes([e, f])));
    vec![
        load(libc::BPF_B, 0),
        jump(libc::BPF_JSET, GROUP, 5, 0),
        load(libc::BPF_W, 0),
        jump(libc::BPF_JEQ, first, 0, 4),
        load(libc::BPF_H, 4),
        jump(libc::BPF_JEQ, last, 0, 2),
        answer(for_it),
        answer(ALL),
        answer(for_others),
    ]
}

/// Loads so much of the frame from an offset.
fn load(size: u32, offset: u32) -> Instruction {
    instruction(libc::BPF_LD | size | libc::BPF_ABS, 0, 0, offset)
}

/// Compares, and skips so many if so, or so many if not.
fn jump(how: u32, with: u32, if_so: u8, if_not: u8) -> Instruction {
    instruction(libc::BPF_JMP | how | libc::BPF_K, if_so, if_not, with)
}

/// Ends with so many bytes.
fn answer(bytes: u32) -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, bytes)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code: code as u16, jt, jf, k }
}

/// Has a socket receive only what its filter takes.
#[expect(unsafe_code, reason = "a system call that no safe crate has")]
pub fn attach(socket: &OwnedFd, filter: &[Instruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        // The call only reads it.
        filter: filter.as_ptr().cast_mut(),
    };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (value, number) = ((&raw const program).cast(), socket.as_raw_fd());
    // SAFETY: the call reads a description of the length that is said, and the instructions that it names, which live.
    let answer = unsafe {
        libc::setsockopt(number, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, length)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];

    /// What a filter answers for a frame with this destination: the few instructions that there are, as the kernel
    /// runs them.
    fn run(filter: &[Instruction], destination: [u8; 6]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let Instruction { code, jt, jf, k } = filter[at];
            at += 1;
            let from = &destination[(k as usize).min(6)..];
            match u32::from(code) {
                code if code == libc::BPF_RET | libc::BPF_K => return k,
                code if code & 7 == libc::BPF_LD => {
                    let count = match code & 0x18 {
                        libc::BPF_W => 4,
                        libc::BPF_H => 2,
                        _ => 1,
                    };
                    loaded = from[..count].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                }
                code => {
                    let is_so = match code & 0xf0 {
                        libc::BPF_JEQ => loaded == k,
                        _ => loaded & k != 0,
                    };
                    at += usize::from(if is_so { jt } else { jf });
                }
            }
        }
    }

    #[test]
    fn each_frame_has_its_socket() {
        let (gateways, others) = of(Some(CARD));
        let check = |destination, expected: [bool; 2]| {
            let taken = [run(&gateways, destination), run(&others, destination)];
            assert_eq!(taken.map(|bytes| bytes == ALL), expected, "{destination:?}");
        };
        check(CARD, [true, false]);
        check([0xff; 6], [true, true]);
        check([0x33, 0x33, 0, 0, 0, 1], [true, true]);
        check([0x52, 0x56, 10, 89, 1, 2], [false, true]);
        check([0x52, 0x55, 10, 0, 2, 3], [false, true]);
        check([0x52, 0x55, 10, 1, 2, 2], [false, true]);
        let (gateways, others) = of(None);
        assert_eq!((run(&gateways, [2; 6]), run(&others, [2; 6])), (ALL, NOTHING));
    }
}
