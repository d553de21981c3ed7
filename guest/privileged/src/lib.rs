//! Test programs for what only privileged code can see: exceptions, privilege changes, paging, the
//! TLB, interrupts, single-step, descriptor tables, processor modes.
//!
//! The programs are under `programs/`; `build.rs` makes a bootable image of each, and
//! `tests/programs.rs` runs them. This library is empty: the package exists for these two.

#![forbid(unsafe_code)]
