//! What a machine has beside its memory.

use std::time::Duration;

use machine::platform;
use machine::saved::{self, CounterShift};
use machine::time::{Clock, Nanoseconds};
use serde::{Deserialize, Serialize};

use super::Error;
use crate::clock::HostClock;
use crate::control::{Control, Question};

/// How long a processor may take to say what it is asked; devices come to rest meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far the pace of the time-stamp counter may be from what the guest was told, in parts of a million:
/// what two measurements of one counter may differ by. A guest that keeps time by a network corrects as much.
const MAX_PACE_ERROR_PPM: u64 = 1000;

/// The state of a machine. Clocks are in nanoseconds and ticks of the host where it was saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// Bytes of memory.
    pub memory: u64,
    /// The machine's clock, the host's counter then, and its pace in kHz.
    pub now: u64,
    counter: u64,
    pub khz: u32,
    shared: Vec<u8>,
    /// Of each processor: its own, and its place in the platform's.
    pub processors: Vec<Vec<u8>>,
}

impl State {
    /// The state of the machine whose processors stand still; its devices are at rest until
    /// [`Self::thaw`].
    pub fn collect(control: &Control, clock: &HostClock, memory: u64) -> Result<Self, Error> {
        let shared = control.ask(Question::Shared, PATIENCE).ok_or(Error::Moving)?;
        let shared = shared.into_iter().next().ok_or(Error::Moving)??;
        let own = control.ask(Question::Own, PATIENCE).ok_or(Error::Moving)?;
        let processors = own.into_iter().collect::<Result<_, _>>()?;
        let (now, counter) = (clock.now().0, clock.tsc());
        Ok(Self { memory, now, counter, khz: clock.tsc_khz(), shared, processors })
    }

    /// Of a machine without processors and devices.
    #[cfg(test)]
    pub fn without_processors(clock: &HostClock, memory: u64) -> Self {
        let (now, counter, khz) = (clock.now().0, clock.tsc(), clock.tsc_khz());
        Self { memory, now, counter, khz, shared: Vec::new(), processors: Vec::new() }
    }

    /// Let the devices go on.
    pub fn thaw(control: &Control) {
        control.ask(Question::Thaw, PATIENCE);
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Ok(saved::decode(bytes, "the machine")?)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        saved::encode(self)
    }

    /// A clock that goes on where the machine's was.
    pub fn clock(&self) -> Result<HostClock, Error> {
        let clock = HostClock::resuming(Nanoseconds(self.now));
        let (then, now) = (self.khz, clock.tsc_khz());
        let error = u64::from(then.abs_diff(now)) * 1_000_000 / u64::from(now.max(1));
        if error > MAX_PACE_ERROR_PPM {
            return Err(Error::Pace { then, now });
        }
        Ok(clock)
    }

    /// How far the host's counter was from the one then, when this clock of [`Self::clock`] started, and what the
    /// guest sees of it. The first processor's clock is the machine's: others may not have been started.
    pub fn shift(&self, clock: &HostClock) -> Result<CounterShift, Error> {
        let has_clock = match self.processors.is_empty() {
            true => false,
            false => platform::has_clock(&self.processor(0)?.1)?,
        };
        Ok(CounterShift::new(self.counter, clock.start_counter(), has_clock))
    }

    /// What the processors share.
    pub fn shared(&self) -> &[u8] {
        &self.shared
    }

    /// The parts of a processor's.
    pub fn processor(&self, number: usize) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let state = self.processors.get(number).map_or(&[][..], Vec::as_slice);
        Ok(saved::decode(state, "a processor")?)
    }
}
