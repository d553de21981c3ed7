//! The seccomp filters of the zygote, the runner and the mapper (seccomp(2), classic BPF).
//!
//! The zygote's, which both inherit, is a complete list of what setting a helper up takes: the
//! domain process writes the scripts, and a guest kernel that owns that process must not find a
//! process here that does more than its own filter lets it do.
//!
//! Each of the two threads has two more, of which the strictest verdict counts: one that turns
//! the stop call into a notification and whose listener is handed out, and one, installed last,
//! that is a complete list of what the thread may do for the rest of its life.

use crate::layout::{MEMORY_FD, RUNNER_FD, STOP};
use crate::linux::{ARCH_SET_CPUID, ARCH_X86_64, FORK_HELPER, FORK_RUNNER, USER_DISPATCH};
use crate::stub::{self, NOTIFY_SEND, Place};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const TRAP: u32 = libc::SECCOMP_RET_TRAP;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const INSTRUCTION: u32 = 8;
const ARGUMENTS: u32 = 16;

/// A filter under construction: a list of alternatives, each a conjunction of comparisons with a
/// verdict, and a verdict for what none of them is about.
#[derive(Debug, Default)]
struct Filter {
    program: Vec<libc::sock_filter>,
}

impl Filter {
    /// Add one alternative: if all the words at these offsets, masked, have these values.
    fn on(mut self, comparisons: &[(u32, u32, u32)], verdict: u32) -> Self {
        let instructions: Vec<_> = comparisons
            .iter()
            .flat_map(|&(offset, mask, value)| {
                let masked = (mask != u32::MAX).then_some(instruction(AND, mask));
                [Some(instruction(LOAD, offset)), masked, Some(instruction(EQUAL, value))]
            })
            .flatten()
            .collect();
        let total = instructions.len();
        for (index, mut instruction) in instructions.into_iter().enumerate() {
            if instruction.code == EQUAL {
                instruction.jf = u8::try_from(total - index).expect("alternatives are short");
            }
            self.program.push(instruction);
        }
        self.program.push(instruction(RETURN, verdict));
        self
    }

    fn otherwise(mut self, verdict: u32) -> Vec<libc::sock_filter> {
        self.program.push(instruction(RETURN, verdict));
        self.program
    }
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

fn instruction(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Comparisons of a 64-bit word.
fn word(offset: u32, value: u64) -> [(u32, u32, u32); 2] {
    [(offset, u32::MAX, value as u32), (offset + 4, u32::MAX, (value >> 32) as u32)]
}

fn call(number: u64) -> Vec<(u32, u32, u32)> {
    vec![(ARCH, u32::MAX, ARCH_X86_64), (NUMBER, u32::MAX, number as u32)]
}

fn argument(index: u32) -> u32 {
    ARGUMENTS + 8 * index
}

/// The stop call, from the one instruction of the stub that is meant to make it.
fn runner_stop() -> Vec<(u32, u32, u32)> {
    let mut comparisons = call(STOP);
    comparisons.extend(word(INSTRUCTION, stub::address(Place::Stopped)));
    comparisons
}

/// Zygote: fork in two ways, map, handle signals, pass descriptors on, give more up. Nothing here
/// opens a file, runs a program, reaches another process or the network. Every other call is a
/// signal, which ends the zygote and the mapper, and is what the runner needs.
pub(crate) fn zygote() -> Vec<libc::sock_filter> {
    let with = |number: i64, index, value: u64| {
        let mut comparisons = call(number as u64);
        comparisons.extend(word(argument(index), value));
        comparisons
    };
    let mut filter = Filter::default();
    for number in SET_UP_CALLS {
        filter = filter.on(&call(number as u64), ALLOW);
    }
    for flags in [FORK_HELPER, FORK_RUNNER] {
        filter = filter.on(&with(libc::SYS_clone, 0, flags), ALLOW);
    }
    for option in [libc::PR_SET_PDEATHSIG, libc::PR_SET_NAME, libc::PR_SET_TSC, USER_DISPATCH] {
        filter = filter.on(&with(libc::SYS_prctl, 0, option as u64), ALLOW);
    }
    // Two ends of a line of packets, as the script asks for them.
    let mut pair = call(libc::SYS_socketpair as u64);
    pair.extend(word(argument(0), libc::AF_UNIX as u64));
    pair.extend(word(argument(1), libc::SOCK_SEQPACKET as u64));
    pair.extend(word(argument(2), 0));
    filter
        .on(&pair, ALLOW)
        .on(&with(libc::SYS_arch_prctl, 0, ARCH_SET_CPUID), ALLOW)
        .on(&with(libc::SYS_ioctl, 1, NOTIFY_SEND), ALLOW)
        .otherwise(TRAP)
}

/// What the scripts do from the moment on that the zygote waits for orders, whatever the arguments.
pub(crate) const SET_UP_CALLS: [i64; 15] = [
    STOP as i64,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_seccomp,
    libc::SYS_exit_group,
];

/// Runner, first filter: the stop call notifies.
pub(crate) fn runner_notify() -> Vec<libc::sock_filter> {
    Filter::default().on(&runner_stop(), NOTIFY).otherwise(ALLOW)
}

/// Runner, second filter: nothing but the stop call; the rest is a signal to the thread itself.
pub(crate) fn runner_strict() -> Vec<libc::sock_filter> {
    Filter::default().on(&runner_stop(), ALLOW).otherwise(TRAP)
}

/// Mapper, first filter: the stop call notifies.
pub(crate) fn mapper_notify() -> Vec<libc::sock_filter> {
    Filter::default().on(&call(STOP), NOTIFY).otherwise(ALLOW)
}

/// Mapper, second filter: map guest memory, unmap, protect, answer the runner, stop, exit.
pub(crate) fn mapper_strict() -> Vec<libc::sock_filter> {
    let no_more_than = |index, allowed: i32| (argument(index), !allowed.cast_unsigned(), 0);
    let high_zero = |index| (argument(index) + 4, u32::MAX, 0);
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let mut map = call(libc::SYS_mmap as u64);
    map.extend([no_more_than(2, protection), high_zero(2)]);
    let shared = (libc::MAP_SHARED | libc::MAP_FIXED).cast_unsigned();
    map.extend([(argument(3), !libc::MAP_POPULATE.cast_unsigned(), shared), high_zero(3)]);
    map.extend(word(argument(4), MEMORY_FD));
    let mut protect = call(libc::SYS_mprotect as u64);
    protect.extend([no_more_than(2, protection), high_zero(2)]);
    let mut answer = call(libc::SYS_ioctl as u64);
    answer.extend(word(argument(0), RUNNER_FD));
    answer.extend(word(argument(1), NOTIFY_SEND));
    Filter::default()
        .on(&map, ALLOW)
        .on(&call(libc::SYS_munmap as u64), ALLOW)
        .on(&protect, ALLOW)
        .on(&answer, ALLOW)
        .on(&call(STOP), ALLOW)
        .on(&call(libc::SYS_exit_group as u64), ALLOW)
        .otherwise(KILL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter's verdict on a call.
    fn judge(filter: &[libc::sock_filter], data: &[u8; 64]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = filter[at];
            at += 1;
            match step.code {
                LOAD => {
                    let bytes = data[step.k as usize..][..4].try_into().unwrap();
                    accumulator = u32::from_le_bytes(bytes);
                }
                AND => accumulator &= step.k,
                EQUAL => at += usize::from(if accumulator == step.k { step.jt } else { step.jf }),
                RETURN => return step.k,
                code => panic!("no instruction {code:#x}"),
            }
        }
    }

    fn data(number: i64, arch: u32, instruction: u64, arguments: [u64; 6]) -> [u8; 64] {
        let mut data = [0; 64];
        data[..4].copy_from_slice(&(number as u32).to_le_bytes());
        data[4..8].copy_from_slice(&arch.to_le_bytes());
        data[8..16].copy_from_slice(&instruction.to_le_bytes());
        for (index, argument) in arguments.iter().enumerate() {
            data[16 + 8 * index..][..8].copy_from_slice(&argument.to_le_bytes());
        }
        data
    }

    #[test]
    fn the_runner_may_stop_from_one_place_and_nothing_else() {
        let (notify, strict) = (runner_notify(), runner_strict());
        let place = stub::address(Place::Stopped);
        let stop = data(STOP as i64, ARCH_X86_64, place, [0; 6]);
        assert_eq!((judge(&notify, &stop), judge(&strict, &stop)), (NOTIFY, ALLOW));
        for number in 0..2000 {
            for arch in [ARCH_X86_64, 0x4000_0003] {
                for instruction in [place, place + 1, place - 2, place ^ 1 << 40, 0] {
                    for bit in [0, 0x4000_0000] {
                        let call = data(number | bit, arch, instruction, [1; 6]);
                        let the_stop = (number | bit) as u64 == STOP
                            && arch == ARCH_X86_64
                            && instruction == place;
                        let expected = if the_stop { ALLOW } else { TRAP };
                        assert_eq!(judge(&strict, &call), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn the_zygote_may_set_helpers_up_only() {
        let zygote = zygote();
        let verdict = |number: i64, first| {
            judge(&zygote, &data(number, ARCH_X86_64, 0x1234, [first, 0, 0, 0, 0, 0]))
        };
        assert_eq!(verdict(STOP as i64, 0), ALLOW);
        assert_eq!(verdict(libc::SYS_clone, FORK_HELPER), ALLOW);
        assert_eq!(verdict(libc::SYS_clone, FORK_HELPER | 1 << 32), TRAP);
        assert_eq!(verdict(libc::SYS_clone, libc::CLONE_NEWUSER as u64), TRAP);
        assert_eq!(verdict(libc::SYS_prctl, libc::PR_SET_NAME as u64), ALLOW);
        assert_eq!(verdict(libc::SYS_prctl, libc::PR_SET_DUMPABLE as u64), TRAP);
        let pair = |family: i32, kind: i32, protocol| {
            let arguments = [family as u64, kind as u64, protocol, 0, 0, 0];
            judge(&zygote, &data(libc::SYS_socketpair, ARCH_X86_64, 0x1234, arguments))
        };
        assert_eq!(pair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0), ALLOW);
        assert_eq!(pair(libc::AF_UNIX, libc::SOCK_STREAM, 0), TRAP);
        assert_eq!(pair(libc::AF_TIPC, libc::SOCK_SEQPACKET, 0), TRAP);
        assert_eq!(pair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 1), TRAP);
        let allowed =
            (0..1024).filter(|&number| (0..64).any(|first| verdict(number, first) == ALLOW));
        // The listed ones, `clone` and `prctl`; `arch_prctl` and `ioctl` want greater arguments.
        assert_eq!(allowed.count(), SET_UP_CALLS.len() + 2);
        assert!(zygote.iter().all(|step| ![NOTIFY, KILL].contains(&step.k)));
    }

    #[test]
    fn the_mapper_may_map_guest_memory_only() {
        let strict = mapper_strict();
        let allowed = |number, arguments| {
            judge(&strict, &data(number, ARCH_X86_64, 0x1234, arguments)) == ALLOW
        };
        assert!(allowed(libc::SYS_mmap, [0x1000, 4096, 7, 0x11, 2, 0]));
        assert!(allowed(libc::SYS_mmap, [0x1000, 4096, 1, 0x8011, 2, 0]));
        assert!(!allowed(libc::SYS_mmap, [0x1000, 4096, 1, 0x12, 2, 0]));
        assert!(!allowed(libc::SYS_mmap, [0x1000, 4096, 1, 0x31, 2, 0]));
        assert!(!allowed(libc::SYS_mmap, [0x1000, 4096, 1, 0x11, 1, 0]));
        assert!(!allowed(libc::SYS_mmap, [0x1000, 4096, 1, 0x11, 1 << 32 | 2, 0]));
        assert!(!allowed(libc::SYS_mmap, [0x1000, 4096, 0x10, 0x11, 2, 0]));
        assert!(allowed(libc::SYS_munmap, [0x1000, 4096, 0, 0, 0, 0]));
        assert!(allowed(libc::SYS_mprotect, [0x1000, 4096, 5, 0, 0, 0]));
        assert!(!allowed(libc::SYS_mprotect, [0x1000, 4096, 1 << 24, 0, 0, 0]));
        assert!(allowed(libc::SYS_ioctl, [RUNNER_FD, NOTIFY_SEND, 0, 0, 0, 0]));
        assert!(!allowed(libc::SYS_ioctl, [MEMORY_FD, NOTIFY_SEND, 0, 0, 0, 0]));
        assert!(!allowed(libc::SYS_ioctl, [RUNNER_FD, 0xc050_2100, 0, 0, 0, 0]));
        let others = [libc::SYS_open, libc::SYS_write, libc::SYS_clone, libc::SYS_mremap];
        assert!(others.iter().all(|&number| !allowed(number, [0; 6])));
        let legacy = data(libc::SYS_munmap, 0x4000_0003, 0, [0; 6]);
        assert_eq!(judge(&strict, &legacy), KILL);
    }
}
