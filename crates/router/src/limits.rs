//! Every limit of this crate in one place.

/// Bytes of a frame that are looked at: what netback copies before anything else.
pub const HEAD_BYTES: usize = 128;

/// Bytes of a frame: the largest packet of IP, with its Ethernet header.
pub const FRAME_BYTES: u32 = 14 + 65535;

/// Extension headers of a packet of IPv6.
pub const MAX_EXTENSIONS: usize = 8;

/// Frames of a port's turn.
pub const TURN_PACKETS: u32 = 64;

/// Bytes of a port's turn.
pub const TURN_BYTES: u32 = 64 << 10;

/// VIFs of a router.
pub const MAX_VIFS: usize = 1024;

/// Addresses of a port, of both kinds of IP together.
pub const MAX_ADDRESSES: usize = 16;

/// Rules of a port in one direction.
pub const MAX_RULES: usize = 256;

/// Bytes of a port's rules as a text.
pub const RULES_BYTES: usize = 64 << 10;

/// Times that a frame is sent on to another port by rules of its receivers.
pub const MAX_REDIRECTIONS: usize = 4;

/// Bytes a second of a rate.
pub const RATE_BYTES: u64 = 1_000_000_000_000;

/// Bytes of a burst.
pub const BURST_BYTES: u64 = 1_000_000_000_000;

/// The burst of a rate that is given none: what it allows in a tenth of a second, and at least this.
pub const LEAST_BURST_BYTES: u64 = TURN_BYTES as u64;
