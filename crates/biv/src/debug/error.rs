//! Why `biv debug` finds nothing.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command that is looked into.
    #[error("cannot start {command}: {error}", command = command.display())]
    Start {
        /// Which.
        command: OsString,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The list of blocks.
    #[error("cannot use the list of blocks {path}: {error}", path = path.display())]
    List {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// It does nothing wrong.
    #[error("the command succeeds when everything is translated, so no block is mistranslated")]
    Succeeds,
    /// It is not the translator's fault, or that of a block that was left out.
    #[error(
        "the command fails when all blocks (but those of --except) are interpreted, too: none of \
         them is at fault"
    )]
    Fails,
    /// It runs no `biv`, or that one translates nothing.
    #[error("the command has translated no block; check that it runs `biv run`")]
    NoBlocks,
    /// It is not the same each time.
    #[error("the command does not fail the same way each time; no more runs after {0}")]
    TooManyRuns(usize),
}
