//! Which protocol a socket of a process speaks, told without touching it.

/// Bytes of a protocol's name.
const NAME_BYTES: usize = 64;

/// The kernel's name of the protocol; `?` where it tells none.
pub(crate) fn protocol(pid: u32, number: u32) -> String {
    let mut name = [0; NAME_BYTES];
    let path = format!("/proc/{pid}/fd/{number}");
    let bytes = rustix::fs::getxattr(path, "system.sockprotoname", &mut name).unwrap_or(0);
    let name = name.get(..bytes).unwrap_or_default();
    let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    if name.is_empty() { "?".to_owned() } else { name }
}

/// Whether it can be made again. One that tells nothing is looked at later.
pub(crate) fn is_kept(pid: u32, number: u32) -> bool {
    ["?", "UNIX", "UNIX-STREAM", "TCP", "TCPv6", "MPTCP", "MPTCPv6", "UDP", "UDPv6"]
        .contains(&protocol(pid, number).as_str())
}
