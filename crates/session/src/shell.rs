//! The shell of a user of the host, for a guest that looks like the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where a guest that looks like the host finds its users, too.
const PASSWD: &str = "/etc/passwd";

/// Programs that are shells of users who are to have none.
const NO_SHELLS: [&str; 3] = ["false", "nologin", "true"];

/// The shell of whoever runs this program, which is in the environment (environ(7)), or of another user, by name or
/// number, perhaps with a group behind; none if there is no such program.
#[must_use]
pub fn of(user: Option<&str>) -> Option<PathBuf> {
    let shell = match user {
        None => std::env::var_os("SHELL").map(PathBuf::from)?,
        Some(user) => in_list(&fs::read_to_string(PASSWD).ok()?, user)?,
    };
    is_shell(&shell).then_some(shell)
}

/// The shell that a list of users (passwd(5)) has for one.
fn in_list(list: &str, user: &str) -> Option<PathBuf> {
    let user = user.split(':').next().unwrap_or_default();
    let shell = list.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            [name, _, number, _, _, _, shell] if name == user || number == user => Some(shell),
            _ => None,
        }
    });
    shell.map(PathBuf::from)
}

/// Whether it is a program by an absolute path, and meant for somebody to type in.
fn is_shell(path: &Path) -> bool {
    let is_none = path.file_name().is_none_or(|name| NO_SHELLS.iter().any(|none| name == *none));
    let is_program =
        |found: fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    !is_none && path.is_absolute() && fs::metadata(path).is_ok_and(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_users_has_shells() {
        let list =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nann:x:1000:1000:Ann,,,:/home/ann:/bin/zsh\n";
        let check = |user, shell: Option<&str>| {
            assert_eq!(in_list(list, user), shell.map(PathBuf::from), "{user}");
        };
        check("root", Some("/bin/bash"));
        check("1000", Some("/bin/zsh"));
        check("ann:games", Some("/bin/zsh"));
        check("broken", None);
        check("bob", None);
        check("", None);
    }

    #[test]
    fn what_is_no_shell_is_none() {
        assert!(is_shell(Path::new("/bin/sh")));
        for none in
            ["/bin/false", "/usr/sbin/nologin", "sh", "", "/", "/bin", "/etc/passwd", "/no/sh"]
        {
            assert!(!is_shell(Path::new(none)), "{none}");
        }
    }
}
