//! A console: bytes both ways between the guest and a [`Terminal`], which has a size. It has one port (5.3.2), which
//! Linux calls `hvc0`.
//!
//! 1. *No thread blocks.* A terminal that has nothing, or takes nothing, rings the doorbell when that changes.
//! 2. *Nothing is lost*: what the terminal does not take stays in the guest's memory. Linux spins until its output has
//!    been taken, so that a terminal should take it soon.
//! 3. *A driver reads the size when it is told of a change* and not before (Linux reads it nowhere else), and is told
//!    only once it has its port. The device tells it once more when it sends its first byte.

pub(super) mod bits;
#[cfg(test)]
mod tests;

use machine::memory::Memory;
use machine::saved::{self, Unfit};
use vm_memory::GuestAddress;

use bits::{CLASS, Features, NUMBER, QUEUE_SIZES, RECEIVE, configuration};

use super::{Broken, Chain, Device, Kind, Serving, scatter};
use crate::limits::MAX_CONSOLE_PIECE_BYTES;

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-console", number: NUMBER, class: CLASS };

/// The size of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// What a console is connected to. No method waits.
pub trait Terminal: Send {
    /// The size of its window, as it is now. A change is followed by a ring for queue 0.
    fn size(&self) -> Size;

    /// Show what the guest has sent; how much of it was taken.
    fn show(&mut self, bytes: &[u8]) -> usize;

    /// Fill a buffer with what was typed; how much there was.
    fn typed(&mut self, buffer: &mut [u8]) -> usize;

    /// Ring for queue 0 when something has been typed. Once.
    fn call_when_typed(&mut self);

    /// Ring for queue 1 when something can be shown. Once.
    fn call_when_free(&mut self);
}

/// What a driver knows and the terminal does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// What was typed and has found no buffer.
    pub typed: Vec<u8>,
    /// What has been taken from the queue and is not shown yet, if there is such a thing, and how many
    /// bytes of it are.
    pub showing: Option<(Chain, u64)>,
    /// How many bytes of what is taken next have been shown, before the machine went on from a snapshot.
    pub shown: u64,
    /// The driver has sent something, so that it knows its port.
    pub has_sent: bool,
}

/// The device.
pub struct Console {
    terminal: Box<dyn Terminal>,
    state: State,
}

impl Console {
    /// A console of this terminal.
    pub fn new(terminal: Box<dyn Terminal>) -> Self {
        Self { terminal, state: State::default() }
    }

    /// Give the guest what was typed.
    fn receive(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        loop {
            if self.state.typed.is_empty() {
                let mut buffer = [0; MAX_CONSOLE_PIECE_BYTES];
                let count = self.terminal.typed(&mut buffer);
                self.state.typed.extend(&buffer[..count]);
            }
            if self.state.typed.is_empty() {
                self.terminal.call_when_typed();
                return Ok(());
            }
            // Without a buffer, the driver says when there is one.
            if !serving.pop(&mut chain)? {
                return Ok(());
            }
            let length = scatter(serving.memory(), &chain.writable, &self.state.typed)?;
            self.state.typed.drain(..length as usize);
            serving.finish(chain.head, length)?;
        }
    }

    /// Show what the guest has sent.
    fn transmit(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        loop {
            let (chain, mut done) = match self.state.showing.take() {
                Some(showing) => showing,
                None => {
                    let mut chain = Chain::default();
                    if !serving.pop(&mut chain)? {
                        return Ok(());
                    }
                    (chain, std::mem::take(&mut self.state.shown))
                }
            };
            let piece = &mut [0; MAX_CONSOLE_PIECE_BYTES];
            if !show(&mut *self.terminal, &chain, &mut done, (serving.memory(), piece))? {
                self.state.showing = Some((chain, done));
                self.terminal.call_when_free();
                return Ok(());
            }
            // Linux watches for the end of each.
            serving.finish(chain.head, 0)?;
            serving.publish()?;
        }
    }

    /// Say how large the window is, and that it has changed even if the driver might know.
    fn tell_size(&self, serving: &mut Serving<'_>, is_news: bool) {
        let changed = serving.configure(configuration::SIZE, &bytes(self.terminal.size()));
        if is_news && !changed {
            serving.tell_of_change();
        }
    }
}

/// Show a chain from byte `done` on, in pieces as large as this buffer; whether that was all.
pub(super) fn show(
    terminal: &mut dyn Terminal,
    chain: &Chain,
    done: &mut u64,
    (memory, buffer): (&dyn Memory, &mut [u8]),
) -> Result<bool, Broken> {
    let mut before = 0;
    for segment in &chain.readable {
        let end = before + u64::from(segment.length);
        while *done < end {
            let most = (end - *done).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..most];
            memory.read(GuestAddress(segment.address + (*done - before)), piece)?;
            let taken = terminal.show(piece).min(piece.len());
            *done += taken as u64;
            if taken < piece.len() {
                return Ok(false);
            }
        }
        before = end;
    }
    Ok(true)
}

fn bytes(size: Size) -> [u8; 4] {
    let ([c0, c1], [r0, r1]) = (size.columns.to_le_bytes(), size.rows.to_le_bytes());
    [c0, c1, r0, r1]
}

impl Device for Console {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        Features::SIZE.bits()
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn configuration(&self) -> Vec<u8> {
        let mut space = bytes(self.terminal.size()).to_vec();
        space.resize(configuration::BYTES, 0);
        space[configuration::PORTS] = 1;
        space
    }

    fn activate(&mut self, _features: u64) {}

    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        if queue == RECEIVE {
            self.tell_size(serving, false);
            return self.receive(serving);
        }
        let is_first = !std::mem::replace(&mut self.state.has_sent, true);
        self.tell_size(serving, is_first);
        self.transmit(serving)
    }

    fn taken(&self, queue: usize) -> u16 {
        u16::from(queue != RECEIVE && self.state.showing.is_some())
    }

    fn save(&self) -> Vec<u8> {
        let shown = self.state.showing.as_ref().map_or(self.state.shown, |(_, shown)| *shown);
        saved::encode(&(&self.state.typed, shown, self.state.has_sent))
    }

    fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
        let (typed, shown, has_sent) = saved::decode(state, "a console")?;
        self.state = State { typed, showing: None, shown, has_sent };
        Ok(())
    }

    fn accepts(&self, configuration: &[u8]) -> bool {
        // The window may have another size.
        configuration.len() == configuration::BYTES
    }

    fn reset(&mut self) {
        // What was typed is for whoever drives it next.
        self.state = State { typed: std::mem::take(&mut self.state.typed), ..State::default() };
    }
}
