//! The file with the variables of a machine's firmware, which is opened here, before the machine runs.
//!
//! Firmware of edk2 is a sequence of volumes, each with a header (UEFI PI 1.8, volume 3, 3.2.1), and one of them is for
//! variables. It is in the image of the whole, or in a file of its own. Firmware that finds none says nothing of that:
//! at best it keeps its variables in memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spec::{Spec, Variables};
use vmm::devices::{Flash, Keeper};
use vmm::{Configuration, FirmwareError, MAX_FIRMWARE_BYTES};

use super::disk::lock;
use crate::say::say;

/// Why a file is not used for variables.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path} for the variables of firmware: {reason}", path = path.display())]
pub struct Error {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("{0}")]
    Open(#[from] io::Error),
    #[error("{0}; leave ,keep out to use a copy of a file that is not writable")]
    OpenToWrite(io::Error),
    #[error(transparent)]
    Size(#[from] FirmwareError),
    #[error(
        "it does not begin with a volume of variables; give a file such as OVMF_VARS.fd, or a copy \
         of it"
    )]
    NoVariables,
    #[error("{0} has a volume of variables itself, and would not look there; leave vars= out")]
    Whole(String),
    #[error("another machine keeps its variables there")]
    InUse,
    #[error(
        "another machine uses it (QEMU, or biv); give each machine a copy, or leave ,keep out for \
         all of them"
    )]
    InUseByReader,
}

/// Bytes of a unit at which volumes are looked for.
const PAGE_BYTES: usize = 4096;

/// Where a header has its signature, and what that is.
const SIGNATURE: (usize, &[u8]) = (40, b"_FVH");

/// How the header of a volume of variables begins: nothing, then its file system (edk2, gEfiSystemNvDataFvGuid:
/// FFF12B8D-7696-4C8B-A985-2747075B4F50).
const OF_VARIABLES: [u8; 32] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x8d, 0x2b, 0xf1, 0xff, 0x96, 0x76, 0x8b, 0x4c,
    0xa9, 0x85, 0x27, 0x47, 0x07, 0x5b, 0x4f, 0x50,
];

/// What erased flash has.
const ERASED: u8 = 0xff;

/// Gives a machine that has firmware the flash with its variables, as it is described. What its user is told, if it
/// starts.
pub fn open(configuration: &mut Configuration, spec: &Spec) -> Result<Option<String>, Error> {
    let Some(firmware) = &spec.boot.firmware else { return Ok(None) };
    let image = configuration.firmware.as_deref().unwrap_or_default();
    let Some(variables) = &firmware.vars else {
        return Ok(lacks_variables(image).then(|| without(&firmware.path)));
    };
    let failed = |reason| Error { path: variables.path.clone(), reason };
    if volumes(image).any(|volume| volume.starts_with(&OF_VARIABLES)) {
        return Err(failed(Reason::Whole(firmware.path.display().to_string())));
    }
    let (contents, keeper) = read(variables, image.len() as u64).map_err(failed)?;
    let together = image.len() + contents.len();
    configuration.devices.push(Box::new(Flash::new(contents, keeper)));
    Ok((!together.is_power_of_two()).then(|| do_not_fit(together)))
}

/// The volumes in an image, each with all that is behind its beginning.
fn volumes(image: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (at, signature) = SIGNATURE;
    let pages = (0..image.len()).step_by(PAGE_BYTES).filter_map(|start| image.get(start..));
    pages.filter(move |rest| rest.get(at..).is_some_and(|it| it.starts_with(signature)))
}

/// Whether an image has volumes, but none for variables.
fn lacks_variables(image: &[u8]) -> bool {
    let mut volumes = volumes(image).peekable();
    volumes.peek().is_some() && !volumes.any(|volume| volume.starts_with(&OF_VARIABLES))
}

fn without(path: &Path) -> String {
    format!(
        "{path} has no variables, and what the guest sets may be lost at once; name the file that \
         belongs to it, such as OVMF_VARS.fd (--firmware {path},vars=FILE)",
        path = path.display()
    )
}

fn do_not_fit(bytes: usize) -> String {
    format!(
        "firmware and variables have {bytes} bytes together; if it does not start, they may not \
         belong together (OVMF's have 2 MiB or 4 MiB)"
    )
}

/// What a file has for firmware of so many bytes, and what keeps it if it is to be kept.
fn read(variables: &Variables, firmware: u64) -> Result<(Vec<u8>, Option<Keeper>), Reason> {
    let Variables { path, keep, .. } = variables;
    let file = open_file(path, *keep)?;
    // It is read as a whole, or not at all, while another machine writes there.
    if !lock::is_had(&lock::lock(&file, *keep), path) {
        return Err(if *keep { Reason::InUseByReader } else { Reason::InUse });
    }
    vmm::check_variables(file.metadata()?.len(), firmware)?;
    let mut contents = Vec::new();
    // It may have grown meanwhile.
    (&file).take(MAX_FIRMWARE_BYTES).read_to_end(&mut contents)?;
    vmm::check_variables(contents.len() as u64, firmware)?;
    if !may_have_variables(&contents) {
        return Err(Reason::NoVariables);
    }
    let keeper = keep.then(|| Keeper::new(file, path.display().to_string(), Arc::new(say)));
    Ok((contents, keeper))
}

/// Whether a volume of variables begins there. A machine that ended while it was written has left bytes of it erased,
/// which edk2 repairs.
fn may_have_variables(contents: &[u8]) -> bool {
    let mut bytes = contents.iter().zip(OF_VARIABLES);
    bytes.all(|(&byte, expected)| byte == expected || byte == ERASED)
}

fn open_file(path: &Path, writes: bool) -> Result<File, Reason> {
    if !writes {
        return Ok(host::open_regular(path)?);
    }
    host::open_regular_to_write(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Reason::OpenToWrite(error)
        }
        _ => Reason::Open(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with these volumes.
    fn image(volumes: &[[u8; 32]]) -> Vec<u8> {
        let mut image = Vec::new();
        for volume in volumes {
            image.extend(volume);
            image.resize(image.len().next_multiple_of(PAGE_BYTES) - PAGE_BYTES + SIGNATURE.0, 0);
            image.extend(SIGNATURE.1);
            image.resize(image.len().next_multiple_of(PAGE_BYTES), 0);
        }
        image
    }

    #[test]
    fn an_image_of_volumes_without_variables_is_not_whole() {
        let code = [7; 32];
        assert!(lacks_variables(&image(&[code, code])));
        assert!(!lacks_variables(&image(&[code, OF_VARIABLES])));
        assert!(!lacks_variables(&[0xff; 3 * PAGE_BYTES]), "it is other firmware");
        assert!(!lacks_variables(&[]));
    }

    #[test]
    fn variables_begin_with_a_header_of_which_bytes_may_be_erased() {
        let mut header = OF_VARIABLES;
        assert!(may_have_variables(&header));
        header[16..].fill(ERASED);
        assert!(may_have_variables(&header) && may_have_variables(&[ERASED; PAGE_BYTES]));
        header[16] = 0;
        assert!(!may_have_variables(&header) && !may_have_variables(&[0; PAGE_BYTES]));
        assert!(!may_have_variables(b"a text of the user's, which it would write over"));
    }
}
