//! Kernels as ELF files: what is loaded where, and what their notes say.
//!
//! The file is untrusted. [`Image::parse`] checks everything that is used later, so that what comes
//! after may rely on it: a segment's bytes are inside the file and its memory inside the 64-bit
//! address space.

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

use super::bytes::{u32_at, u64_at};
use super::error::Error;
use super::limits::MAX_SEGMENTS;

/// Note type of the 32-bit PVH entry (xen/include/public/elfnote.h, `XEN_ELFNOTE_PHYS32_ENTRY`).
const PHYS32_ENTRY: u32 = 18;

/// Note type of the guest's name (`XEN_ELFNOTE_GUEST_OS`).
const GUEST_OS: u32 = 6;

/// Note types with owner "Linux" (include/linux/elfnote.h and its users).
const LINUX_OWNER: &[u8] = b"Linux";

/// A part of the file that is to be in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Physical address.
    pub physical: u64,
    /// Virtual address.
    pub linear: u64,
    /// Where it starts in the file.
    pub offset: usize,
    /// Bytes in the file.
    pub file_bytes: usize,
    /// Bytes in memory, at least as many; the rest is zero.
    pub memory_bytes: u64,
}

impl Segment {
    /// Physical address after the last byte.
    pub fn physical_end(&self) -> u64 {
        self.physical + self.memory_bytes
    }
}

/// An ELF file for x86, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Whether it is of class 64.
    pub is_64: bool,
    /// The entry point.
    pub entry: u64,
    /// What to load, never empty.
    pub segments: Vec<Segment>,
    /// The 32-bit entry of the PVH protocol.
    pub pvh_entry: Option<u64>,
    /// Whether the notes say that it is Linux.
    pub is_linux: bool,
    /// Bytes that the ELF file proper takes; a relocation table may follow.
    pub file_end: usize,
}

/// Whether a file claims to be ELF.
pub fn is_elf(file: &[u8]) -> bool {
    file.starts_with(&elf::ELFMAG)
}

impl Image {
    /// Read and check the headers.
    ///
    /// # Errors
    ///
    /// [`Error`] if this is no ELF file for x86 or contradicts itself.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        if !is_elf(file) {
            return Err(Error::NotAKernel);
        }
        match file.get(4) {
            Some(2) => Self::parse_class::<FileHeader64<Endianness>>(file),
            Some(1) => Self::parse_class::<FileHeader32<Endianness>>(file),
            Some(_) => Err(Error::WrongElf { reason: "its class is unknown" }),
            None => Err(Error::Truncated { what: "the ELF header", needed: 52, have: 4 }),
        }
    }

    fn parse_class<Elf: FileHeader<Endian = Endianness>>(file: &[u8]) -> Result<Self, Error> {
        let have = file.len() as u64;
        let truncated = |what, needed| Error::Truncated { what, needed, have };
        if have < size_of::<Elf>() as u64 {
            return Err(truncated("the ELF header", size_of::<Elf>() as u64));
        }
        let header = Elf::parse(file).map_err(|_| Error::BadElf { reason: "its header" })?;
        let endian = header.endian().map_err(|_| Error::BadElf { reason: "its byte order" })?;
        let machine = header.e_machine(endian);
        let expected = if header.is_type_64() { elf::EM_X86_64 } else { elf::EM_386 };
        let also = !header.is_type_64() && machine == elf::EM_X86_64;
        if endian != Endianness::Little || (machine != expected && !also) {
            return Err(Error::WrongElf { reason: "it is for another processor" });
        }
        let kind = header.e_type(endian);
        if kind != elf::ET_EXEC && kind != elf::ET_DYN {
            return Err(Error::WrongElf { reason: "it is not linked" });
        }
        let table_end = header.e_phoff(endian).into()
            + u64::from(header.e_phnum(endian)) * u64::from(header.e_phentsize(endian));
        if table_end > have {
            return Err(truncated("the program header table", table_end));
        }
        let programs = header
            .program_headers(endian, file)
            .map_err(|_| Error::BadElf { reason: "its program headers" })?;
        let mut image = Self {
            is_64: header.is_type_64(),
            entry: header.e_entry(endian).into(),
            segments: Vec::new(),
            pvh_entry: None,
            is_linux: false,
            file_end: 0,
        };
        for program in programs {
            image.add::<Elf>(program, endian, file)?;
        }
        if image.segments.is_empty() {
            return Err(Error::WrongElf { reason: "it has nothing to load" });
        }
        image.file_end = file_end(header, endian, file)?;
        Ok(image)
    }

    fn add<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        program: &Elf::ProgramHeader,
        endian: Endianness,
        file: &[u8],
    ) -> Result<(), Error> {
        if program.p_type(endian) == elf::PT_NOTE {
            self.read_notes::<Elf>(program, endian, file);
        }
        if program.p_type(endian) != elf::PT_LOAD || program.p_memsz(endian).into() == 0 {
            return Ok(());
        }
        let (offset, size): (u64, u64) =
            (program.p_offset(endian).into(), program.p_filesz(endian).into());
        let (physical, memory_bytes): (u64, u64) =
            (program.p_paddr(endian).into(), program.p_memsz(endian).into());
        let bad = |reason| Error::BadElf { reason };
        let end = offset.checked_add(size).ok_or(bad("a segment wraps around"))?;
        let have = file.len() as u64;
        if end > have {
            return Err(Error::Truncated { what: "a segment", needed: end, have });
        }
        if memory_bytes < size {
            return Err(bad("a segment is larger in the file than in memory"));
        }
        physical.checked_add(memory_bytes).ok_or(bad("a segment is beyond all memory"))?;
        if self.segments.len() == MAX_SEGMENTS {
            return Err(bad("it has too many segments"));
        }
        self.segments.push(Segment {
            physical,
            linear: program.p_vaddr(endian).into(),
            offset: usize::try_from(offset).map_err(|_| bad("a segment is too large"))?,
            file_bytes: usize::try_from(size).map_err(|_| bad("a segment is too large"))?,
            memory_bytes,
        });
        Ok(())
    }

    /// Notes are optional: what cannot be read is not there.
    fn read_notes<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        program: &Elf::ProgramHeader,
        endian: Endianness,
        file: &[u8],
    ) {
        let Ok(Some(mut notes)) = program.notes(endian, file) else { return };
        while let Ok(Some(note)) = notes.next() {
            let description = note.desc();
            match (note.name(), note.n_type(endian).0) {
                (b"Xen", PHYS32_ENTRY) => {
                    let word = u32_at(description, 0).map(u64::from);
                    self.pvh_entry =
                        if description.len() >= 8 { u64_at(description, 0) } else { word };
                }
                (b"Xen", GUEST_OS) => self.is_linux |= description.starts_with(b"linux"),
                (LINUX_OWNER, _) => self.is_linux = true,
                _ => {}
            }
        }
    }

    /// Lowest and highest physical address of what is loaded.
    pub fn physical_range(&self) -> (u64, u64) {
        let start = self.segments.iter().map(|segment| segment.physical).min();
        let end = self.segments.iter().map(Segment::physical_end).max();
        (start.unwrap_or_default(), end.unwrap_or_default())
    }
}

/// Where the last section, segment or table ends.
fn file_end<Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    endian: Endianness,
    file: &[u8],
) -> Result<usize, Error> {
    use object::read::elf::SectionHeader as _;
    let mut end: u64 = size_of::<Elf>() as u64;
    let mut reach = |start: u64, size: u64| end = end.max(start.saturating_add(size));
    reach(
        header.e_phoff(endian).into(),
        u64::from(header.e_phnum(endian)) * u64::from(header.e_phentsize(endian)),
    );
    for program in header.program_headers(endian, file).unwrap_or_default() {
        reach(program.p_offset(endian).into(), program.p_filesz(endian).into());
    }
    reach(
        header.e_shoff(endian).into(),
        u64::from(header.e_shnum(endian)) * u64::from(header.e_shentsize(endian)),
    );
    for section in header.section_headers(endian, file).unwrap_or_default() {
        if section.sh_type(endian) != elf::SHT_NOBITS {
            reach(section.sh_offset(endian).into(), section.sh_size(endian).into());
        }
    }
    let have = file.len() as u64;
    let end = usize::try_from(end).ok().filter(|&end| end <= file.len());
    end.ok_or(Error::Truncated { what: "the ELF file", needed: have + 1, have })
}
