//! The flash in which a PC's firmware keeps its variables: NOR flash with Intel's command set (QEMU,
//! hw/block/pflash_cfi01.c, is what firmware for QEMU's PC expects).
//!
//! A store is a command, or what belongs to one, wherever in the flash it goes; only with *program* and *write to
//! buffer* it brings bytes. A load gives what the last command asks for: the bytes that are kept, the status, or what
//! the flash says of itself. It is eight bits wide: of a wider load each byte has the status.
//!
//! 1. *A command is carried out when its last store is*: edk2 programs the next byte without asking whether the one
//!    before is there.
//! 2. *The status is zero once it is cleared.* edk2 knows flash by that. (Of a chip, bit 7 would be set.)
//! 3. *What is programmed replaces what was there*, as in QEMU. (A chip can clear bits, and erase.)
//! 4. *The medium comes first.* What it refuses, the guest does not read either, and finds in the status.
//!
//! What a guest can do to us with one store is to have the medium write one block.

mod bits;
#[cfg(test)]
mod tests;

use bits::{BUFFER_BYTES, Status, command, query};
use machine::bus::{MemoryDevice, Size};
use machine::layout;
use machine::{Backplane, bus};

pub use bits::BLOCK_BYTES;

/// The kind of the device.
pub const KIND: &str = "cfi.pflash01";

/// The medium has not written what it was to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Where what is written is kept beyond the machine's end.
pub trait Medium: Send {
    /// Write these bytes at this offset.
    ///
    /// # Errors
    ///
    /// [`Refused`]: it cannot, and the guest is told.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Refused>;
}

/// A store that brings bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Store {
    offset: u64,
    size: Size,
    value: u64,
}

/// What loads give, and what a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Loads give what is kept. The next store is a command in this state and the next three.
    Array,
    Status,
    Identifiers,
    Query,
    /// The next store brings bytes.
    Program,
    /// The next store says whether this is meant.
    Erase,
    Lock,
    /// The next store says how many stores fill the buffer, less one.
    Count,
    /// So many are to come.
    Fill(usize, Vec<Store>),
    /// The next store says whether the buffer is to be programmed.
    Full(Vec<Store>),
}

/// The device.
pub struct Flash {
    contents: Vec<u8>,
    medium: Option<Box<dyn Medium>>,
    state: State,
    status: Status,
}

impl Flash {
    /// One that has these bytes, a number of blocks of [`BLOCK_BYTES`] (what is beyond the last is cut off). Without a
    /// medium, what is written is gone with the machine.
    #[must_use]
    pub fn new(mut contents: Vec<u8>, medium: Option<Box<dyn Medium>>) -> Self {
        contents.truncate(contents.len() / BLOCK_BYTES * BLOCK_BYTES);
        Self { contents, medium, state: State::Array, status: Status::empty() }
    }

    /// Plug it in below firmware of so many bytes.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when something else is there, or it has no bytes.
    pub fn plug_into(self, board: &mut dyn Backplane, firmware: u64) -> Result<(), bus::Error> {
        let (first, bytes) = layout::flash(self.contents.len() as u64, firmware);
        board.add_memory_device("flash", first, bytes, Box::new(self))
    }

    /// What a command makes of it.
    fn command(&mut self, command: u8) -> State {
        match command {
            command::PROGRAM | command::PROGRAM_TOO => State::Program,
            command::ERASE => State::Erase,
            command::LOCK => State::Lock,
            command::READ_STATUS => State::Status,
            command::READ_IDENTIFIERS => State::Identifiers,
            command::QUERY => State::Query,
            command::WRITE_TO_BUFFER => {
                self.status |= Status::READY;
                State::Count
            }
            command::CLEAR_STATUS => {
                self.status = Status::empty();
                State::Array
            }
            _ => State::Array,
        }
    }

    /// The end of a command.
    fn end(&mut self, result: Result<(), Refused>, error: Status) -> State {
        self.status |= Status::READY;
        if result.is_err() {
            self.status |= error;
        }
        State::Status
    }

    /// A store that does not confirm what was begun.
    fn give_up(&mut self, command: u8) -> State {
        match command {
            command::READ_ARRAY => State::Array,
            _ => self.end(Err(Refused), Status::SEQUENCE_ERROR),
        }
    }

    fn erase(&mut self, offset: u64) -> State {
        let first = usize::try_from(offset).unwrap_or(usize::MAX) / BLOCK_BYTES * BLOCK_BYTES;
        let result = self.replace(first, &[0xff; BLOCK_BYTES]);
        self.end(result, Status::ERASE_ERROR)
    }

    /// Program all of these or, if one is not within the buffer's bytes that the first is in, none.
    fn program(&mut self, stores: &[Store]) -> State {
        let result = self.try_program(stores);
        self.end(result, Status::PROGRAM_ERROR)
    }

    fn try_program(&mut self, stores: &[Store]) -> Result<(), Refused> {
        let first = stores.first().ok_or(Refused)?;
        let start = usize::try_from(first.offset).map_err(|_| Refused)?;
        let base = start / BUFFER_BYTES * BUFFER_BYTES;
        let buffer = self.contents.get(base..base + BUFFER_BYTES).ok_or(Refused)?;
        let mut buffer = buffer.to_vec();
        let (mut touched_start, mut touched_end) = (BUFFER_BYTES, 0);
        for store in stores {
            let at = store.offset.checked_sub(base as u64).ok_or(Refused)?;
            let at = usize::try_from(at).map_err(|_| Refused)?;
            let count = usize::from(store.size.bytes());
            let place = buffer.get_mut(at..).and_then(|it| it.get_mut(..count)).ok_or(Refused)?;
            place.copy_from_slice(&store.value.to_le_bytes()[..count]);
            (touched_start, touched_end) = (touched_start.min(at), touched_end.max(at + count));
        }
        let touched = buffer.get(touched_start..touched_end).ok_or(Refused)?;
        self.replace(base + touched_start, touched)
    }

    fn replace(&mut self, first: usize, bytes: &[u8]) -> Result<(), Refused> {
        let place = self.contents.get_mut(first..).and_then(|it| it.get_mut(..bytes.len()));
        let place = place.ok_or(Refused)?;
        if let Some(medium) = &mut self.medium {
            medium.write(first as u64, bytes)?;
        }
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// A store to a buffer that is to be filled by so many more.
    fn fill(&mut self, left: usize, mut stores: Vec<Store>, store: Store) -> State {
        stores.push(store);
        match left.saturating_sub(1) {
            0 => State::Full(stores),
            left => State::Fill(left, stores),
        }
    }

    /// One byte of a load.
    fn byte(&self, offset: u64) -> u8 {
        match self.state {
            State::Array => {
                let at = usize::try_from(offset).ok();
                at.and_then(|at| self.contents.get(at)).copied().unwrap_or(0xff)
            }
            // It is no chip that was ever made, and none of its blocks is locked.
            State::Identifiers => 0,
            State::Query => query(self.contents.len() / BLOCK_BYTES, offset),
            _ => self.status.bits(),
        }
    }
}

impl MemoryDevice for Flash {
    fn read(&mut self, offset: u64, size: Size) -> u64 {
        let bytes = (0..u64::from(size.bytes())).rev();
        bytes.fold(0, |value, n| value << 8 | u64::from(self.byte(offset.saturating_add(n))))
    }

    fn write(&mut self, offset: u64, size: Size, value: u64) {
        let command = value as u8;
        let store = Store { offset, size, value };
        self.state = match std::mem::replace(&mut self.state, State::Array) {
            State::Program => self.program(&[store]),
            State::Erase if command == command::CONFIRM => self.erase(offset),
            State::Lock if [command::CONFIRM, command::LOCK_BLOCK].contains(&command) => {
                self.end(Ok(()), Status::empty())
            }
            State::Count => State::Fill(usize::from(command) + 1, Vec::new()),
            State::Fill(left, stores) => self.fill(left, stores, store),
            State::Full(stores) if command == command::CONFIRM => self.program(&stores),
            State::Erase | State::Lock | State::Full(_) => self.give_up(command),
            State::Array | State::Status | State::Identifiers | State::Query => {
                self.command(command)
            }
        };
    }

    fn reset(&mut self) {
        self.state = State::Array;
        self.status = Status::empty();
    }
}
