//! The loopback interface of the pod's network namespace, which is down at first.

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// One request to rtnetlink(7): `nlmsghdr` (length, `RTM_NEWLINK`, request and acknowledgement wanted, sequence number,
/// port) and `ifinfomsg` (family and kind of any, interface 1, flags and which of them change: `IFF_UP`).
const RAISE: [u32; 8] = [32, 16 | (1 | 4) << 16, 1, 0, 0, 1, 1, 1];

/// Where an answer has its error: after a header and, for any but this kind, a number.
const NLMSG_ERROR: u16 = 2;

/// Raises it.
pub fn raise_loopback() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let request: Vec<u8> = RAISE.iter().flat_map(|word| word.to_ne_bytes()).collect();
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (count, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    if count < 20 || kind != NLMSG_ERROR {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
