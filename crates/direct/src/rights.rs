//! What user code may do in a space.

/// What user code may do with pages beside reading them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Protection {
    /// Write.
    pub write: bool,
    /// Execute.
    pub execute: bool,
}

impl Protection {
    /// As `mmap` wants it.
    pub(crate) fn bits(self) -> u64 {
        let write = if self.write { libc::PROT_WRITE } else { 0 };
        let execute = if self.execute { libc::PROT_EXEC } else { 0 };
        (libc::PROT_READ | write | execute) as u64
    }
}

/// What RDTSC and RDTSCP do in a space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimeStamp {
    /// They read the host's counter.
    #[default]
    Native,
    /// They raise #GP(0), so that the caller can emulate them.
    Faults,
}
