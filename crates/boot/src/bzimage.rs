//! The bzImage: a Linux kernel as distributions ship it.
//!
//! From the front: a boot sector with the setup header (Documentation/arch/x86/boot.rst), real-mode
//! code that we never run, and protected-mode code in which the compressed kernel lies. We read the
//! header, check the file against its own checksum, and hand out the compressed payload.
//!
//! # Integrity
//!
//! Up to Linux 6.14 the build appends a CRC-32 over the whole image. Signing it for Secure Boot
//! changes two fields of its PE header (checksum and certificate table) and appends the signature;
//! with those fields cleared again the CRC is still right. Later kernels have no CRC, but a signed
//! one carries its SHA-256 (Authenticode). This matters because the lz4 and lzma formats carry no
//! checksum of their own: without it a flipped bit would boot.

use linux_loader::bootparam::{XLF_KERNEL_64, setup_header};
use sha2::{Digest, Sha256};
use vm_memory::ByteValued as _;

use super::bytes::{array_at, slice_at, u16_at, u32_at, u64_at};
use super::error::Error;

/// Offset of the setup header in the file and in the zero page.
pub const HEADER_OFFSET: usize = 0x1f1;

const MAGIC_OFFSET: usize = 0x202;
const MAGIC: [u8; 4] = *b"HdrS";

/// The first protocol that says where the payload is.
const PAYLOAD_VERSION: u16 = 0x0208;

/// The first protocol that says whether there is a 64-bit entry.
const XLOADFLAGS_VERSION: u16 = 0x020c;

/// The build appended a CRC-32 in all versions before this.
const FIRST_WITHOUT_CRC: (u32, u32) = (6, 15);

/// A checked bzImage.
pub struct BzImage<'a> {
    /// The setup header as the zero page takes it.
    pub header: setup_header,
    /// The compressed kernel with its trailing 32-bit length.
    pub payload: &'a [u8],
    file: &'a [u8],
    /// Bytes that belong to the image; a signature may follow.
    image_bytes: usize,
}

/// Whether a file claims to be a bzImage.
pub fn is_bzimage(file: &[u8]) -> bool {
    array_at(file, MAGIC_OFFSET) == Some(MAGIC)
}

impl<'a> BzImage<'a> {
    /// Read the header and find the payload.
    ///
    /// # Errors
    ///
    /// [`Error`] if the file is truncated, too old, or has no 64-bit kernel in it.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        if !is_bzimage(file) {
            return Err(Error::NotAKernel);
        }
        let header = read_header(file)?;
        let (version, flags) = (header.version, header.xloadflags);
        if version < PAYLOAD_VERSION {
            return Err(Error::ProtocolTooOld { version });
        }
        if version >= XLOADFLAGS_VERSION && flags & XLF_KERNEL_64 == 0 {
            return Err(Error::Only32Bit);
        }
        let sectors = match header.setup_sects {
            0 => 4,
            count => u64::from(count),
        };
        let protected = (sectors + 1) * 512;
        let have = file.len() as u64;
        let truncated = |what, needed| Error::Truncated { what, needed, have };
        let needed = protected + u64::from(header.syssize) * 16;
        let image = slice_at(file, 0, needed).ok_or(truncated("the image", needed))?;
        let start = protected + u64::from(header.payload_offset);
        let size = u64::from(header.payload_length);
        let payload = slice_at(image, start, size).ok_or(truncated("the payload", start + size))?;
        Ok(Self { header, payload, file, image_bytes: image.len() })
    }

    /// Compare the file with the checksum that it carries.
    ///
    /// # Errors
    ///
    /// [`Error::Checksum`] if the file has one, or must have one, and it is wrong.
    pub fn verify(&self) -> Result<(), Error> {
        let image = &self.file[..self.image_bytes];
        let signing = SigningFields::find(self.file);
        if crc_residue(image, signing.as_ref()) == 0 || crc_residue(image, None) == 0 {
            return Ok(());
        }
        let signed = signing.as_ref().map(|fields| fields.digest_matches(self.file));
        match (signed, self.has_crc()) {
            (Some(Some(true)), _) | (None | Some(None), false) => Ok(()),
            _ => Err(Error::Checksum),
        }
    }

    /// Whether this version's build appends a CRC. A version that cannot be read counts as one.
    fn has_crc(&self) -> bool {
        let offset = usize::from(self.header.kernel_version).saturating_add(0x200);
        let text = self.file.get(offset..).unwrap_or_default();
        let text = &text[..text.len().min(16)];
        let mut numbers = text.split(|byte| !byte.is_ascii_digit()).map(|digits| {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok())
        });
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) => (major, minor) < FIRST_WITHOUT_CRC,
            _ => true,
        }
    }
}

/// The setup header, up to the length that it states; what an older kernel lacks is zero.
fn read_header(file: &[u8]) -> Result<setup_header, Error> {
    let have = file.len() as u64;
    let truncated = |needed| Error::Truncated { what: "the setup header", needed, have };
    let length = file.get(0x201).copied().ok_or(truncated(0x202))?;
    let end = MAGIC_OFFSET + usize::from(length);
    let bytes = file.get(HEADER_OFFSET..end).ok_or(truncated(end as u64))?;
    let mut header = setup_header::default();
    let size = size_of::<setup_header>().min(bytes.len());
    header.as_mut_slice()[..size].copy_from_slice(&bytes[..size]);
    Ok(header)
}

/// CRC-32 of the image as the build computes it (initial remainder all ones, no final inversion),
/// which is 0 over an image that ends in its own CRC.
fn crc_residue(image: &[u8], signing: Option<&SigningFields>) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    let mut at = 0;
    for (start, size) in signing.map_or([(0, 0); 2], |fields| fields.holes()) {
        if start + size <= image.len() && start >= at {
            crc.update(&image[at..start]);
            crc.update(&[0; 8][..size]);
            at = start + size;
        }
    }
    crc.update(&image[at..]);
    !crc.finalize()
}

/// Where signing changes a PE32+ file (Microsoft PE format, "Optional header").
struct SigningFields {
    checksum: usize,
    certificate_directory: usize,
    certificates: (u64, u64),
}

impl SigningFields {
    fn find(file: &[u8]) -> Option<Self> {
        const PE32_PLUS: u16 = 0x20b;
        if file.get(..2)? != b"MZ" {
            return None;
        }
        let pe = usize::try_from(u32_at(file, 0x3c)?).ok()?;
        let optional = pe.checked_add(24)?;
        if file.get(pe..pe + 4)? != b"PE\0\0" || u16_at(file, optional)? != PE32_PLUS {
            return None;
        }
        let certificate_directory = optional + 112 + 4 * 8;
        let raw = u64_at(file, certificate_directory)?;
        let certificates = (raw & 0xffff_ffff, raw >> 32);
        Some(Self { checksum: optional + 64, certificate_directory, certificates })
    }

    fn holes(&self) -> [(usize, usize); 2] {
        [(self.checksum, 4), (self.certificate_directory, 8)]
    }

    /// Whether the signature vouches for these bytes; `None` if there is no signature. (Not whether
    /// anybody trusts the signer: this is a checksum, not a proof of origin.)
    fn digest_matches(&self, file: &[u8]) -> Option<bool> {
        let (start, size) = self.certificates;
        if size == 0 {
            return None;
        }
        let Some(certificates) = slice_at(file, start, size) else { return Some(false) };
        let body = slice_at(file, 0, start)?;
        let mut digest = Sha256::new();
        let mut at = 0;
        for (hole, length) in self.holes() {
            digest.update(body.get(at..hole)?);
            at = hole + length;
        }
        digest.update(body.get(at..)?);
        let digest = digest.finalize();
        Some(certificates.windows(digest.len()).any(|window| *window == digest[..]))
    }
}
