//! The passwords of users and groups where the guest's root is the host's, shown by somebody who may not read them.
//!
//! Programs that make users (useradd(8), and the installation of most services) read and write `/etc/shadow` and
//! `/etc/gshadow` besides the lists that everybody may read. So the guest has files of its own in their places, of the
//! users and groups in those lists, none of whom has a password.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// What is in a line of shadow(5) behind the name: no password that anybody could type, and no end.
const USER: &str = "*:19000:0:99999:7:::";

/// The same of gshadow(5), before the members.
const GROUP: &str = "*::";

/// Replaces the files below the root that may not be read. What cannot be replaced stays.
pub fn replace_unreadable(root: &Path) {
    let user = |line: &str| Some(format!("{}:{USER}\n", line.split(':').next()?));
    let group = |line: &str| {
        let mut fields = line.split(':');
        Some(format!("{}:{GROUP}{}\n", fields.next()?, fields.nth(2)?))
    };
    let _ = replace(root, ("shadow", "passwd"), user);
    let _ = replace(root, ("gshadow", "group"), group);
}

fn replace(
    root: &Path,
    (secret, list): (&str, &str),
    line: impl Fn(&str) -> Option<String>,
) -> io::Result<()> {
    let (secret, list) = (root.join("etc").join(secret), root.join("etc").join(list));
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    // Who opens it may not hear of that yet.
    if !fs::read(&secret).is_err_and(is_refused) {
        return Ok(());
    }
    let lines = fs::read_to_string(list)?;
    let text: String = lines.lines().filter(|line| !line.is_empty()).filter_map(line).collect();
    let before = fs::metadata(&secret)?;
    // The file itself cannot be written: that would take what is in it now.
    let new = secret.with_extension("bivouac");
    fs::write(&new, text)?;
    fs::set_permissions(&new, Permissions::from_mode(before.mode() & 0o777))?;
    chown(&new, Some(before.uid()), Some(before.gid()))?;
    fs::rename(new, secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_not_be_read_is_replaced() {
        let root = std::env::temp_dir().join(format!("biv-accounts-{}", std::process::id()));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n\na:x:1000:1000::/:/\n")
            .unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\nmail:x:8:a,b\nbad\n").unwrap();
        let read = |name: &str| fs::read_to_string(root.join("etc").join(name));
        fs::write(root.join("etc/shadow"), "secret").unwrap();
        replace_unreadable(&root);
        // What is not there is not made.
        assert_eq!((read("shadow").unwrap().as_str(), read("gshadow").is_err()), ("secret", true));
        if rustix::process::geteuid().is_root() {
            println!("skipped: root may read everything");
        } else {
            fs::write(root.join("etc/gshadow"), "secret").unwrap();
            for name in ["shadow", "gshadow"] {
                fs::set_permissions(root.join("etc").join(name), Permissions::from_mode(0o000))
                    .unwrap();
            }
            replace_unreadable(&root);
            for name in ["shadow", "gshadow"] {
                let path = root.join("etc").join(name);
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0);
                fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
            }
            assert_eq!(read("shadow").unwrap(), format!("root:{USER}\na:{USER}\n"));
            assert_eq!(read("gshadow").unwrap(), "root:*::\nmail:*::a,b\n");
        }
        fs::remove_dir_all(root).unwrap();
    }
}
