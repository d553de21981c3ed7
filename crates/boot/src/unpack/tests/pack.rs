//! Kernels' payloads as their build makes them, by compressors that are independent of what unpacks them. (The
//! tests of other crates include this file; `Format` is their parent module's.)

use std::io::Write as _;

use super::Format;

pub const FORMATS: [Format; 7] =
    [Format::Gzip, Format::Bzip2, Format::Lzma, Format::Xz, Format::Lzo, Format::Lz4, Format::Zstd];

/// Compress as the kernel's build does, length appended.
pub fn pack(format: Format, data: &[u8]) -> Vec<u8> {
    let mut packed = match format {
        Format::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(data).unwrap();
            return encoder.finish().unwrap();
        }
        Format::Bzip2 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Format::Lzma => {
            let options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
            let stream = liblzma::stream::Stream::new_lzma_encoder(&options).unwrap();
            encode_lzma(stream, data)
        }
        Format::Xz => {
            let options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
            let mut filters = liblzma::stream::Filters::new();
            filters.x86();
            filters.lzma2(&options);
            let check = liblzma::stream::Check::Crc32;
            let stream = liblzma::stream::Stream::new_stream_encoder(&filters, check).unwrap();
            encode_lzma(stream, data)
        }
        Format::Lzo => pack_lzo(data, ADLER32_UNPACKED_AND_PACKED),
        Format::Lz4 => pack_lz4(data),
        Format::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
    };
    packed.extend_from_slice(&(data.len() as u32).to_le_bytes());
    packed
}

fn encode_lzma(stream: liblzma::stream::Stream, data: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub fn pack_lz4(data: &[u8]) -> Vec<u8> {
    let mut packed = 0x184c_2102_u32.to_le_bytes().to_vec();
    for block in data.chunks(8 << 20) {
        let block = lz4_flex::block::compress(block);
        packed.extend_from_slice(&(block.len() as u32).to_le_bytes());
        packed.extend_from_slice(&block);
    }
    packed
}

type Sum = fn(&[u8]) -> u32;

const ADLER32_UNPACKED_AND_PACKED: u32 = 3;

pub fn pack_lzo(data: &[u8], flags: u32) -> Vec<u8> {
    let mut packed = vec![0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, 0x0a];
    let mut header = vec![0x10, 0x30, 0x20, 0xa0, 0x09, 0x40, 3, 9];
    header.extend_from_slice(&flags.to_be_bytes());
    header.extend_from_slice(&[0; 12]);
    header.extend_from_slice(&[3, b'a', b'b', b'c']);
    packed.extend_from_slice(&header);
    packed.extend_from_slice(&adler2::adler32_slice(&header).to_be_bytes());
    for plain in data.chunks(256 << 10) {
        let block = lzokay_native::compress(plain).unwrap();
        let block = if block.len() < plain.len() { &block[..] } else { plain };
        packed.extend_from_slice(&(plain.len() as u32).to_be_bytes());
        packed.extend_from_slice(&(block.len() as u32).to_be_bytes());
        let sums: [(u32, Sum); 2] = [(1, adler2::adler32_slice), (1 << 8, crc32fast::hash)];
        for (flag, sum) in sums {
            if flags & flag != 0 {
                packed.extend_from_slice(&sum(plain).to_be_bytes());
            }
        }
        for (flag, sum) in sums {
            if flags & flag << 1 != 0 && block.len() < plain.len() {
                packed.extend_from_slice(&sum(block).to_be_bytes());
            }
        }
        packed.extend_from_slice(block);
    }
    packed.extend_from_slice(&[0; 4]);
    packed
}
