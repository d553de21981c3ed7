//! What the vCPUs of one machine share for direct execution.

use std::sync::Arc;

use direct::Helpers;

use super::calibrate::stop_cycles;
use super::copies::Copies;

/// How guest user code is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserExecution {
    /// Translated, always.
    Translate,
    /// Directly, wherever that is possible.
    Direct,
    /// Translated or directly, in the way that costs each thread less.
    #[default]
    Auto,
}

/// What a group of vCPUs needs for direct execution.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) execution: UserExecution,
    pub(crate) helpers: Arc<Helpers>,
    pub(super) memory: host::GuestMemory,
    /// What helpers execute in place of some pages.
    pub(crate) copies: Copies,
    /// Cycles that stopping a helper and running it again costs here.
    pub(super) stop: u64,
}

impl Plan {
    /// Measure what a stop costs on this host.
    ///
    /// # Errors
    ///
    /// [`direct::Error`] when there can be no helper; user code is to be translated then.
    pub(crate) fn new(
        execution: UserExecution,
        helpers: &Arc<Helpers>,
        memory: &host::GuestMemory,
    ) -> Result<Self, direct::Error> {
        let stop = stop_cycles(helpers, memory)?;
        tracing::debug!(stop, "cycles for a stop of directly executed code");
        let (helpers, memory, copies) = (Arc::clone(helpers), memory.clone(), Copies::default());
        Ok(Self { execution, helpers, memory, copies, stop })
    }
}
