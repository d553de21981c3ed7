//! ELF files made by hand.

use xen_abi::note::kind;

/// A kernel to be.
#[derive(Clone)]
pub struct Image {
    pub entry: u64,
    /// Physical address, bytes in memory, contents.
    pub segments: Vec<(u64, u64, Vec<u8>)>,
    /// Each list is a segment of notes: type and descriptor.
    pub notes: Vec<Vec<(u32, Vec<u8>)>>,
}

impl Image {
    /// Two segments that share a page, the second with two pages of zero, in the upper half of the addresses.
    pub fn usual() -> Self {
        let number = |value: u64| value.to_le_bytes().to_vec();
        Self {
            entry: 0,
            segments: vec![
                (0x20_0000, 0x1800, vec![0x11; 0x1800]),
                (0x20_1800, 0x2800, vec![0x22; 0x900]),
            ],
            notes: vec![
                vec![(kind::XEN_VERSION, b"xen-3.0\0".to_vec())],
                vec![
                    (kind::LOADER, b"generic\0".to_vec()),
                    (kind::VIRT_BASE, number(0xffff_ffff_8000_0000)),
                    (kind::ENTRY, number(0xffff_ffff_8020_0010)),
                    (kind::PADDR_OFFSET, number(0)),
                ],
            ],
        }
    }

    /// Put a note into the second segment of notes, in place of one of its type.
    pub fn note(mut self, kind: u32, descriptor: &[u8]) -> Self {
        self.notes.iter_mut().for_each(|list| list.retain(|(other, _)| *other != kind));
        self.notes[1].push((kind, descriptor.to_vec()));
        self
    }

    pub fn number(self, kind: u32, value: u64) -> Self {
        self.note(kind, &value.to_le_bytes())
    }

    pub fn without(mut self, kind: u32) -> Self {
        self.notes.iter_mut().for_each(|list| list.retain(|(other, _)| *other != kind));
        self
    }

    pub fn file(&self) -> Vec<u8> {
        let notes = self.notes.iter().map(|list| {
            list.iter().flat_map(|(kind, descriptor)| note(*kind, descriptor)).collect::<Vec<u8>>()
        });
        // Type, physical address, bytes in memory, contents.
        let parts: Vec<(u32, u64, u64, Vec<u8>)> = self
            .segments
            .iter()
            .map(|(at, size, bytes)| (1, *at, *size, bytes.clone()))
            .chain(notes.map(|bytes| (4, 0, bytes.len() as u64, bytes)))
            .collect();
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend([2, 0, 62, 0, 1, 0, 0, 0]); // executable, x86-64, version
        for word in [self.entry, 64, 0] {
            file.extend(word.to_le_bytes()); // entry, program headers, sections
        }
        file.extend([0; 4]);
        for half in [64_u16, 56, parts.len() as u16, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        let mut offset = file.len() + 56 * parts.len();
        for (kind, physical, size, bytes) in &parts {
            file.extend(kind.to_le_bytes());
            file.extend(7_u32.to_le_bytes());
            // The linear address plays no part.
            for word in [offset as u64, 0x1234_5000, *physical, bytes.len() as u64, *size, 4] {
                file.extend(word.to_le_bytes());
            }
            offset += bytes.len();
        }
        parts.iter().for_each(|(.., bytes)| file.extend(bytes));
        file
    }
}

fn note(kind: u32, descriptor: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [4, descriptor.len() as u32, kind] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(b"Xen\0");
    bytes.extend(descriptor);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
