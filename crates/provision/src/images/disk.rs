//! An image as a disk: an EROFS file system with the files that a guest sees of the image's
//! directory through the file server.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use erofs::Attributes;
use files::owner::{self, Owner};

use super::super::cache::at;
use super::{Error, PERMISSIONS, Trouble};

/// What it is called beside the directory. The number is that of the form: images of an older `biv` get a new one.
pub const NAME: &str = "root-1.erofs";

/// The attribute with a program's capabilities (capabilities(7)).
const CAPABILITY: &[u8] = b"security.capability";

/// Writes the directory `root` to the new file `to`, so that it survives the host.
pub fn write(root: &Path, to: &Path) -> Result<(), Error> {
    let directory = File::open(root).map_err(at(root))?;
    // It holds what only the guest's root may read.
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let file = options.map_err(at(to))?;
    let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let look = |attributes: &mut Attributes| translate(attributes, us);
    erofs::write(directory.as_fd(), root, &file, &look).map_err(Trouble::Disk)?;
    Ok(())
}

/// What a file is in the guest, given whose the image is on the host: as the file server has it, but that no
/// attributes are there that mean something to the host only (lists of its users, labels, its administrator's).
fn translate(attributes: &mut Attributes, (user, group): (u32, u32)) {
    if attributes.user == user {
        attributes.user = 0;
    }
    if attributes.group == group {
        attributes.group = 0;
    }
    let extended = std::mem::take(&mut attributes.extended);
    for (name, value) in extended {
        if name == owner::OWNER.as_bytes() {
            if let Some(owner) = Owner::parse(&value) {
                (attributes.user, attributes.group) = (owner.user, owner.group);
                attributes.mode = attributes.mode & !PERMISSIONS | owner.mode;
            }
        } else if name == owner::CAPABILITY.as_bytes() {
            attributes.extended.push((CAPABILITY.to_vec(), value));
        } else if name.starts_with(b"user.") {
            attributes.extended.push((name, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_whose_their_attributes_say() {
        let attribute = |name: &str, value: &str| (name.into(), value.into());
        let mut attributes = Attributes {
            mode: 0o100_600,
            user: 1000,
            group: 1000,
            seconds: 1,
            nanoseconds: 2,
            extended: vec![
                attribute("security.capability", "the host's"),
                attribute("security.selinux", "the host's"),
                attribute("system.posix_acl_access", "the host's"),
                attribute("trusted.overlay.opaque", "y"),
                attribute("user.bivouac.capability", "a capability"),
                attribute("user.bivouac.owner", "33:44:4755"),
                attribute("user.mime_type", "text/plain"),
            ],
        };
        let plain = Attributes { extended: Vec::new(), ..attributes.clone() };
        translate(&mut attributes, (1000, 1000));
        let extended = vec![
            attribute("security.capability", "a capability"),
            attribute("user.mime_type", "text/plain"),
        ];
        let expected =
            Attributes { mode: 0o104_755, user: 33, group: 44, extended, ..plain.clone() };
        assert_eq!(attributes, expected);
        let mut bare = plain.clone();
        translate(&mut bare, (1000, 7));
        assert_eq!(bare, Attributes { user: 0, ..plain });
    }
}
