//! What is measured: a file for each number, and their order in the tables.

use crate::number::Number;

mod anonymous_fault;
mod avx;
mod build;
mod bytecode;
mod chase;
mod file_fault;
mod fork_exec;
mod fork_exit;
mod iperf3;
mod launch;
mod map_touch_unmap;
mod memcpy;
mod memory;
mod nbody;
mod nginx;
mod null_syscall;
mod open_close;
mod parallel_build;
mod pipe;
mod povray;
mod protection_fault;
mod qsort;
mod read_byte;
mod sha256;
mod shell;
mod signal;
mod sqlite;
mod sse;
mod stat;
mod tcp;
mod thread;
mod true_loop;
mod unix_socket;

/// All of them.
pub const ALL: [&Number; 33] = [
    &sha256::NUMBER,
    &nbody::NUMBER,
    &qsort::NUMBER,
    &bytecode::NUMBER,
    &chase::NUMBER,
    &memcpy::NUMBER,
    &sse::NUMBER,
    &avx::NUMBER,
    &povray::NUMBER,
    &null_syscall::NUMBER,
    &read_byte::NUMBER,
    &stat::NUMBER,
    &open_close::NUMBER,
    &signal::NUMBER,
    &protection_fault::NUMBER,
    &pipe::NUMBER,
    &unix_socket::NUMBER,
    &tcp::NUMBER,
    &fork_exit::NUMBER,
    &fork_exec::NUMBER,
    &shell::NUMBER,
    &thread::NUMBER,
    &anonymous_fault::NUMBER,
    &file_fault::NUMBER,
    &map_touch_unmap::NUMBER,
    &build::NUMBER,
    &parallel_build::NUMBER,
    &sqlite::NUMBER,
    &true_loop::NUMBER,
    &nginx::NUMBER,
    &iperf3::NUMBER,
    &launch::NUMBER,
    &memory::NUMBER,
];

/// What shows the worth of techniques (variants.rs): computing, entries into the kernel, page faults,
/// processes, and programs that do everything.
pub const LADDER: [&Number; 9] = [
    &sha256::NUMBER,
    &nbody::NUMBER,
    &null_syscall::NUMBER,
    &anonymous_fault::NUMBER,
    &fork_exec::NUMBER,
    &true_loop::NUMBER,
    &build::NUMBER,
    &sqlite::NUMBER,
    &launch::NUMBER,
];

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn names_are_words_that_a_kernel_command_line_can_hold() {
        let mut names: Vec<&str> = ALL.iter().map(|number| number.name).collect();
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(names.iter().all(|name| name.chars().all(fine)));
        assert!(names.join(",").len() < 1000);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
