//! What is measured: a file for each number, and their order in the tables.

use crate::number::Number;

mod anonymous_fault;
mod avx;
pub mod build;
mod build_sqlite;
mod build_two;
mod bytecode;
mod chase;
mod file_fault;
mod files;
mod fork_exec;
mod fork_exit;
mod git;
mod go;
mod iperf3;
mod launch;
mod lua;
mod map_file;
mod map_touch_unmap;
mod memcpy;
mod memcpy_16k;
mod memory;
mod nbody;
pub mod nginx;
mod nginx_connections;
mod node;
mod null_syscall;
mod open_close;
mod parallel_build;
pub mod pgbench;
mod pgbench_write;
mod pipe;
mod povray;
mod protection_fault;
mod python;
mod python_start;
mod qsort;
mod read_byte;
pub mod redis;
mod select_tcp;
mod sha256;
mod shell;
mod signal;
mod signal_install;
mod sqlite;
mod sse;
mod stat;
pub mod storm;
mod switches;
mod tar_gzip;
mod tcp;
mod thread;
mod true_loop;
mod unix_socket;
mod untar;

/// All of them.
pub const ALL: [&Number; 63] = [
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
    &map_file::NUMBER,
    &signal_install::NUMBER,
    &select_tcp::NUMBER,
    &switches::P2_0K,
    &switches::P2_16K,
    &switches::P2_64K,
    &switches::P8_16K,
    &switches::P8_64K,
    &switches::P16_16K,
    &switches::P16_64K,
    &files::CREATE_0K,
    &files::DELETE_0K,
    &files::CREATE_10K,
    &files::DELETE_10K,
    &build::NUMBER,
    &build_two::NUMBER,
    &parallel_build::NUMBER,
    &build_sqlite::NUMBER,
    &sqlite::NUMBER,
    &lua::NUMBER,
    &python::NUMBER,
    &python_start::NUMBER,
    &node::NUMBER,
    &go::NUMBER,
    &true_loop::NUMBER,
    &storm::NUMBER,
    &tar_gzip::NUMBER,
    &untar::NUMBER,
    &git::NUMBER,
    &nginx::NUMBER,
    &nginx_connections::NUMBER,
    &redis::NUMBER,
    &pgbench::NUMBER,
    &pgbench_write::NUMBER,
    &iperf3::NUMBER,
    &memcpy_16k::NUMBER,
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
