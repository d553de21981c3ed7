//! The back-ends of a machine's devices: the host resources that they use, opened before the
//! machine starts.

use std::fs::File;
use std::path::Path;

use spec::Spec;
use vmm::devices::{Balloon, DebugConsole, Devices};

use super::disk;
use super::error::Error;
use super::paravirtual::is_paravirtual;
use super::plugged::Handles;
use crate::domain::Domain;
use crate::vsock;

/// Opens what the described devices have of the host, and adds them to a machine's devices.
pub fn open(devices: &mut Devices, spec: &Spec) -> Result<Handles, Error> {
    let sockets = spec.sockets().next();
    let sockets = sockets.map(|it| vsock::start(it, !spec.engine.no_seccomp)).transpose()?;
    let disks = spec.disks().map(disk::open).collect::<Result<Vec<_>, _>>()?;
    let debug_console = spec.debug_console().map(|it| create(&it.file)).transpose()?;
    let mut handles = Handles::default();
    // The user's disks are before the one that is an image, which is there already.
    devices.splice(..0, disks.into_iter().map(|disk| Box::new(disk) as _));
    devices.extend(sockets.map(|sockets| Box::new(sockets) as _));
    devices.extend(debug_console.map(|file| Box::new(DebugConsole::new(Box::new(file))) as _));
    if Domain::is_wanted(&spec.life) && !is_paravirtual(spec) {
        let (balloon, handle) = Balloon::new();
        devices.push(Box::new(balloon));
        handles.balloon = Some(handle);
    }
    Ok(handles)
}

/// Creates the file that a device or a console writes to.
pub fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|error| Error::Open { path: path.to_owned(), error })
}
