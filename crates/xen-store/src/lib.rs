//! A domain's xenstore: a small tree of names and values that domain and host share, with watches and transactions.
//!
//! The library has no thread and does no I/O: bytes of requests go in, bytes of replies and events come out
//! ([`Store::receive`], [`Store::send`]), or both at once over the ring in the domain's memory ([`ring::exchange`]).
//! The host's own part of the system calls [`Store`]'s methods, as the control domain.
//!
//! What it is not: a daemon for all domains. Each domain has a store, with its own directory and what its back-ends
//! have; nobody is introduced by a message, and another domain is only a number in permissions.
//!
//! What rules it:
//!
//! 1. *Requests are an allegation.* A payload is parsed into a [`Path`], a permission or a value before anything looks
//!    at it. What is wrong is answered with an [`Error`]; what breaks the framing ends the connection ([`Broken`]).
//! 2. *All or nothing.* A request checks permissions and quotas first and then changes nodes.
//! 3. *Everything has a limit*, in [`limits`]. A client that does not read gets no more replies: its next requests
//!    wait. Its events are merged, so that it learns of every change sooner or later.
//! 4. *A transaction sees the tree as it began*, and its own changes. At its end, if one of the nodes that it has used
//!    has changed meanwhile, it is `EAGAIN` and nothing happens; else its changes happen at once. So committed
//!    transactions are as good as one after the other.
//! 5. *A store can go on elsewhere* ([`Store::save`]); transactions that had begun are made again there.
//! 6. *Events say what has happened, to those that may know.* A watch is told of changes of nodes that its client may
//!    read, or could. Events of a transaction come with its end. A watch fires once when it is made.

#![forbid(unsafe_code)]

mod client;
mod error;
pub mod limits;
mod path;
mod permission;
mod requests;
pub mod ring;
mod saved;
mod saved_client;
mod store;
mod transaction;
mod tree;
mod view;
mod watch;
mod wire;

pub use self::client::Broken;
pub use self::error::Error;
pub use self::path::{DomainId, Path, domain_path};
pub use self::permission::{CONTROL_DOMAIN, Permission};
pub use self::saved::Saved;
pub use self::store::{ClientId, Store};
pub use self::wire::HEADER_BYTES;
