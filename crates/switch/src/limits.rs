//! Every limit of this crate in one place.

use std::time::Duration;

/// The header before each frame (virtio, `struct virtio_net_hdr`). It is the kernel's: it goes on as it came.
pub const HEADER_BYTES: usize = 10;

/// The longest frame, with its header of virtio; and one byte by which a longer one is noticed.
pub const FRAME_BYTES: usize = router::limits::FRAME_BYTES as usize + HEADER_BYTES + 1;

/// Pods of a network at the same time.
pub const PORTS_MAX: usize = 512;

/// Connections to the control socket at the same time: one for each pod, and some that are new.
pub const CLIENTS_MAX: usize = PORTS_MAX + 16;

/// Bytes of a request: as many pods of another host as a network may have, with the longest names.
pub const REQUEST_BYTES: usize = 128 << 10;

/// Bytes of a pod's name, and of its lease.
pub const NAME_BYTES: usize = 64;

/// Descriptors that come with a request.
pub const FILES_MAX: usize = 2;

/// Bytes that are held for a pod that is away, and for all of them together.
pub const HELD_BYTES: usize = 1 << 20;
/// See [`HELD_BYTES`].
pub const ALL_HELD_BYTES: usize = 32 << 20;

/// What a frame costs that is held, besides its bytes.
pub const HELD_COST_BYTES: usize = 256;

/// How long a frame is held.
pub const HOLD_TIMEOUT: Duration = Duration::from_secs(10);

/// Turns between two looks at who else has something to send.
pub const TURNS_AT_ONCE: u32 = 8;

/// How long a switch waits for the first pod, and for another after the last has gone.
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(2);
/// See [`FIRST_TIMEOUT`].
pub const LONELY_TIMEOUT: Duration = Duration::from_millis(100);

/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 4096;

/// How long a keeper waits for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Connections to the control socket that wait to be accepted.
pub const BACKLOG: i32 = 64;

/// How often the switch looks at its ports between a handshake's first segment and its last one, and once more.
pub const HANDSHAKE_TURNS: usize = 3;

/// How long the kernels of two pods have to answer in between.
pub const HANDSHAKE_PAUSE: Duration = Duration::from_micros(300);

/// What is asked of the buffers of a machine's sockets; the host gives what it allows.
pub const PAIR_BYTES: usize = 4 << 20;
