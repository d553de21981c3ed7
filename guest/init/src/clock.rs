//! The guest's calendar (`CLOCK_REALTIME`), synchronized with the host's. The host sends its time
//! now and then ([`protocol::Time`]), so that files which both see have times of one clock.
//!
//! 1. *At a start it is stepped*, to the microsecond: no program has read it yet, or it is long
//!    past.
//! 2. *A running guest's is slewed*, as adjtime(3) does (0.05% faster or slower until it is right).
//!    Its frequency is corrected for what it has lost or gained, so that there is little left to
//!    slew. It is stepped only if slewing would take minutes: then the host's clock has been set.
//! 3. *A clock that a program in the guest sets or disciplines is left alone* (date(1), an NTP
//!    client, a test of clocks), until the machine goes on elsewhere.

use protocol::{Time, nanoseconds};

/// Above this a difference is stepped, as NTP clients do: 128 ms.
const STEP_NANOSECONDS: i64 = 128_000_000;

/// Below this there is nothing to slew: 10 microseconds.
const LITTLE_NANOSECONDS: i64 = 10_000;

/// Above this a difference is not what a pace has made, but somebody who has set the host's clock: 2 ms.
const DRIFT_NANOSECONDS: i64 = 2_000_000;

/// What the kernel slews in a second of what [`Correction::Slew`] says (`MAX_TICKADJ`).
const SLEWED_IN_A_SECOND: i64 = 500_000;

/// A clock that has moved by so much against the counter was set: more than slewing does between two times.
const SET_NANOSECONDS: i64 = 100_000_000;

/// Paces are told from measurements that are at least this far apart.
const PACE_SPAN_NANOSECONDS: i64 = 1_000_000_000;

/// The unit of a pace: 2^-16 parts in a million (adjtimex(2), `freq`).
const PACE_UNIT: i64 = 1 << 16;

/// The most that a pace is corrected by, as in the kernel: 500 parts in a million.
const PACE_MAX: i64 = 500 * PACE_UNIT;

/// What rounding does to a pace in the kernel.
const PACE_ROUNDING: i64 = 4;

/// The usual length of a tick, in microseconds.
const TICK: i64 = 10_000;

/// The guest's clock as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    /// The time-stamp counter then.
    counter: u64,
    /// Nanoseconds since 1970.
    now: u64,
    /// What the kernel says of it.
    kept: Kept,
}

/// How the kernel keeps a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    /// The correction of its pace, in [`PACE_UNIT`].
    pace: i64,
    /// Microseconds of a tick.
    tick: i64,
    /// Somebody says that it is right (`STA_UNSYNC` is not set).
    is_synchronized: bool,
}

/// What is to be done about a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Correction {
    /// Nothing.
    Leave,
    /// It is to be so many nanoseconds later at once.
    Step(i64),
    /// It is to gain so many nanoseconds, and to have this pace.
    Slew { offset: i64, pace: i64 },
}

/// What is known of the clock since it was last looked at.
#[derive(Debug, Clone, Copy)]
struct Mark {
    counter: u64,
    now: u64,
    /// What the kernel has been told to slew.
    slewed: i64,
}

/// How the clock is kept.
#[derive(Debug, Default)]
pub struct Clock {
    mark: Option<Mark>,
    pace: i64,
}

impl Clock {
    /// The host says how late it is.
    pub fn hear(&mut self, time: &Time) {
        let result = kernel::read().and_then(|reading| match self.judge(time, reading) {
            Correction::Leave => Ok(()),
            Correction::Step(offset) => kernel::step(offset),
            Correction::Slew { offset, pace } => kernel::slew(offset, pace),
        });
        if let Err(error) = result {
            eprintln!("init: cannot set the clock: {error}");
        }
    }

    fn judge(&mut self, time: &Time, read: Reading) -> Correction {
        let kept = read.kept;
        if time.is_start {
            // Without a counter in common, it is as late as it was when the host said so.
            let now = time.at(read.counter).unwrap_or(time.realtime);
            self.pace = kept.pace;
            self.mark = Some(Mark { counter: read.counter, now, slewed: 0 });
            return Correction::Step(difference(now, read.now));
        }
        let (Some(mark), Some(now)) = (self.mark.take(), time.at(read.counter)) else {
            return Correction::Leave;
        };
        let Some(passed) = nanoseconds(read.counter.wrapping_sub(mark.counter), time.frequency)
        else {
            return Correction::Leave;
        };
        let moved = difference(read.now, mark.now.saturating_add(passed));
        let is_paced = (kept.pace - self.pace).abs() <= PACE_ROUNDING && kept.tick == TICK;
        if moved.abs() > SET_NANOSECONDS || kept.is_synchronized || !is_paced {
            return Correction::Leave;
        }
        let offset = difference(now, read.now);
        let (counter, passed) = (read.counter, i64::try_from(passed).unwrap_or(i64::MAX));
        if offset.abs() > STEP_NANOSECONDS {
            self.mark = Some(Mark { counter, now, slewed: 0 });
            return Correction::Step(offset);
        }
        let could_slew = passed / 1_000_000_000 * SLEWED_IN_A_SECOND;
        let is_drift = offset.abs() <= DRIFT_NANOSECONDS && could_slew >= mark.slewed.abs();
        if passed >= PACE_SPAN_NANOSECONDS && is_drift {
            // All that was to be slewed has been: what there is now comes from the pace. Half of it, because
            // measurements are not exact.
            let lost = i128::from(offset) * 1_000_000 * i128::from(PACE_UNIT) / i128::from(passed);
            let pace = i128::from(self.pace) + lost / 2;
            self.pace = pace.clamp(i128::from(-PACE_MAX), i128::from(PACE_MAX)) as i64;
        }
        let slewed = if offset.abs() < LITTLE_NANOSECONDS { 0 } else { offset };
        self.mark = Some(Mark { counter, now: read.now, slewed });
        Correction::Slew { offset: slewed, pace: self.pace }
    }
}

/// Nanoseconds from one time to another.
fn difference(later: u64, earlier: u64) -> i64 {
    let difference = i128::from(later) - i128::from(earlier);
    difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// What the kernel is asked: adjtimex(2), of which our other crates have nothing, and the counter.
#[allow(unsafe_code)]
mod kernel {
    use std::io;

    use super::{Kept, Reading};

    /// Readings of which the tightest counts: an interrupt may come between clock and counter.
    const READINGS: usize = 8;

    fn counter() -> u64 {
        // SAFETY: the instruction is part of every x86-64 processor, and Linux allows it (prctl(2),
        // `PR_SET_TSC`) unless this process forbids it, which it does not.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// Asks, and perhaps changes, how the kernel keeps its clock.
    fn adjust(request: &mut libc::timex) -> io::Result<()> {
        // SAFETY: the structure is valid for the length of the call, which reads and writes nothing else.
        match unsafe { libc::adjtimex(request) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn request(modes: libc::c_uint) -> libc::timex {
        // SAFETY: it has numbers only, of which zero is one.
        let mut request: libc::timex = unsafe { std::mem::zeroed() };
        request.modes = modes;
        request
    }

    /// The clock and the counter at once.
    pub fn read() -> io::Result<Reading> {
        let mut state = request(0);
        adjust(&mut state)?;
        let is_synchronized = state.status & libc::STA_UNSYNC == 0;
        let kept = Kept { pace: state.freq, tick: state.tick, is_synchronized };
        let readings = (0..READINGS).map(|_| {
            let before = counter();
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let took = counter().wrapping_sub(before);
            let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
            (took, Reading { counter: before.wrapping_add(took / 2), now, kept })
        });
        let tightest = readings.min_by_key(|reading| reading.0).map(|reading| reading.1);
        tightest.ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Sets the clock so many nanoseconds later, however long that takes.
    pub fn step(offset: i64) -> io::Result<()> {
        let mut step = request(libc::ADJ_SETOFFSET);
        step.time.tv_sec = offset.div_euclid(1_000_000_000);
        step.time.tv_usec = offset.rem_euclid(1_000_000_000) / 1000;
        adjust(&mut step)
    }

    /// Has it gain so many nanoseconds by and by, and have this pace.
    pub fn slew(offset: i64, pace: i64) -> io::Result<()> {
        let mut paced = request(libc::ADJ_FREQUENCY);
        paced.freq = pace;
        adjust(&mut paced)?;
        let mut slew = request(libc::ADJ_OFFSET_SINGLESHOT);
        slew.offset = offset / 1000;
        adjust(&mut slew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const FREQUENCY: u64 = 2_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    /// A guest's kernel and its host, of which the former has a clock that gains `drift` parts in a million.
    struct World {
        clock: Clock,
        /// Nanoseconds since the start.
        passed: u64,
        /// The host's clock is so far ahead of START + passed.
        host_ahead: i64,
        /// The same of the guest's, in nanoseconds.
        guest_ahead: f64,
        drift: f64,
        pace: i64,
        to_slew: f64,
        tick: i64,
        is_synchronized: bool,
    }

    impl World {
        fn new(drift: f64) -> Self {
            let clock = Clock::default();
            let mut world = Self {
                clock,
                passed: 0,
                host_ahead: 0,
                guest_ahead: -150_000_000.0,
                drift,
                pace: 0,
                to_slew: 0.0,
                tick: TICK,
                is_synchronized: false,
            };
            assert!(matches!(world.tell(true), Correction::Step(_)));
            assert!(world.error() <= 1000, "{}", world.error());
            world
        }

        /// How far the guest's clock is from the host's, in nanoseconds.
        fn error(&self) -> i64 {
            (self.guest_ahead - self.host_ahead as f64).abs() as i64
        }

        fn wait(&mut self, seconds: u64) {
            let second = |number: u64| number as f64 * 1e9;
            self.passed += seconds * SECOND;
            let pace = self.drift + self.pace as f64 / PACE_UNIT as f64;
            self.guest_ahead += second(seconds) * pace / 1e6;
            let most = seconds as f64 * SLEWED_IN_A_SECOND as f64;
            let slewed = self.to_slew.clamp(-most, most);
            self.guest_ahead += slewed;
            self.to_slew -= slewed;
        }

        /// The host tells the time, of which the guest hears 30 ms later.
        fn tell(&mut self, is_start: bool) -> Correction {
            let counter = 77 + self.passed * (FREQUENCY / SECOND);
            let realtime = (START + self.passed).wrapping_add_signed(self.host_ahead);
            let time = Time { realtime, counter, frequency: FREQUENCY, is_start };
            self.passed += 30_000_000;
            let counter = counter + 30_000_000 * (FREQUENCY / SECOND);
            let now = (START + self.passed).wrapping_add_signed(self.guest_ahead as i64);
            let (pace, tick, is_synchronized) = (self.pace, self.tick, self.is_synchronized);
            let kept = Kept { pace, tick, is_synchronized };
            let correction = self.clock.judge(&time, Reading { counter, now, kept });
            match correction {
                Correction::Leave => {}
                Correction::Step(offset) => self.guest_ahead += offset as f64,
                Correction::Slew { offset, pace } => {
                    self.to_slew = offset as f64;
                    self.pace = pace;
                }
            }
            correction
        }
    }

    #[test]
    fn it_is_right_from_the_start_and_stays_so() {
        for drift in [0.0, 5.0, -40.0, 200.0, -400.0] {
            let mut world = World::new(drift);
            let intervals = [2, 4, 8, 16, 32].into_iter().chain(std::iter::repeat_n(64, 100));
            for interval in intervals {
                world.wait(interval);
                assert!(world.error() < 1_000_000, "{drift}: {} ns", world.error());
                assert!(matches!(world.tell(false), Correction::Slew { .. }));
            }
            world.wait(64);
            assert!(world.error() < 20_000, "{drift}: {} ns", world.error());
        }
    }

    #[test]
    fn what_is_small_is_slewed_and_what_is_large_is_stepped() {
        let mut world = World::new(0.0);
        for (ahead, is_stepped) in
            [(5_000_000, false), (-5_000_000, false), (3_600_000_000_000, true)]
        {
            world.wait(60);
            world.host_ahead += ahead;
            assert_eq!(matches!(world.tell(false), Correction::Step(_)), is_stepped, "{ahead}");
            world.wait(60);
            world.tell(false);
            assert!(world.error() < 1_000_000, "{ahead}: {} ns", world.error());
        }
    }

    #[test]
    fn a_clock_that_somebody_sets_or_keeps_is_left_to_him() {
        let meddle: [fn(&mut World); 4] = [
            |world| world.guest_ahead += 4e15,
            |world| world.pace += 100 * PACE_UNIT,
            |world| world.tick += 1,
            |world| world.is_synchronized = true,
        ];
        for meddle in meddle {
            let mut world = World::new(0.0);
            world.wait(10);
            meddle(&mut world);
            for _ in 0..3 {
                assert_eq!(world.tell(false), Correction::Leave);
                world.wait(10);
            }
            // Until the machine goes on elsewhere.
            assert!(matches!(world.tell(true), Correction::Step(_)));
            assert!(world.error() <= 1000);
        }
    }

    #[test]
    fn a_counter_that_was_moved_tells_nothing() {
        let mut world = World::new(0.0);
        let kept = Kept { pace: 0, tick: TICK, is_synchronized: false };
        let time = Time { realtime: START, counter: 1000, frequency: FREQUENCY, is_start: false };
        let read = Reading { counter: 10, now: START, kept };
        assert_eq!(world.clock.judge(&time, read), Correction::Leave);
        // At a start, what the host said is better than nothing.
        let time = Time { is_start: true, ..time };
        let read = Reading { now: START - 5, ..read };
        assert_eq!(world.clock.judge(&time, read), Correction::Step(5));
    }
}
