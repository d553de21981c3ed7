//! How modules are packed, and what they are called.

use std::io::{self, Read};

use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use crate::limits::{MAX_DRIVER_BYTES, MAX_DRIVER_DICTIONARY_KIBIBYTES};

/// How a module is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// By xz.
    Xz,
    /// By Zstandard.
    Zstd,
}

const PACKINGS: [(&str, Packing); 3] =
    [(".ko", Packing::None), (".ko.xz", Packing::Xz), (".ko.zst", Packing::Zstd)];

impl Packing {
    /// The name of the module in a file of this name, and how it is packed.
    pub fn of(file: &str) -> Option<(&str, Self)> {
        PACKINGS.into_iter().find_map(|(end, packing)| Some((file.strip_suffix(end)?, packing)))
    }

    /// Unpacks a module that is not longer than any module.
    ///
    /// Both decompressors are in Rust without unsafe code: a package is foreign, and this process is not confined.
    pub fn unpack(self, packed: impl Read) -> io::Result<Vec<u8>> {
        match self {
            Self::None => bounded(packed),
            Self::Xz => {
                bounded(XzReader::new_mem_limit(packed, true, MAX_DRIVER_DICTIONARY_KIBIBYTES))
            }
            Self::Zstd => bounded(StreamingDecoder::new(packed).map_err(io::Error::other)?),
        }
    }
}

/// Reads a module, packed or not.
pub fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_DRIVER_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        0..=MAX_DRIVER_BYTES => Ok(bytes),
        _ => Err(io::Error::other("it contains a driver that is too long")),
    }
}

/// A module's name as kernels have it, whatever its file is called.
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// What a driver is like: code, and much that repeats.
    fn driver_bytes() -> Vec<u8> {
        let words = (0..200_000_u32).map(|n| n.wrapping_mul(0x9e37_79b9) >> (n % 31));
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// As Linux's Makefile has modules compressed (`xz --check=crc32 --lzma2=dict=2MiB`), with the filter for x86
    /// or without it.
    fn xz(bytes: &[u8], filters_x86: bool) -> Vec<u8> {
        let mut options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
        options.dict_size(2 << 20);
        let mut filters = liblzma::stream::Filters::new();
        if filters_x86 {
            filters.x86();
        }
        filters.lzma2(&options);
        let check = liblzma::stream::Check::Crc32;
        let stream = liblzma::stream::Stream::new_stream_encoder(&filters, check).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn drivers_come_out_as_they_went_in() {
        let driver = driver_bytes();
        for filters_x86 in [false, true] {
            assert!(Packing::Xz.unpack(&xz(&driver, filters_x86)[..]).unwrap() == driver);
        }
        let zstd = zstd::bulk::compress(&driver, 19).unwrap();
        assert!(Packing::Zstd.unpack(&zstd[..]).unwrap() == driver);
    }

    #[test]
    fn damaged_drivers_are_errors() {
        let (xz, zstd) = (xz(&driver_bytes(), false), zstd::bulk::compress(&driver_bytes(), 3));
        let zstd = zstd.unwrap();
        for length in [0, 5, 100, xz.len() / 2, xz.len() - 1] {
            assert!(Packing::Xz.unpack(&xz[..length]).is_err(), "{length}");
        }
        for length in [0, 3, 100, zstd.len() / 2, zstd.len() - 1] {
            assert!(Packing::Zstd.unpack(&zstd[..length]).is_err(), "{length}");
        }
        let mut flipped = xz.clone();
        flipped[xz.len() / 2] ^= 4;
        assert!(Packing::Xz.unpack(&flipped[..]).is_err());
    }

    #[test]
    fn a_driver_without_end_is_refused() {
        assert!(Packing::None.unpack(io::repeat(0)).is_err());
        assert!(Packing::None.unpack(io::repeat(0).take(MAX_DRIVER_BYTES)).is_ok());
    }
}
