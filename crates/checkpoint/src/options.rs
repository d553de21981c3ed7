//! The options of sockets that are kept: the same for a dump, the check of an image, and a restart.

/// How an option is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// As it is read, before anything is in the queues.
    First,
    /// As it is read, when the queues are filled.
    Last,
    /// The size of a buffer: the kernel doubles what is set.
    Buffer,
}

/// An option.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub level: i32,
    pub name: i32,
    /// Bytes of its value, at the most.
    pub bytes: usize,
    pub set: Set,
}

const fn general(name: i32, bytes: usize, set: Set) -> Known {
    Known { level: libc::SOL_SOCKET, name, bytes, set }
}

/// `SO_PASSPIDFD`.
const PASS_PROCESS: i32 = 76;
/// `SO_PASSRIGHTS`.
const PASS_FILES: i32 = 83;
/// `SO_BUF_LOCK`.
const BUFFER_LOCK: i32 = 72;

/// Of all sockets.
pub(crate) const GENERAL: [Known; 28] = [
    general(libc::SO_DEBUG, 4, Set::First),
    general(libc::SO_REUSEADDR, 4, Set::First),
    general(libc::SO_REUSEPORT, 4, Set::First),
    general(libc::SO_DONTROUTE, 4, Set::First),
    general(libc::SO_BROADCAST, 4, Set::First),
    general(libc::SO_KEEPALIVE, 4, Set::First),
    general(libc::SO_OOBINLINE, 4, Set::First),
    general(libc::SO_NO_CHECK, 4, Set::First),
    general(libc::SO_PRIORITY, 4, Set::First),
    general(libc::SO_LINGER, 8, Set::First),
    general(libc::SO_PASSCRED, 4, Set::First),
    general(libc::SO_PASSSEC, 4, Set::First),
    general(PASS_PROCESS, 4, Set::First),
    general(PASS_FILES, 4, Set::First),
    general(libc::SO_MARK, 4, Set::First),
    general(libc::SO_BINDTODEVICE, 16, Set::First),
    general(libc::SO_TIMESTAMP, 4, Set::First),
    general(libc::SO_TIMESTAMPNS, 4, Set::First),
    general(libc::SO_RXQ_OVFL, 4, Set::First),
    general(libc::SO_BUSY_POLL, 4, Set::First),
    general(libc::SO_ZEROCOPY, 4, Set::First),
    general(libc::SO_RCVTIMEO, 16, Set::Last),
    general(libc::SO_SNDTIMEO, 16, Set::Last),
    general(libc::SO_SNDBUF, 4, Set::Buffer),
    general(libc::SO_RCVBUF, 4, Set::Buffer),
    general(libc::SO_RCVLOWAT, 4, Set::Last),
    general(BUFFER_LOCK, 4, Set::Last),
    general(libc::SO_PEEK_OFF, 4, Set::Last),
];

/// An option that is kept.
pub(crate) fn find(level: i32, name: i32) -> Option<&'static Known> {
    all().find(|known| (known.level, known.name) == (level, name))
}

/// All that are kept.
pub(crate) fn all() -> impl Iterator<Item = &'static Known> {
    GENERAL.iter()
}
