//! Who knows names: what programs of the pod read in `/etc/resolv.conf`.
//!
//! In a root that is a layer above a directory, that file is the layer's own from the beginning ([`crate::layers`]). In
//! a directory that the pod writes to, the file there is covered, and stays as it is.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::mount::mount_bind;
use service::place;

/// What programs read, below the root.
pub const PLACE: &str = "etc/resolv.conf";

/// Where the file is as long as it has a name.
const NAMED: &str = "/run/resolv.conf";

/// What is in it.
pub fn text(nameserver: Ipv4Addr) -> String {
    format!("nameserver {nameserver}\n")
}

/// Covers the file in the root.
pub fn cover(nameserver: Ipv4Addr) -> io::Result<()> {
    let covered = Path::new("/").join(PLACE);
    place::make(&covered)?;
    let mut file = File::create_new(NAMED)?;
    file.write_all(text(nameserver).as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    let done = mount_bind(NAMED, &covered);
    fs::remove_file(NAMED)?;
    Ok(done?)
}
