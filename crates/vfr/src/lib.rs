//! The process of a network between domains: the virtual firewall-router ([`router`]) with its cables.
//!
//! Each domain's virtual interface (VIF) is a *cable*, a stream of frames in memory that both ends have. So, on a
//! socket, is the uplink, behind which the rest of the world is. Whoever starts a domain *attaches* it over the control
//! socket ([`Request`]): he says whose it is, which addresses it has, and hands over the cable's end. Rules and rates
//! are changed there as well.
//!
//! What it is not: a back-end of Xen's network rings. Those stay in each domain's own process, which hands frames over
//! as bytes. So nobody here maps a guest's memory, and no guest can name another's; it costs copies of a frame on both
//! sides of the one that Xen's router has, too.
//!
//! What rules it:
//!
//! 1. *Who is at a cable's end is an adversary*: a guest may own its domain's process. It may send any bytes, as slowly
//!    as it likes, change them while they are read, and not read. What is no frame cuts its cable; what it does not
//!    take in time is lost, to it alone and counted.
//! 2. *Nothing comes from a cable but frames.* Addresses, rules and rates are said over the control socket, which no
//!    confined domain can connect to, by processes of the same user (`SO_PEERCRED`).
//! 3. *A port is not read out of its turn.* Round robin and rates are a matter of whose cable is read next; who has to
//!    wait finds its cable full, and its guest its ring. A receiver that is slow is shared in turns as well (`lanes`).
//! 4. *A domain's death is the end of its cable*, and no more. The router ends when nobody has been attached for a
//!    while, and keeps nothing: whoever starts it again attaches the domains that live.
//! 5. *One thread, no file.* It is confined like every process that serves machines (`host::confine`).
//! 6. *Everything has a limit*, in [`limits`].

#![forbid(unsafe_code)]

pub mod cable;
mod client;
mod control;
mod lanes;
pub mod limits;
mod server;
mod wire;

pub use client::Client;
pub use server::{Plan, Server};
pub use wire::{Attach, Drop, Port, Reply, Request, RuleState, Traffic};
