//! The domain's first console: its ring, and the line on the host.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use locks::Unpoisoned;
use xen_abi::Mfn;
use xen_io::Broken;
use xen_io::console::Console as Ring;

use crate::memory::MachineMemory;

/// How long who brings characters waits for room before it looks again whether the domain still lives.
const PATIENCE: Duration = Duration::from_millis(100);

/// The host's end of the console.
#[derive(Default)]
pub(crate) struct Line {
    state: Mutex<LineState>,
    /// The domain has taken characters.
    room: Condvar,
}

#[derive(Default)]
struct LineState {
    output: Option<Box<dyn Write + Send>>,
    is_closed: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unpoisoned()
    }

    /// Where what the domain says goes.
    pub(crate) fn set_output(&self, output: Box<dyn Write + Send>) {
        self.state().output = Some(output);
    }

    /// Whether nobody brings characters any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Nobody brings characters any more.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.room.notify_all();
    }

    /// Wait until the domain has taken some, for a while.
    pub(crate) fn wait_for_room(&self) {
        drop(self.room.wait_timeout(self.state(), PATIENCE));
    }

    /// The domain says something.
    pub(crate) fn say(&self, bytes: &[u8]) {
        if let Some(output) = &mut self.state().output {
            // Nobody may listen any more.
            let _ = output.write_all(bytes);
        }
    }
}

/// The ring.
pub(crate) struct Console(Mutex<Result<Ring, Broken>>);

impl Console {
    /// The console in this frame.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub(crate) fn new(memory: &MachineMemory, frame: Mfn) -> Result<Self, &'static str> {
        let ring = Ring::new(memory, frame).map_err(|_| "there is no page for its console")?;
        Ok(Self(Mutex::new(Ok(ring))))
    }

    /// Pass on what the domain says; whether it is to be notified.
    pub(crate) fn serve(&self, memory: &MachineMemory, line: &Line) -> bool {
        let mut bytes = Vec::new();
        let notifies = self.with(false, |ring| ring.take(memory, &mut bytes));
        line.say(&bytes);
        line.room.notify_all();
        notifies
    }

    /// Give the domain characters; how many there was room for.
    pub(crate) fn give(&self, memory: &MachineMemory, bytes: &[u8]) -> usize {
        self.with(0, |ring| ring.give(memory, bytes))
    }

    /// Do something with the ring, unless it has broken.
    fn with<R>(&self, none: R, act: impl FnOnce(&mut Ring) -> Result<R, Broken>) -> R {
        let mut held = self.0.lock().unpoisoned();
        let Ok(ring) = &mut *held else { return none };
        match act(ring) {
            Ok(result) => result,
            Err(broken) => {
                *held = Err(broken);
                none
            }
        }
    }
}
