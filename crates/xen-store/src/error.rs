//! Why a request fails.

/// Why a request fails; the client gets the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The request is malformed.
    #[error("EINVAL")]
    Inval,
    /// The node's permissions do not allow it.
    #[error("EACCES")]
    Access,
    /// There is such a watch already.
    #[error("EEXIST")]
    Exists,
    /// There is no such node, watch or transaction.
    #[error("ENOENT")]
    NoEntry,
    /// A quota is used up.
    #[error("ENOSPC")]
    NoSpace,
    /// There is no such request.
    #[error("ENOSYS")]
    NoSys,
    /// A transaction in a transaction.
    #[error("EBUSY")]
    Busy,
    /// The transaction has met another change, and is to be made again.
    #[error("EAGAIN")]
    Again,
    /// The answer, or the number of watches, is too large.
    #[error("E2BIG")]
    TooBig,
    /// Only the owner may, and only the control domain may change the owner.
    #[error("EPERM")]
    Perm,
}
