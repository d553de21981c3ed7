//! The files that a pod has written, as an archive, for the image of the pod; and back.
//!
//! The keeper starts this program under the name [`pod_protocol::FILES_NAME`] while none of the pod's processes runs.
//! It enters the pod's users and mounts, but not its process namespace: nobody in the pod can see it, and it ends
//! before anybody runs again. There it is the superuser, so that it can read and make files of all the pod's users,
//! and of nobody else's.
//!
//! What is packed ([`pack`](mod@pack)) is what is in the upper parts of the layers and in the pod's file systems in
//! memory. The archive is one of tar, and says of removed files what OCI's image layers say (image-spec, layer.md,
//! "Whiteouts"). It is unpacked ([`unpack`](mod@unpack)) through the pod's mounts: the kernel makes the layers what
//! they were.

mod confine;
mod mounts;
mod pack;
mod unpack;

use std::ffi::OsString;
use std::io::{BufReader, BufWriter, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use pod_protocol::{PACK, UNPACK};
use rustix::fs::{Gid, Uid};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::thread::{
    ThreadNameSpaceType, move_into_thread_name_spaces, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::error::{Doing, Error};
use crate::namespaces::end_with_parent;

/// The name of an empty file, in front of that of what has been removed.
const WHITEOUT: &[u8] = b".wh.";
/// The name of an empty file in a directory of which nothing below is seen.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What is done under the name [`FILES_NAME`](pod_protocol::FILES_NAME). The argument says what; standard input is a
/// socket over which the descriptors come.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<(), Error> {
    end_with_parent()?;
    let what = arguments.next();
    let [init, layers, archive] = receive()?;
    let place = ThreadNameSpaceType::USER | ThreadNameSpaceType::MOUNT;
    move_into_thread_name_spaces(init.as_fd(), place).doing("cannot enter the pod")?;
    // Where it has no groups, nobody may change them.
    let _ = set_thread_groups(&[]);
    let become_root = "cannot become the superuser of the pod";
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).doing(become_root)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).doing(become_root)?;
    // Who changes its user would live on without its parent.
    end_with_parent()?;
    confine::confine().doing("cannot confine the process that has the pod's files")?;
    let archive = std::fs::File::from(archive);
    match what.as_deref().and_then(|what| what.to_str()) {
        Some(PACK) => pack::pack(&layers, BufWriter::with_capacity(1 << 16, archive)),
        Some(UNPACK) => unpack::unpack(BufReader::with_capacity(1 << 16, archive)),
        _ => Err(Error::NoKeeper),
    }
}

/// The pod's init, the directory of its layers, and the archive.
fn receive() -> Result<[OwnedFd; 3], Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC);
    let pieces = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(rustix::stdio::stdin(), pieces, &mut ancillary, flags)
        .doing("cannot hear the keeper")?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files.collect::<Vec<_>>()),
        _ => None,
    };
    let files: Vec<OwnedFd> = ancillary.drain().filter_map(rights).flatten().collect();
    files.try_into().map_err(|_| Error::NoKeeper)
}
