//! What all boot protocols share: free memory, and ways to write to it.

use std::os::unix::fs::FileExt as _;

use vm_memory::{
    Address as _, ByteValued, Bytes as _, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap,
    GuestMemoryRegion as _,
};

use super::elf::Image;
use super::error::Error;
use super::limits::{MAX_COMMAND_LINE_BYTES, MAX_MODULES};
use super::space::{Range, Space};
use super::{MapEntry, Module, Request};

/// From this size on it is cheaper to write the memory's file than its mapping: the kernel fills a
/// page at once instead of clearing it in a page fault and having it copied over.
const FILE_WRITE_BYTES: usize = 64 << 10;

/// One boot in progress.
pub struct Loader<'a> {
    memory: &'a GuestMemoryMmap,
    /// What was asked for.
    pub request: &'a Request<'a>,
    /// What is still free.
    pub space: Space,
}

impl<'a> Loader<'a> {
    /// Everything that the map calls RAM is free.
    pub fn new(memory: &'a GuestMemoryMmap, request: &'a Request<'a>) -> Self {
        Self { memory, request, space: Space::new(request.memory_map) }
    }

    /// The memory map.
    pub fn memory_map(&self) -> &'a [MapEntry] {
        self.request.memory_map
    }

    /// Write bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the map promised memory that is not there.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() >= FILE_WRITE_BYTES && self.write_file(address, bytes) {
            return Ok(());
        }
        self.memory
            .write_slice(bytes, GuestAddress(address))
            .map_err(|error| Error::Memory { address, source: std::io::Error::other(error) })
    }

    /// Write through the file behind the memory, if there is one and it will have it.
    fn write_file(&self, address: u64, bytes: &[u8]) -> bool {
        let Some(region) = self.memory.find_region(GuestAddress(address)) else { return false };
        let offset = address - region.start_addr().raw_value();
        let Some(file) = region.file_offset() else { return false };
        bytes.len() as u64 <= region.len() - offset
            && file.file().write_all_at(bytes, file.start() + offset).is_ok()
    }

    /// Write a structure.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn write_object<T: ByteValued>(&self, address: u64, object: &T) -> Result<(), Error> {
        self.write(address, object.as_slice())
    }

    /// Find room for a small table and write it.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], or as [`Self::write`].
    pub fn place(&mut self, bytes: &[u8], align: u64) -> Result<u64, Error> {
        let address = self.space.take_table(bytes.len(), align)?;
        self.write(address, bytes)?;
        Ok(address)
    }

    /// Place a string with a zero byte after it.
    ///
    /// # Errors
    ///
    /// As [`Self::place`], and if it contains a zero byte.
    pub fn place_string(&mut self, text: &str) -> Result<u64, Error> {
        let mut bytes = text.as_bytes().to_vec();
        if bytes.contains(&0) {
            return Err(Error::CommandLineZero);
        }
        if bytes.len() >= MAX_COMMAND_LINE_BYTES {
            let (length, limit) = (bytes.len(), MAX_COMMAND_LINE_BYTES - 1);
            return Err(Error::CommandLineTooLong { length, limit });
        }
        bytes.push(0);
        self.place(&bytes, 16)
    }

    /// The modules, if there are not too many.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyModules`].
    pub fn modules(&self) -> Result<&'a [Module<'a>], Error> {
        let modules = self.request.modules;
        if modules.len() > MAX_MODULES {
            return Err(Error::TooManyModules { count: modules.len(), limit: MAX_MODULES });
        }
        Ok(modules)
    }

    /// Put every segment at its physical address and clear what the file does not fill.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemoryAt`] where there is no free memory.
    pub fn place_image(&mut self, image: &Image) -> Result<Range, Error> {
        let (start, end) = image.physical_range();
        let mut ranges: Vec<Range> = image
            .segments
            .iter()
            .map(|segment| Range { start: segment.physical, end: segment.physical_end() })
            .collect();
        ranges.sort_by_key(|range| range.start);
        let mut taken = 0;
        for range in ranges {
            // Segments may overlap: take only what the ones before have not.
            let start = range.start.max(taken);
            if start < range.end && !self.space.take_at(start, range.end - start) {
                return Err(Error::NoMemoryAt { start: range.start, end: range.end });
            }
            taken = taken.max(range.end);
        }
        for segment in &image.segments {
            let bytes = &self.request.kernel[segment.offset..segment.offset + segment.file_bytes];
            self.write(segment.physical, bytes)?;
            let filled = segment.physical + segment.file_bytes as u64;
            self.clear(filled, segment.memory_bytes - segment.file_bytes as u64)?;
        }
        Ok(Range { start, end })
    }

    /// Write zeros.
    fn clear(&self, start: u64, size: u64) -> Result<(), Error> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let end = start + size;
        let mut at = start;
        while at < end {
            let step = (end - at).min(ZEROS.len() as u64);
            self.write(at, &ZEROS[..step as usize])?;
            at += step;
        }
        Ok(())
    }
}
