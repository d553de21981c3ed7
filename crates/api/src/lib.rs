//! What programs say to a domain, and how they find it: a domain is one process that owns a directory and answers
//! on a socket.
//!
//! - [`registry`]: who has which name and who lives; [`files`]: what is in a domain's directory.
//! - [`record`], [`origin`]: what a domain was started as, for everybody and for those who take snapshots of it.
//! - [`v1`]: what a domain answers; [`http`]: how it is asked; [`client`]: the end of the socket that asks.
//! - [`log`]: what the command of a detached domain has written.
//! - [`status`]: what the exit statuses mean.
//!
//! What it is not: a domain. It starts no machine and links no `vmm`, so that a front end which only talks to
//! domains is small. The other end of the socket, and all that runs a machine, is the crate `domain`.
//!
//! What rules it:
//!
//! 1. *Liveness is a lock*, never a process number ([`registry`]).
//! 2. *Domains share nothing but the directory that they are in.*
//! 3. *Neither end trusts the other*: everything that is read has a limit, and whatever comes in ends in a value or
//!    in an error.

#![forbid(unsafe_code)]

pub mod client;
pub mod files;
pub mod http;
pub mod log;
pub mod origin;
pub mod record;
pub mod registry;
pub mod status;
pub mod v1;

pub use origin::Origin;
pub use record::{Ended, Record};
pub use registry::{Entry, Registry};
pub use spec::{Name, NotAName as NameError, is_plain};
