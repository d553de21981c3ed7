//! Processes frozen, written down, and made again, by an ordinary user and without the help of a kernel module.
//!
//! ```text
//! freeze(root) -> Frozen --dump--> State, pages --Writer--> file --Image::open--> restart(seed) -> Restarted --go-->
//! ```
//!
//! *The idea.* All that a process has is either told by the kernel to who traces it (registers, memory, /proc), or
//! told to itself (actions of signals, timers, ...). What only it may ask, it is made to ask: [`inject`] lends it a
//! few pages with a list of system calls. Restarting is the same the other way round: each process makes itself, by
//! scripts that the tracer composes, in a PID namespace where its old number is free. There is no program of ours in
//! the namespace but the *seed* that bears the first of them; any process will do, and it keeps nothing.
//!
//! *Invariants.*
//!
//! 1. *Nothing is touched that will be refused for what it has.* [`freeze`](freeze()) looks at all processes before it
//!    attaches to one; what it cannot write down it names. What the processes begin to have in between is found by the
//!    dump.
//! 2. *Frozen means all.* When `freeze` returns, every task of the tree is stopped, those that were born meanwhile too,
//!    and whatever ended has ended (see `freeze.rs`).
//! 3. *A process that goes on is as it was.* Registers, signal mask, memory map, descriptors: whatever a script borrows
//!    is given back before the next process is asked. Calls that only the stop has ended go on.
//! 4. *The tracer's death is the death of all* (`PTRACE_O_EXITKILL`): nothing is left half made, or runs borrowed code.
//!    Who keeps a pod is who traces it, and a pod ends with its keeper anyway.
//! 5. *No code of an image runs before all is there.* Until [`Restarted::go`] every task is in a ptrace stop.
//! 6. *No host in the image*: [`state`] has the processes' own numbers of tasks and users, paths below their root, and
//!    no inode or kernel address. Of files it has size and time, to refuse a library that is another one now.
//!
//! *What each side trusts.* The dump believes the kernel, and nothing that the processes say about themselves matters
//! but to themselves. The restart believes nothing in the image, which another process may read for it ([`reader`]):
//! [`check`] decides what numbers may be, numbers of system calls come from this code, and everything is made with the
//! rights of the seed and in its namespaces, by the process itself. An image is a program together with its data;
//! whoever restarts it runs it.
//!
//! *The order of a restart*: System V IPC, which is the namespace's; files, pipes, sockets, terminals and shared
//! memory (the seed opens all, once, so that who shares a description shares it again); then each process, parents
//! first: memory, children that stay in the older session, its own session with its terminal, the other children;
//! groups, and which of them is in the foreground; the dead; then threads, descriptors, locks, what is watched,
//! actions, credentials; then, children first, what begins to act, timers and signals that wait, and limits; last the
//! area goes and the registers come. A child keeps the mappings that it has in common with its parent, and only pages
//! that differ are written, so that what was copied on write still is.
//!
//! *Connections to elsewhere.* A TCP connection whose other end is not in the tree is kept too. The caller sees to it
//! that from before [`Frozen::dump`] until the processes go on again, here or elsewhere, nothing of it passes through
//! their network (no route, or an interface that is down): the other end sends again what was lost meanwhile, but
//! what it hears of a socket that is not there ends it. Who restarts gives the seed's network the same addresses
//! first. Connections within the tree need none of that. [`Frozen::kill`] ends processes without a word to others.
//!
//! *What leads out of the tree* is refused otherwise, but for pipes, sockets and masters of terminals that the caller
//! names ([`Slots`]).

#![forbid(unsafe_code)]

mod advice;
mod borrow;
mod bytes;
pub mod check;
mod credentials;
mod dump;
mod error;
mod freeze;
mod functions;
mod holes;
mod image;
mod ipc_calls;
mod limits;
mod modes;
mod options;
pub mod pod;
mod proc;
mod ranges;
mod refuse;
mod registers;
mod repair;
mod restart;
mod slots;
pub mod state;
mod terminal;
mod timestamps;
mod track;
mod vdso;

pub use dump::Pages;
pub use error::Error;
pub use freeze::{Frozen, freeze, freeze_all, freeze_children};
pub use image::{
    Compression, Finished, Image, ImageName, Pages as PagesOf, Parents, Run, STREAM_OFFSET, Writer,
    from_stream, reader,
};
pub use restart::{Restarted, restart};
pub use slots::{Given, Slots};
pub use track::{Copied, Round, Tracker};
