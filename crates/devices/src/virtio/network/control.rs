//! The control queue (virtio 1.2, 5.1.6.5).

use vm_memory::GuestAddress;

use super::Network;
use super::bits::{Features, command, configuration};
use crate::virtio::{Broken, Chain, Segment, Serving, scatter};
use machine::memory::{Memory, NoMemory};

impl Network {
    pub(super) fn obey(&mut self, serving: &mut Serving<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        while serving.pop(&mut chain)? {
            let mut bytes = [0; command::MAX_BYTES];
            let length = gather(serving.memory(), &chain.readable, &mut bytes)?;
            let answer = match self.carry_out(&bytes[..length], serving) {
                Some(()) => command::OK,
                None => command::ERROR,
            };
            let written = scatter(serving.memory(), &chain.writable, &[answer])?;
            serving.finish(chain.head, written)?;
        }
        Ok(())
    }

    /// `None` if that is no command of ours.
    fn carry_out(&mut self, bytes: &[u8], serving: &mut Serving<'_>) -> Option<()> {
        let (which, rest) = bytes.split_first_chunk::<2>()?;
        match *which {
            command::SET_ADDRESS => {
                self.choose_address(*rest.first_chunk()?);
                serving.configure(configuration::ADDRESS, &self.choices.address);
                Some(())
            }
            command::SET_PAIRS => {
                self.choose_pairs(u16::from_le_bytes(*rest.first_chunk()?)).then_some(())
            }
            command::SET_OFFLOADS => {
                self.choose_offloads(u64::from_le_bytes(*rest.first_chunk()?)).then_some(())
            }
            _ => None,
        }
    }

    pub(super) fn choose_address(&mut self, address: [u8; 6]) {
        self.choices.address = address;
    }

    /// Use so many pairs of queues; whether there are.
    pub(super) fn choose_pairs(&mut self, pairs: u16) -> bool {
        let has_them = (1..=self.settings.pairs).contains(&pairs.into());
        if has_them {
            self.choices.pairs = pairs;
            self.backend.set_pairs(pairs.into());
        }
        has_them
    }

    /// Be given only what is wanted; whether it is on offer.
    pub(super) fn choose_offloads(&mut self, wanted: u64) -> bool {
        let wanted = Features::from_bits_truncate(wanted) & Features::GUEST;
        let is_offered = (self.accepted & Features::GUEST).contains(wanted);
        if is_offered {
            self.choices.offloads = wanted.bits();
            self.backend.set_features((self.accepted - Features::GUEST) | wanted);
        }
        is_offered
    }
}

/// The beginning of what lies in guest memory at `segments`.
fn gather(memory: &dyn Memory, segments: &[Segment], bytes: &mut [u8]) -> Result<usize, NoMemory> {
    let mut done = 0;
    for segment in segments {
        let now = (segment.length as usize).min(bytes.len() - done);
        memory.read(GuestAddress(segment.address), &mut bytes[done..done + now])?;
        done += now;
    }
    Ok(done)
}
