//! Why a hypercall fails.

/// One of [`xen_abi::errno`]; a call returns it negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(i64);

impl Errno {
    /// By its number in [`xen_abi::errno`].
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// What RAX is.
    pub const fn returned(self) -> u64 {
        -self.0 as u64
    }
}

impl From<frames::Errno> for Errno {
    fn from(errno: frames::Errno) -> Self {
        Self(-errno.returned())
    }
}

impl From<machine::xen::Inaccessible> for Errno {
    fn from(_: machine::xen::Inaccessible) -> Self {
        Self(xen_abi::errno::EFAULT)
    }
}
