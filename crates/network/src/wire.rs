//! Numbers of frames and packets.

/// Bytes of an Ethernet header.
pub const ETHERNET_BYTES: usize = 14;

/// The type of frames with packets of IPv4.
pub const IPV4: [u8; 2] = [0x08, 0x00];

/// Protocols of IPv4.
pub mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
}
