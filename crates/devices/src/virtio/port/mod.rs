//! A port: bytes both ways between a program in the guest and the descriptors of a [`Terminal`]. It is a console
//! device with the one port 0, which is no console (5.3): Linux has it as `/dev/vportNp0`, and a program there reads
//! and writes whole pages, where a console's driver sends 16 bytes at a time.
//!
//! 1. *No thread blocks.* A terminal that has nothing, or takes nothing, rings the doorbell when that changes.
//! 2. *Nothing is lost*: what the terminal does not take stays in the guest's memory, and what no program reads stays
//!    with the terminal. Before a program has opened the port the device sends it nothing: Linux would drop it.
//! 3. *The driver is interrupted for batches*, not for each buffer.

mod bits;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use machine::saved::{self, Unfit};
use vm_memory::GuestAddress;

use bits::{CONTROL_TO_GUEST, QUEUE_SIZES, RECEIVE, TRANSMIT, control};

use super::console::bits::{CLASS, Features, NUMBER, configuration};
use super::console::{self, Terminal};
use super::{Broken, Chain, Device, Doorbell, Kind, Serving, scatter};
use crate::limits::{MAX_PORT_BATCH, MAX_PORT_MESSAGES, MAX_PORT_PIECE_BYTES};

/// What it is.
pub const KIND: Kind = Kind { name: "virtio-port", number: NUMBER, class: CLASS };

/// What a driver knows and the terminal does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    /// Control messages for the driver that have found no buffer.
    messages: VecDeque<Vec<u8>>,
    /// A program has the port open.
    is_open: bool,
    /// What has come for the guest; up to `given` it has been given.
    received: Vec<u8>,
    given: usize,
    /// What has been taken from the queue and not by the terminal, if there is such a thing, and how many
    /// bytes of it have.
    sending: Option<(Chain, u64)>,
    /// How many bytes of what is taken next have been sent, before the machine went on from a snapshot.
    sent: u64,
}

/// The device.
pub struct Port {
    name: &'static str,
    terminal: Box<dyn Terminal>,
    doorbell: Arc<dyn Doorbell>,
    /// The driver knows of ports.
    has_ports: bool,
    state: State,
    buffer: Box<[u8]>,
}

impl Port {
    /// A port of this name, which is connected to `terminal`; the device's own thread listens to `doorbell`.
    pub fn new(
        name: &'static str,
        terminal: Box<dyn Terminal>,
        doorbell: Arc<dyn Doorbell>,
    ) -> Self {
        let buffer = vec![0; MAX_PORT_PIECE_BYTES].into();
        Self { name, terminal, doorbell, has_ports: false, state: State::default(), buffer }
    }

    /// Give the guest what has come.
    fn receive(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        let mut unseen = 0;
        while self.state.is_open {
            if self.state.given == self.state.received.len() {
                let count = self.terminal.typed(&mut self.buffer);
                self.state.given = 0;
                self.state.received.clear();
                self.state.received.extend_from_slice(&self.buffer[..count]);
            }
            let rest = &self.state.received[self.state.given..];
            if rest.is_empty() {
                self.terminal.call_when_typed();
                return Ok(());
            }
            // Without a buffer, the driver says when there is one.
            if !serving.pop(&mut chain)? {
                return Ok(());
            }
            let length = scatter(serving.memory(), &chain.writable, rest)?;
            self.state.given += length as usize;
            serving.finish(chain.head, length)?;
            publish_a_batch(&mut unseen, serving)?;
        }
        Ok(())
    }

    /// Send what the guest has written.
    fn transmit(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut unseen = 0;
        loop {
            let (chain, mut done) = match self.state.sending.take() {
                Some(sending) => sending,
                None => {
                    let mut chain = Chain::default();
                    if !serving.pop(&mut chain)? {
                        return Ok(());
                    }
                    (chain, std::mem::take(&mut self.state.sent))
                }
            };
            let with = (serving.memory(), &mut self.buffer[..]);
            // A driver that knows no ports takes it for a console, which nobody sees.
            if self.has_ports && !console::show(&mut *self.terminal, &chain, &mut done, with)? {
                self.state.sending = Some((chain, done));
                self.terminal.call_when_free();
                return Ok(());
            }
            serving.finish(chain.head, 0)?;
            publish_a_batch(&mut unseen, serving)?;
        }
    }

    /// Give the driver the messages for it.
    fn tell(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while !self.state.messages.is_empty() && serving.pop(&mut chain)? {
            let message = self.state.messages.pop_front().unwrap_or_default();
            let length = scatter(serving.memory(), &chain.writable, &message)?;
            serving.finish(chain.head, length)?;
        }
        Ok(())
    }

    /// Hear the driver's messages.
    fn hear(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            let mut message = [0; control::BYTES];
            if let Some(segment) =
                chain.readable.first().filter(|it| it.length as usize >= control::BYTES)
            {
                serving.memory().read(GuestAddress(segment.address), &mut message)?;
                let [_, _, _, _, e0, e1, v0, v1] = message;
                self.obey(u16::from_le_bytes([e0, e1]), u16::from_le_bytes([v0, v1]) != 0);
            }
            serving.finish(chain.head, 0)?;
        }
        Ok(())
    }

    fn obey(&mut self, event: u16, value: bool) {
        match event {
            control::DEVICE_READY if value => self.say(control::DEVICE_ADD, &[]),
            control::PORT_READY if value => {
                self.say(control::PORT_NAME, self.name.as_bytes());
                self.say(control::PORT_OPEN, &[]);
            }
            control::PORT_OPEN => {
                self.state.is_open = value;
                self.doorbell.ring(RECEIVE);
            }
            _ => {}
        }
    }

    fn say(&mut self, event: u16, more: &[u8]) {
        if self.state.messages.len() < MAX_PORT_MESSAGES {
            let message = [&[0; 4][..], &event.to_le_bytes(), &1u16.to_le_bytes(), more].concat();
            self.state.messages.push_back(message);
        }
        self.doorbell.ring(CONTROL_TO_GUEST);
    }
}

/// One more chain is done: the driver sees that if it is the last of a batch.
fn publish_a_batch(unseen: &mut usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
    *unseen += 1;
    if unseen.is_multiple_of(MAX_PORT_BATCH) { serving.publish() } else { Ok(()) }
}

impl Device for Port {
    fn kind(&self) -> Kind {
        KIND
    }

    fn features(&self) -> u64 {
        Features::MULTIPORT.bits()
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn configuration(&self) -> Vec<u8> {
        let mut space = vec![0; configuration::BYTES];
        space[configuration::PORTS] = 1;
        space
    }

    fn activate(&mut self, features: u64) {
        self.has_ports = features & Features::MULTIPORT.bits() != 0;
    }

    fn serve(&mut self, queue: usize, serving: &mut Serving<'_>) -> Result<(), Broken> {
        match queue {
            RECEIVE => self.receive(serving),
            TRANSMIT => self.transmit(serving),
            CONTROL_TO_GUEST => self.tell(serving),
            _ => self.hear(serving),
        }
    }

    fn taken(&self, queue: usize) -> u16 {
        u16::from(queue == TRANSMIT && self.state.sending.is_some())
    }

    fn save(&self) -> Vec<u8> {
        let State { messages, is_open, received, given, sending, sent } = &self.state;
        let sent = sending.as_ref().map_or(*sent, |(_, sent)| *sent);
        let messages: Vec<_> = messages.iter().collect();
        saved::encode(&(messages, *is_open, &received[*given..], sent))
    }

    fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
        type Saved = (Vec<Vec<u8>>, bool, Vec<u8>, u64);
        let (messages, is_open, received, sent): Saved = saved::decode(state, "a port")?;
        let messages = messages.into();
        self.state = State { messages, is_open, received, sent, ..State::default() };
        Ok(())
    }

    fn reset(&mut self) {
        // What has come is for whoever drives it next.
        let received = self.state.received.split_off(self.state.given);
        self.state = State { received, ..State::default() };
        self.has_ports = false;
    }
}
