//! The server of `biv serve`: an HTTP API on a Unix socket that makes domains and controls them.
//!
//! - [`socket`]: the socket, and the lock that says that a server is there; [`server`]: the loop; [`shared`]: what
//!   requests have in common.
//! - [`routes`]: which request is whose; [`call`] and [`reply`]: what handlers take and give.
//! - [`domains`]: what is answered at once; [`making`]: what begins a job ([`jobs`]); [`verb`]: the processes that do
//!   it.
//! - [`logs`], [`events`], [`exec`], [`frames`]: answers that go on; [`watch`]: how changes of files are noticed.
//! - [`metrics`]: numbers for Prometheus; [`document`]: the API as an OpenAPI document.
//! - [`web`]: a page for browsers, on a port of this host's own address, if one is asked for.
//! - [`activity`]: whether there is something to do; [`limits`]: all limits.
//!
//! What it is not: a daemon that machines depend on, and the keeper of any state. What it knows of domains it reads
//! from the registry and asks of the domains, each time; whatever else starts or ends domains beside it is as good as
//! it is. It runs no machine and links no `vmm`.
//!
//! What rules it:
//!
//! 1. *The server can end at any moment*, and no machine ends with it. Jobs are forgotten then; what they did goes on.
//! 2. *Whatever starts or ends a machine is a process of its own* ([`verb`]), with the checks and messages of the
//!    command line: there are not two ways to do it.
//! 3. *Only its user may connect*, and root: a description may name any file of the user's. A browser, which
//!    cannot connect to a Unix socket, must have a token ([`web`]).
//! 4. *Nothing blocks the loop*, and everything has a limit ([`limits`]).
//! 5. *Neither clients nor domains are believed*: what they say is a value or an [`error::Error`].

#![forbid(unsafe_code)]

pub mod activity;
pub mod call;
pub mod document;
pub mod domains;
pub mod error;
pub mod events;
pub mod exec;
pub mod frames;
pub mod jobs;
pub mod limits;
pub mod logs;
pub mod making;
pub mod metrics;
pub mod reply;
pub mod routes;
pub mod server;
pub mod shared;
pub mod socket;
pub mod verb;
pub mod watch;
pub mod web;

pub use server::Server;
pub use socket::Place;
pub use verb::{Execution, Program, Snapshot, Usage, Verb};
pub use web::Web;
