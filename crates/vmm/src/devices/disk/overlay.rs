//! An image that is never written: what the guest writes goes to a file without a name, and is lost when the machine
//! ends.
//!
//! A bitmap in memory has a bit for each sector that the file has, for 2 MiB of the disk at a time.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::RwLock;

use locks::Unpoisoned;

use super::{Buffers, Image, Raw, SECTOR_BYTES};

/// Sectors whose bits are together.
const GROUP_SECTORS: u64 = 4096;

type Group = [u64; GROUP_SECTORS as usize / 64];

/// See above.
pub struct Overlay {
    base: Box<dyn Image>,
    top: Raw,
    /// Which sectors `top` has; a bit is set when its sector has been written.
    present: RwLock<HashMap<u64, Box<Group>>>,
}

impl Overlay {
    /// What is in `base`, and what is written in `top`, a file with nothing in it.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn new(base: Box<dyn Image>, top: File) -> io::Result<Self> {
        let bytes = base.bytes();
        top.set_len(bytes)?;
        Ok(Self { base, top: Raw::new(top, bytes, false), present: RwLock::default() })
    }

    /// The first part of a range of sectors that is in one place; whether that is the top.
    fn run(&self, range: Range<u64>) -> (Range<u64>, bool) {
        let present = self.present.read().unpoisoned();
        let is_there = |sector: u64| {
            let (group, bit) = (sector / GROUP_SECTORS, sector % GROUP_SECTORS);
            present.get(&group).is_some_and(|group| group[bit as usize / 64] >> (bit % 64) & 1 != 0)
        };
        let first = is_there(range.start);
        let end = range.clone().find(|&sector| is_there(sector) != first).unwrap_or(range.end);
        (range.start..end, first)
    }

    fn note(&self, at: u64, bytes: u64) {
        let mut present = self.present.write().unpoisoned();
        for sector in at / SECTOR_BYTES..(at + bytes) / SECTOR_BYTES {
            let (group, bit) = (sector / GROUP_SECTORS, sector % GROUP_SECTORS);
            let group = present.entry(group).or_insert_with(|| Box::new([0; _]));
            group[bit as usize / 64] |= 1 << (bit % 64);
        }
    }
}

impl Image for Overlay {
    fn bytes(&self) -> u64 {
        self.base.bytes()
    }

    fn can_discard(&self) -> bool {
        self.top.can_discard()
    }

    fn read(&self, at: u64, into: &Buffers<'_>) -> io::Result<()> {
        let bytes = into.bytes() as u64;
        let (start, end) = (at / SECTOR_BYTES, (at + bytes) / SECTOR_BYTES);
        let mut sector = start;
        while sector < end {
            let (run, is_top) = self.run(sector..end);
            let skip = (run.start - start) * SECTOR_BYTES;
            let part = into.part(skip as usize, ((run.end - run.start) * SECTOR_BYTES) as usize);
            match is_top {
                true => self.top.read(at + skip, &part)?,
                false => self.base.read(at + skip, &part)?,
            }
            sector = run.end;
        }
        Ok(())
    }

    fn write(&self, at: u64, from: &Buffers<'_>) -> io::Result<()> {
        self.top.write(at, from)?;
        self.note(at, from.bytes() as u64);
        Ok(())
    }

    fn writes_to_cache(&self) -> bool {
        true
    }

    /// Nothing is to survive.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, at: u64, bytes: u64, unmap: bool) -> io::Result<()> {
        self.top.zero(at, bytes, unmap)?;
        self.note(at, bytes);
        Ok(())
    }
}
