//! A console of the domain's: its ring, and the line on the host.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use locks::Unpoisoned;
use xen_abi::Mfn;
use xen_io::Broken;
use xen_io::console::Console as Ring;
use xen_io::grant::Grant;

use crate::memory::MachineMemory;

/// How long who brings characters waits for room before it looks again whether the domain still lives.
const PATIENCE: Duration = Duration::from_millis(100);

/// See above. The lock of the ring is taken before that of the line.
#[derive(Default)]
pub(crate) struct Console {
    ring: Mutex<Option<Connected>>,
    line: Mutex<Line>,
    /// The domain has taken characters.
    room: Condvar,
}

/// The host's end.
#[derive(Default)]
struct Line {
    output: Option<Box<dyn Write + Send>>,
    is_closed: bool,
    /// The ring is left as it is.
    is_frozen: bool,
}

/// The ring that the domain shares.
struct Connected {
    ring: Result<Ring, Broken>,
    /// By which the domain is notified.
    port: u32,
    /// The page, unless it is the domain's from its start.
    _grant: Option<Grant>,
}

impl Console {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unpoisoned()
    }

    fn ring(&self) -> MutexGuard<'_, Option<Connected>> {
        self.ring.lock().unpoisoned()
    }

    /// Where what the domain says goes.
    pub(crate) fn set_output(&self, output: Box<dyn Write + Send>) {
        self.line().output = Some(output);
    }

    /// Let go of where its output goes, whoever keeps the console itself: who reads it finds its end.
    pub(crate) fn end_output(&self) {
        self.line().output = None;
    }

    /// Whether nobody brings characters any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.line().is_closed
    }

    /// Nobody brings characters any more.
    pub(crate) fn close(&self) {
        self.line().is_closed = true;
        self.room.notify_all();
    }

    /// Give the domain nothing until [`Self::thaw`].
    pub(crate) fn freeze(&self) {
        // Who gives something has the ring.
        let _ring = self.ring();
        self.line().is_frozen = true;
    }

    /// Go on.
    pub(crate) fn thaw(&self) {
        self.line().is_frozen = false;
        self.room.notify_all();
    }

    /// Wait until the domain has taken some, for a while.
    pub(crate) fn wait_for_room(&self) {
        drop(self.room.wait_timeout(self.line(), PATIENCE));
    }

    /// The domain says something.
    pub(crate) fn say(&self, bytes: &[u8]) {
        if let Some(output) = &mut self.line().output {
            // Nobody may listen any more.
            let _ = output.write_all(bytes);
        }
    }

    /// The domain shares this frame, and is notified by this port.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub(crate) fn connect(
        &self,
        memory: &MachineMemory,
        frame: Mfn,
        port: u32,
        grant: Option<Grant>,
    ) -> Result<(), Broken> {
        let ring = Ok(Ring::new(memory, frame)?);
        *self.ring() = Some(Connected { ring, port, _grant: grant });
        self.room.notify_all();
        Ok(())
    }

    /// The ring is not looked at any more; the port that it had.
    pub(crate) fn disconnect(&self) -> Option<u32> {
        self.ring().take().map(|connected| connected.port)
    }

    /// Pass on what the domain says; the port if it is to be notified.
    pub(crate) fn serve(&self, memory: &MachineMemory) -> Option<u32> {
        let mut bytes = Vec::new();
        let mut held = self.ring();
        let notified = held.as_mut()?.with(false, |ring| ring.take(memory, &mut bytes));
        self.say(&bytes);
        self.room.notify_all();
        notified.1.then_some(notified.0)
    }

    /// Give the domain characters; how many there was room for, and the port by which it is to be notified.
    pub(crate) fn give(&self, memory: &MachineMemory, bytes: &[u8]) -> Option<(usize, u32)> {
        let mut held = self.ring();
        if self.line().is_frozen {
            return None;
        }
        let (port, given) = held.as_mut()?.with(0, |ring| ring.give(memory, bytes));
        (given > 0).then_some((given, port))
    }
}

impl Connected {
    /// Do something with the ring, unless it has broken; the port, and what came of it.
    fn with<R>(&mut self, none: R, act: impl FnOnce(&mut Ring) -> Result<R, Broken>) -> (u32, R) {
        let Ok(ring) = &mut self.ring else { return (self.port, none) };
        match act(ring) {
            Ok(result) => (self.port, result),
            Err(broken) => {
                self.ring = Err(broken);
                (self.port, none)
            }
        }
    }
}
