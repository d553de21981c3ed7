//! Objects: the seed makes them, and we fill them through descriptors of our own.

use std::fs::File;
use std::os::unix::fs::FileExt;

use host::processes::identity;
use inject::{Area, Seat};
use rustix::fs::{SealFlags, fcntl_add_seals, ftruncate};

use super::plan::Plan;
use crate::error::Error;
use crate::image::Image;
use crate::state::{Object, Owner};

/// What a memfd has that was made without seals.
const SEAL_SEAL: u32 = 1;
/// Who may use a file without a name: its owner.
const MODE: u64 = 0o600;

/// Make all objects; the seed's descriptors of them, in order.
pub(super) fn make(seat: &Seat, area: &Area, image: &Image) -> Result<Vec<u64>, Error> {
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let mut made = Vec::new();
    for (index, object) in image.state().objects.iter().enumerate() {
        let low = make_one(seat, area, object)?;
        let number = u32::try_from(low).unwrap_or(u32::MAX);
        let file = identity::descriptor_of(&process, number);
        let file = File::from(file.map_err(Error::io("take an object"))?);
        fill(&file, index, object, image)?;
        made.push(low);
    }
    Ok(made)
}

fn make_one(seat: &Seat, area: &Area, object: &Object) -> Result<u64, Error> {
    let mut plan = Plan::new(0, seat, area);
    match &object.directory {
        Some(directory) => {
            let here = i64::from(libc::AT_FDCWD).cast_unsigned();
            let name = plan.string(directory);
            let flags = (libc::O_TMPFILE | libc::O_RDWR).cast_unsigned().into();
            let purpose = format!("make a file without a name in {directory}");
            plan.must(purpose, libc::SYS_openat, [here, name, flags, MODE]);
        }
        None => {
            let name = plan.string(&object.name);
            let flags = if object.seals == SEAL_SEAL { 0 } else { libc::MFD_ALLOW_SEALING };
            plan.must("make shared memory", libc::SYS_memfd_create, [name, flags.into()]);
        }
    }
    let results = plan.run()?.results;
    Ok(results.first().copied().unwrap_or(-1).cast_unsigned())
}

fn fill(file: &File, index: usize, object: &Object, image: &Image) -> Result<(), Error> {
    let failed = |error: rustix::io::Errno| Error::io("make an object as it was")(error);
    ftruncate(file, object.bytes).map_err(failed)?;
    let owner = Owner::Object(u32::try_from(index).unwrap_or(u32::MAX));
    for pages in image.pages_of(owner) {
        let (run, mut bytes) = pages?;
        // The last page may be longer than the file.
        let rest = object.bytes.saturating_sub(run.address);
        bytes.truncate(usize::try_from(rest).unwrap_or(usize::MAX).min(bytes.len()));
        let written = file.write_all_at(&bytes, run.address);
        written.map_err(Error::io("fill an object"))?;
    }
    let seals = SealFlags::from_bits_retain(object.seals);
    if object.directory.is_none() && object.seals & !SEAL_SEAL != 0 {
        fcntl_add_seals(file, seals).map_err(failed)?;
    }
    Ok(())
}
