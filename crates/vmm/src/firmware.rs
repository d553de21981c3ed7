//! A machine's own firmware: an image as a PC's flash has it, which ends at 4 GiB and is started by RESET.
//!
//! It is a ROM: what the guest writes there is lost. (Variables of its own are in flash below it,
//! [`crate::devices::Flash`].) Its end is once more below 1 MiB, in RAM, for code of 16-bit mode.
//! It is hostile as any guest is; nothing of the image is looked at but its first instruction.

use machine::Board;
use machine::layout::{self, FIRMWARE_SHADOW_BYTES, HIGH_MEMORY};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::limits::MAX_FIRMWARE_BYTES;
use devices::flash::BLOCK_BYTES;

/// The unit of memory.
const PAGE_BYTES: usize = 4096;

/// So far from the end is the first instruction (SDM 3A 9.1.4).
const RESET_VECTOR_BYTES: usize = 16;

/// Why a file cannot be started as firmware.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing, too much, or not a number of pages.
    #[error(
        "it has {0} bytes, and a firmware image has a multiple of 4 KiB, at most {most} MiB; give \
         one for QEMU's PC, such as OVMF.fd",
        most = MAX_FIRMWARE_BYTES >> 20
    )]
    Size(usize),
    /// No image for a PC ends so.
    #[error(
        "it is no firmware image: where a processor starts, 16 bytes before its end, it has no \
         jump; give one with the code, such as OVMF.fd or OVMF_CODE.fd"
    )]
    NoStart,
    /// Nothing, too much, or not a number of blocks, of variables.
    #[error(
        "it has {0} bytes, and the variables of firmware have a multiple of 4 KiB, at most {most} \
         MiB together with the firmware",
        most = MAX_FIRMWARE_BYTES >> 20
    )]
    Variables(u64),
    /// Not on this board.
    #[error("only a PC has firmware")]
    NoPc,
    /// It is not where it should be: our own mistake.
    #[error("there is no memory for it")]
    NoMemory,
}

/// Where an image goes, if it is one.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn place<B: Board>(image: &[u8]) -> Result<(GuestAddress, u64), Error> {
    if !B::STARTS_FIRMWARE {
        return Err(Error::NoPc);
    }
    check(image)?;
    Ok(layout::firmware(image.len() as u64))
}

fn check(image: &[u8]) -> Result<(), Error> {
    let length = image.len();
    let fits = length as u64 <= MAX_FIRMWARE_BYTES && length.is_multiple_of(PAGE_BYTES);
    if !fits || length == 0 {
        return Err(Error::Size(length));
    }
    match starts(&image[length - RESET_VECTOR_BYTES..]) {
        true => Ok(()),
        false => Err(Error::NoStart),
    }
}

/// Whether so many bytes of variables fit below firmware of so many.
///
/// # Errors
///
/// [`Error::Variables`].
pub fn check_variables(bytes: u64, firmware: u64) -> Result<(), Error> {
    let fits = bytes <= MAX_FIRMWARE_BYTES.saturating_sub(firmware);
    match fits && bytes != 0 && bytes.is_multiple_of(BLOCK_BYTES as u64) {
        true => Ok(()),
        false => Err(Error::Variables(bytes)),
    }
}

/// Whether these may be the first instructions: they cannot do without a jump.
fn starts(code: &[u8]) -> bool {
    /// `jmp` with a displacement of 16 and of 8 bits, and to another segment.
    const JUMPS: [u8; 3] = [0xe9, 0xeb, 0xea];
    code.iter().any(|byte| JUMPS.contains(byte))
}

/// Put an image where RESET starts it.
///
/// # Errors
///
/// [`Error::NoMemory`].
pub(crate) fn write(memory: &GuestMemoryMmap, image: &[u8]) -> Result<(), Error> {
    let (start, _) = layout::firmware(image.len() as u64);
    let shadow = &image[image.len().saturating_sub(FIRMWARE_SHADOW_BYTES as usize)..];
    let shadow_start = GuestAddress(HIGH_MEMORY.0 - shadow.len() as u64);
    memory
        .write_slice(image, start)
        .and_then(|()| memory.write_slice(shadow, shadow_start))
        .map_err(|_| Error::NoMemory)
}

#[cfg(test)]
mod tests {
    use machine::{BareBoard, Platform};

    use super::*;

    fn image(bytes: usize, start: &[u8]) -> Vec<u8> {
        let mut image = vec![0; bytes];
        let at = bytes - RESET_VECTOR_BYTES;
        image[at..at + start.len()].copy_from_slice(start);
        image
    }

    #[test]
    fn an_image_ends_at_four_gibibytes_and_at_one_mebibyte() {
        let image = image(64 << 10, &[0x90, 0x90, 0xe9, 0x0b, 0xff]);
        let (start, bytes) = place::<Platform>(&image).unwrap();
        assert_eq!((start.0, bytes), (0xffff_0000, 64 << 10));
        let ranges = [(GuestAddress(0), 1 << 20), (start, bytes as usize)];
        let memory = GuestMemoryMmap::<()>::from_ranges(&ranges).unwrap();
        write(&memory, &image).unwrap();
        for at in [0xffff_fff2, 0xf_fff2] {
            assert_eq!(memory.read_obj::<u8>(GuestAddress(at)).unwrap(), 0xe9, "{at:#x}");
        }
        assert_eq!(memory.read_obj::<u8>(GuestAddress(0xe_fff2)).unwrap(), 0);
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let check = |image: &[u8], expected| assert_eq!(check(image), expected, "{}", image.len());
        check(&image(4096, &[0xea, 0x5b, 0xe0, 0x00, 0xf0]), Ok(()));
        check(&image(4096, &[0x0f, 0x20, 0xc0, 0xa8, 0x01, 0x74, 0x05, 0xe9]), Ok(()));
        check(&image(16 << 20, &[0xeb]), Ok(()));
        check(&[], Err(Error::Size(0)));
        check(&image(4097, &[0xeb]), Err(Error::Size(4097)));
        check(&image((16 << 20) + 4096, &[0xeb]), Err(Error::Size((16 << 20) + 4096)));
        for nothing in [&[][..], &[0xff; 16], &[0x90; 16], b"a text\n"] {
            check(&image(8192, nothing), Err(Error::NoStart));
        }
        for (bytes, firmware, is_good) in [
            (4096, 4096, true),
            (540_672, 3_653_632, true),
            ((16 << 20) - 4096, 4096, true),
            (16 << 20, 4096, false),
            (4096, 16 << 20, false),
            (4096, u64::MAX, false),
            (0, 4096, false),
            (4097, 4096, false),
            (u64::MAX - 4095, 4096, false),
        ] {
            let checked = check_variables(bytes, firmware);
            assert_eq!(checked.is_ok(), is_good, "{bytes} below {firmware}");
        }
        assert_eq!(place::<BareBoard>(&image(4096, &[0xeb])), Err(Error::NoPc));
    }
}
