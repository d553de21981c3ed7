//! The interface of a domain, and how programs find domains. A domain is one process that owns a
//! directory and answers on a control socket.
//!
//! - [`registry`]: the names of domains and which of them live; [`files`]: a domain's directory.
//! - [`kept`]: what both have in common with pods, which have a registry of their own ([`pod`]).
//! - [`record`]: the properties of a domain, for everybody; [`origin`]: the host resources that it
//!   was given, for programs that take snapshots of it; [`again`]: the description that it is started again from.
//! - [`v1`]: the requests that a domain answers; [`http`]: their transport; [`client`]: the client.
//! - [`keeper`]: what programs ask of the keeper of paravirtual domains; [`admission`]: how much these may have.
//! - [`pod`]: the record of a pod, and the requests that it answers.
//! - [`log`]: the output of a detached domain's command.
//! - [`status`]: the exit statuses.
//!
//! What it is not: a domain. It starts no machine and links no `vmm`, so that a front end which
//! only talks to domains is small. The crate `domain` has the server's end of the socket, and runs
//! machines.
//!
//! What rules it:
//!
//! 1. *Liveness is a lock*, never a process number ([`registry`]).
//! 2. *Domains share nothing but the directory that contains their directories.*
//! 3. *Neither end trusts the other.* Each end limits what it reads, and makes each input a value
//!    or an error.

#![forbid(unsafe_code)]

pub mod admission;
pub mod again;
pub mod client;
pub mod ended;
pub mod files;
pub mod http;
pub mod keeper;
pub mod kept;
pub mod log;
pub mod networks;
pub mod origin;
pub mod places;
pub mod pod;
pub mod record;
pub mod registry;
pub mod status;
pub mod v1;

pub use ended::{End, Ended};
pub use kept::{Kept, Kind, Written};
pub use origin::Origin;
pub use record::Record;
pub use registry::{Entry, Registry, StartedBy};
pub use spec::{Name, NotAName as NameError, is_plain};
