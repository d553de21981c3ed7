//! What the kernel tells of a TCP socket (`struct tcp_info`).

use host::processes::sockets::option;
use rustix::net::{SocketType, sockopt};

use super::entry::Entry;
use crate::error::Error;

/// States of `struct tcp_info`.
pub(super) const ESTABLISHED: u8 = 1;
pub(super) const SYN_SENT: u8 = 2;
pub(super) const FIN_WAIT_1: u8 = 4;
pub(super) const FIN_WAIT_2: u8 = 5;
pub(super) const CLOSED: u8 = 7;
pub(super) const CLOSE_WAIT: u8 = 8;
pub(super) const LAST_ACK: u8 = 9;
pub(super) const LISTENS: u8 = 10;
pub(super) const CLOSING: u8 = 11;
/// Those in which there is no connection to look into.
pub(super) const WITHOUT_CONNECTION: [u8; 3] = [SYN_SENT, CLOSED, LISTENS];
/// Those in which the end was sent, and of these those in which it was not acknowledged.
pub(super) const HAS_SENT_ALL: [u8; 4] = [FIN_WAIT_1, FIN_WAIT_2, LAST_ACK, CLOSING];
pub(super) const END_IS_UNDER_WAY: [u8; 3] = [FIN_WAIT_1, LAST_ACK, CLOSING];
/// Those in which the end has arrived.
pub(super) const HAS_RECEIVED_ALL: [u8; 3] = [CLOSE_WAIT, LAST_ACK, CLOSING];
/// Bytes of what we read of `struct tcp_info`.
const INFO_BYTES: usize = 128;
/// Offset there of how many bytes the other end has acknowledged; the beginning counts as one.
const ACKNOWLEDGED: usize = 120;

const TCP: i32 = libc::IPPROTO_TCP;

/// The type of a socket, and whether it speaks Multipath TCP; it is refused if it is none that is kept.
pub(super) fn kind(entry: &Entry) -> Result<(SocketType, bool), Error> {
    let io = |error: rustix::io::Errno| Error::io("look at a socket")(error);
    let protocol = sockopt::socket_protocol(&entry.socket).map_err(io)?;
    let protocol = protocol.map_or(0, |protocol| protocol.as_raw().get());
    match (sockopt::socket_type(&entry.socket).map_err(io)?, protocol.cast_signed()) {
        (kind @ SocketType::STREAM, libc::IPPROTO_TCP) => Ok((kind, false)),
        (kind @ SocketType::STREAM, libc::IPPROTO_MPTCP) => Ok((kind, true)),
        (kind @ SocketType::DGRAM, libc::IPPROTO_UDP) => Ok((kind, false)),
        (_, protocol) => {
            let what = format!("has a socket of Internet protocol {protocol}");
            Err(Error::unsupported(entry.pid, what))
        }
    }
}

pub(super) fn info(entry: &Entry) -> Result<Vec<u8>, Error> {
    let mut info = match option(&entry.socket, TCP, libc::TCP_INFO, INFO_BYTES) {
        // One of Multipath TCP that has not begun to do anything.
        Err(_) if kind(entry)?.1 => vec![CLOSED],
        other => other.map_err(Error::io("ask about a TCP socket"))?,
    };
    info.resize(INFO_BYTES, 0);
    Ok(info)
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// How many wait to be accepted at one that listens; none if it does not.
pub(super) fn waiting_at(entry: &Entry) -> Result<u32, Error> {
    let info = info(entry)?;
    // `tcpi_unacked`, of one that listens.
    Ok(if info[0] == LISTENS { word(&info, 24) } else { 0 })
}

/// Whether something was ever sent over a connection and acknowledged.
pub(super) fn was_used(entry: &Entry) -> Result<bool, Error> {
    let info = info(entry)?;
    Ok(word(&info, ACKNOWLEDGED) > 1 || word(&info, ACKNOWLEDGED + 4) > 0)
}
