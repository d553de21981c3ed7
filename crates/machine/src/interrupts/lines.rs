//! Interrupt lines: how a device on any thread says that it wants attention.
//!
//! The interrupt controllers are locked; a line is not. It is a bit in a word that everybody may
//! write and that processors look at before they run the guest. The word has two halves:
//!
//! ```text
//!  63              32 31               0
//! | has risen since  | level now        |
//! | it was looked at |                  |
//! ```
//!
//! so that an edge is seen even when the line has fallen again, and a look that finds nothing new
//! costs one load and one comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Inputs that there are: the pins of the I/O APIC.
pub const INPUTS: u8 = 24;

/// Brings a processor out of guest code or out of its sleep, so that it looks for interrupts.
pub trait Wake: Send + Sync {
    /// Called on any thread, also when the processor is awake. Must not block.
    fn wake(&self, processor: usize);
}

/// The word, and what wakes a vCPU.
pub(crate) struct LineStates {
    state: AtomicU64,
    /// The levels that the controllers know; they alone write it.
    seen: AtomicU32,
    wake: Arc<dyn Wake>,
}

/// What has happened to the lines since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// Levels now.
    pub level: u32,
    /// Lines that are not as they were, or rose and fell.
    pub changed: u32,
    /// Those that rose, whatever came after.
    pub risen: u32,
}

/// The end of the lines where the controllers are.
pub(crate) struct Inputs {
    states: Arc<LineStates>,
}

impl LineStates {
    /// Whether there is something that the controllers have not seen.
    #[inline]
    pub fn has_changes(&self) -> bool {
        let seen = self.seen.load(Ordering::Acquire);
        self.state.load(Ordering::Acquire) != u64::from(seen)
    }
}

impl Inputs {
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        let (state, seen) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { states: Arc::new(LineStates { state, seen, wake }) }
    }

    /// Where the lines' levels are.
    pub fn states(&self) -> &Arc<LineStates> {
        &self.states
    }

    /// The levels that the controllers know.
    pub fn levels(&self) -> u32 {
        self.states.seen.load(Ordering::Acquire)
    }

    /// The lines are like this, and the controllers know it.
    pub fn restore(&mut self, levels: u32) {
        let levels = levels & ((1 << INPUTS) - 1);
        self.states.seen.store(levels, Ordering::Release);
        self.states.state.store(levels.into(), Ordering::Release);
    }

    /// What is new, if anything is.
    #[inline]
    pub fn take_changes(&mut self) -> Option<Change> {
        if !self.states.has_changes() {
            return None;
        }
        let state = self.states.state.fetch_and(u64::from(u32::MAX), Ordering::AcqRel);
        let (level, risen) = (state as u32, (state >> 32) as u32);
        let changed = risen | (level ^ self.states.seen.swap(level, Ordering::AcqRel));
        Some(Change { level, changed, risen })
    }
}

/// One interrupt line, at the device's end. Clones drive the same line.
#[derive(Clone)]
pub struct InterruptLine {
    states: Arc<LineStates>,
    bit: u64,
}

impl InterruptLine {
    /// The device's end of input `number`; lines beyond the last are not connected.
    pub(crate) fn new(states: &Arc<LineStates>, number: u8) -> Self {
        let bit = if number < INPUTS { 1 << number } else { 0 };
        Self { states: Arc::clone(states), bit }
    }

    /// The device's end of a line that leads nowhere, on a board without interrupt inputs.
    pub fn unconnected(wake: Arc<dyn Wake>) -> Self {
        Self::new(Inputs::new(wake).states(), INPUTS)
    }

    /// Drive the line, from within a call by the machine: it looks at the lines afterwards.
    pub fn set(&self, level: bool) {
        self.change(level);
    }

    /// Let the line rise and fall, from within a call by the machine.
    pub fn pulse(&self) {
        self.change(true);
        self.change(false);
    }

    /// Drive the line from any other place; a processor is woken to see it.
    pub fn set_and_wake(&self, level: bool) {
        if self.change(level) {
            self.states.wake.wake(0);
        }
    }

    /// Let the line rise and fall from any other place; a processor is woken to see it.
    pub fn pulse_and_wake(&self) {
        self.pulse();
        self.states.wake.wake(0);
    }

    /// Whether the level is new.
    fn change(&self, level: bool) -> bool {
        if !level {
            return self.states.state.fetch_and(!self.bit, Ordering::AcqRel) & self.bit != 0;
        }
        let rise = self.bit | self.bit << 32;
        let rising = |state: u64| (state & self.bit == 0 && self.bit != 0).then_some(state | rise);
        self.states.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, rising).is_ok()
    }
}

impl std::fmt::Debug for InterruptLine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "InterruptLine({})", self.bit.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(&self, _processor: usize) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn changes(level: u32, changed: u32, risen: u32) -> Option<Change> {
        Some(Change { level, changed, risen })
    }

    #[test]
    fn a_level_is_reported_once() {
        let mut inputs = Inputs::new(Arc::new(Counter::default()));
        let line = InterruptLine::new(inputs.states(), 4);
        line.set(true);
        assert_eq!(inputs.take_changes(), changes(1 << 4, 1 << 4, 1 << 4));
        assert_eq!(inputs.take_changes(), None);
        line.set(true);
        assert_eq!(inputs.take_changes(), None);
        line.set(false);
        assert_eq!(inputs.take_changes(), changes(0, 1 << 4, 0));
    }

    #[test]
    fn an_edge_survives_the_fall_of_the_line() {
        let mut inputs = Inputs::new(Arc::new(Counter::default()));
        InterruptLine::new(inputs.states(), 9).pulse();
        assert_eq!(inputs.take_changes(), changes(0, 1 << 9, 1 << 9));
        assert_eq!(inputs.take_changes(), None);
    }

    #[test]
    fn a_second_edge_of_a_high_line_is_seen() {
        let mut inputs = Inputs::new(Arc::new(Counter::default()));
        let line = InterruptLine::new(inputs.states(), 3);
        line.set(true);
        inputs.take_changes();
        line.set(false);
        line.set(true);
        assert_eq!(inputs.take_changes(), changes(1 << 3, 1 << 3, 1 << 3));
    }

    #[test]
    fn waking_happens_on_a_change_only() {
        let counter = Arc::new(Counter::default());
        let inputs = Inputs::new(Arc::clone(&counter) as Arc<dyn Wake>);
        let line = InterruptLine::new(inputs.states(), 1);
        line.set(true);
        line.set_and_wake(true);
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        line.set_and_wake(false);
        line.pulse_and_wake();
        assert_eq!(counter.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_line_beyond_the_last_input_is_not_connected() {
        let mut inputs = Inputs::new(Arc::new(Counter::default()));
        InterruptLine::new(inputs.states(), 24).set(true);
        InterruptLine::new(inputs.states(), 255).pulse();
        assert_eq!(inputs.take_changes(), None);
    }

    #[test]
    fn no_edge_is_lost_between_threads() {
        let mut inputs = Inputs::new(Arc::new(Counter::default()));
        let line = InterruptLine::new(inputs.states(), 7);
        let device = std::thread::spawn(move || {
            for _ in 0..10_000 {
                line.pulse();
            }
        });
        while inputs.take_changes().is_none() {
            std::hint::spin_loop();
        }
        device.join().unwrap();
        let _ = inputs.take_changes();
        InterruptLine::new(inputs.states(), 7).pulse();
        assert_eq!(inputs.take_changes(), changes(0, 1 << 7, 1 << 7));
    }
}
