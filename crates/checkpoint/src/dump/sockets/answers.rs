//! What the processes of a tree tell of their sockets.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use super::ask;
use super::diagnosis::Table;
use crate::error::Error;
use crate::state::sockets::Who;

/// How often the kernel is asked for all sockets.
const MAX_READINGS: usize = 8;

/// What the processes have answered.
#[derive(Default)]
pub(super) struct Answers {
    /// Who is at the other end, by process and descriptor.
    pub peers: BTreeMap<(u32, u32), Who>,
    /// Who the processes are.
    pub selves: BTreeMap<u32, Who>,
    /// A socket of their network namespace, to ask for all others.
    diagnosis: Option<OwnedFd>,
}

impl Answers {
    /// Ask a process about its sockets with those numbers.
    pub fn ask(&mut self, pid: u32, numbers: &[u32]) -> Result<(), Error> {
        let answer = ask::ask(pid, numbers, self.diagnosis.is_none())?;
        self.selves.insert(pid, answer.itself);
        for (number, peer) in numbers.iter().zip(answer.peers) {
            if let Some(peer) = peer {
                self.peers.insert((pid, *number), peer);
            }
        }
        if answer.diagnosis.is_some() {
            self.diagnosis = answer.diagnosis;
        }
        Ok(())
    }

    /// All Unix sockets of their network namespace. Others there may open and close some meanwhile: then the kernel may
    /// leave out any, and is asked again until it tells of those with these inodes.
    pub fn table(&self, inodes: &[u64]) -> Result<Table, Error> {
        let Some(socket) = &self.diagnosis else { return Ok(Table::default()) };
        let mut table = Table::read(socket)?;
        for _ in 1..MAX_READINGS {
            if inodes.iter().all(|inode| table.get(*inode).is_some()) {
                break;
            }
            table = Table::read(socket)?;
        }
        Ok(table)
    }
}
