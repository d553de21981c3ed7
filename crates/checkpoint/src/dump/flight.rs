//! What is in the queues of sockets, and the files that are on their way in them.

use std::cmp::Ordering;
use std::os::fd::{AsRawFd, OwnedFd};

use host::processes::identity;

use super::Names;
use super::files::Pipes;
use super::found::Found;
use super::objects::Objects;
use super::sockets::{messages, peek};
use super::{input, locks};
use crate::error::Error;
use crate::limits::MAX_DESCRIPTIONS;
use crate::proc::descriptor;
use crate::slots::Slots;
use crate::state::sockets::Message;
use crate::state::{Description, Lock};

/// The descriptions that were found so far: of each a process that has it open, its descriptor, device and inode.
pub(super) struct Flight<'a> {
    names: &'a Names,
    slots: &'a Slots,
    known: Vec<(u32, u32, (u64, u64))>,
    /// What nobody has open but a queue, and we.
    held: Vec<OwnedFd>,
}

impl<'a> Flight<'a> {
    /// `known` has those of the processes.
    pub fn new(names: &'a Names, slots: &'a Slots, known: Vec<(u32, u32, (u64, u64))>) -> Self {
        Self { names, slots, known, held: Vec::new() }
    }

    /// Look at the queues of all sockets, those that are found on the way too, in order.
    pub fn receive_all(
        mut self,
        pipes: &mut Pipes,
        objects: &mut Objects,
        (descriptions, locks): (&mut Vec<Description>, &mut Vec<Lock>),
    ) -> Result<Vec<Vec<Message>>, Error> {
        let mut queues = Vec::new();
        while let Some(entry) = pipes.sockets.entries.get(queues.len()) {
            let (pid, place) = (entry.pid, queues.len());
            let mut queue = Vec::new();
            for mut arrived in peek(entry)? {
                let mut files = Vec::new();
                for file in std::mem::take(&mut arrived.files) {
                    let known = (&mut *descriptions, &mut *locks);
                    files.push(self.receive(pid, file, pipes, objects, known)?);
                }
                let entry = &pipes.sockets.entries[place];
                queue.extend(messages(entry, self.names, arrived, files)?);
            }
            queues.push(queue);
        }
        Ok(queues)
    }

    /// The description of a file that is on its way to a process; its place.
    fn receive(
        &mut self,
        root: u32,
        file: OwnedFd,
        pipes: &mut Pipes,
        objects: &mut Objects,
        (descriptions, locks): (&mut Vec<Description>, &mut Vec<Lock>),
    ) -> Result<usize, Error> {
        let (pid, number) = (std::process::id(), file.as_raw_fd().cast_unsigned());
        let line = descriptor::read_one(pid, number)?;
        for (place, (holder, other, inode)) in self.known.iter().enumerate() {
            if *inode == (line.device, line.inode) {
                let order = identity::compare_files((pid, number), (*holder, *other));
                if order.map_err(Error::io("compare descriptors"))? == Ordering::Equal {
                    return Ok(place);
                }
            }
        }
        if self.known.len() >= MAX_DESCRIPTIONS {
            return Err(Error::Host(format!("more than {MAX_DESCRIPTIONS} descriptors are open")));
        }
        self.known.push((pid, line.number, (line.device, line.inode)));
        self.held.push(file);
        let found = [Found { pid, own: 0, line }];
        let place = (descriptions.len(), root);
        locks::find(&found, place.0, locks)?;
        input::refuse(&found)?;
        descriptions.push(pipes.describe(&found, place, objects, self.slots)?);
        Ok(descriptions.len() - 1)
    }
}
