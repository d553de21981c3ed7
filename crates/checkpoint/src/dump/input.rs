//! Who is told by a signal of input and output.

use host::processes::identity::{descriptor_of, open_process};
use host::processes::owner;

use super::Names;
use super::found::Found;
use crate::error::Error;
use crate::state::InputSignal;

/// `F_OWNER_TID`.
const THREAD: u32 = 0;

/// Refuse a description that tells somebody of input, and that nobody has who could ask for that again.
pub(super) fn refuse(group: &[Found]) -> Result<(), Error> {
    match group.iter().find(|found| found.line.flags & libc::O_ASYNC.cast_unsigned() != 0) {
        Some(found) => {
            let what = "has a file on its way that asks for signals about input (O_ASYNC)";
            Err(Error::unsupported(found.pid, what))
        }
        None => Ok(()),
    }
}

/// Whom a description tells that has `O_ASYNC`; `group` refers to it.
pub(super) fn find(
    group: &[Found],
    description: usize,
    names: &Names,
) -> Result<Option<InputSignal>, Error> {
    let Some(Found { pid, own, line }) = group.first() else { return Ok(None) };
    if line.flags & libc::O_ASYNC.cast_unsigned() == 0 {
        return Ok(None);
    }
    let told = open_process(*pid)
        .and_then(|process| descriptor_of(&process, line.number))
        .and_then(|file| owner::read(&file));
    let told = told.map_err(Error::io("ask who is told of input"))?;
    let refused = |what: &str| Err(Error::unsupported(*pid, format!("has {what} told of input")));
    let owner = match (told.kind, told.number) {
        (THREAD, _) => return refused("a thread"),
        (_, 0) => 0,
        (_, number) => match names.own(number) {
            0 => return refused("a process that is not in the tree"),
            known => known,
        },
    };
    let (kind, signal) = (told.kind, told.signal);
    Ok(Some(InputSignal { description, holder: *own, kind, owner, signal }))
}
