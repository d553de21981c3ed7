//! Pods: ordinary processes of the host with private names: process numbers, a root file system, System V and POSIX
//! IPC, sockets, terminals, a host name, users. Nothing of the host shows in a pod, and its processes are what they
//! are on the host: nothing is interposed.
//!
//! - [`spec`]: what a pod is to be.
//! - [`names`]: starts the pod's first process in new namespaces.
//! - `tracer`: the thread that freezes a pod's processes, writes them down, and makes them again (`image`); `copying`:
//!   how much of that is done while they run.
//! - [`reader`]: the process that reads an image, and can do nothing else.
//! - [`keeper`]: the process that keeps one pod: its entry in the registry, its streams, its end; [`server`]: the
//!   thread that answers requests.
//! - [`network`]: the process that is its network; [`member`]: its place in a network of several;
//!   [`trunk`]: such a network on two hosts.
//!
//! ```text
//! biv pod exec ... --HTTP, frames on a Unix socket--> keeper --frames on a socket pair--> init (process 1 of the pod)
//!                                                      |                                   |
//!                                                      |- outer process of init            '- the pod's processes
//!                                                      '- the process of its network
//! ```
//!
//! What it is not: a machine. It links none, and a pod has the host's kernel.
//!
//! What rules it:
//!
//! 1. *No privilege is needed*: a user namespace gives all that a pod takes. Where the host forbids these there are no
//!    pods, and `biv doctor` says so.
//! 2. *Nobody enters a pod.* What `exec` runs is forked by the pod's init. So no process is half in. Who packs
//!    and unpacks its files is in its users and mounts, not among its processes, while none of these runs.
//! 3. *A process is known by its descriptor* (pidfd), or as an unreaped child; never by a number that may be another's.
//! 4. *The pod ends with its keeper*, however that ends, and the keeper ends when the pod has: then all of its
//!    processes have been reaped, and its mounts are gone with them.
//! 5. *Pods share nothing but the directory that contains their directories* ([`api::registry`]), and the switch of
//!    their network, if they are in one.

#![forbid(unsafe_code)]

mod copying;
mod image;
pub mod keeper;
pub mod limits;
pub mod member;
pub mod names;
pub mod network;
mod order;
mod parents;
pub mod reader;
mod root;
pub mod server;
pub mod spec;
mod tracer;
pub mod trunk;

pub use checkpoint::{STREAM_OFFSET, from_stream};
pub use keeper::{Error, run};
pub use spec::PodSpec;
pub use switch::mend;
