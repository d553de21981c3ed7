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
        Err(error) if is_gone(&error) => Err(Error::Gone(pid)),
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
        Err(error) if is_gone(&error) => Err(Error::Gone(pid)),
        Err(source) => Err(Error::Io { what: format!("read /proc/{pid}/{name}"), source }),
    }
}

/// The numbers that name entries of a directory of a process, in order.
pub(crate) fn numbers(pid: u32, directory: &str) -> Result<Vec<u32>, Error> {
    let entries = match fs::read_dir(format!("/proc/{pid}/{directory}")) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Err(Error::Gone(pid)),
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

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}
