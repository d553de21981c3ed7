//! What /proc tells of a process, parsed.

pub(crate) mod descriptor;
pub(crate) mod maps;
pub(crate) mod socket;
pub(crate) mod stat;
pub(crate) mod status;

use std::fs;

use crate::error::Error;

/// A file of a process, as text; bytes that are no UTF-8 are replaced.
pub(crate) fn read(pid: u32, name: &str) -> Result<String, Error> {
    match fs::read(format!("/proc/{pid}/{name}")) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if is_gone(pid, &error) => Err(Error::Gone(pid)),
        Err(source) => Err(Error::Io { what: format!("read /proc/{pid}/{name}"), source }),
    }
}

/// Where a link of a process leads.
pub(crate) fn link(pid: u32, name: &str) -> Result<String, Error> {
    match fs::read_link(format!("/proc/{pid}/{name}")) {
        Ok(path) => path
            .into_os_string()
            .into_string()
            .map_err(|_| Error::unsupported(pid, format!("has a path that is no UTF-8 ({name})"))),
        Err(error) if is_gone(pid, &error) => Err(Error::Gone(pid)),
        Err(source) => Err(Error::Io { what: format!("read /proc/{pid}/{name}"), source }),
    }
}

/// The numbers that name entries of a directory of a process, in order.
pub(crate) fn numbers(pid: u32, directory: &str) -> Result<Vec<u32>, Error> {
    let entries = match fs::read_dir(format!("/proc/{pid}/{directory}")) {
        Ok(entries) => entries,
        Err(error) if is_gone(pid, &error) => return Err(Error::Gone(pid)),
        Err(source) => {
            return Err(Error::Io { what: format!("list /proc/{pid}/{directory}"), source });
        }
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The children of a process, of all its threads.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>, Error> {
    let mut children = Vec::new();
    for thread in numbers(pid, "task")? {
        let Ok(list) = read(pid, &format!("task/{thread}/children")) else { continue };
        children.extend(list.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(children)
}

/// Whether a process could not be looked at because it has gone, or is about to: one that has given its memory back
/// belongs to root (proc_pid(5)), so that nobody else may look.
fn is_gone(pid: u32, error: &std::io::Error) -> bool {
    match error.kind() {
        std::io::ErrorKind::NotFound => true,
        std::io::ErrorKind::PermissionDenied => is_ending(pid),
        _ => error.raw_os_error() == Some(libc::ESRCH),
    }
}

/// Set in the flags of a process that ends (`PF_EXITING`).
const IS_ENDING: u64 = 4;

fn is_ending(pid: u32) -> bool {
    // Everybody may read this.
    let Ok(line) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let fields = line.rsplit_once(')').map(|(_, rest)| rest);
    let flags = fields.and_then(|rest| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & IS_ENDING != 0)
}
