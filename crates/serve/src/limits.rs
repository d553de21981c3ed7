//! The limits of this crate.

use std::time::Duration;

/// Connections at once; others wait in the socket's queue.
pub const CONNECTIONS_MAX: usize = 128;

/// Connections that wait to be accepted.
pub const BACKLOG: i32 = 128;

/// Answers at once that go on for as long as the client likes: events, followed logs, commands, frames.
pub const STREAMS_MAX: usize = 48;

/// Pieces of such an answer that wait for the client to take them.
pub const PIECES_MAX: usize = 16;

/// Threads for what blocks: the registry, and requests to domains.
pub const BLOCKING_THREADS_MAX: usize = STREAMS_MAX + 32;

/// Jobs that run at once.
pub const RUNNING_JOBS_MAX: usize = 32;

/// Jobs that are remembered.
pub const JOBS_MAX: usize = 256;

/// The most of a request before its body.
pub const HEAD_MAX_BYTES: usize = 16 << 10;

/// The most header lines of a request.
pub const HEADERS_MAX: usize = 64;

/// The most of its body.
pub const BODY_MAX_BYTES: usize = 4 << 20;

/// How long a client may take for the head of a request, counted from the end of the one before.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it may take for the body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a domain may take to say how it is, where many are asked.
pub const DOMAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Domains that are asked at once how they are.
pub const ASKED_AT_ONCE_MAX: usize = 16;

/// The longest that a request waits for the end of a job.
pub const WAIT_MAX_SECONDS: u64 = 600;

/// The longest that a domain may have to shut down.
pub const STOP_MAX_SECONDS: u64 = 3600;

/// How often it is looked for what no file tells: the state of a domain that lives, and whether a client is still
/// there.
pub const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// How long changes of files are gathered before it is looked what they mean.
pub const GATHERING_TIME: Duration = Duration::from_millis(20);

/// The most of what a verb says that is kept.
pub const SAID_MAX_BYTES: u64 = 64 << 10;

/// What is read at once of a command's output.
pub const READ_BYTES: usize = 16 << 10;

/// How long connections may take to end when the server does.
pub const END_TIMEOUT: Duration = Duration::from_secs(1);
