//! What Xen and a 64-bit paravirtual guest of it agree on: the numbers of hypercalls, and the structures that
//! they share in memory. Nothing here does anything.
//!
//! The source of all of it is the public headers of Xen (`xen/include/public`, which Debian has in `libxen-dev`).
//! Each module names its header, and each item its name there. The names of the headers are written out here:
//! `evtchn` is an event channel, `gnttab` a grant table.
//!
//! # What rules it
//!
//! 1. *A structure is written once*, by the macro `structure!`: fields, offsets and size. The compiler checks that
//!    the offsets are those of `#[repr(C)]`; a test has the C compiler check them against the headers.
//! 2. *A guest's memory is bytes.* [`Wire`] turns them into a structure, field by field. No byte pattern is
//!    invalid, because no field is a reference, an enumeration or a `bool`.
//! 3. *A number from the guest means nothing before it is looked up.* So the numbers are constants, not variants.
//! 4. Addresses in the guest are `u64`, as the headers have them; [`Pfn`] and [`Mfn`] tell the two numberings of
//!    frames apart.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[macro_use]
mod declare;
mod frame;
mod wire;

pub mod block;
pub mod bus;
pub mod callback;
pub mod console;
pub mod cpuid;
pub mod errno;
pub mod event;
pub mod feature;
pub mod grant;
pub mod hypercall;
pub mod memory;
pub mod mmu;
pub mod net;
pub mod note;
pub mod physical;
pub mod ring;
pub mod scheduler;
pub mod segment;
pub mod shared;
pub mod start;
pub mod store;
pub mod vcpu;
pub mod version;

#[cfg(test)]
mod tests;

pub use frame::{Mfn, Pfn};
pub use wire::Wire;

/// Bytes of a page and of a frame.
pub const PAGE_BYTES: usize = 4096;

/// The bit of an address where the number of its page begins.
pub const PAGE_SHIFT: u32 = 12;

constants! {
    /// Numbers of domains with a meaning (public/xen.h).
    domain: u16 {
        /// Whoever makes the call.
        THIS = 0x7ff0, "DOMID_SELF";
        /// What is no domain's memory but the machine's.
        IO = 0x7ff1, "DOMID_IO";
        /// The hypervisor itself.
        XEN = 0x7ff2, "DOMID_XEN";
        /// The first number that no domain can have.
        FIRST_RESERVED = 0x7ff0, "DOMID_FIRST_RESERVED";
        INVALID = 0x7ff4, "DOMID_INVALID";
    }
}
