//! Why a disk boots nothing that can be found.

/// See above.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No configuration of a boot loader was found.
    #[error(
        "no configuration of GRUB (grub.cfg) or systemd-boot (loader/entries) that names a \
         Linux kernel; the disk has: {0}"
    )]
    NoLoader(String),
    /// A file that the configuration names is not there.
    #[error("its boot loader's choice {title:?} names {path}, which is not there")]
    Missing {
        /// Which choice.
        title: String,
        /// Which file.
        path: String,
    },
    /// A file is longer than it may be.
    #[error("{path} has {bytes} bytes, more than the {limit} that are read")]
    TooLarge {
        /// Which.
        path: String,
        /// Its length.
        bytes: u64,
        /// The most.
        limit: u64,
    },
    /// A file system is damaged, or the disk cannot be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// Which file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The script of a boot loader takes too long, or lies too deep in itself.
    #[error("the script of its boot loader has no end within the limits")]
    Endless,
    /// There is no machine that reads its xfs and btrfs, which may be where the reason lies.
    #[error("{0}")]
    Unread(#[source] Box<Error>),
    /// That machine failed.
    #[error("the machine that reads its xfs and btrfs failed: {0}")]
    Server(String),
    /// The script of a boot loader makes no sense.
    #[error("the script of its boot loader makes no sense: {0}")]
    Script(&'static str),
}
