//! The configuration of a vCPU: what distinguishes it from others, and its memory; and the errors of a host that
//! cannot provide it.

use crate::board::Board;

/// A range of guest-physical memory and where it is mapped in this process.
#[derive(Debug, Clone, Copy)]
pub struct RamRegion {
    /// Guest-physical address of the first byte, page aligned.
    pub guest: u64,
    /// Bytes, a multiple of the page size.
    pub size: u64,
    /// Where the region is mapped, readable and writable, for as long as the processor lives; page aligned.
    pub host: *mut u8,
}

/// What distinguishes one processor from another.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Initial APIC id, as CPUID reports it.
    pub apic_id: u32,
    /// Number of processors in the machine, for CPUID's topology leaves.
    pub processors: u32,
    /// Frequency of the time-stamp counter in kHz, announced through CPUID.
    pub tsc_khz: u32,
    /// Execute everything in the interpreter, one instruction at a time (slow; for comparison).
    pub interpret_only: bool,
    /// The board around it.
    pub board: Board,
}

/// What can go wrong in the host, not in the guest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host processor lacks something that translated code needs.
    #[error("this processor lacks {0}, which Bivouac needs")]
    MissingFeature(&'static str),
    /// More vCPUs than a group can have.
    #[error("a machine has at most {0} processors")]
    TooManyProcessors(usize),
    /// User code cannot be run directly, and must not be translated.
    #[error("cannot run user code directly: {0}; --user-exec auto translates it instead")]
    Direct(#[from] direct::Error),
    /// A mapping, a signal handler or a timer could not be had.
    #[error("cannot {action}: {source}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
    },
}
