//! Sockets, through descriptors that are ours too: options by their numbers, and what is in queues.
//!
//! - [`filter`](mod@filter): programs that say what arrives.
//! - [`groups`]: multicast groups.

pub mod filter;
pub mod groups;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The value of an option, of at most so many bytes.
///
/// # Errors
///
/// As getsockopt(2).
pub fn option(socket: impl AsFd, level: i32, name: i32, most: usize) -> io::Result<Vec<u8>> {
    let mut value = vec![0_u8; most];
    let bytes = get(socket.as_fd(), level, name, &mut value)?;
    value.truncate(bytes);
    Ok(value)
}

/// What is at `value` becomes at most so many bytes; how many the kernel says that they are.
fn get(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    let bytes = libc::socklen_t::try_from(value.len());
    let mut bytes = bytes.map_err(|_| io::ErrorKind::InvalidInput)?;
    let (socket, at) = (socket.as_raw_fd(), value.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `bytes` bytes, for which there is room.
    let result = unsafe { libc::getsockopt(socket, level, name, at, &raw mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes as usize) }
}

/// Set an option.
///
/// # Errors
///
/// As setsockopt(2).
pub fn set_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `bytes` bytes, which are there. An option whose value has pointers to memory is for the
    // kernel to check; it never writes there.
    let result = unsafe { libc::setsockopt(socket, level, name, value.as_ptr().cast(), bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What an ioctl(2) that tells one number says of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Bytes that were sent and that nobody has received, or acknowledged (`SIOCOUTQ`).
    Sent,
    /// Bytes that were never sent (`SIOCOUTQNSD`).
    Unsent,
}

/// Count what a socket holds.
///
/// # Errors
///
/// As ioctl(2).
pub fn count(socket: impl AsFd, what: Count) -> io::Result<usize> {
    let request = match what {
        Count::Sent => 0x5411,
        Count::Unsent => 0x894b,
    };
    let mut value: libc::c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes a local.
    let result = unsafe { libc::ioctl(socket, request, &raw mut value) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(value).unwrap_or(0))
}

/// What was received.
#[derive(Debug)]
pub struct Received {
    /// How many bytes there are in what was given as room.
    pub bytes: usize,
    /// The address that it came from (`struct sockaddr`), if any.
    pub from: Vec<u8>,
    /// Process, user and group that have sent it, if the socket asks for that (`SCM_CREDENTIALS`).
    pub by: Option<[u32; 3]>,
    /// Descriptors that came with it.
    pub files: Vec<OwnedFd>,
    /// Whether something was left out.
    pub is_cut: bool,
}

/// Bytes of the longest address.
const ADDRESS_BYTES: usize = 128;
/// Bytes of what comes with a message: 253 descriptors, and some numbers.
const CONTROL_BYTES: usize = 4096;
/// An address in the first page, and bytes that end in it.
const NOWHERE: usize = 8;
const NOWHERE_BYTES: usize = 1024;

/// What to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// What would be received next.
    Next,
    /// Only pieces that have room as a whole, as they were sent. `EFAULT` if not even the first one has.
    Whole,
}

/// Look at what would be received next, without waiting and without taking it.
///
/// # Errors
///
/// As recvmsg(2); `EAGAIN` if there is nothing.
pub fn peek(socket: impl AsFd, room: &mut [u8], look: Look) -> io::Result<Received> {
    let mut address = [0_u8; ADDRESS_BYTES];
    // Words, so that it is aligned.
    let mut control = [0_u64; CONTROL_BYTES / 8];
    // The kernel takes a piece of a message back that it cannot write. Nothing is ever mapped at the second address.
    let nowhere = std::ptr::without_provenance_mut(NOWHERE);
    let mut pieces = [
        libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
        libc::iovec { iov_base: nowhere, iov_len: NOWHERE_BYTES },
    ];
    // SAFETY: it is a struct of numbers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = address.as_mut_ptr().cast();
    header.msg_namelen = ADDRESS_BYTES as u32;
    header.msg_iov = pieces.as_mut_ptr();
    header.msg_iovlen = if look == Look::Whole { 2 } else { 1 };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: all that the header names is there, and as long as it says, or is in the first page, which the kernel
    // lets nobody map.
    let result = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    let bytes = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received {
        bytes,
        from: address.get(..header.msg_namelen as usize).unwrap_or_default().to_vec(),
        by: None,
        files: Vec::new(),
        is_cut: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
    };
    // SAFETY: the kernel has written the header and what it names.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !next.is_null() {
        // SAFETY: it is a whole message header in `control`, which is aligned.
        let (one, data) = unsafe { (*next, libc::CMSG_DATA(next)) };
        // SAFETY: the length of an empty message is a number.
        let length = one.cmsg_len - unsafe { libc::CMSG_LEN(0) } as usize;
        let words = (0..length / 4).map(|index| {
            // SAFETY: it is within the message, whose data are numbers of four bytes.
            unsafe { data.cast::<u32>().add(index).read_unaligned() }
        });
        match (one.cmsg_level, one.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => received.files.extend(words.map(|number| {
                // SAFETY: the kernel has just made it for us.
                unsafe { OwnedFd::from_raw_fd(number.cast_signed()) }
            })),
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                received.by = words.collect::<Vec<_>>().try_into().ok();
            }
            _ => {}
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    Ok(received)
}

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The socket itself.
    Own,
    /// The one that it is connected with.
    Peer,
}

/// The address of an end (`struct sockaddr`).
///
/// # Errors
///
/// As getsockname(2) and getpeername(2).
pub fn address(socket: impl AsFd, end: End) -> io::Result<Vec<u8>> {
    let mut address = [0_u8; ADDRESS_BYTES];
    let mut bytes = ADDRESS_BYTES as libc::socklen_t;
    let (socket, at) = (socket.as_fd().as_raw_fd(), address.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `bytes` bytes, for which there is room.
    let result = unsafe {
        match end {
            End::Own => libc::getsockname(socket, at, &raw mut bytes),
            End::Peer => libc::getpeername(socket, at, &raw mut bytes),
        }
    };
    match result {
        0 => Ok(address.get(..bytes as usize).unwrap_or(&address).to_vec()),
        _ => Err(io::Error::last_os_error()),
    }
}
