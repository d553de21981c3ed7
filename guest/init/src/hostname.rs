//! The system's host name: what the root's files say or, if the host wants another one, that. Then the files say so as
//! well, without anything written to a root that may be a directory or a disk of the host's user: files in memory are
//! mounted over them.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::mount_bind;

use crate::root::lift;

/// Where these files are.
const PLACE: &str = "/run/bivouac";

/// The address of a system's own name, by Debian's custom (hosts(5) of Debian's policy manual).
const OWN_ADDRESS: &str = "127.0.1.1";

/// Gives the system its name; `wanted` is the host's wish.
pub fn set(wanted: Option<&[u8]>) -> io::Result<()> {
    let Some(name) = wanted else {
        return match fs::read_to_string("/etc/hostname") {
            Ok(name) => lift(rustix::system::sethostname(name.trim().as_bytes())),
            // A root need not have it.
            Err(_) => Ok(()),
        };
    };
    lift(rustix::system::sethostname(name))?;
    let name = String::from_utf8_lossy(name);
    fs::create_dir_all(PLACE)?;
    cover("hostname", &format!("{name}\n"))?;
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    cover("hosts", &with_name(&hosts, &name))
}

/// Has a file of `/etc` say this. One that is not there is not made.
fn cover(file: &str, text: &str) -> io::Result<()> {
    let (ours, theirs) = (Path::new(PLACE).join(file), Path::new("/etc").join(file));
    if !theirs.is_file() {
        return Ok(());
    }
    fs::write(&ours, text)?;
    lift(mount_bind(ours, theirs))
}

/// The file of hosts with one more, which is this one. A name of several parts is known by the first, too.
fn with_name(hosts: &str, name: &str) -> String {
    let end = if hosts.is_empty() || hosts.ends_with('\n') { "" } else { "\n" };
    let short = match name.split_once('.') {
        Some((short, _)) => format!(" {short}"),
        None => String::new(),
    };
    format!("{hosts}{end}{OWN_ADDRESS} {name}{short}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_more_host() {
        assert_eq!(with_name("", "web"), "127.0.1.1 web\n");
        assert_eq!(with_name("::1 a", "b"), "::1 a\n127.0.1.1 b\n");
        assert_eq!(with_name("::1 a\n", "b.c.d"), "::1 a\n127.0.1.1 b.c.d b\n");
    }
}
