//! A tiny kernel for Xen's paravirtual interface. It prints on Xen's console what it finds at its entry and what
//! hypercalls answer, one line each after `pv: `, and then has the machine reset. The same lines are to appear
//! whichever Xen runs it, so it prints no address, frame or size that its builder chooses.
//!
//! `kernel/` has its source; `build.rs` compiles it.

#![forbid(unsafe_code)]

/// Its ELF file.
pub const KERNEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernel"));
