//! Options for debugging and profiling the engine.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use spec::{ListBlocks, TraceBlocks, Watch};

/// Where the help puts them.
const HEADING: &str = "Debugging and profiling Bivouac";

/// What is to be seen of the engine; docs/debugging.md explains it.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Keep /tmp/perf-PID.map, by which perf(1) names translated code. It stays for `perf report`;
    /// remove it when done
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub perf_map: bool,

    /// Resolve symbols of the guest's kernel from FILE: its System.map, its /proc/kallsyms, or its vmlinux
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true,
        help_heading = HEADING)]
    pub symbols: Option<PathBuf>,

    /// Print the last N events of each processor on standard error when it shuts down, when the guest resets the
    /// machine (as a panic does), when --timeout expires, and upon SIGUSR1
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = HEADING)]
    pub history: Option<usize>,

    /// Write each block that is executed to FILE, from the Nth one on and so many (slow; translates
    /// user code unless it is to run directly)
    #[arg(long, value_name = "FILE[,from=N][,count=N]", hide_short_help = true,
        help_heading = HEADING)]
    pub trace_blocks: Option<TraceBlocks>,

    /// Interpret the blocks with these names, or those listed in FILE, instead of translating them
    #[arg(long, value_name = "FIRST-LAST,...|@FILE", hide = true)]
    pub interpret_blocks: Option<String>,

    /// Write the name of each block that is translated to FILE, and all of those in the ranges
    #[arg(long, value_name = "FILE[,show=FIRST-LAST]", hide = true)]
    pub list_blocks: Option<ListBlocks>,

    /// Mistranslate this block, to test the tools that find faults
    #[arg(long, value_name = "BLOCK", hide = true)]
    pub plant_fault: Option<String>,
}

impl Options {
    /// What is to be seen, as it is described.
    #[must_use]
    pub fn into_watch(self) -> Watch {
        Watch {
            perf_map: self.perf_map,
            symbols: self.symbols,
            history: self.history,
            trace_blocks: self.trace_blocks,
            interpret_blocks: self.interpret_blocks,
            list_blocks: self.list_blocks,
            plant_fault: self.plant_fault,
            ..Watch::default()
        }
    }
}
