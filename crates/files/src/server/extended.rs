//! Extended attributes (xattr(7)).
//!
//! A guest has those of users, and of security where the host lets us. `trusted.*` are the host's
//! administrator's; a guest that looks for them finds none. Where attributes say to whom files belong
//! ([`crate::owner`]), the guest sees what they mean instead of them.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, XattrFlags, fgetxattr, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::answer::Answer;
use super::inodes::Inode;
use super::recorded::is_record;
use super::request::Ask;
use super::share::Share;
use crate::limits::MAX_ATTRIBUTE_BYTES;
use crate::owner::{self, OWNER};
use crate::wire::{GetxattrIn, GetxattrOut, SetxattrIn};

/// The attribute with a program's capabilities (capabilities(7)).
const CAPABILITY: &CStr = c"security.capability";

fn is_hidden(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"trusted.")
}

/// Whether the host's kernel believes it: capabilities that a program gets, labels (xattr(7)). Reading them
/// does no harm.
fn is_of_security(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"security.")
}

/// Whether the guest may change it, whose user so and so asks for that: whoever wrote a record would give files away,
/// here or where they count another time. The superuser of a share where they do not may copy them.
fn is_kept(share: &Share, user: u32, name: &CStr) -> bool {
    is_record(name.to_bytes()) && (share.has_owners || user != 0)
}

/// What the host calls what the guest calls `name`; none if the guest has no such attribute.
fn name_on_host<'a>(share: &Share, name: &'a CStr) -> Option<Cow<'a, CStr>> {
    match name {
        _ if is_hidden(name) => None,
        _ if !share.has_owners => Some(Cow::Borrowed(name)),
        _ if name == CAPABILITY => CString::new(owner::CAPABILITY).ok().map(Cow::Owned),
        _ if is_record(name.to_bytes()) => None,
        _ => Some(Cow::Borrowed(name)),
    }
}

/// What the guest calls what the host calls `name`, both with their NUL.
fn name_in_guest<'a>(share: &Share, name: &'a [u8]) -> Option<&'a [u8]> {
    let text = name.strip_suffix(b"\0").unwrap_or(name);
    match text {
        _ if text.starts_with(b"trusted.") => None,
        _ if !share.has_owners => Some(name),
        _ if text == OWNER.as_bytes() || text == CAPABILITY.to_bytes() => None,
        _ if text == owner::CAPABILITY.as_bytes() => Some(CAPABILITY.to_bytes_with_nul()),
        _ => Some(name),
    }
}

fn of(share: &Share, ask: &Ask<'_>) -> Result<Arc<Inode>, Errno> {
    let inode = share.inodes.get(ask.header.nodeid)?;
    match inode.nature(&share.inodes)?.kind {
        FileType::RegularFile | FileType::Directory => Ok(inode),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Bytes, or how many there are if the guest asked for none.
fn answer(bytes: &[u8], wanted: u32) -> Result<Answer, Errno> {
    match wanted {
        0 => Answer::of(&GetxattrOut { size: bytes.len() as u32, padding: 0 }),
        _ if bytes.len() > wanted as usize => Err(Errno::RANGE),
        _ => Ok(Answer::Bytes(bytes.to_vec())),
    }
}

/// `GETXATTR`.
pub fn get(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let asked: GetxattrIn = arguments.take()?;
    let name = name_on_host(share, arguments.string()?).ok_or(Errno::NODATA)?;
    let name: &CStr = &name;
    let inode = of(share, ask)?;
    let mut value = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    let open = share.if_open(&inode, |file| fgetxattr(file, name, spare_capacity(&mut value)));
    match open {
        Some(done) => done?,
        None => share.by_path(&inode, |path| getxattr(path, name, spare_capacity(&mut value)))?,
    };
    answer(&value, asked.size)
}

/// `LISTXATTR`.
pub fn list(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let asked: GetxattrIn = ask.arguments().take()?;
    let mut names = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    share.by_path(&of(share, ask)?, |path| listxattr(path, spare_capacity(&mut names)))?;
    let mut shown = Vec::with_capacity(names.len());
    for name in names.split_inclusive(|&byte| byte == 0) {
        shown.extend(name_in_guest(share, name).unwrap_or_default());
    }
    answer(&shown, asked.size)
}

/// `SETXATTR`.
pub fn set(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    share.check_writable()?;
    let mut arguments = ask.arguments();
    let asked: SetxattrIn = arguments.take()?;
    let name = arguments.string()?;
    if is_hidden(name) || (!share.may_be_believed() && is_of_security(name)) {
        return Err(Errno::OPNOTSUPP);
    }
    if is_kept(share, ask.header.uid, name) {
        return Err(Errno::PERM);
    }
    let value = arguments.rest().get(..asked.size as usize).ok_or(Errno::INVAL)?;
    let flags = XattrFlags::from_bits(asked.flags).ok_or(Errno::INVAL)?;
    share.by_path(&of(share, ask)?, |path| setxattr(path, name, value, flags))?;
    Answer::done()
}

/// `REMOVEXATTR`.
pub fn remove(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    share.check_writable()?;
    let mut arguments = ask.arguments();
    let name = arguments.string()?;
    if is_hidden(name) {
        return Err(Errno::NODATA);
    }
    if !share.may_be_believed() && is_of_security(name) {
        return Err(Errno::OPNOTSUPP);
    }
    if is_kept(share, ask.header.uid, name) {
        return Err(Errno::PERM);
    }
    share.by_path(&of(share, ask)?, |path| removexattr(path, name))?;
    Answer::done()
}
