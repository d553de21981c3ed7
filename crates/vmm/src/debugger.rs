//! What a debugger does to a machine, and is told by it. It knows no protocol.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cpu::{Stopped, Vcpu};
use rustix::event::{EventfdFlags, eventfd};

use crate::control::Control;

/// How long processors may take to stand still, and to do what they are asked for then.
const PATIENCE: Duration = Duration::from_secs(2);

/// A processor does not stand still, or not in time, or the machine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the processor does not stand still")]
pub struct Gone;

/// A debugger of a machine. When it is dropped, nothing of it is left, and the machine goes on.
#[derive(Debug)]
pub struct Debugger {
    control: Control,
    event: File,
}

impl Debugger {
    /// Of the machine whose processors these are.
    ///
    /// # Errors
    ///
    /// The host has no event descriptor; or somebody debugs the machine already.
    pub(crate) fn new(control: &Control) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        if !control.tell_of_stops(event.try_clone()?) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Self { control: control.clone(), event: event.into() })
    }

    /// How many processors the machine has.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.control.processors()
    }

    /// Hold all processors; whether all of them stand still, which takes microseconds as a rule.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.control.hold();
        self.control.all_stand(PATIENCE)
    }

    /// Let these go on until one stops, and hold the others.
    pub fn release(&self, processors: impl IntoIterator<Item = usize>) {
        let bits = processors.into_iter().filter(|&number| number < self.processors());
        self.control.release(bits.fold(0, |bits, number| bits | 1 << number));
    }

    /// Readable when a processor has stopped.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// A processor that has stopped, and why; each is told once. All are held then, or about to be.
    #[must_use]
    pub fn take_stop(&self) -> Option<(usize, Stopped)> {
        // What it counts does not matter.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.control.take_stop()
    }

    /// Have a processor that is held do something, on its own thread.
    ///
    /// # Errors
    ///
    /// [`Gone`].
    pub fn on<T: Send + 'static>(
        &self,
        processor: usize,
        act: impl FnOnce(&mut Vcpu) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.control.carry_out(processor, PATIENCE, act).ok_or(Gone)
    }

    /// Make the machine end.
    pub fn kill(&self) {
        self.control.stop();
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        self.control.release(u32::MAX);
    }
}
