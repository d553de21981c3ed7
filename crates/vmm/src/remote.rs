//! A running machine, from other threads.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::GuestMemory;
use machine::toolstack::{DomainMemory, Toolstack};

use crate::activity::Activity;
use crate::clock::HostClock;
use crate::control::Control;
use crate::debugger::Debugger;
use crate::devices::{BalloonHandle, Ballooned, Window};
use crate::snapshot::{self, Compression, Draft, State, Taken};

/// How long processors may take to stand still; they do within microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// What can be done to a machine from outside, and seen of it. Clones are of the same machine.
#[derive(Debug, Clone)]
pub struct Remote {
    pub(crate) control: Control,
    /// The guest's memory.
    pub(crate) memory: GuestMemory,
    pub(crate) clock: Arc<HostClock>,
    /// The window of its virtio console, if the program that made the console has set it.
    pub window: Option<Window>,
    /// Its balloon, if the program that made the balloon has set it.
    pub balloon: Option<BalloonHandle>,
    /// What domain 0 does to it, if it is paravirtual.
    pub toolstack: Option<Arc<dyn Toolstack>>,
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

    /// A snapshot that is to be taken, in an empty file.
    ///
    /// # Errors
    ///
    /// [`snapshot::Error`] when the host has no room to compress it in.
    pub fn draft(&self, file: File, compression: Compression) -> Result<Draft, snapshot::Error> {
        Draft::new(&self.memory, file, compression)
    }

    /// Take a snapshot of it, with what `note` says while it stands still. Then it is as it was. The further
    /// the draft is ([`Draft::follow`]), the sooner.
    ///
    /// # Errors
    ///
    /// [`snapshot::Error`].
    pub fn take(
        &self,
        draft: Draft,
        note: impl FnOnce() -> Vec<u8>,
    ) -> Result<Taken, snapshot::Error> {
        let was_paused = self.is_paused();
        let started = Instant::now();
        let taken = match self.pause() {
            true => self.take_still(draft, note),
            false => Err(snapshot::Error::Moving),
        };
        if !was_paused {
            self.resume();
        }
        Ok(Taken { paused: started.elapsed(), ..taken? })
    }

    fn take_still(
        &self,
        mut draft: Draft,
        note: impl FnOnce() -> Vec<u8>,
    ) -> Result<Taken, snapshot::Error> {
        let state = State::collect(&self.control, &self.clock, self.memory.size());
        let taken = state.and_then(|state| {
            draft.catch_up()?;
            Ok(Taken { draft, state, note: note(), paused: Duration::ZERO })
        });
        State::thaw(&self.control);
        taken
    }

    /// A debugger of it. A machine has one.
    ///
    /// # Errors
    ///
    /// [`std::io::Error`] when the host has no event descriptor.
    pub fn debugger(&self) -> std::io::Result<Debugger> {
        Debugger::new(&self.control)
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

    /// Have the guest, which was made with `all` bytes of memory, keep so many; whether there is a way to tell it. It
    /// may take its time, and may have no driver.
    pub fn set_memory(&self, all: u64, bytes: u64) -> bool {
        if let Some(toolstack) = &self.toolstack {
            return toolstack.set_target(bytes).is_ok();
        }
        self.balloon.iter().for_each(|balloon| balloon.want(all.saturating_sub(bytes)));
        self.balloon.is_some()
    }

    /// The most memory that the guest may have, of a machine that was made with `all` bytes.
    pub fn maximum_memory(&self, all: u64) -> u64 {
        self.toolstack.as_ref().map_or(all, |toolstack| toolstack.memory().maximum)
    }

    /// What the guest has given, and says of its memory, if it has a balloon.
    pub fn ballooned(&self) -> Option<Ballooned> {
        let Some(toolstack) = &self.toolstack else {
            return self.balloon.as_ref().map(BalloonHandle::look);
        };
        let DomainMemory { now, target, maximum } = toolstack.memory();
        let (wanted, given) = (maximum.saturating_sub(target), maximum.saturating_sub(now));
        Some(Ballooned { wanted, given, freed: 0, statistics: None })
    }

    /// Bytes of the guest's memory that it has touched, and not given back.
    pub fn memory_used(&self) -> u64 {
        let found = rustix::fs::fstat(self.memory.file());
        found.map_or(0, |found| u64::try_from(found.st_blocks).unwrap_or(0) * 512)
    }
}
