//! The other end of a serial port: what the guest is to read.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use locks::Unpoisoned;
use machine::InterruptLine;

use super::uart::Uart;

/// The port was closed while bytes waited to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the serial port is closed: its machine has ended")]
pub struct Closed;

/// What both ends share. One lock, held for an access; nothing else is locked under it.
pub struct Shared {
    state: Mutex<State>,
    room: Condvar,
    line: InterruptLine,
}

struct State {
    uart: Uart,
    /// A thread waits for room.
    waiting: bool,
    closed: bool,
}

impl Shared {
    pub fn new(uart: Uart, line: InterruptLine) -> Self {
        let state = State { uart, waiting: false, closed: false };
        Self { state: Mutex::new(state), room: Condvar::new(), line }
    }

    /// An access by the guest.
    pub fn with_uart<R>(&self, act: impl FnOnce(&mut Uart) -> R) -> R {
        let mut state = self.lock();
        let before = state.uart.interrupts();
        let result = act(&mut state.uart);
        let after = state.uart.interrupts();
        if before != after {
            self.line.set(after);
        }
        if state.waiting && state.uart.room() > 0 {
            state.waiting = false;
            self.room.notify_all();
        }
        result
    }

    /// Not an access by the guest.
    pub fn look_at_uart<R>(&self, look: impl FnOnce(&Uart) -> R) -> R {
        look(&self.lock().uart)
    }

    /// The line is as the chip has it.
    pub fn drive_line(&self) {
        self.line.set(self.lock().uart.interrupts());
    }

    /// A poisoned lock means that an output panicked; the chip itself is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }
}

/// Sends bytes to the guest, from any thread. Clones are the same end.
#[derive(Clone)]
pub struct Input {
    shared: Arc<Shared>,
}

impl Input {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Give the guest as much as it takes now; how much that was.
    pub fn offer(&self, bytes: &[u8]) -> usize {
        self.receive(&mut self.shared.lock(), bytes)
    }

    /// Give the guest all of `bytes`, waiting for as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Closed`] when [`Self::close`] was called before the guest had taken all.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Closed> {
        let mut left = bytes;
        let mut state = self.shared.lock();
        while !state.closed {
            let taken = self.receive(&mut state, left);
            left = &left[taken..];
            if left.is_empty() {
                return Ok(());
            }
            state.waiting = true;
            state = self.shared.room.wait(state).unpoisoned();
        }
        Err(Closed)
    }

    /// Make every thread that waits in [`Self::send`] return.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.room.notify_all();
    }

    fn receive(&self, state: &mut State, bytes: &[u8]) -> usize {
        let before = state.uart.interrupts();
        let taken = state.uart.receive(bytes);
        if state.uart.interrupts() && !before {
            self.shared.line.set_and_wake(true);
        }
        taken
    }
}
