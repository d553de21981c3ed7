//! TAP interfaces (Linux, Documentation/networking/tuntap.rst): network interfaces of the host whose
//! other end is a descriptor, or one for each queue. Each frame has a virtio header before it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of the header: the one of virtio 1.
const HEADER_BYTES: libc::c_int = 12;

/// The longest name of an interface, with the byte that ends it.
const NAME_BYTES: usize = libc::IFNAMSIZ;

/// What may be left together or unfinished in what we read (linux/if_tun.h, `TUN_F_*`).
pub mod offload {
    /// Checksums.
    pub const CHECKSUM: u32 = 1;
    /// Segments of TCP over IPv4.
    pub const TSO4: u32 = 2;
    /// Segments of TCP over IPv6.
    pub const TSO6: u32 = 4;
    /// Segments with congestion notifications.
    pub const ECN: u32 = 8;
    /// Datagrams over IPv4; since Linux 6.2.
    pub const USO4: u32 = 0x20;
    /// Datagrams over IPv6; since Linux 6.2.
    pub const USO6: u32 = 0x40;
}

/// Why there is no interface.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is none.
    #[error("an interface's name has 1 to {} bytes, and no slash or space", NAME_BYTES - 1)]
    Name,
    /// No such device file.
    #[error("cannot open /dev/net/tun: {0}")]
    Open(#[source] io::Error),
    /// Not ours.
    #[error("{0}; `ip tuntap add NAME mode tap user USER` makes one that USER may use")]
    Attach(#[source] io::Error),
    /// What is needed of it.
    #[error("the host's kernel cannot do that: {0}")]
    SetUp(#[source] io::Error),
}

/// Attach to the interface `name`, which comes into being if it is not there and we may make one, with
/// so many queues. The descriptors do not block.
///
/// # Errors
///
/// [`Error`].
pub fn open(name: &str, queues: usize) -> Result<Vec<OwnedFd>, Error> {
    let good = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    if name.is_empty() || name.len() >= NAME_BYTES || !name.bytes().all(good) {
        return Err(Error::Name);
    }
    let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
    let opened: Result<Vec<_>, _> = (0..queues.max(1)).map(|_| attach(name, several)).collect();
    match opened {
        // An interface that was made for several queues wants to hear that, and one for one does not.
        Err(Error::Attach(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
            let other = several ^ libc::IFF_MULTI_QUEUE;
            attach(name, other).map(|one| vec![one])
        }
        other => other,
    }
}

fn attach(name: &str, several: libc::c_int) -> Result<OwnedFd, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(Error::Open)?;
    // SAFETY: all zeros are a request without name and flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the kernel reads and writes a request, which lives long enough.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    checked(done).map_err(Error::Attach)?;
    let bytes = HEADER_BYTES;
    // SAFETY: the kernel reads a number.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) };
    checked(done).map_err(Error::SetUp)?;
    Ok(file.into())
}

/// Say what may be left together or unfinished in what is read: of [`offload`].
///
/// # Errors
///
/// The kernel does not know all of it.
pub fn set_offloads(tap: BorrowedFd<'_>, offloads: u32) -> io::Result<()> {
    // SAFETY: the argument is a number.
    checked(unsafe {
        libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
    })
}

/// Have frames come to this queue, or not.
///
/// # Errors
///
/// As ioctl(2).
pub fn use_queue(tap: BorrowedFd<'_>, is_used: bool) -> io::Result<()> {
    // SAFETY: all zeros are a request without name and flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let flag = if is_used { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE };
    request.ifr_ifru.ifru_flags = flag as libc::c_short;
    // SAFETY: the kernel reads a request, which lives long enough.
    checked(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETQUEUE, &raw const request) })
}

fn checked(done: libc::c_int) -> io::Result<()> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_at_first() {
        for name in ["", "a/b", "a b", "sixteen-bytes-xx", "a\0b"] {
            assert!(matches!(open(name, 1), Err(Error::Name)), "{name:?}");
        }
    }
}
