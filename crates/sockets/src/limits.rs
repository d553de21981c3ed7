//! Every limit of these sockets in one place.

use std::time::Duration;

/// Connections at the same time, those included that have not said what they want.
pub const MAX_CONNECTIONS: usize = 1000;

/// Bytes from the guest that a connection holds until the program reads them.
pub const CONNECTION_BUFFER_BYTES: usize = 128 << 10;

/// Bytes of a packet besides its header.
pub const PACKET_BYTES: usize = 64 << 10;

/// Bytes that are read from a program at once, to be one packet.
pub const PIECE_BYTES: usize = 32 << 10;

/// Bytes of packets that wait to be taken by the machine; beyond that, no program is read.
pub const OUTPUT_BYTES: usize = 1 << 20;

/// Beyond that, packets without a connection are not answered by a reset.
pub const OUTPUT_WITH_RESETS_BYTES: usize = 2 << 20;

/// The longest line with which a program says what it wants.
pub const LINE_BYTES: usize = 32;

/// How long a program may take to say so, the guest to answer a request, and the guest to close what was closed.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
