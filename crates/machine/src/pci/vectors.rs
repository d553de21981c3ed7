//! MSI-X: the table of a function's interrupt messages, and the bits of those that are held back
//! (PCI Local Bus Specification 3.0, 6.8.2). A device's threads send them; the guest's processors
//! rewrite the table at the same time, so that it is behind a lock, which is held for a few
//! instructions and under which nothing else is locked.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use locks::Unpoisoned;
use serde::{Deserialize, Serialize};

use super::bits::msi_x::{ENABLE, ENTRY_BYTES, FUNCTION_MASK, MASKED};
use crate::bus::Size;
use crate::interrupts::{Message, Router};
use crate::limits::MAX_MSI_X_VECTORS;
use crate::saved::{self, Unfit};

/// Where the pending bits are; before them is the table.
pub(super) const TABLE_BYTES: u64 = 0x800;

const _: () = assert!(MAX_MSI_X_VECTORS as u64 * ENTRY_BYTES <= TABLE_BYTES);

/// Delivers interrupt messages, from any thread.
#[derive(Clone)]
pub struct MessageSender(Arc<Router>);

impl MessageSender {
    pub(crate) fn new(router: &Arc<Router>) -> Self {
        Self(Arc::clone(router))
    }

    /// Deliver a message.
    pub fn send(&self, message: &Message) {
        self.0.send(message, None);
    }
}

impl fmt::Debug for MessageSender {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MessageSender")
    }
}

/// An entry of the table.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Entry {
    address: u64,
    data: u32,
    control: u32,
}

/// A table as it was.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedVectors {
    entries: Vec<Entry>,
    pending: u64,
}

#[derive(Debug)]
struct Table {
    entries: Vec<Entry>,
    pending: u64,
    enabled: bool,
    masked: bool,
}

/// The messages of a function. Clones are the same.
#[derive(Debug, Clone)]
pub struct Vectors {
    table: Arc<Mutex<Table>>,
    sender: MessageSender,
}

impl Vectors {
    /// So many messages, 1 to [`MAX_MSI_X_VECTORS`].
    pub fn new(count: u16, sender: MessageSender) -> Self {
        let count = usize::from(count).clamp(1, MAX_MSI_X_VECTORS);
        let entry = Entry { address: 0, data: 0, control: MASKED };
        let entries = vec![entry; count];
        let table = Table { entries, pending: 0, enabled: false, masked: false };
        Self { table: Arc::new(Mutex::new(table)), sender }
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        self.table().entries.len() as u16
    }

    /// Interrupt, or remember to when that is allowed. A vector that is not in the table sends nothing.
    pub fn trigger(&self, vector: u16) {
        let message = self.table().fire(vector.into());
        if let Some(message) = message {
            self.sender.send(&message);
        }
    }

    /// Enabled and masked as the capability says.
    pub(super) fn control(&self, control: u16) {
        let mut table = self.table();
        table.enabled = control & ENABLE != 0;
        table.masked = control & FUNCTION_MASK != 0;
        self.release(table);
    }

    /// What one that goes on from here has to know.
    pub(super) fn save(&self) -> SavedVectors {
        let table = self.table();
        SavedVectors { entries: table.entries.clone(), pending: table.pending }
    }

    /// Go on from there.
    pub(super) fn restore(&self, saved: &SavedVectors) -> Result<(), Unfit> {
        let mut table = self.table();
        saved::check(table.entries.len() == saved.entries.len(), "a table of messages")?;
        table.entries.clone_from(&saved.entries);
        table.pending = saved.pending;
        Ok(())
    }

    pub(super) fn reset(&self) {
        let mut table = self.table();
        table.entries.fill(Entry { address: 0, data: 0, control: MASKED });
        table.pending = 0;
    }

    pub(super) fn read(&self, at: u64, size: Size) -> u64 {
        let table = self.table();
        let aligned = table.read(at & !7);
        aligned >> (8 * (at & 7)) & size.mask()
    }

    /// Aligned stores of 4 or 8 bytes; others are undefined, and lost.
    pub(super) fn write(&self, at: u64, size: Size, value: u64) {
        if size < Size::Dword || !at.is_multiple_of(u64::from(size.bytes())) {
            return;
        }
        let mut table = self.table();
        table.write(at, value as u32);
        if size == Size::Qword {
            table.write(at + 4, (value >> 32) as u32);
        }
        self.release(table);
    }

    /// Send what was held back and need not be any more.
    fn release(&self, mut table: MutexGuard<'_, Table>) {
        let messages = table.release();
        drop(table);
        messages.iter().for_each(|message| self.sender.send(message));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unpoisoned()
    }
}

impl Table {
    fn fire(&mut self, vector: usize) -> Option<Message> {
        let entry = *self.entries.get(vector)?;
        if !self.enabled {
            return None;
        }
        if self.masked || entry.control & MASKED != 0 {
            self.pending |= 1 << vector;
            return None;
        }
        self.pending &= !(1 << vector);
        Message::from_memory_write(entry.address, entry.data)
    }

    fn release(&mut self) -> Vec<Message> {
        if self.pending == 0 || !self.enabled || self.masked {
            return Vec::new();
        }
        let pending = self.pending;
        let waiting = (0..self.entries.len()).filter(|vector| pending >> vector & 1 != 0);
        waiting.filter_map(|vector| self.fire(vector)).collect()
    }

    fn read(&self, at: u64) -> u64 {
        if at == TABLE_BYTES {
            return self.pending;
        }
        let Some(entry) = self.entries.get((at / ENTRY_BYTES) as usize) else { return 0 };
        match at % ENTRY_BYTES {
            0 => entry.address,
            _ => u64::from(entry.control) << 32 | u64::from(entry.data),
        }
    }

    fn write(&mut self, at: u64, value: u32) {
        let Some(entry) = self.entries.get_mut((at / ENTRY_BYTES) as usize) else { return };
        let value64 = u64::from(value);
        match at % ENTRY_BYTES {
            0 => entry.address = entry.address & !0xffff_ffff | value64 & !3,
            4 => entry.address = entry.address & 0xffff_ffff | value64 << 32,
            8 => entry.data = value,
            _ => entry.control = value & MASKED,
        }
    }
}
