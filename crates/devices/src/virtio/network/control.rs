//! The control queue (virtio 1.2, 5.1.6.5).

use vm_memory::GuestAddress;

use super::bits::{Features, command, configuration};
use super::{Broken, Chain, Network, Segment, Serving};
use crate::virtio::scatter;
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
                self.settings.address = *rest.first_chunk()?;
                serving.configure(configuration::ADDRESS, &self.settings.address);
            }
            command::SET_PAIRS => {
                let pairs = usize::from(u16::from_le_bytes(*rest.first_chunk()?));
                if !(1..=self.settings.pairs).contains(&pairs) {
                    return None;
                }
                self.cable.set_pairs(pairs);
            }
            command::SET_OFFLOADS => {
                let wanted = u64::from_le_bytes(*rest.first_chunk()?);
                let wanted = Features::from_bits_truncate(wanted) & Features::GUEST;
                let offered = self.accepted & Features::GUEST;
                if !offered.contains(wanted) {
                    return None;
                }
                self.cable.set_features((self.accepted - Features::GUEST) | wanted);
            }
            _ => return None,
        }
        Some(())
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
