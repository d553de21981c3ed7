//! What the processes of a tree tell of their sockets.

use std::collections::BTreeMap;

use super::ask;
use super::diagnosis::Table;
use crate::error::Error;
use crate::state::sockets::Who;

/// What the processes have answered.
#[derive(Default)]
pub(super) struct Answers {
    /// Who is at the other end, by process and descriptor.
    pub peers: BTreeMap<(u32, u32), Who>,
    /// Who the processes are.
    pub selves: BTreeMap<u32, Who>,
    /// All Unix sockets of their network namespace.
    pub table: Option<Table>,
}

impl Answers {
    /// Ask a process about its sockets with those numbers.
    pub fn ask(&mut self, pid: u32, numbers: &[u32]) -> Result<(), Error> {
        let answer = ask::ask(pid, numbers, self.table.is_none())?;
        self.selves.insert(pid, answer.itself);
        for (number, peer) in numbers.iter().zip(answer.peers) {
            if let Some(peer) = peer {
                self.peers.insert((pid, *number), peer);
            }
        }
        if let Some(socket) = answer.diagnosis {
            self.table = Some(Table::read(&socket)?);
        }
        Ok(())
    }
}
