//! What the domain's process may tell the server, besides requests: whom to serve, what a guest that goes on
//! from a snapshot knows, and when a warm start's snapshot gets its name.
//!
//! Until the guest runs, the domain's process is `biv` as the user started it. From its first instruction on
//! it may be the guest's. So everything that gives a right comes before:
//!
//! 1. *Shares* come once, with [`command::INTRODUCE`].
//! 2. *The name* that a file is to get, and where, come once and before the shares, with [`command::NAME`].
//!    Later the domain's process can only say when ([`command::PUBLISH`]).
//! 3. *What a guest knows* of a share comes once, before the first request of the guest
//!    ([`command::RESTORE`]); [`super::saved`] believes nothing of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, linkat};
use vm_memory::GuestMemoryMmap;
use zerocopy::FromBytes;

use super::request::is_component;
use super::share::Share;
use super::{Error, OWN_DESCRIPTORS, number, saved};
use crate::message::{Command, Header, MAX_SHARES, Region, ShareRecord, VERSION, command};
use crate::ring;

/// Bytes of a share's state that are read: some 60 for each file that the guest knows.
const MAX_STATE_BYTES: u64 = 1 << 30;

/// Bytes, and descriptors that came with them.
pub type Message = (Vec<u8>, Vec<OwnedFd>);

/// A file without a name, and the name that it will get.
pub struct Naming {
    file: OwnedFd,
    /// Where.
    pub directory: OwnedFd,
    name: Vec<u8>,
}

/// What there is to do.
pub struct Introduced {
    /// The guest's memory.
    pub memory: GuestMemoryMmap,
    /// What each is, its directory, and how its requests come.
    pub shares: Vec<(ShareRecord, OwnedFd, ring::End)>,
}

/// What comes before the guest runs.
pub enum Beginning {
    /// This file will get a name.
    Naming(Naming),
    /// These are to be served.
    Introduced(Introduced),
}

impl Beginning {
    /// What a message says.
    ///
    /// # Errors
    ///
    /// [`Error`] when it makes no sense, or the guest's memory cannot be mapped.
    pub fn understand((bytes, descriptors): Message) -> Result<Self, Error> {
        let (command, rest) = Command::read_from_prefix(&bytes).map_err(|_| Error::Introduction)?;
        match command.kind {
            command::INTRODUCE => understand_shares(rest, descriptors).map(Self::Introduced),
            command::NAME if is_component(rest) => {
                let [file, directory] = descriptors.try_into().map_err(|_| Error::Introduction)?;
                Ok(Self::Naming(Naming { file, directory, name: rest.to_vec() }))
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
    /// What gets a name, until it has it.
    pub naming: Option<Naming>,
}

impl Control {
    /// Do what is asked; none if it cannot be done.
    pub fn obey(&mut self, (bytes, descriptors): Message) -> Option<()> {
        let (command, _) = Command::read_from_prefix(&bytes).ok()?;
        if command.kind == command::PUBLISH {
            return self.naming.take()?.publish();
        }
        let share = self.shares.get(command.share as usize)?;
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

impl Naming {
    fn publish(self) -> Option<()> {
        let own = format!("{OWN_DESCRIPTORS}/{}", number(self.file.as_fd()));
        linkat(CWD, own, &self.directory, &*self.name, AtFlags::SYMLINK_FOLLOW).ok()
    }
}
