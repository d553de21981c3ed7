//! The options for a debugger outside of the machine.

use clap::Args;
use spec::{Gdb, GdbAddress};

/// Whether gdb may connect, and where.
#[derive(Debug, Clone, Default, Args)]
pub struct GdbOptions {
    /// Let gdb connect to the machine and debug its guest: kernel and programs (docs/debugging.md). unix:PATH: at a
    /// Unix socket; tcp:PORT: at a port of 127.0.0.1, which every user of this host can reach; tcp:ADDRESS:PORT: at
    /// that address [default: the Unix socket "gdb" in the domain's directory, which is said at the start]
    #[arg(long, value_name = "WHERE", num_args = 0..=1, conflicts_with = "xen")]
    pub gdb: Option<Option<GdbAddress>>,

    /// Execute nothing of the guest before a debugger lets it go on
    #[arg(long, requires = "gdb")]
    pub freeze: bool,
}

impl GdbOptions {
    /// As it is described.
    #[must_use]
    pub fn into_gdb(self) -> Option<Gdb> {
        let freeze = self.freeze;
        self.gdb.map(|at| Gdb { at, freeze, ..Gdb::default() })
    }
}
