//! Unpacking the compressed kernel inside a bzImage, on the host. Several of the decompressors are C: who
//! unpacks what comes from elsewhere does it in a process that can do nothing else.
//!
//! Whatever the format, the payload ends in the unpacked length as a 32-bit little-endian number: the
//! kernel's build appends it, and in gzip it is the last field anyway. That number bounds the work:
//! no stream unpacks to more than it says, and it may not say more than a kernel can be.

mod lz4;
mod lzo;

use std::io::Read;

use super::bytes::u32_at;
use super::error::Error;
use super::limits::{MAX_DICTIONARY_BYTES, MAX_UNPACKED_BYTES};

/// The ways in which a kernel's build can compress it (init/Kconfig, `KERNEL_GZIP` and so on).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `gzip`, RFC 1952.
    Gzip,
    /// `bzip2`.
    Bzip2,
    /// The `.lzma` format of old, without any checksum.
    Lzma,
    /// `.xz`, with the x86 filter.
    Xz,
    /// `lzop`.
    Lzo,
    /// The legacy frame of `lz4 -l`.
    Lz4,
    /// `zstd`, RFC 8878.
    Zstd,
}

impl Format {
    /// By the magic numbers that the kernel itself uses (lib/decompress.c).
    pub fn of(payload: &[u8]) -> Option<Self> {
        Some(match payload.first_chunk()? {
            [0x1f, 0x8b | 0x9e] => Self::Gzip,
            b"BZ" => Self::Bzip2,
            [0x5d, 0x00] => Self::Lzma,
            [0xfd, 0x37] => Self::Xz,
            [0x89, 0x4c] => Self::Lzo,
            [0x02, 0x21] => Self::Lz4,
            [0x28, 0xb5] => Self::Zstd,
            _ => return None,
        })
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Lzma => "lzma",
            Self::Xz => "xz",
            Self::Lzo => "lzo",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// What a payload's build has appended to it: its unpacked length.
const TRAILER_BYTES: usize = 4;

/// How many bytes a payload says that it unpacks to; no more are accepted.
///
/// # Errors
///
/// [`Error`] if it is compressed in no known way, or says more than a kernel can be.
pub fn unpacked_bytes(payload: &[u8]) -> Result<u64, Error> {
    examine(payload).map(|(_, claimed)| claimed)
}

fn examine(payload: &[u8]) -> Result<(Format, u64), Error> {
    let format = Format::of(payload).ok_or(Error::UnknownCompression)?;
    let trailer = payload.len().checked_sub(TRAILER_BYTES);
    let claimed = trailer.and_then(|at| u32_at(payload, at)).map(u64::from).ok_or_else(|| {
        Error::Payload { format: format.name(), reason: "it is too short".to_owned() }
    })?;
    if claimed > MAX_UNPACKED_BYTES {
        return Err(Error::UnpackedTooLarge { claimed, limit: MAX_UNPACKED_BYTES });
    }
    Ok((format, claimed))
}

/// Unpack a payload.
///
/// # Errors
///
/// [`Error::Payload`] and its kin for whatever is wrong with it.
pub fn unpack(payload: &[u8]) -> Result<Vec<u8>, Error> {
    let (format, claimed) = examine(payload)?;
    let bad = |reason: String| Error::Payload { format: format.name(), reason };
    let trailer = payload.len().saturating_sub(TRAILER_BYTES);
    let stream = if format == Format::Gzip { payload } else { &payload[..trailer] };
    let unpacked = decompress(format, stream, claimed).map_err(|error| bad(one_line(&error)))?;
    if unpacked.len() as u64 != claimed {
        return Err(bad(format!("{} bytes instead of {claimed}", unpacked.len())));
    }
    Ok(unpacked)
}

/// At most `limit` bytes, and one more if there are more.
fn decompress(format: Format, stream: &[u8], limit: u64) -> std::io::Result<Vec<u8>> {
    use liblzma::stream::Stream;
    match format {
        Format::Gzip => read_bounded(flate2::bufread::GzDecoder::new(stream), limit),
        Format::Bzip2 => read_bounded(bzip2::bufread::BzDecoder::new(stream), limit),
        Format::Lzma => {
            let decoder = Stream::new_lzma_decoder(MAX_DICTIONARY_BYTES)?;
            read_bounded(liblzma::bufread::XzDecoder::new_stream(stream, decoder), limit)
        }
        Format::Xz => {
            let decoder = Stream::new_stream_decoder(MAX_DICTIONARY_BYTES, 0)?;
            read_bounded(liblzma::bufread::XzDecoder::new_stream(stream, decoder), limit)
        }
        Format::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(stream)?.single_frame();
            read_bounded(decoder, limit)
        }
        Format::Lzo => lzo::unpack(stream, limit),
        Format::Lz4 => lz4::unpack(stream, limit),
    }
}

fn read_bounded(reader: impl Read, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut unpacked = with_room(limit + 1)?;
    reader.take(limit + 1).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

/// An empty vector for up to `bytes`. Memory that is not written is not used.
fn with_room(bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut vector = Vec::new();
    let bytes = usize::try_from(bytes).map_err(std::io::Error::other)?;
    vector.try_reserve_exact(bytes).map_err(std::io::Error::other)?;
    Ok(vector)
}

/// A format's complaint about itself.
fn damaged(reason: &'static str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
}

/// Messages of libraries may have several lines.
fn one_line(error: &std::io::Error) -> String {
    error.to_string().lines().next().unwrap_or("it is damaged").to_owned()
}

#[cfg(test)]
pub(super) mod tests;
