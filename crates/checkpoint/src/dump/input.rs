//! Who is told by a signal of input and output.

use host::processes::identity::{descriptor_of, open_process};
use host::processes::owner;

use super::Names;
use super::found::Found;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::state::InputSignal;

/// Refuse a description that tells somebody of input, and that nobody has who could ask for that again.
pub(super) fn refuse(group: &[Found]) -> Result<(), Error> {
    for found in group {
        let (asks, told) = ask(found)?;
        if asks || told.number != 0 {
            let what = "has a file on its way that asks for signals about input (F_SETOWN)";
            return Err(Error::unsupported(found.pid, what));
        }
    }
    Ok(())
}

/// Whether signals about input are asked for, and whom a description would tell.
fn ask(found: &Found) -> Result<(bool, owner::Told), Error> {
    let flags = found.line.flags.cast_signed();
    if flags & libc::O_PATH != 0 {
        return Ok((false, owner::Told { kind: 0, number: 0, signal: 0 }));
    }
    let told = open_process(found.pid)
        .and_then(|process| descriptor_of(&process, found.line.number))
        .and_then(|file| owner::read(&file));
    let told = told.map_err(Error::io("ask who is told of input"))?;
    Ok((flags & libc::O_ASYNC != 0, told))
}

/// Whom a description tells; `group` refers to it.
pub(super) fn find(
    group: &[Found],
    description: usize,
    frozen: &Frozen,
    names: &Names,
) -> Result<Option<InputSignal>, Error> {
    let Some(found) = group.first() else { return Ok(None) };
    let (is_told, told) = ask(found)?;
    if !is_told && (told.number, told.signal) == (0, 0) {
        return Ok(None);
    }
    let owner = match told.number {
        0 => 0,
        number => names.task(frozen, number)?.ok_or_else(|| {
            let what = "has a process that is not in the tree told of input";
            Error::unsupported(found.pid, what)
        })?,
    };
    let (holder, kind, signal) = (found.own, told.kind, told.signal);
    Ok(Some(InputSignal { description, holder, kind, owner, is_told, signal }))
}
