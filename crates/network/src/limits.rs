//! Every limit of this network in one place.

use std::time::Duration;

/// Connections of TCP at the same time. What the host lets a process have open may be less.
pub const MAX_CONNECTIONS: usize = 8192;

/// What a connection holds of each direction: what is under way between two reads of the other side.
pub const CONNECTION_BUFFER_BYTES: usize = 1 << 20;

/// Connections that hold so much, at the same time.
pub const MAX_FULL_CONNECTIONS: usize = 128;

/// What one more connection holds of each direction.
pub const SMALL_BUFFER_BYTES: usize = 32 << 10;

/// What all of them hold at most.
pub const MAX_BUFFERED_BYTES: usize = 2
    * (MAX_FULL_CONNECTIONS * CONNECTION_BUFFER_BYTES
        + (MAX_CONNECTIONS - MAX_FULL_CONNECTIONS) * SMALL_BUFFER_BYTES);

// A guest that opens all of them and reads none does not take the host's memory.
const _: () = assert!(MAX_BUFFERED_BYTES <= 768 << 20);

/// Ports of the guest's, of UDP, at the same time.
pub const MAX_ASSOCIATIONS: usize = 1024;

/// Names of the guest's neighbours, and bytes in which all of them are told.
pub const MAX_NAMES: usize = 1024;
/// See [`MAX_NAMES`].
pub const NAMES_BYTES: usize = 128 << 10;

/// Addresses that one of them has sent to, and from which it is answered.
pub const MAX_PEERS: usize = 256;

/// Identifiers of echo requests at the same time.
pub const MAX_ECHOES: usize = 64;

/// The part of connections, ports and identifiers that one of several guests may have: one in so many.
const PARTS_OF_GUEST: usize = 4;

/// How many of so many one guest may have, of several or alone.
pub const fn of_guest(most: usize, has_several: bool) -> usize {
    if has_several { most / PARTS_OF_GUEST } else { most }
}

/// A port or identifier that is idle for so long is forgotten.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Datagrams that are taken from a socket before others have their turn.
pub const DATAGRAMS_AT_ONCE: usize = 64;

/// Connections that are accepted before others have their turn.
pub const CONNECTIONS_AT_ONCE: usize = 64;

/// Frames that are taken from an interface before others have their turn.
pub const FRAMES_AT_ONCE: usize = 256;

/// How often the server looks for what is idle.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How long a connection to the guest may take to be accepted.
pub const ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest frame.
pub const MAX_FRAME_BYTES: usize = 65535 + 18;

/// Bytes of frames that wait to be taken; beyond that, nothing is made.
pub const OUTPUT_BYTES: usize = 1 << 20;

/// Bytes that are taken at once.
pub const INPUT_BYTES: usize = 1 << 20;
