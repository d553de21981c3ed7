//! The options of sockets that are kept: the same for a dump, the check of an image, and a restart.

/// The queues of a TCP connection in repair (`TCP_REPAIR_QUEUE`).
pub(crate) const NO_QUEUE: i32 = 0;
pub(crate) const RECEIVE_QUEUE: i32 = 1;
pub(crate) const SEND_QUEUE: i32 = 2;

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
    /// Whether only sockets of datagrams have it.
    pub only_datagrams: bool,
}

const fn general(name: i32, bytes: usize, set: Set) -> Known {
    special(libc::SOL_SOCKET, name, bytes, set)
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

const fn special(level: i32, name: i32, bytes: usize, set: Set) -> Known {
    Known { level, name, bytes, set, only_datagrams: false }
}

const fn of_datagrams(level: i32, name: i32) -> Known {
    Known { only_datagrams: true, ..special(level, name, 4, Set::First) }
}

const IP: i32 = libc::IPPROTO_IP;
const IP6: i32 = libc::IPPROTO_IPV6;
const TCP: i32 = libc::IPPROTO_TCP;
/// `IP_BIND_ADDRESS_NO_PORT`.
const BIND_WITHOUT_PORT: i32 = 24;
/// `TCP_NOTSENT_LOWAT`.
const UNSENT_LOW: i32 = 25;

/// Of TCP and UDP sockets.
pub(crate) const INTERNET: [Known; 33] = [
    special(IP, libc::IP_TOS, 4, Set::First),
    special(IP, libc::IP_TTL, 4, Set::First),
    special(IP, libc::IP_PKTINFO, 4, Set::First),
    special(IP, libc::IP_RECVERR, 4, Set::First),
    special(IP, libc::IP_RECVTOS, 4, Set::First),
    special(IP, libc::IP_RECVTTL, 4, Set::First),
    special(IP, libc::IP_MTU_DISCOVER, 4, Set::First),
    special(IP, libc::IP_FREEBIND, 4, Set::First),
    special(IP, libc::IP_TRANSPARENT, 4, Set::First),
    of_datagrams(IP, libc::IP_MULTICAST_TTL),
    of_datagrams(IP, libc::IP_MULTICAST_LOOP),
    special(IP, BIND_WITHOUT_PORT, 4, Set::First),
    special(IP6, libc::IPV6_V6ONLY, 4, Set::First),
    special(IP6, libc::IPV6_UNICAST_HOPS, 4, Set::First),
    of_datagrams(IP6, libc::IPV6_MULTICAST_HOPS),
    of_datagrams(IP6, libc::IPV6_MULTICAST_LOOP),
    special(IP6, libc::IPV6_MTU_DISCOVER, 4, Set::First),
    special(IP6, libc::IPV6_RECVERR, 4, Set::First),
    special(IP6, libc::IPV6_RECVPKTINFO, 4, Set::First),
    special(IP6, libc::IPV6_RECVTCLASS, 4, Set::First),
    special(IP6, libc::IPV6_RECVHOPLIMIT, 4, Set::First),
    special(IP6, libc::IPV6_TCLASS, 4, Set::First),
    special(TCP, libc::TCP_CONGESTION, 16, Set::First),
    special(TCP, libc::TCP_NODELAY, 4, Set::Last),
    special(TCP, libc::TCP_CORK, 4, Set::Last),
    special(TCP, libc::TCP_KEEPIDLE, 4, Set::Last),
    special(TCP, libc::TCP_KEEPINTVL, 4, Set::Last),
    special(TCP, libc::TCP_KEEPCNT, 4, Set::Last),
    special(TCP, libc::TCP_SYNCNT, 4, Set::Last),
    special(TCP, libc::TCP_LINGER2, 4, Set::Last),
    special(TCP, libc::TCP_DEFER_ACCEPT, 4, Set::Last),
    special(TCP, libc::TCP_USER_TIMEOUT, 4, Set::Last),
    special(TCP, UNSENT_LOW, 4, Set::Last),
];

/// An option that is kept.
pub(crate) fn find(level: i32, name: i32) -> Option<&'static Known> {
    all().find(|known| (known.level, known.name) == (level, name))
}

/// All that are kept.
pub(crate) fn all() -> impl Iterator<Item = &'static Known> {
    GENERAL.iter().chain(&INTERNET)
}
