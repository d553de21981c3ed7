//! A running machine, from other threads.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use crate::activity::Activity;
use crate::balloon::{Balloon, Ballooned};
use crate::console::Window;
use crate::control::Control;

/// How long processors may take to stand still; they do within microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// What can be done to a machine from outside, and seen of it. Clones are of the same machine.
#[derive(Debug, Clone)]
pub struct Remote {
    pub(crate) control: Control,
    /// The guest's memory.
    pub(crate) memory: Arc<File>,
    /// That of its virtio console.
    pub(crate) window: Option<Window>,
    /// Its balloon.
    pub(crate) balloon: Option<Balloon>,
}

impl Remote {
    /// Make [`crate::Machine::run`] return [`crate::Outcome::Stopped`] soon.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Push the power button: a guest that handles it shuts down.
    pub fn press_power_button(&self) {
        self.control.press_button();
    }

    /// Have all processors stand still between two of the guest's instructions; whether they do. What
    /// devices have begun they still finish.
    pub fn pause(&self) -> bool {
        self.control.pause(PATIENCE)
    }

    /// Let them go on. The guest's clock has gone on meanwhile, and says so.
    pub fn resume(&self) {
        self.control.resume();
    }

    /// Whether they stand still, or are about to.
    pub fn is_paused(&self) -> bool {
        self.control.is_paused()
    }

    /// Exits, interrupts and halts of each processor, as they were some milliseconds ago at most
    /// while it does anything.
    pub fn activity(&self) -> Vec<Activity> {
        self.control.published()
    }

    /// The window of its virtio console, if it has one, is of this size now.
    pub fn resize_console(&self, rows: u16, columns: u16) {
        self.window.iter().for_each(|window| window.resize(rows, columns));
    }

    /// Have the guest do with so much memory less; whether there is a balloon to tell it by. It may take its
    /// time, and may have no driver.
    pub fn set_balloon(&self, bytes: u64) -> bool {
        self.balloon.iter().for_each(|balloon| balloon.want(bytes));
        self.balloon.is_some()
    }

    /// What the guest has given, and says of its memory, if it has a balloon.
    pub fn ballooned(&self) -> Option<Ballooned> {
        self.balloon.as_ref().map(Balloon::look)
    }

    /// Bytes of the guest's memory that it has touched, and not given back.
    pub fn memory_used(&self) -> u64 {
        let found = rustix::fs::fstat(&self.memory);
        found.map_or(0, |found| u64::try_from(found.st_blocks).unwrap_or(0) * 512)
    }
}
