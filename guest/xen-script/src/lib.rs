//! A tiny kernel for Xen's paravirtual interface that carries out scripts of page-table operations on a pool of its own
//! frames, and prints what each answered. `kernel/main.c` says how a script is written; the script is the kernel's
//! initial RAM disk.

#![forbid(unsafe_code)]

/// Its ELF file.
pub const KERNEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernel"));
