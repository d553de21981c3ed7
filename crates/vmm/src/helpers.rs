//! Direct execution of user code, from a machine's point of view: whether to start the processes that
//! it needs, and what it costs here.
//!
//! They are started when the machine is built: once it runs, its process is confined and can make
//! none.

use std::sync::Arc;
use std::time::Duration;

use cpu::{Techniques, UserExecution, VcpuGroup};
use direct::Helpers;
use host::GuestMemory;

use crate::clock::HostClock;
use crate::configuration::Told;
use crate::outcome::Error;

/// What the processors share, with helper processes unless all user code is to be translated. `told` is told which
/// process forks these.
///
/// # Errors
///
/// [`Error::Processor`] when the host refuses what every machine needs, or when user code must run
/// directly and cannot.
pub(crate) fn vcpu_group(
    memory: &GuestMemory,
    execution: UserExecution,
    techniques: Techniques,
    told: Option<Box<Told>>,
) -> Result<Arc<VcpuGroup>, Error> {
    let translated = || VcpuGroup::with_techniques(memory, None, techniques);
    if execution == UserExecution::Translate {
        return Ok(translated()?);
    }
    match Helpers::start(memory) {
        Ok(helpers) => {
            if let Some(told) = told {
                told(helpers.zygote());
            }
            Ok(VcpuGroup::with_techniques(memory, Some((&helpers, execution)), techniques)?)
        }
        Err(error) if execution == UserExecution::Direct => Err(cpu::Error::from(error).into()),
        Err(error) => {
            tracing::info!("all user code is translated: {error}");
            Ok(translated()?)
        }
    }
}

/// How long it takes to stop directly executed user code and to let it go on, which is what an entry
/// into the guest's kernel costs there; measured by doing it, in processes that are gone afterwards.
///
/// # Errors
///
/// [`Error`] that says why user code is always translated on this host.
pub fn cost_of_a_stop() -> Result<Duration, Error> {
    const MEMORY_BYTES: u64 = 1 << 20;
    let memory = GuestMemory::new(&[(0, MEMORY_BYTES)])?;
    let measured = Helpers::start(&memory)
        .and_then(|helpers| cpu::stop_cycles(&helpers, &memory))
        .map_err(cpu::Error::Direct)?;
    let nanoseconds = u128::from(measured) * 1_000_000 / u128::from(HostClock::new().tsc_khz());
    Ok(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)))
}
