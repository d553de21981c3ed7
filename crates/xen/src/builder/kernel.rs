//! The kernel's file: what is loaded of it, relative to the domain's first page.

use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use xen_abi::{PAGE_BYTES, note};

use super::error::Error;
use super::notes::Notes;
use crate::limits::{MAX_NOTES, MAX_PROGRAM_HEADERS};

/// A part of the kernel. It is loaded by its physical address: Linux has a segment of per-CPU data whose linear
/// address is 0.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Where it starts, from the domain's first page on.
    pub start: u64,
    /// Where it ends; what it has no bytes for is zero.
    pub end: u64,
    /// Its bytes in the file.
    pub bytes: &'a [u8],
}

/// A kernel that has been checked by itself: only the layout tells whether there is room for it.
#[derive(Debug)]
pub struct Kernel<'a> {
    /// Sorted, disjoint and never empty.
    pub segments: Vec<Segment<'a>>,
    /// What it says about itself.
    pub notes: Notes,
    /// The address at which the domain's first page is mapped.
    pub base: u64,
    /// The address at which it is entered.
    pub entry: u64,
}

impl<'a> Kernel<'a> {
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        let refuse = |reason| Error::NotAKernel { reason };
        let header = FileHeader64::<LittleEndian>::parse(file);
        let header = header.map_err(|_| refuse("its header is another"))?;
        let endian = header.endian().map_err(|_| refuse("its byte order is another"))?;
        if header.e_machine(endian) != elf::EM_X86_64 {
            return Err(refuse("it is for another processor"));
        }
        // A larger number would be in a section header, where nothing bounds it.
        if header.e_phnum(endian) > MAX_PROGRAM_HEADERS {
            return Err(Error::Damaged { reason: "it has too many program headers" });
        }
        let programs = header.program_headers(endian, file);
        let programs =
            programs.map_err(|_| Error::Damaged { reason: "its program headers are cut off" })?;
        let notes = read_notes(programs, file)?;
        notes.check()?;
        let (base, offset) = (notes.virtual_base.unwrap_or(0), notes.physical_offset.unwrap_or(0));
        let entry = notes.entry.unwrap_or(header.e_entry(endian));
        let segments = read_segments(programs, file, offset)?;
        let kernel = Self { segments, notes, base, entry };
        kernel.check_addresses()?;
        Ok(kernel)
    }

    /// Where the segments start and end, from the domain's first page on.
    pub fn extent(&self) -> (u64, u64) {
        let start = self.segments.first().map(|segment| segment.start);
        let end = self.segments.last().map(|segment| segment.end);
        (start.unwrap_or(0), end.unwrap_or(0))
    }

    /// Where the hypercall page is, from the domain's first page on.
    pub fn hypercall_page(&self) -> Option<u64> {
        self.notes.hypercall_page.map(|address| address.wrapping_sub(self.base))
    }

    fn check_addresses(&self) -> Result<(), Error> {
        let bad = |what, address, reason| Error::Address { what, address, reason };
        if !self.base.is_multiple_of(PAGE_BYTES as u64) {
            return Err(bad("its base", self.base, "is not the start of a page"));
        }
        let (start, end) = self.extent();
        let inside = |address: u64| {
            let offset = address.checked_sub(self.base);
            offset.is_some_and(|offset| (start..end).contains(&offset))
        };
        if !inside(self.entry) {
            return Err(bad("its entry", self.entry, "is not in what is loaded"));
        }
        let Some(page) = self.notes.hypercall_page else { return Ok(()) };
        let last = page.checked_add(PAGE_BYTES as u64 - 1);
        if !inside(page) || !last.is_some_and(inside) {
            return Err(bad("its hypercall page", page, "is not in what is loaded"));
        }
        if !page.is_multiple_of(PAGE_BYTES as u64) {
            return Err(bad("its hypercall page", page, "is not the start of a page"));
        }
        Ok(())
    }
}

/// All notes of Xen's; there may be several segments of notes.
fn read_notes(programs: &[ProgramHeader64<LittleEndian>], file: &[u8]) -> Result<Notes, Error> {
    let damaged = |reason| Error::Damaged { reason };
    let (mut notes, mut count) = (Notes::default(), 0);
    for program in programs {
        let found = program.notes(LittleEndian, file);
        let Some(mut found) = found.map_err(|_| damaged("its notes are cut off"))? else {
            continue;
        };
        while let Some(note) = found.next().map_err(|_| damaged("one of its notes is cut off"))? {
            count += 1;
            if count > MAX_NOTES {
                return Err(damaged("it has too many notes"));
            }
            if note.name() == note::OWNER {
                notes.add(note.n_type(LittleEndian).0, note.desc())?;
            }
        }
    }
    Ok(notes)
}

fn read_segments<'a>(
    programs: &[ProgramHeader64<LittleEndian>],
    file: &'a [u8],
    offset: u64,
) -> Result<Vec<Segment<'a>>, Error> {
    let damaged = |reason| Error::Damaged { reason };
    let mut segments = Vec::new();
    for program in programs {
        let size = program.p_memsz(LittleEndian);
        if program.p_type(LittleEndian) != elf::PT_LOAD || size == 0 {
            continue;
        }
        let bytes = program.data(LittleEndian, file);
        let bytes = bytes.map_err(|()| damaged("a segment is cut off"))?;
        if bytes.len() as u64 > size {
            return Err(damaged("a segment is larger in the file than in memory"));
        }
        let start = program.p_paddr(LittleEndian).checked_sub(offset);
        let start = start.ok_or(damaged("a segment is below what it is relative to"))?;
        let end = start.checked_add(size).ok_or(damaged("a segment is beyond all memory"))?;
        segments.push(Segment { start, end, bytes });
    }
    segments.sort_by_key(|segment| segment.start);
    if segments.is_empty() {
        return Err(damaged("it has nothing to load"));
    }
    if segments.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(damaged("two segments overlap"));
    }
    Ok(segments)
}
