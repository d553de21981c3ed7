//! What domain 0 does to a paravirtual domain while it runs, from any thread: the part that Xen's toolstack (`xl`)
//! plays.
//!
//! A domain is asked for things by keys of its store that its kernel watches: how much memory to keep, which vCPUs to
//! use, to shut down. It may not answer.

use std::fmt::Debug;

/// How much memory a domain has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainMemory {
    /// Now.
    pub now: u64,
    /// As much as it is to have.
    pub target: u64,
    /// The most that it may have.
    pub maximum: u64,
}

/// Why the domain is not asked for something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has not started, or has ended.
    #[error("the domain has no store at the moment")]
    NoStore,
    /// It was not made for as much.
    #[error("the domain may have 1 to {most} {what}")]
    OutOfRange {
        /// Of what.
        what: &'static str,
        /// As many as it may have.
        most: u64,
    },
    /// The store refuses, for this reason.
    #[error("{0}")]
    Store(String),
}

/// See above.
pub trait Toolstack: Debug + Send + Sync {
    /// How much memory it has.
    fn memory(&self) -> DomainMemory;

    /// Have it keep so many bytes.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn set_target(&self, bytes: u64) -> Result<(), Refused>;

    /// Have it use so many vCPUs, the first ones.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn set_processors(&self, count: usize) -> Result<(), Refused>;

    /// The names below a node of its store, as domain 0 sees it. Paths that do not begin at the root are below the
    /// domain's own directory, here and in what follows.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn store_list(&self, path: &str) -> Result<Vec<String>, Refused>;

    /// What a node of its store has, and who may do what with it (as `b0,r1`).
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn store_read(&self, path: &str) -> Result<(Vec<u8>, String), Refused>;

    /// Write a node of its store; nodes above it are made.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn store_write(&self, path: &str, value: &[u8]) -> Result<(), Refused>;

    /// Remove a node of its store, and all below it.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn store_remove(&self, path: &str) -> Result<(), Refused>;

    /// Watch a node of its store and all below it; the number of the watch, which lasts for as long as somebody asks
    /// for its events.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn store_watch(&self, path: &str) -> Result<u64, Refused>;

    /// The paths that a watch has been told of since this was asked last. It is told once at its beginning.
    ///
    /// # Errors
    ///
    /// [`Refused`], also if there is no such watch any more.
    fn store_events(&self, watch: u64) -> Result<Vec<String>, Refused>;

    /// Count all uses of its frames once more, while its vCPUs stand still: each difference from what was counted
    /// before, in a line.
    fn audit(&self) -> Vec<String>;

    /// Finish what its vCPUs were in the middle of when the machine ended, which makes differences for an audit. Only
    /// for a machine that has ended: no vCPU is told.
    fn settle(&self);
}
