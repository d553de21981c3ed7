//! Layers as they are compressed: gzip, Zstandard, or not at all. What it is says the stream itself; the types in
//! manifests are wrong at times. All of it is unpacked by Rust without unsafe code of ours.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::limits::BUFFER_BYTES;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A frame, and one to be skipped of 16 kinds (RFC 8878, 3.1).
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// How a stream is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstandard,
}

impl Compression {
    /// That of what begins so.
    #[must_use]
    pub fn of(start: &[u8]) -> Self {
        let is_skippable = start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == SKIPPABLE;
        match start {
            _ if start.starts_with(&GZIP) => Self::Gzip,
            _ if start.starts_with(&ZSTANDARD) || is_skippable => Self::Zstandard,
            _ => Self::None,
        }
    }

    /// What a manifest calls a layer of this kind (image-spec, `layer.md`).
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::None => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstandard => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// Unpacks a stream, whatever it is.
///
/// # Errors
///
/// It cannot be read.
pub fn unpack<'a>(stream: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
    Ok(match Compression::of(stream.fill_buf()?) {
        Compression::None => Box::new(stream),
        Compression::Gzip => Box::new(MultiGzDecoder::new(stream)),
        Compression::Zstandard => {
            Box::new(Frames { stream, decoder: FrameDecoder::new(), is_within: false })
        }
    })
}

/// Frames of Zstandard one behind the other, as tools write them that let others fetch parts, and such to be skipped.
/// Their checksums are not looked at: layers have digests.
struct Frames<R> {
    stream: R,
    decoder: FrameDecoder,
    /// In a frame.
    is_within: bool,
}

fn damaged(error: &dyn std::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its Zstandard is damaged: {error}"))
}

impl<R: BufRead> Frames<R> {
    /// Goes to the next frame; whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.stream.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.stream) {
                Ok(()) => {
                    self.is_within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.stream).take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(&error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.is_within && !self.begin()? {
                return Ok(0);
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            match self.decoder.is_finished() {
                true => self.is_within = false,
                false => {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    let decoded = self.decoder.decode_blocks(&mut self.stream, one);
                    decoded.map_err(|error| damaged(&error))?;
                }
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        unpack(bytes)?.read_to_end(&mut all)?;
        Ok(all)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    fn zstandard(bytes: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(bytes, 3).unwrap()
    }

    #[test]
    fn a_layer_is_unpacked_however_it_is_compressed() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 11) as u8).collect();
        let (one, other) = bytes.split_at(1_234_567);
        let skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc".to_vec();
        let packed = [
            (bytes.clone(), Compression::None),
            (gzip(&bytes), Compression::Gzip),
            ([gzip(one), gzip(other)].concat(), Compression::Gzip),
            (zstandard(&bytes), Compression::Zstandard),
            ([zstandard(one), skipped.clone(), zstandard(other)].concat(), Compression::Zstandard),
            ([skipped.clone(), zstandard(&bytes), skipped].concat(), Compression::Zstandard),
        ];
        for (packed, compression) in packed {
            assert_eq!(Compression::of(&packed), compression);
            assert!(unpacked(&packed).unwrap() == bytes, "{compression:?}");
        }
        assert!(unpacked(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_damaged_is_an_error() {
        let bytes = vec![7; 100_000];
        for whole in [gzip(&bytes), zstandard(&bytes)] {
            assert!(unpacked(&whole[..whole.len() - 1]).is_err());
            assert!(unpacked(&[&whole[..], b"something else"].concat()).is_err());
            let mut other = whole.clone();
            other[4..].iter_mut().for_each(|byte| *byte = !*byte);
            assert!(unpacked(&other).is_err());
        }
        assert!(unpacked(b"\x5a\x2a\x4d\x18\x03\0\0\0ab").is_err());
    }
}
