//! Kernels made to order.

use crate::unpack::{Format, tests::pack};

/// Where Linux kernels are linked.
pub const LINKED: u64 = 16 << 20;

/// `__START_KERNEL_map`.
pub const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;

/// A segment of an ELF file to be made.
#[derive(Clone)]
pub struct Part {
    pub physical: u64,
    pub linear: u64,
    pub bytes: Vec<u8>,
    pub memory_bytes: u64,
}

/// An ELF file to be made.
#[derive(Clone)]
pub struct Elf {
    pub is_64: bool,
    pub entry: u64,
    pub parts: Vec<Part>,
    /// Owner, type, description.
    pub notes: Vec<(&'static str, u32, Vec<u8>)>,
}

impl Elf {
    pub fn build(&self) -> Vec<u8> {
        let (header, program) = if self.is_64 { (64, 56) } else { (52, 32) };
        let count = self.parts.len() + 1;
        let mut offset = header + program * count;
        let mut table = Vec::new();
        let mut body = Vec::new();
        let notes = self.note_bytes();
        let note = Part { physical: 0, linear: 0, bytes: notes, memory_bytes: 0 };
        for (kind, part) in
            self.parts.iter().map(|part| (1, part)).chain(std::iter::once((4, &note)))
        {
            self.add_program(&mut table, kind, offset as u64, part);
            offset += part.bytes.len();
            body.extend_from_slice(&part.bytes);
        }
        let mut file = vec![0x7f, b'E', b'L', b'F', if self.is_64 { 2 } else { 1 }, 1, 1];
        file.resize(16, 0);
        file.extend_from_slice(&2_u16.to_le_bytes());
        file.extend_from_slice(&(if self.is_64 { 62_u16 } else { 3 }).to_le_bytes());
        file.extend_from_slice(&1_u32.to_le_bytes());
        self.add_word(&mut file, self.entry);
        self.add_word(&mut file, header as u64);
        self.add_word(&mut file, 0);
        file.extend_from_slice(&0_u32.to_le_bytes());
        for half in [header, program, count, 0, 0, 0] {
            file.extend_from_slice(&(half as u16).to_le_bytes());
        }
        assert_eq!(file.len(), header);
        file.extend(table);
        file.extend(body);
        file
    }

    fn add_word(&self, bytes: &mut Vec<u8>, value: u64) {
        bytes.extend_from_slice(&value.to_le_bytes()[..if self.is_64 { 8 } else { 4 }]);
    }

    fn add_program(&self, table: &mut Vec<u8>, kind: u32, offset: u64, part: &Part) {
        let flags = 7_u32.to_le_bytes();
        table.extend_from_slice(&kind.to_le_bytes());
        if self.is_64 {
            table.extend_from_slice(&flags);
        }
        let size = part.bytes.len() as u64;
        for value in [offset, part.linear, part.physical, size, part.memory_bytes] {
            self.add_word(table, value);
        }
        if !self.is_64 {
            table.extend_from_slice(&flags);
        }
        self.add_word(table, 4);
    }

    fn note_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (owner, kind, description) in &self.notes {
            for word in [owner.len() as u32 + 1, description.len() as u32, *kind] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.extend_from_slice(owner.as_bytes());
            bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
            bytes.extend_from_slice(description);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }
}

/// Offsets, in the kernel of [`vmlinux`], of a 64-bit, a negated 32-bit and a 32-bit address.
pub const PLACES: [u64; 3] = [0x1000, 0x1010, 0x20_0020];

/// What is there before relocation.
pub const OLD: [u64; 3] = [0xffff_ffff_8123_4567, 0x1234_5678, 0x8111_2222];

/// A small Linux: text, data some way off, and a `.bss`.
pub fn vmlinux() -> Elf {
    let part = |offset: u64, size: usize, memory_bytes| {
        let mut bytes = crate::unpack::tests::sample(size);
        for (place, old) in PLACES.iter().zip(OLD) {
            if let Some(at) = place.checked_sub(offset).filter(|&at| (at as usize) < size) {
                bytes[at as usize..at as usize + 8].copy_from_slice(&old.to_le_bytes());
            }
        }
        let physical = LINKED + offset;
        Part { physical, linear: KERNEL_MAP + physical, bytes, memory_bytes }
    };
    Elf {
        is_64: true,
        entry: LINKED + 0x40,
        parts: vec![part(0, 0x6000, 0x6000), part(0x20_0000, 0x3000, 0x10_0000)],
        notes: vec![
            ("Linux", 0x100, vec![0; 4]),
            ("Xen", 18, (LINKED + 0x80).to_le_bytes().to_vec()),
        ],
    }
}

/// The relocation table of [`vmlinux`], in the older form or in the newer.
pub fn relocations(has_negated: bool) -> Vec<u8> {
    let place = |index: usize| (KERNEL_MAP + LINKED + PLACES[index]) as u32;
    let words = match has_negated {
        true => vec![0, place(0), 0, place(1), 0, place(2)],
        false => vec![0, place(0), 0, place(2)],
    };
    words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

/// A bzImage to be made.
#[derive(Clone)]
pub struct Bz {
    pub format: Format,
    pub unpacked: Vec<u8>,
    pub version: u16,
    pub xloadflags: u16,
    pub init_size: u32,
    pub release: &'static str,
    pub has_crc: bool,
    pub has_pe: bool,
}

/// Where the PE header's checksum and certificate directory are.
pub const PE_CHECKSUM: usize = 0x40 + 24 + 64;
pub const PE_CERTIFICATES: usize = 0x40 + 24 + 112 + 32;

impl Bz {
    pub fn new(format: Format) -> Self {
        let mut unpacked = vmlinux().build();
        unpacked.extend(relocations(true));
        Self {
            format,
            unpacked,
            version: 0x020f,
            xloadflags: 0x7f,
            init_size: 0x40_0000,
            release: "6.1.0-test (somebody)",
            has_crc: true,
            has_pe: false,
        }
    }

    pub fn build(&self) -> Vec<u8> {
        const SECTORS: usize = 3;
        let payload = pack(self.format, &self.unpacked);
        let payload_offset = 0x100;
        let setup = (SECTORS + 1) * 512;
        let mut file = vec![0x90; setup + payload_offset];
        file.extend_from_slice(&payload);
        // Room for the CRC, which ends a whole number of paragraphs.
        let end = (file.len() - setup + 4).next_multiple_of(16) + setup;
        file.resize(end, 0);
        let paragraphs = ((end - setup) / 16) as u32;
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x1f1, &[SECTORS as u8]);
        put(0x1f4, &paragraphs.to_le_bytes());
        put(0x1fe, &[0x55, 0xaa, 0xeb, 0x6a]);
        put(0x202, b"HdrS");
        put(0x206, &self.version.to_le_bytes());
        put(0x20e, &0x400_u16.to_le_bytes());
        put(0x210, &[0, 1]);
        put(0x218, &[0; 16]);
        put(0x228, &0_u32.to_le_bytes());
        put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
        put(0x230, &0x20_0000_u32.to_le_bytes());
        put(0x234, &[1, 21]);
        put(0x236, &self.xloadflags.to_le_bytes());
        put(0x238, &2047_u32.to_le_bytes());
        put(0x23c, &[0; 12]);
        put(0x248, &(payload_offset as u32).to_le_bytes());
        put(0x24c, &(payload.len() as u32).to_le_bytes());
        put(0x250, &0_u64.to_le_bytes());
        put(0x258, &super::images::LINKED.to_le_bytes());
        put(0x260, &self.init_size.to_le_bytes());
        put(0x264, &[0; 8]);
        put(0x600, self.release.as_bytes());
        put(0x600 + self.release.len(), &[0]);
        if self.has_pe {
            put(0, b"MZ");
            put(0x3c, &0x40_u32.to_le_bytes());
            put(0x40, b"PE\0\0");
            put(0x40 + 24, &0x20b_u16.to_le_bytes());
            put(PE_CHECKSUM, &[0; 4]);
            put(PE_CERTIFICATES, &[0; 8]);
        }
        if self.has_crc {
            let crc = !crc32fast::hash(&file[..end - 4]);
            file[end - 4..].copy_from_slice(&crc.to_le_bytes());
        }
        file
    }
}
