//! The limits of this crate.

use std::time::Duration;

/// How often it is looked whether domains want more processors than there are.
pub const POLL_PERIOD: Duration = Duration::from_millis(5);

/// The same while nobody wants to run.
pub const IDLE_PERIOD: Duration = Duration::from_millis(20);

/// How often gates that are shut are told that there is a keeper; much more often than [`gates::KEEPER_TIMEOUT`].
pub const HEARTBEAT_PERIOD: Duration = Duration::from_millis(40);

/// How often the processes of domains are looked for while that matters.
pub const MEMBERS_PERIOD: Duration = Duration::from_millis(200);

/// How often the clocks of all of them are read, and not only of those that compute.
pub const READ_PERIOD: Duration = Duration::from_millis(50);

/// How often the processes of domains are looked for while nothing is decided.
pub const REST_PERIOD: Duration = Duration::from_secs(5);

/// Processes of one domain that are looked after.
pub const MEMBERS_MAX: usize = 256;

/// Domains that are looked after.
pub const DOMAINS_MAX: usize = 1024;

/// How long a client may take to say what it wants, and to take the answer.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// For how long a domain that takes what it is not given is stopped at most when it is found out for the first time. It
/// is twice as long each time after that, [`STOP_DOUBLINGS`] times.
pub const STOP_MAX: Duration = Duration::from_secs(1);

/// See above.
pub const STOP_DOUBLINGS: u32 = 4;

/// If gates have not been looked at for so long, it is not known what domains were denied: they may have opened them.
pub const SILENCE_MAX: Duration = Duration::from_millis(100);
