//! Extended attributes (xattr(7)).
//!
//! A guest has those of users, and of security where the host lets us. `trusted.*` are the host's
//! administrator's; a guest that looks for them finds none.

use std::ffi::CStr;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, XattrFlags, fgetxattr, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::dispatch::Answer;
use super::inodes::Inode;
use super::request::Ask;
use super::share::Share;
use crate::wire::{GetxattrIn, GetxattrOut, SetxattrIn};

/// The longest value, and the longest list (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const MAX_BYTES: usize = 64 << 10;

fn is_hidden(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"trusted.")
}

/// Whether the host's kernel believes it: capabilities that a program gets, labels (xattr(7)). Reading them
/// does no harm.
fn is_of_security(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"security.")
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
    let name = arguments.string()?;
    if is_hidden(name) {
        return Err(Errno::NODATA);
    }
    let inode = of(share, ask)?;
    let mut value = Vec::with_capacity(MAX_BYTES);
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
    let mut names = Vec::with_capacity(MAX_BYTES);
    share.by_path(&of(share, ask)?, |path| listxattr(path, spare_capacity(&mut names)))?;
    let mut shown = Vec::with_capacity(names.len());
    for name in names.split_inclusive(|&byte| byte == 0) {
        if !name.starts_with(b"trusted.") {
            shown.extend(name);
        }
    }
    answer(&shown, asked.size)
}

/// `SETXATTR`.
pub fn set(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    share.check_writable()?;
    let mut arguments = ask.arguments();
    let asked: SetxattrIn = arguments.take()?;
    let name = arguments.string()?;
    if is_hidden(name) || (!share.allows_privileges && is_of_security(name)) {
        return Err(Errno::OPNOTSUPP);
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
    if !share.allows_privileges && is_of_security(name) {
        return Err(Errno::OPNOTSUPP);
    }
    share.by_path(&of(share, ask)?, |path| removexattr(path, name))?;
    Answer::done()
}
