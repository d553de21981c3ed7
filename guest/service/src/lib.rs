//! What a first process serves its host with, in a guest of `biv` and in a pod: it receives orders over a channel,
//! carries each out in a session, reaps every process that ends, and reports how the commands ended.
//!
//! - [`serve`]: the loop; what is particular to a guest or a pod is its [`serve::System`].
//! - [`line`]: the channel; [`session`]: one order and its command's streams; [`command`]: starting it; [`copy`]:
//!   packing and unpacking files, which init does itself.
//! - [`reaper`]: the parent of orphans; [`place`]: files to be covered, which init has before it serves.
//!
//! What it is not: a program. The first process calls [`serve::serve`], and what it executes again under the names
//! [`command::SESSION_NAME`] and [`copy::COPY_NAME`] calls [`command::run_session`] and [`copy::run`].

#![forbid(unsafe_code)]

pub mod command;
pub mod copy;
pub mod error;
pub mod line;
mod pace;
pub mod place;
mod poller;
pub mod reaper;
pub mod serve;
pub mod session;
pub mod stream;
#[cfg(test)]
mod tests;
mod user;
