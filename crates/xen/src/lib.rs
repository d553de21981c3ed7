//! The hypervisor: domains by Xen's paravirtual interface, as `xen-abi` declares it.
//!
//! A [`Board`] is what a paravirtual kernel finds instead of a PC: vCPUs, memory, time, event channels and grant
//! tables, all reached by hypercalls. The [`builder`] makes a domain's first memory from its kernel. The crate
//! knows neither the processor (which it reaches by [`machine::xen::XenVcpu`]) nor the host: memory, time and what
//! wakes a vCPU's thread are handed to it.
//!
//! # What rules it
//!
//! 1. *A domain sees its own machine frames alone.* They are numbered from [`geometry::BASE`] on; a number names
//!    nothing of another domain's or of the host's.
//! 2. *Whatever a guest asks for, the answer is an error number.* No hypercall makes us panic, or takes time or
//!    memory that the guest can choose: long ones are interrupted and made again.
//! 3. *Each call does what the public headers say*, and where these are silent, what real Xen does.
//! 4. *Lock order*: `Domain::grants`, `Domain::tables`, then `Domain::reservation`, then events, then a vCPU's own
//!    lock. None is held while the guest's memory is accessed by linear addresses, except `tables`.

#![forbid(unsafe_code)]

mod board;
pub mod builder;
mod call;
mod caller;
mod clock;
mod domain;
mod engine;
mod errno;
mod events;
pub mod geometry;
mod grant_layout;
mod grants;
mod holding;
pub mod limits;
mod memory;
mod mmu;
mod reservation;
mod saved;
mod scheduling;
mod serve;
mod services;
mod start;
mod started;
mod time;
mod tools;
mod traps;
mod vcpus;
mod version;

pub use board::{Board, VcpuSide};
pub use saved::memory_of;
