//! QEMU's firmware configuration device: items that a guest selects and reads, through a port or by
//! DMA (QEMU, docs/specs/fw_cfg.rst).
//!
//! Items are read-only. Numbers in items are little-endian, in the directory and in DMA big-endian.

mod bits;
mod dma;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bits::{DMA_SIGNATURE, ID, NAME_BYTES, PORTS, SIGNATURE, offset, selector};
use machine::bus::{PortDevice, Size, Width};
use machine::layout::{self, Kind};
use machine::memory::Memory;
use machine::saved::{self, Unfit};
use machine::{Backplane, bus};

use crate::limits::{MAX_FW_CFG_FILES, MAX_FW_CFG_ITEM_BYTES};

/// The kind of the device, which its saved state is kept by (QEMU has the same name).
pub const KIND: &str = "fw_cfg";

/// The first file.
const MEMORY_MAP: &str = "etc/e820";

/// Why a file cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory has room for so much.
    #[error("the fw_cfg file name {0:?} has no or more than 55 bytes; use a shorter one")]
    BadName(String),
    /// The name is taken.
    #[error("there are two fw_cfg files {0:?}; remove one")]
    Twice(String),
    /// See [`MAX_FW_CFG_FILES`].
    #[error("there are more than {MAX_FW_CFG_FILES} fw_cfg files; use fewer")]
    TooMany,
    /// See [`MAX_FW_CFG_ITEM_BYTES`].
    #[error("the fw_cfg file {0:?} is larger than 256 MiB; use a smaller one")]
    TooLarge(String),
}

/// The device; register it with [`Width::Any`].
pub struct FwCfg {
    memory: Arc<dyn Memory>,
    items: BTreeMap<u16, Vec<u8>>,
    names: Vec<String>,
    selected: u16,
    /// The next byte of the selected item.
    position: usize,
    dma_high: u32,
}

impl FwCfg {
    /// A device that tells of a machine with so many processors and bytes of memory.
    pub fn new(memory: Arc<dyn Memory>, processors: u16, memory_bytes: u64) -> Self {
        let items = BTreeMap::from([
            (selector::SIGNATURE, SIGNATURE.to_vec()),
            (selector::ID, ID.to_le_bytes().to_vec()),
            (selector::MEMORY_BYTES, memory_bytes.to_le_bytes().to_vec()),
            (selector::PROCESSORS, processors.to_le_bytes().to_vec()),
            (selector::MAX_PROCESSORS, processors.to_le_bytes().to_vec()),
        ]);
        let mut device =
            Self { memory, items, names: Vec::new(), selected: 0, position: 0, dma_high: 0 };
        device.insert(MEMORY_MAP.into(), e820(&layout::memory_map(memory_bytes)));
        device
    }

    /// The same for firmware of the machine's own, which is told of RAM alone: what is reserved, it reserves itself.
    #[must_use]
    pub fn for_firmware(mut self, memory_bytes: u64) -> Self {
        let ram = layout::ram_regions(memory_bytes).into_iter();
        let ranges: Vec<_> =
            ram.map(|(start, size)| layout::Range { start, size, kind: Kind::Ram }).collect();
        self.items.insert(selector::FIRST_FILE, e820(&ranges));
        self.items.insert(selector::DIRECTORY, self.directory());
        self
    }

    /// Offer a file.
    ///
    /// # Errors
    ///
    /// [`Error`] when it cannot be offered.
    pub fn add_file(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
        if name.is_empty() || name.len() >= NAME_BYTES || name.contains('\0') {
            return Err(Error::BadName(name.into()));
        }
        if self.names.iter().any(|other| other == name) {
            return Err(Error::Twice(name.into()));
        }
        if self.names.len() >= MAX_FW_CFG_FILES {
            return Err(Error::TooMany);
        }
        if bytes.len() > MAX_FW_CFG_ITEM_BYTES {
            return Err(Error::TooLarge(name.into()));
        }
        self.insert(name.into(), bytes);
        Ok(())
    }

    /// Plug it in where QEMU has it.
    ///
    /// # Errors
    ///
    /// [`bus::Error`] when something else is there.
    pub fn plug_into(self, board: &mut dyn Backplane) -> Result<(), bus::Error> {
        let first = layout::port::FW_CFG;
        board.add_port_device("fw_cfg", first, PORTS, Width::Any, Box::new(self))
    }

    fn insert(&mut self, name: String, bytes: Vec<u8>) {
        let at = selector::FIRST_FILE + self.names.len() as u16;
        self.items.insert(at, bytes);
        self.names.push(name);
        self.items.insert(selector::DIRECTORY, self.directory());
    }

    /// `struct FWCfgFiles`: a count, then size, selector, nothing and name of each, by name.
    fn directory(&self) -> Vec<u8> {
        let mut files: Vec<_> = self.names.iter().zip(selector::FIRST_FILE..).collect();
        files.sort();
        let mut bytes = (files.len() as u32).to_be_bytes().to_vec();
        for (name, at) in files {
            let size = self.items.get(&at).map_or(0, Vec::len) as u32;
            bytes.extend(size.to_be_bytes());
            bytes.extend(at.to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(name.bytes());
            bytes.resize(bytes.len() + NAME_BYTES - name.len(), 0);
        }
        bytes
    }

    fn select(&mut self, key: u16) {
        self.selected = key & selector::MASK;
        self.position = 0;
    }

    /// What is left of the selected item.
    fn rest(&self) -> &[u8] {
        let item = self.items.get(&self.selected).map_or(&[][..], Vec::as_slice);
        item.get(self.position..).unwrap_or(&[])
    }

    /// Behind the end of an item there are zeros.
    fn next_byte(&mut self) -> u8 {
        let byte = self.rest().first().copied();
        self.position = self.position.saturating_add(1);
        byte.unwrap_or(0)
    }
}

impl PortDevice for FwCfg {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn read(&mut self, at: u16, size: Size) -> u32 {
        let count = usize::from(size.bytes());
        if at >= offset::DMA_HIGH {
            let bytes = DMA_SIGNATURE.iter().skip((at - offset::DMA_HIGH).into());
            return bytes.take(count).rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
        }
        match (at, size) {
            (offset::DATA, _) => {
                (0..count).fold(0, |v, n| v | u32::from(self.next_byte()) << (8 * n))
            }
            (offset::SELECTOR, Size::Byte) => self.next_byte().into(),
            _ => 0,
        }
    }

    fn write(&mut self, at: u16, size: Size, value: u32) {
        match (at, size) {
            (offset::SELECTOR, Size::Word) => self.select(value as u16),
            (offset::DMA_HIGH, Size::Dword) => self.dma_high = value.swap_bytes(),
            (offset::DMA_LOW, Size::Dword) => {
                let high = std::mem::take(&mut self.dma_high);
                self.transfer(u64::from(high) << 32 | u64::from(value.swap_bytes()));
            }
            _ => {}
        }
    }

    fn reset(&mut self) {
        self.select(selector::SIGNATURE);
        self.dma_high = 0;
    }

    fn save(&self) -> Vec<u8> {
        saved::encode(&(self.selected, self.position, self.dma_high))
    }

    fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
        (self.selected, self.position, self.dma_high) = saved::decode(state, "fw_cfg")?;
        Ok(())
    }
}

/// `etc/e820`: address, size and type of each range.
fn e820(ranges: &[layout::Range]) -> Vec<u8> {
    ranges
        .iter()
        .flat_map(|range| {
            let kind: u32 = match range.kind {
                Kind::Ram => 1,
                Kind::Reserved => 2,
                Kind::AcpiTables => 3,
            };
            let numbers = [range.start.0.to_le_bytes(), range.size.to_le_bytes()];
            numbers.into_iter().flatten().chain(kind.to_le_bytes())
        })
        .collect()
}
