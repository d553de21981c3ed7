//! Pseudoterminals (pty(7), ioctl_tty(2)): what no wrapper of others has.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Bytes of `struct termios2`.
pub const SETTINGS_BYTES: usize = 44;
/// `TIOCGPTPEER`.
pub const OPEN_PEER: u64 = 0x5441;

const GET_SETTINGS: u64 = 0x802c_542a;
const SET_SETTINGS: u64 = 0x402c_542b;

/// A number that a terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// Of a master: which terminal it is (`TIOCGPTN`).
    Index,
    /// Of a master: whether its slave may not be opened (`TIOCGPTLCK`).
    Locked,
    /// Of a master: whether it tells what happens in packets (`TIOCGPKT`).
    Packets,
    /// Whether nobody else may open it (`TIOCGEXCL`).
    Exclusive,
    /// The number of the slave's device (`TIOCGDEV`).
    Device,
    /// The line discipline (`TIOCGETD`).
    Discipline,
    /// The foreground process group (`TIOCGPGRP`).
    Group,
}

impl Number {
    /// The number of the call.
    fn call(self) -> u64 {
        match self {
            Self::Index => 0x8004_5430,
            Self::Locked => 0x8004_5439,
            Self::Packets => 0x8004_5438,
            Self::Exclusive => 0x8004_5440,
            Self::Device => 0x8004_5432,
            Self::Discipline => libc::TIOCGETD,
            Self::Group => libc::TIOCGPGRP,
        }
    }
}

/// Something that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// Of a master: whether its slave may not be opened (`TIOCSPTLCK`).
    Locked,
    /// Of a master: whether it tells what happens in packets (`TIOCPKT`).
    Packets,
    /// Whether nobody else may open it (`TIOCEXCL`, `TIOCNXCL`).
    Exclusive,
    /// Whether output is held back (`TCXONC`).
    Held,
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Ask for a number.
///
/// # Errors
///
/// As ioctl_tty(2).
pub fn number(terminal: impl AsFd, number: Number) -> io::Result<u32> {
    let mut value = 0_u32;
    let file = terminal.as_fd().as_raw_fd();
    // SAFETY: each of these calls writes an int, a local.
    done(unsafe { libc::ioctl(file, number.call(), &raw mut value) })?;
    Ok(value)
}

/// Set something.
///
/// # Errors
///
/// As ioctl_tty(2).
pub fn set(terminal: impl AsFd, switch: Switch, is_on: bool) -> io::Result<()> {
    let file = terminal.as_fd().as_raw_fd();
    let value = i32::from(is_on);
    done(match switch {
        // SAFETY: the kernel reads an int, a local.
        Switch::Locked => unsafe { libc::ioctl(file, libc::TIOCSPTLCK, &raw const value) },
        // SAFETY: the kernel reads an int, a local.
        Switch::Packets => unsafe { libc::ioctl(file, libc::TIOCPKT, &raw const value) },
        // SAFETY: the call has no argument.
        Switch::Exclusive if is_on => unsafe { libc::ioctl(file, libc::TIOCEXCL) },
        // SAFETY: the call has no argument.
        Switch::Exclusive => unsafe { libc::ioctl(file, libc::TIOCNXCL) },
        Switch::Held => {
            let action = if is_on { libc::TCOOFF } else { libc::TCOON };
            // SAFETY: the argument is a number.
            unsafe { libc::ioctl(file, libc::TCXONC, action) }
        }
    })
}

/// The settings, as `struct termios2`.
///
/// # Errors
///
/// As ioctl_tty(2).
pub fn settings(terminal: impl AsFd) -> io::Result<[u8; SETTINGS_BYTES]> {
    let mut settings = [0; SETTINGS_BYTES];
    let file = terminal.as_fd().as_raw_fd();
    // SAFETY: the kernel writes as many bytes as the number of the call says: those of the local.
    done(unsafe { libc::ioctl(file, GET_SETTINGS, settings.as_mut_ptr()) })?;
    Ok(settings)
}

/// Set them at once, with what waits unchanged.
///
/// # Errors
///
/// As ioctl_tty(2).
pub fn set_settings(terminal: impl AsFd, settings: &[u8; SETTINGS_BYTES]) -> io::Result<()> {
    let file = terminal.as_fd().as_raw_fd();
    // SAFETY: the kernel reads as many bytes as the number of the call says: those of the array.
    done(unsafe { libc::ioctl(file, SET_SETTINGS, settings.as_ptr()) })
}

/// Open the slave of a master; it does not become anybody's controlling terminal.
///
/// # Errors
///
/// As open(2).
pub fn open_peer(master: impl AsFd) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = master.as_fd().as_raw_fd();
    // SAFETY: the argument is a number.
    let result: RawFd = unsafe { libc::ioctl(file, OPEN_PEER, flags) };
    done(result)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
