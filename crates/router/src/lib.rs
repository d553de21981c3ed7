//! The virtual firewall-router of a network of domains: which frames go where, and whose turn it is.
//!
//! Each domain's virtual interface (VIF) is a port of the router, and so is the uplink, behind which the rest of
//! the world is. As in Xen's first design ("Xen and the Art of Virtualization", section 3.3.5) a port has for each
//! direction a list of rules, each a pattern and an action; what a rule can say, and how it is written, stands in
//! [`Rules`].
//!
//! The library has no thread, no clock and no ring. Whoever embeds it hands in time and the first bytes of frames,
//! and copies frames itself, once, to the destinations of a [`Decision`]. No byte of a frame is changed here.
//!
//! What rules it:
//!
//! 1. *A frame is an allegation.* Only its first [`limits::HEAD_BYTES`] bytes are looked at, by a parser that is
//!    total; what does not fit in there, or contradicts itself, or could mean one thing here and another at its
//!    receiver (tags, source routes, overlapping headers of fragments) is dropped before a rule sees it.
//! 2. *Nobody speaks for another.* A VIF's frames have its own addresses: MAC, IPv4, IPv6, ARP's sender and
//!    neighbour discovery's. Rules cannot allow more than that; only a port that is trusted may do it. Nobody
//!    outside has an address of a VIF's either.
//! 3. *Addresses are configured, not learnt.* So nobody can take another's place by sending, and nothing is
//!    flooded: a frame for nobody here goes to the uplink, and one from there is dropped.
//! 4. *Turns are fair.* Ports with frames to send are served round robin, each for at most [`limits::TURN_PACKETS`]
//!    frames and [`limits::TURN_BYTES`] bytes, copies of a broadcast counted each; what a turn had too much is
//!    taken from the next.
//! 5. *Everything that is dropped is counted*, at the port that caused it or refused it, by [`Reason`].
//! 6. *Everything has a limit*, in [`limits`].

#![forbid(unsafe_code)]

mod address;
mod bucket;
mod counters;
mod guard;
pub mod limits;
mod packet;
mod port;
mod router;
mod rule;
mod text;
mod turns;

pub use self::address::{Mac, PortId, Prefix};
pub use self::bucket::{Rate, Time};
pub use self::counters::{Counters, Reason, Tally};
pub use self::packet::Frame;
pub use self::port::Interface;
pub use self::router::{ConfigurationError, Decision, Destination, Router};
pub use self::rule::{Action, Direction, Pattern, PatternError, PortRange, Rule, Rules};
pub use self::text::{RuleError, RuleProblem};
pub use self::turns::{Next, Turn};
