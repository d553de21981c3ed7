//! Every limit of this crate in one place.

use std::time::Duration;

/// The longest frame.
pub const FRAME_BYTES: usize = router::limits::FRAME_BYTES as usize;

/// Bytes that are read from a cable at once.
pub const READ_BYTES: usize = 128 << 10;

/// Times that a cable is read in a turn: who sends in crumbs does not keep the others waiting.
pub const READS_OF_TURN: u32 = 8;

/// Bytes that wait for a cable's end to take them; when there are so many, further frames are lost. As many again for
/// those of whom less waits than of the others. Where few are attached there is more room, as far as all of it
/// together allows: what TCP has under way in one connection (4 MiB and more) fits, so that it need not be sent again.
pub const OUTPUT_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(8 << 20);

/// Bytes for all cables together, if each has at least the least.
pub const OUTPUTS_BYTES: usize = 64 << 20;

/// Bytes of a sender's turn among those who wait for the same cable's end.
pub const LANE_TURN_BYTES: usize = router::limits::TURN_BYTES as usize;

/// Bytes that are gathered before they are written.
pub const BATCH_BYTES: usize = 128 << 10;

/// Turns between two looks at who else has something to send.
pub const TURNS_AT_ONCE: u32 = 4;

/// Clients of the control socket at the same time.
pub const CLIENTS_MAX: usize = 16;

/// Descriptors that come with a VIF: its cable's socket, and its memory.
pub const CABLE_FILES: usize = 2;

/// Bytes of a request or a reply: the rules of a port fit, with what they have matched.
pub const MESSAGE_BYTES: usize = 160 << 10;

/// Ports that a reply tells of.
pub const PORTS_OF_REPLY: usize = 64;

/// Bytes of the name of a port's owner.
pub const NAME_BYTES: usize = 64;

/// How long a router waits for somebody to be attached, in the beginning and after the last has gone.
pub const LONELY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client waits for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
