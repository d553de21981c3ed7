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
    /// The number of an interface, before anything is in the queues. An image has its name.
    Interface,
    /// A program for what arrives, when the queues are filled.
    Filter,
}

/// Which sockets an option is kept of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// All that have it.
    All,
    /// Sockets of datagrams.
    Datagrams,
    /// TCP that has no connection: the others have a value that the connection has given them, or none.
    Unconnected,
}

/// An option.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub level: i32,
    pub name: i32,
    /// Bytes of its value, at the most.
    pub bytes: usize,
    pub set: Set,
    pub which: Which,
    /// The value that is not written down, of options that not every kernel has.
    pub usual: Option<u64>,
}

impl Known {
    /// Whether a value says nothing, so that a kernel may lack the option.
    pub fn is_usual(&self, value: &[u8]) -> bool {
        let Some(usual) = self.usual else { return false };
        let mut bytes = usual.to_ne_bytes().into_iter();
        value.iter().all(|byte| *byte == bytes.next().unwrap_or(0))
    }

    const fn usually(self, value: u64) -> Self {
        Self { usual: Some(value), ..self }
    }

    const fn of(self, which: Which) -> Self {
        Self { which, ..self }
    }
}

const fn special(level: i32, name: i32, bytes: usize, set: Set) -> Known {
    Known { level, name, bytes, set, which: Which::All, usual: None }
}

const fn general(name: i32, bytes: usize, set: Set) -> Known {
    special(libc::SOL_SOCKET, name, bytes, set)
}

/// One of four bytes that is usually zero.
const fn rare(level: i32, name: i32, set: Set) -> Known {
    special(level, name, 4, set).usually(0)
}

const fn of_datagrams(level: i32, name: i32) -> Known {
    special(level, name, 4, Set::First).of(Which::Datagrams)
}

/// What is not in `libc`, as Linux has it (`asm-generic/socket.h`).
const TIMESTAMP_NEW: i32 = 63;
const TIMESTAMPNS_NEW: i32 = 64;
const TIMESTAMPING_NEW: i32 = 65;
const RESERVED_MEMORY: i32 = 73;
const NEW_HASH: i32 = 74;
const RECEIVE_MARK: i32 = 75;
const RECEIVE_PRIORITY: i32 = 82;
const UNREAD: i32 = 84;
/// `SO_PASSPIDFD`.
const PASS_PROCESS: i32 = 76;
/// `SO_PASSRIGHTS`.
const PASS_FILES: i32 = 83;
/// `SO_BUF_LOCK`.
const BUFFER_LOCK: i32 = 72;
/// Bytes of a filter, at the most.
const FILTER_BYTES: usize = 4096 * 8;

/// Of all sockets.
pub(crate) const GENERAL: [Known; 45] = [
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
    general(PASS_PROCESS, 4, Set::First).usually(0),
    general(PASS_FILES, 4, Set::First).usually(1),
    general(libc::SO_MARK, 4, Set::First),
    general(libc::SO_BINDTODEVICE, 16, Set::First),
    general(libc::SO_TIMESTAMP, 4, Set::First),
    general(libc::SO_TIMESTAMPNS, 4, Set::First),
    general(TIMESTAMP_NEW, 4, Set::First).usually(0),
    general(TIMESTAMPNS_NEW, 4, Set::First).usually(0),
    general(libc::SO_RXQ_OVFL, 4, Set::First),
    general(libc::SO_BUSY_POLL, 4, Set::First),
    general(libc::SO_PREFER_BUSY_POLL, 4, Set::First).usually(0),
    general(libc::SO_ZEROCOPY, 4, Set::First),
    general(libc::SO_WIFI_STATUS, 4, Set::First).usually(0),
    general(libc::SO_NOFCS, 4, Set::First).usually(0),
    general(libc::SO_SELECT_ERR_QUEUE, 4, Set::First).usually(0),
    general(RECEIVE_MARK, 4, Set::First).usually(0),
    general(RECEIVE_PRIORITY, 4, Set::First).usually(0),
    general(UNREAD, 4, Set::First).usually(0),
    general(NEW_HASH, 4, Set::First).usually(1),
    general(libc::SO_MAX_PACING_RATE, 8, Set::Last).usually(u64::MAX),
    general(libc::SO_TXTIME, 8, Set::Last).usually(0),
    general(libc::SO_TIMESTAMPING, 8, Set::Last).usually(0),
    general(TIMESTAMPING_NEW, 8, Set::Last).usually(0),
    general(RESERVED_MEMORY, 4, Set::Last).usually(0),
    general(libc::SO_RCVTIMEO, 16, Set::Last),
    general(libc::SO_SNDTIMEO, 16, Set::Last),
    general(libc::SO_SNDBUF, 4, Set::Buffer),
    general(libc::SO_RCVBUF, 4, Set::Buffer),
    general(libc::SO_RCVLOWAT, 4, Set::Last),
    general(BUFFER_LOCK, 4, Set::Last),
    general(libc::SO_PEEK_OFF, 4, Set::Last),
    general(libc::SO_GET_FILTER, FILTER_BYTES, Set::Filter).usually(0),
    general(libc::SO_LOCK_FILTER, 4, Set::Last).usually(0),
];

const IP: i32 = libc::IPPROTO_IP;
const IP6: i32 = libc::IPPROTO_IPV6;
const TCP: i32 = libc::IPPROTO_TCP;
const UDP: i32 = libc::IPPROTO_UDP;
/// `IP_BIND_ADDRESS_NO_PORT`.
const BIND_WITHOUT_PORT: i32 = 24;
/// `TCP_NOTSENT_LOWAT`.
const UNSENT_LOW: i32 = 25;
/// What is not in `libc` (`linux/in.h`, `linux/in6.h`, `linux/tcp.h`, `linux/udp.h`).
const IP_RECVFRAGSIZE: i32 = 25;
const IP_RECVERR_RFC4884: i32 = 26;
const IP_LOCAL_PORT_RANGE: i32 = 51;
const IPV6_2292PKTINFO: i32 = 2;
const IPV6_2292HOPOPTS: i32 = 3;
const IPV6_2292DSTOPTS: i32 = 4;
const IPV6_2292RTHDR: i32 = 5;
const IPV6_2292HOPLIMIT: i32 = 8;
const IPV6_FLOWINFO: i32 = 11;
const IPV6_MULTICAST_ALL: i32 = 29;
const IPV6_ROUTER_ALERT_ISOLATE: i32 = 30;
const IPV6_RECVERR_RFC4884: i32 = 31;
const IPV6_FLOWINFO_SEND: i32 = 33;
const IPV6_AUTOFLOWLABEL: i32 = 70;
const IPV6_MINHOPCOUNT: i32 = 73;
const IPV6_ORIGDSTADDR: i32 = 74;
const IPV6_UNICAST_IF: i32 = 76;
const IPV6_RECVFRAGSIZE: i32 = 77;
const IPV6_FREEBIND: i32 = 78;
const TCP_TX_DELAY: i32 = 37;
const TCP_RTO_MAX_MS: i32 = 44;
const TCP_RTO_MIN_US: i32 = 45;
const TCP_DELACK_MAX_US: i32 = 46;
const UDP_NO_CHECK6_TX: i32 = 101;
const UDP_NO_CHECK6_RX: i32 = 102;
/// Bytes of IP options (RFC 791), of headers of IPv6 that go with each packet, and of an interface's name.
const IP_OPTIONS_BYTES: usize = 40;
const HEADER_BYTES: usize = 2048;
const NAME_BYTES: usize = 16;

/// Of TCP and UDP sockets.
pub(crate) const INTERNET: [Known; 91] = [
    special(IP, libc::IP_TOS, 4, Set::First),
    special(IP, libc::IP_TTL, 4, Set::First),
    special(IP, libc::IP_OPTIONS, IP_OPTIONS_BYTES, Set::First).usually(0),
    special(IP, libc::IP_PKTINFO, 4, Set::First),
    special(IP, libc::IP_RECVERR, 4, Set::First),
    special(IP, libc::IP_RECVTOS, 4, Set::First),
    special(IP, libc::IP_RECVTTL, 4, Set::First),
    rare(IP, libc::IP_RECVOPTS, Set::First),
    rare(IP, libc::IP_RETOPTS, Set::First),
    rare(IP, libc::IP_PASSSEC, Set::First),
    rare(IP, libc::IP_RECVORIGDSTADDR, Set::First),
    rare(IP, libc::IP_MINTTL, Set::Last),
    rare(IP, libc::IP_CHECKSUM, Set::First),
    rare(IP, IP_RECVFRAGSIZE, Set::First),
    rare(IP, IP_RECVERR_RFC4884, Set::First),
    special(IP, libc::IP_MTU_DISCOVER, 4, Set::First),
    special(IP, libc::IP_FREEBIND, 4, Set::First),
    special(IP, libc::IP_TRANSPARENT, 4, Set::First),
    special(IP, libc::IP_UNICAST_IF, NAME_BYTES, Set::Interface).usually(0),
    special(IP, libc::IP_MULTICAST_IF, 4, Set::First).of(Which::Datagrams).usually(0),
    of_datagrams(IP, libc::IP_MULTICAST_TTL),
    special(IP, libc::IP_MULTICAST_LOOP, 4, Set::First),
    special(IP, libc::IP_MULTICAST_ALL, 4, Set::Last),
    special(IP, BIND_WITHOUT_PORT, 4, Set::First),
    rare(IP, IP_LOCAL_PORT_RANGE, Set::First),
    special(IP6, libc::IPV6_V6ONLY, 4, Set::First),
    special(IP6, libc::IPV6_UNICAST_HOPS, 4, Set::First),
    special(IP6, IPV6_UNICAST_IF, NAME_BYTES, Set::Interface).usually(0),
    special(IP6, libc::IPV6_MULTICAST_IF, NAME_BYTES, Set::Interface)
        .of(Which::Datagrams)
        .usually(0),
    of_datagrams(IP6, libc::IPV6_MULTICAST_HOPS),
    special(IP6, libc::IPV6_MULTICAST_LOOP, 4, Set::First),
    special(IP6, IPV6_MULTICAST_ALL, 4, Set::Last).usually(1),
    special(IP6, libc::IPV6_MTU_DISCOVER, 4, Set::First),
    special(IP6, libc::IPV6_RECVERR, 4, Set::First),
    special(IP6, libc::IPV6_RECVPKTINFO, 4, Set::First),
    special(IP6, libc::IPV6_RECVTCLASS, 4, Set::First),
    special(IP6, libc::IPV6_RECVHOPLIMIT, 4, Set::First),
    special(IP6, libc::IPV6_TCLASS, 4, Set::First),
    rare(IP6, IPV6_2292PKTINFO, Set::First),
    rare(IP6, IPV6_2292HOPOPTS, Set::First),
    rare(IP6, IPV6_2292DSTOPTS, Set::First),
    rare(IP6, IPV6_2292RTHDR, Set::First),
    rare(IP6, IPV6_2292HOPLIMIT, Set::First),
    rare(IP6, IPV6_FLOWINFO, Set::First),
    rare(IP6, IPV6_FLOWINFO_SEND, Set::First),
    rare(IP6, libc::IPV6_RECVHOPOPTS, Set::First),
    rare(IP6, libc::IPV6_RECVRTHDR, Set::First),
    rare(IP6, libc::IPV6_RECVDSTOPTS, Set::First),
    rare(IP6, libc::IPV6_RECVPATHMTU, Set::First),
    rare(IP6, IPV6_RECVFRAGSIZE, Set::First),
    rare(IP6, IPV6_RECVERR_RFC4884, Set::First),
    rare(IP6, IPV6_ROUTER_ALERT_ISOLATE, Set::First),
    rare(IP6, IPV6_ORIGDSTADDR, Set::First),
    rare(IP6, libc::IPV6_DONTFRAG, Set::First),
    rare(IP6, libc::IPV6_TRANSPARENT, Set::First),
    rare(IP6, IPV6_FREEBIND, Set::First),
    rare(IP6, IPV6_MINHOPCOUNT, Set::Last),
    special(IP6, IPV6_AUTOFLOWLABEL, 4, Set::First),
    special(IP6, libc::IPV6_ADDR_PREFERENCES, 4, Set::First),
    special(IP6, libc::IPV6_HOPOPTS, HEADER_BYTES, Set::First).usually(0),
    special(IP6, libc::IPV6_RTHDRDSTOPTS, HEADER_BYTES, Set::First).usually(0),
    special(IP6, libc::IPV6_RTHDR, HEADER_BYTES, Set::First).usually(0),
    special(IP6, libc::IPV6_DSTOPTS, HEADER_BYTES, Set::First).usually(0),
    special(TCP, libc::TCP_CONGESTION, 16, Set::First),
    special(TCP, libc::TCP_MAXSEG, 4, Set::First).of(Which::Unconnected),
    special(TCP, libc::TCP_WINDOW_CLAMP, 4, Set::First).of(Which::Unconnected),
    rare(TCP, libc::TCP_FASTOPEN, Set::First).of(Which::Unconnected),
    rare(TCP, libc::TCP_FASTOPEN_CONNECT, Set::First).of(Which::Unconnected),
    rare(TCP, libc::TCP_FASTOPEN_NO_COOKIE, Set::First).of(Which::Unconnected),
    rare(TCP, libc::TCP_SAVE_SYN, Set::First).of(Which::Unconnected),
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
    rare(TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, Set::Last),
    rare(TCP, libc::TCP_INQ, Set::Last),
    rare(TCP, TCP_TX_DELAY, Set::Last),
    special(TCP, TCP_RTO_MAX_MS, 4, Set::Last).usually(120_000),
    special(TCP, TCP_RTO_MIN_US, 4, Set::Last).usually(200_000),
    special(TCP, TCP_DELACK_MAX_US, 4, Set::Last).usually(200_000),
    rare(UDP, libc::UDP_CORK, Set::Last),
    rare(UDP, UDP_NO_CHECK6_TX, Set::First),
    rare(UDP, UDP_NO_CHECK6_RX, Set::First),
    rare(UDP, libc::UDP_SEGMENT, Set::Last),
    rare(UDP, libc::UDP_GRO, Set::First),
];

/// Options whose value, if it is another than zero, cannot be given to a socket again, and what it has then.
pub(crate) const REFUSED: [(i32, i32, &str); 3] = [
    (TCP, libc::TCP_ULP, "a protocol of the kernel's above TCP (TCP_ULP)"),
    (UDP, libc::UDP_ENCAP, "packets of other protocols in its datagrams (UDP_ENCAP)"),
    (TCP, TCP_AO_INFO, "authentication of TCP (TCP-AO)"),
];
const TCP_AO_INFO: i32 = 40;

/// The number of the interface that is the value of an option.
pub(crate) fn interface(known: &Known, value: [u8; 4]) -> u32 {
    match (known.level, known.name) {
        (IP6, libc::IPV6_MULTICAST_IF) => u32::from_ne_bytes(value),
        _ => u32::from_be_bytes(value),
    }
}

/// The value of an option for the number of an interface.
pub(crate) fn of_interface(known: &Known, index: u32) -> [u8; 4] {
    match (known.level, known.name) {
        (IP6, libc::IPV6_MULTICAST_IF) => index.to_ne_bytes(),
        _ => index.to_be_bytes(),
    }
}

/// An option that is kept.
pub(crate) fn find(level: i32, name: i32) -> Option<&'static Known> {
    all().find(|known| (known.level, known.name) == (level, name))
}

/// All that are kept.
pub(crate) fn all() -> impl Iterator<Item = &'static Known> {
    GENERAL.iter().chain(&INTERNET)
}
