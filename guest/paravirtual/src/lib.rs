//! Tiny kernels for Xen's paravirtual interface. `kernel/` has their source; `build.rs` compiles them.
//!
//! The one prints on Xen's console what it finds at its entry and what hypercalls answer, one line each after
//! `pv: `, and then has the machine reset. The same lines are to appear whichever Xen runs it, so it prints no address,
//! frame or size that its builder chooses. Another does the same with what it finds on its stack when its users, or
//! itself, are interrupted, and how it returns there; `kernel/users.c` says what is in a line. The third carries
//! out scripts of operations on page tables and event channels, and prints what each script came to;
//! `kernel/script.c` says how a script is written, which is in its initial RAM disk. The last one is hostile
//! (`kernel/hostile.c`).

#![forbid(unsafe_code)]

/// The ELF file of the one that says what it finds.
pub const KERNEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernel"));

/// The ELF file of the one that goes to its users and back.
pub const USERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/users"));

/// What it says under Xen 4.17, as [`SAID_UNDER_XEN`] is.
pub const USERS_SAID_UNDER_XEN: &str = include_str!("users.txt");

/// The ELF file of the one that carries out scripts.
pub const SCRIPT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/script"));

/// The ELF file of the one that does at random what no kernel should: its initial RAM disk has a seed, how often, and
/// the number of vCPUs, each in 8 bytes.
pub const HOSTILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hostile"));

/// What it says under Xen 4.17, without the `pv: ` before each line (`tests/oracle-xen` asks). Errors are those of
/// public/errno.h.
pub const SAID_UNDER_XEN: &str = "\
magic 1
cs 57395
ss 57387
ds 0
interrupts 1
stack after tables 1
start info below tables 1
own page writable 1
writable tables 0
other slots 0
root maps itself 1
version is 4 4
features 0
preserves accessed and dirty 1
available bits of grants 1
writable page tables 0
features of submap 1 -22
unknown hypercall -38
unknown assist -22
bad address -14
set_trap_table 0
map shared info 0
write to own page -1
write to a table 3
fault's cs 57392
fault's address 1
pin a writable page -22
map it read-only 0
pin it 0
pin it again -22
map it writable -16
unpin it 0
unpin it again -22
map it writable now 0
and write -1
map a table writable -16
write a slot of Xen's -22
map no frame -22
the entry is as it was 1
clear an entry 0
touch it 0
end";
