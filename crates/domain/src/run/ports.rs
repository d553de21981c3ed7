//! Ports of the host that are to be chosen.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use crate::say::say;

/// A port that nobody has, for a port of the guest; it is said which. Somebody else may take it before it is bound
/// again, and then it is said that it is taken.
///
/// # Errors
///
/// There is none.
pub fn choose(address: IpAddr, is_udp: bool, guest: u16) -> io::Result<u16> {
    let bound = match is_udp {
        true => UdpSocket::bind((address, 0))?.local_addr()?,
        false => TcpListener::bind((address, 0))?.local_addr()?,
    };
    let host = bound.port();
    let here = SocketAddr::new(address, host);
    say(&format!("port {guest} of the guest is {here} here"));
    Ok(host)
}
