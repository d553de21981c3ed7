//! Commands of the domain's process to the server, besides requests: the shares, and the saved
//! state of a guest that goes on from a snapshot.
//!
//! Until the guest runs, the domain's process is `biv` as the user started it. From the guest's
//! first instruction on, the guest may own it. So everything that gives a right comes before:
//!
//! 1. *Shares* come once, with [`command::INTRODUCE`].
//! 2. *The saved state* of a share comes once, before the first request of the guest
//!    ([`command::RESTORE`]); [`super::saved`] trusts nothing in it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::GuestMemoryMmap;
use zerocopy::FromBytes;

use super::error::Error;
use super::saved;
use super::share::Share;
use crate::limits::{MAX_SHARES, MAX_STATE_BYTES};
use crate::message::{Command, Header, Region, ShareRecord, VERSION, command};
use crate::ring;

/// Bytes, and descriptors that came with them.
pub type Message = (Vec<u8>, Vec<OwnedFd>);

/// What there is to do.
pub struct Introduced {
    /// The guest's memory.
    pub memory: GuestMemoryMmap,
    /// What each is, its directory, and how its requests come.
    pub shares: Vec<(ShareRecord, OwnedFd, ring::End)>,
}

impl Introduced {
    /// What the first message says.
    ///
    /// # Errors
    ///
    /// [`Error`] when it makes no sense, or the guest's memory cannot be mapped.
    pub fn understand((bytes, descriptors): Message) -> Result<Self, Error> {
        match Command::read_from_prefix(&bytes) {
            Ok((Command { kind: command::INTRODUCE, .. }, rest)) => {
                understand_shares(rest, descriptors)
            }
            _ => Err(Error::Introduction),
        }
    }
}

fn understand_shares(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<Introduced, Error> {
    let nonsense = || Error::Introduction;
    let (header, mut rest) = Header::read_from_prefix(bytes).map_err(|_| nonsense())?;
    if header.version != VERSION || header.shares as usize > MAX_SHARES {
        return Err(nonsense());
    }
    let mut regions = Vec::new();
    for _ in 0..header.regions {
        let (region, after) = Region::read_from_prefix(rest).map_err(|_| nonsense())?;
        regions.push((region.guest, region.bytes, region.offset));
        rest = after;
    }
    let mut descriptors = descriptors.into_iter();
    let memory = File::from(descriptors.next().ok_or_else(nonsense)?);
    let memory = host::memory::attach(memory, &regions)?;
    let mut shares = Vec::new();
    for _ in 0..header.shares {
        let (record, after) = ShareRecord::read_from_prefix(rest).map_err(|_| nonsense())?;
        rest = after;
        let directory = descriptors.next().ok_or_else(nonsense)?;
        let rings = File::from(descriptors.next().ok_or_else(nonsense)?);
        let socket = descriptors.next().ok_or_else(nonsense)?;
        shares.push((record, directory, ring::other_end(rings, socket)?));
    }
    Ok(Introduced { memory, shares })
}

/// What can still be asked for when the guest runs.
pub struct Control {
    /// The shares, by number.
    pub shares: Vec<Arc<Share>>,
}

impl Control {
    /// Do what is asked; none if it cannot be done.
    pub fn obey(&self, (bytes, descriptors): Message) -> Option<()> {
        let (command, _) = Command::read_from_prefix(&bytes).ok()?;
        let share = self.shares.get(command.share as usize)?;
        // What a guest calls its files by over 9p is in no state that is saved; before it has mounted the share there
        // is nothing to save.
        if share.fids.is_some() && share.is_started.load(Ordering::Relaxed) {
            return None;
        }
        let mut file = File::from(descriptors.into_iter().next()?);
        match command.kind {
            command::SAVE => file.write_all(&saved::save(share)).ok(),
            command::RESTORE if share.begins() => {
                let mut state = Vec::new();
                file.take(MAX_STATE_BYTES).read_to_end(&mut state).ok()?;
                saved::restore(share, &state).ok()
            }
            _ => None,
        }
    }
}
