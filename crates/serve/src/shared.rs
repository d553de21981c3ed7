//! What all requests have in common.

use std::sync::Arc;

use api::record::now;
use tokio::sync::Semaphore;

use crate::activity::Activity;
use crate::jobs::Jobs;
use crate::limits::{CONNECTIONS_MAX, STREAMS_MAX};
use crate::verb::Program;

/// See above.
pub struct Shared {
    /// The program that this is a part of.
    pub program: Box<dyn Program>,
    /// What takes long.
    pub jobs: Jobs,
    /// What there is to do.
    pub activity: Activity,
    /// Answers that may still begin and go on.
    pub streams: Arc<Semaphore>,
    /// When the server started, in milliseconds since 1970.
    pub started: u64,
    /// Connections that there are.
    pub connected: Activity,
    /// Connections that may still be accepted.
    pub connections: Arc<Semaphore>,
}

impl Shared {
    /// Nothing has been asked yet.
    #[must_use]
    pub fn new(program: Box<dyn Program>) -> Shared {
        Shared {
            program,
            jobs: Jobs::default(),
            activity: Activity::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            started: now(),
            connected: Activity::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }
}
