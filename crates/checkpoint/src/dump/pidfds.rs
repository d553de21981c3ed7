//! Descriptors of processes and threads (pidfd_open(2)).

use super::Names;
use super::found::Found;
use crate::error::Error;
use crate::freeze::Frozen;
use crate::state::{Description, OpenFile};

/// What their links say.
const LINK: &str = "anon_inode:[pidfd]";

/// What `group` refers to, if it is a process or a thread.
pub(super) fn describe(
    group: &[Found],
    frozen: &Frozen,
    names: &Names,
) -> Result<Option<Description>, Error> {
    let Some(Found { pid, line, .. }) = group.first().filter(|found| found.line.link == LINK)
    else {
        return Ok(None);
    };
    let refused = |what: &str| {
        Error::unsupported(
            *pid,
            format!("has a descriptor of a process that {what} (pidfd_open(2))"),
        )
    };
    // The number is ours.
    let number: i64 = line.value("Pid").and_then(|number| number.parse().ok()).unwrap_or(0);
    if number < 0 {
        return Err(refused("is no more"));
    }
    let task = names.task(frozen, u32::try_from(number).unwrap_or(0))?;
    let task = task.ok_or_else(|| refused("is not in the tree"))?;
    Ok(Some(Description { flags: line.flags, file: OpenFile::Process { task } }))
}
