//! `biv cache`: the verbs about caches.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;

use super::Format;
use crate::candidates;

/// List and remove caches: directories that `biv run --cache` keeps between machines.
///
/// They are in $XDG_CACHE_HOME/bivouac/caches, belong to you, and are made when a machine names them.
#[derive(Debug, Args)]
pub struct Cache {
    /// What
    #[command(subcommand)]
    pub action: CacheAction,
}

/// What is done with caches.
#[derive(Debug, Subcommand)]
pub enum CacheAction {
    /// List caches: what they take on the disk, and when a machine last began to use each
    Ls {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Remove caches with all that is in them, unless a running machine uses them
    Rm {
        /// All caches that no machine uses
        #[arg(short, long, conflicts_with = "name")]
        all: bool,

        /// Names of the caches
        #[arg(required_unless_present = "all", add = ArgValueCandidates::new(candidates::caches))]
        name: Vec<String>,
    },
}
