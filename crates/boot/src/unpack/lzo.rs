//! LZO1X in the file format of `lzop`, as lib/decompress_unlzo.c and
//! Documentation/staging/lzo.rst describe them.
//!
//! The decompressor is our own because of what there is: the original is GPL, and the free crate
//! panics on damaged input. It is short: LZO1X is a sequence of instructions, each of which copies a
//! match from what was unpacked before, then 0 to 3 literal bytes; what a small opcode means depends
//! on how many literals the instruction before it copied.

use std::io;

use super::{damaged, with_room};

const MAGIC: [u8; 9] = [0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, 0x0a];

/// Largest block that `lzop` writes and the kernel accepts.
const BLOCK_BYTES: u32 = 256 << 10;

// Flags of the header.
const ADLER32_UNPACKED: u32 = 1 << 0;
const ADLER32_PACKED: u32 = 1 << 1;
const CRC32_UNPACKED: u32 = 1 << 8;
const CRC32_PACKED: u32 = 1 << 9;
const FILTER: u32 = 1 << 11;

/// A cursor over untrusted bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(damaged("it ends early"))?;
        self.0 = tail;
        Ok(head)
    }

    fn byte(&mut self) -> io::Result<usize> {
        self.take(1).map(|bytes| usize::from(bytes[0]))
    }

    fn word(&mut self) -> io::Result<usize> {
        Ok(self.byte()? | self.byte()? << 8)
    }

    fn big16(&mut self) -> io::Result<u16> {
        let high = self.byte()?;
        Ok((high << 8 | self.byte()?) as u16)
    }

    fn big32(&mut self) -> io::Result<u32> {
        Ok(u32::from(self.big16()?) << 16 | u32::from(self.big16()?))
    }

    /// A length that did not fit into its opcode: zero bytes count 255 each.
    fn long_length(&mut self, base: usize) -> io::Result<usize> {
        let zeros = self.0.iter().take_while(|&&byte| byte == 0).count();
        self.take(zeros)?;
        Ok(base + zeros * 255 + self.byte()?)
    }
}

/// Unpack a file; an error if it holds more than `limit` bytes.
pub fn unpack(stream: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut reader = Reader(stream);
    let flags = read_header(&mut reader)?;
    let mut unpacked = with_room(limit)?;
    loop {
        let size = reader.big32()?;
        if size == 0 {
            return Ok(unpacked);
        }
        let packed_size = reader.big32()?;
        if size > BLOCK_BYTES || packed_size > size {
            return Err(damaged("a block is too large"));
        }
        if unpacked.len() as u64 + u64::from(size) > limit {
            return Err(damaged("it holds more than it says"));
        }
        let sums = read_sums(&mut reader, flags, ADLER32_UNPACKED, CRC32_UNPACKED)?;
        let is_packed = packed_size < size;
        let packed_sums = if is_packed {
            read_sums(&mut reader, flags, ADLER32_PACKED, CRC32_PACKED)?
        } else {
            Sums::default()
        };
        let packed = reader.take(packed_size as usize)?;
        packed_sums.check(packed)?;
        let start = unpacked.len();
        if is_packed {
            unpack_block(packed, &mut unpacked, size as usize)?;
        } else {
            unpacked.extend_from_slice(packed);
        }
        sums.check(&unpacked[start..])?;
    }
}

/// Checksums of a block, as far as the file has them.
#[derive(Default)]
struct Sums {
    adler32: Option<u32>,
    crc32: Option<u32>,
}

impl Sums {
    fn check(&self, bytes: &[u8]) -> io::Result<()> {
        let adler32 = self.adler32.is_none_or(|sum| sum == adler2::adler32_slice(bytes));
        let crc32 = self.crc32.is_none_or(|sum| sum == crc32fast::hash(bytes));
        if adler32 && crc32 { Ok(()) } else { Err(damaged("a checksum does not match")) }
    }
}

fn read_sums(reader: &mut Reader, flags: u32, adler32: u32, crc32: u32) -> io::Result<Sums> {
    let mut read = |flag| if flags & flag != 0 { reader.big32().map(Some) } else { Ok(None) };
    Ok(Sums { adler32: read(adler32)?, crc32: read(crc32)? })
}

/// Check the header and return its flags.
fn read_header(reader: &mut Reader) -> io::Result<u32> {
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(damaged("its magic number is wrong"));
    }
    let start = reader.0;
    let version = reader.big16()?;
    let has_level = version >= 0x0940;
    reader.take(2 + if has_level { 2 } else { 0 } + 1 + usize::from(has_level))?;
    let flags = reader.big32()?;
    if flags & FILTER != 0 {
        reader.take(4)?;
    }
    reader.take(if has_level { 12 } else { 8 })?;
    let name = reader.byte()?;
    reader.take(name)?;
    let covered = &start[..start.len() - reader.0.len()];
    // Bit 12 says which of the two checksums the header has.
    let is_crc = flags & (1 << 12) != 0;
    let sum = if is_crc { crc32fast::hash(covered) } else { adler2::adler32_slice(covered) };
    if reader.big32()? == sum { Ok(flags) } else { Err(damaged("its header is damaged")) }
}

/// How the instruction before left the decoder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// A match without literals after it (or the start of the block).
    Match,
    /// A match with 1 to 3 literals after it.
    FewLiterals,
    /// A run of literals of its own.
    Run,
}

/// A match: how far back, how long, and how many literals follow.
struct Match {
    distance: usize,
    length: usize,
    literals: usize,
}

/// Append a block that unpacks to exactly `size` bytes.
fn unpack_block(packed: &[u8], unpacked: &mut Vec<u8>, size: usize) -> io::Result<()> {
    let mut reader = Reader(packed);
    let start = unpacked.len();
    let end = start + size;
    let mut after = After::Match;
    if let Some(&first @ 18..) = packed.first() {
        reader.byte()?;
        let count = usize::from(first) - 17;
        append_literals(&mut reader, unpacked, count, end)?;
        after = if count < 4 { After::FewLiterals } else { After::Run };
    }
    loop {
        let opcode = reader.byte()?;
        if opcode < 16 && after == After::Match {
            let count = if opcode == 0 { reader.long_length(18)? } else { opcode + 3 };
            append_literals(&mut reader, unpacked, count, end)?;
            after = After::Run;
            continue;
        }
        let Some(found) = read_match(&mut reader, opcode, after)? else { break };
        append_match(unpacked, &found, start, end)?;
        append_literals(&mut reader, unpacked, found.literals, end)?;
        after = if found.literals == 0 { After::Match } else { After::FewLiterals };
    }
    let complete = unpacked.len() == end && reader.0.is_empty();
    if complete { Ok(()) } else { Err(damaged("a block has the wrong size")) }
}

/// Decode a match instruction; `None` is the end of the block.
fn read_match(reader: &mut Reader, opcode: usize, after: After) -> io::Result<Option<Match>> {
    let literals = opcode & 3;
    Ok(Some(match opcode {
        64.. => {
            let distance = (reader.byte()? << 3) + (opcode >> 2 & 7) + 1;
            Match { distance, length: (opcode >> 5) + 1, literals }
        }
        32..64 => {
            let length = match opcode & 31 {
                0 => reader.long_length(33)?,
                short => short + 2,
            };
            let word = reader.word()?;
            Match { distance: (word >> 2) + 1, length, literals: word & 3 }
        }
        16..32 => {
            let length = match opcode & 7 {
                0 => reader.long_length(9)?,
                short => short + 2,
            };
            let word = reader.word()?;
            let distance = ((opcode & 8) << 11) + (word >> 2);
            if distance == 0 {
                return Ok(None);
            }
            Match { distance: distance + 0x4000, length, literals: word & 3 }
        }
        _ => {
            let distance = (reader.byte()? << 2) + (opcode >> 2) + 1;
            if after == After::Run {
                Match { distance: distance + 0x800, length: 3, literals }
            } else {
                Match { distance, length: 2, literals }
            }
        }
    }))
}

fn append_literals(
    reader: &mut Reader,
    unpacked: &mut Vec<u8>,
    count: usize,
    end: usize,
) -> io::Result<()> {
    if count > end - unpacked.len() {
        return Err(damaged("a block holds more than it says"));
    }
    unpacked.extend_from_slice(reader.take(count)?);
    Ok(())
}

fn append_match(unpacked: &mut Vec<u8>, found: &Match, start: usize, end: usize) -> io::Result<()> {
    let at = unpacked.len();
    if found.distance > at - start || found.length > end - at {
        return Err(damaged("a match reaches outside its block"));
    }
    // The match may overlap what it produces: then it repeats.
    for index in at - found.distance..at - found.distance + found.length {
        unpacked.push(unpacked[index]);
    }
    Ok(())
}
