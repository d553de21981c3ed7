//! Filters of sockets: programs that say which packets arrive, and how much of them (socket(7), `SO_ATTACH_FILTER`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::get;

/// Instructions of a filter, at the most (`BPF_MAXINSNS`), and bytes of one (`struct sock_filter`).
const MAX_INSTRUCTIONS: usize = 4096;
const INSTRUCTION_BYTES: usize = 8;

/// The filter of a socket, as its instructions; empty if it has none.
///
/// # Errors
///
/// As getsockopt(2); `EACCES` if it is one of eBPF, which nobody is shown.
pub fn filter(socket: impl AsFd) -> io::Result<Vec<u8>> {
    // Its length is that of the program, in instructions: there is room for the longest.
    let mut value = vec![0; MAX_INSTRUCTIONS * INSTRUCTION_BYTES];
    let count = get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_GET_FILTER, &mut value)?;
    value.truncate(count.saturating_mul(INSTRUCTION_BYTES));
    Ok(value)
}

/// Give a socket a filter, of instructions as [`filter()`] has them.
///
/// # Errors
///
/// As setsockopt(2): the kernel refuses programs that are wrong.
pub fn set_filter(socket: impl AsFd, instructions: &[u8]) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let (parts, rest) = instructions.as_chunks::<INSTRUCTION_BYTES>();
    let length = u16::try_from(parts.len()).map_err(|_| invalid())?;
    if !rest.is_empty() {
        return Err(invalid());
    }
    let mut program: Vec<_> = parts
        .iter()
        .map(|&[code, high, if_true, if_false, k @ ..]| libc::sock_filter {
            code: u16::from_ne_bytes([code, high]),
            jt: if_true,
            jf: if_false,
            k: u32::from_ne_bytes(k),
        })
        .collect();
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    let (at, bytes) = ((&raw const program).cast(), size_of_val(&program) as libc::socklen_t);
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `program` and the instructions that it leads to, which live until the end.
    let result =
        unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
