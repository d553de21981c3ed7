//! Back-ends of a paravirtual machine's split drivers, as state machines: disks ([`block`]), network cards
//! ([`network`]) and the console ([`console`]), and how a device and its front-end find each other ([`bus`]).
//!
//! A front-end in the guest puts requests into a ring in its memory and grants pages to the back-end, which does what
//! is asked for. A back-end here is given the domain's memory ([`Domain`]) and calls a trait for everything that is not
//! memory. It has no thread, opens nothing, and sends no event: it says when one is to be sent.
//!
//! What rules it:
//!
//! 1. *All that is in the guest's memory is an allegation*, and may change while it is looked at. So it is copied, then
//!    checked, then used: indices, requests, grant entries.
//! 2. *Who is wrong is told so.* A wrong request gets an answer with an error. A ring that is wrong is [`Broken`]: its
//!    back-end stops, and says why.
//! 3. *A page is held while it is used* ([`grant::Grant`]): it cannot become a page table or be given back.
//! 4. *Everything has a limit*, in [`limits`]: turns, bytes under way, extents.
//! 5. *Bytes first, news second.* What was written to the guest's memory is named to the embedding before the guest can
//!    learn of it, so that no translation of old bytes is executed.

#![forbid(unsafe_code)]

pub mod block;
pub mod bus;
pub mod console;
pub mod device;
mod error;
pub mod grant;
pub mod limits;
mod memory;
pub mod network;
pub mod ring;

pub use self::error::Broken;
pub use self::grant::Grants;
pub use self::memory::{
    Domain, GrantPlace, MachineAddress, Memory, NoMemory, Range, load_index, store_index,
};
