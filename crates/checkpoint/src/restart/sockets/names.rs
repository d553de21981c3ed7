//! Names of Unix sockets.
//!
//! A socket whose name in the file system is gone, or leads to another by now, is bound all the same: whatever has
//! that name is given another for the moment.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use super::actor::Actors;
use crate::error::Error;
use crate::restart::plan::Plan;
use crate::state::sockets::{UnixFile, UnixName};

/// What is added to the name of a file that is in the way.
const ASIDE: &str = ".in-the-way";
/// What names begin with that are there for the moment.
const LINK: &str = ".to-be-reached-";
/// `RENAME_NOREPLACE`.
const KEEP_BOTH: u64 = 1;

/// The name's address (`struct sockaddr_un`).
pub(super) fn address(name: &UnixName) -> Vec<u8> {
    let family = u16::try_from(libc::AF_UNIX).unwrap_or(0).to_ne_bytes();
    match name {
        UnixName::Abstract(name) => [&family[..], &[0], name].concat(),
        UnixName::Path { path, .. } => [&family[..], path.as_bytes()].concat(),
    }
}

/// What two sockets may have in common.
pub(super) fn is_same(one: &UnixName, other: &UnixName) -> bool {
    match (one, other) {
        (UnixName::Abstract(one), UnixName::Abstract(other)) => one == other,
        (
            UnixName::Path { path: one, directory: of_one, .. },
            UnixName::Path { path: other, directory: of_other, .. },
        ) => one == other && of_one == of_other,
        _ => false,
    }
}

/// Do something where a name begins: the seed is in that directory meanwhile.
pub(super) fn where_it_begins<T>(
    actors: &mut Actors<'_>,
    name: &UnixName,
    act: impl FnOnce(&mut Actors<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let UnixName::Path { directory: Some(directory), .. } = name else { return act(actors) };
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let mut plan = actors.plan();
    let dot = plan.string(".");
    let flags = (libc::O_PATH | libc::O_CLOEXEC).cast_unsigned().into();
    plan.must("remember its directory", libc::SYS_openat, [here, dot, flags, 0]);
    let path = plan.string(directory);
    plan.must(format!("enter {directory}"), libc::SYS_chdir, [path]);
    let results = plan.run()?.results;
    let before = results.first().copied().unwrap_or(-1).cast_unsigned();
    let result = act(actors);
    let mut plan = actors.plan();
    plan.must("go back to its directory", libc::SYS_fchdir, [before]);
    plan.must("go back to its directory", libc::SYS_close, [before]);
    plan.run()?;
    result
}

/// Bind a socket of the seed, and do what needs the name; then the name is gone, but for one that has a file.
pub(super) fn bind_and<T>(
    actors: &mut Actors<'_>,
    socket: u64,
    name: &UnixName,
    act: impl FnOnce(&mut Actors<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    where_it_begins(actors, name, |actors| {
        let place = Place::find(actors, name);
        let mut plan = actors.plan();
        place.clear(&mut plan);
        bind_call(&mut plan, socket, name);
        if let UnixName::Path { path, .. } = name {
            // Whoever connects it for the moment may be any user.
            let (here, path) = (i64::from(libc::AT_FDCWD).cast_unsigned(), plan.string(path));
            plan.must("have a name", libc::SYS_fchmodat, [here, path, 0o777]);
        }
        let bound = plan.run().map(drop);
        let result = bound.and_then(|()| act(actors));
        let mut plan = actors.plan();
        place.give_back(&mut plan);
        plan.run()?;
        result
    })
}

/// Bind a socket of the seed.
pub(super) fn bind(actors: &mut Actors<'_>, socket: u64, name: &UnixName) -> Result<(), Error> {
    bind_and(actors, socket, name, |_| Ok(()))
}

fn bind_call(plan: &mut Plan<'_>, socket: u64, name: &UnixName) {
    let address = address(name);
    let (at, bytes) = (plan.data(&address), address.len() as u64);
    plan.must(format!("have the name {}", show(name)), libc::SYS_bind, [socket, at, bytes]);
}

fn show(name: &UnixName) -> String {
    match name {
        UnixName::Abstract(name) => format!("@{}", String::from_utf8_lossy(name)),
        UnixName::Path { path, .. } => path.clone(),
    }
}

/// Another name for a socket, in the same directory; none of one that is not in the file system.
pub(super) fn another(name: &UnixName, place: usize) -> Option<UnixName> {
    let UnixName::Path { path, directory, .. } = name else { return None };
    let start = directory.as_deref().map_or(String::new(), |start| format!("{start}/"));
    let full = format!("{start}{path}");
    let (directory, _) = full.rsplit_once('/')?;
    let directory = if directory.is_empty() { "/" } else { directory };
    let path = format!("{LINK}{place}");
    Some(UnixName::Path { path, directory: Some(directory.to_owned()), file: None })
}

/// Give a socket another name besides; the seed is where the first begins.
pub(super) fn link(
    actors: &mut Actors<'_>,
    name: &UnixName,
    other: &UnixName,
) -> Result<(), Error> {
    let UnixName::Path { path: from, .. } = name else { return Ok(()) };
    let UnixName::Path { path: to, directory: Some(directory), .. } = other else { return Ok(()) };
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let mut plan = actors.plan();
    let (from, to) = (plan.string(from), plan.string(&format!("{directory}/{to}")));
    plan.must("have a name for the moment", libc::SYS_linkat, [here, from, here, to, 0]);
    plan.run().map(drop)
}

/// Take such a name away.
pub(super) fn unlink(actors: &mut Actors<'_>, name: &UnixName) -> Result<(), Error> {
    let UnixName::Path { path, .. } = name else { return Ok(()) };
    where_it_begins(actors, name, |actors| {
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let mut plan = actors.plan();
        let path = plan.string(path);
        plan.may(libc::SYS_unlinkat, [here, path, 0]);
        plan.run().map(drop)
    })
}

/// Give the file of a name its owner and permissions.
pub(super) fn set_file(actors: &mut Actors<'_>, name: &UnixName) -> Result<(), Error> {
    let UnixName::Path { path, file: Some(UnixFile { mode, user, group }), .. } = name else {
        return Ok(());
    };
    where_it_begins(actors, name, |actors| {
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let mut plan = actors.plan();
        let at = plan.string(path);
        if [*user, *group] != actors.owner() {
            let arguments = [here, at, (*user).into(), (*group).into(), 0];
            plan.must(format!("give {path} its owner"), libc::SYS_fchownat, arguments);
        }
        let purpose = format!("give {path} its permissions");
        plan.must(purpose, libc::SYS_fchmodat, [here, at, (*mode).into()]);
        plan.run().map(drop)
    })
}

/// The place of a name in the file system.
enum Place<'a> {
    /// It has none.
    None,
    /// The socket's file stays there; what is there now is a socket that nobody has any more.
    Kept { path: &'a str, is_taken: bool },
    /// The socket's file does not stay there.
    Borrowed { path: &'a str, is_taken: bool },
}

impl<'a> Place<'a> {
    fn find(actors: &Actors<'_>, name: &'a UnixName) -> Self {
        let UnixName::Path { path, directory, file } = name else { return Self::None };
        let start = directory.as_deref().map_or(String::new(), |start| format!("{start}/"));
        let found = fs::symlink_metadata(format!("/proc/{}/root{start}{path}", actors.task()));
        match file {
            Some(_) => {
                let is_taken = found.is_ok_and(|found| found.file_type().is_socket());
                Self::Kept { path, is_taken }
            }
            None => Self::Borrowed { path, is_taken: found.is_ok() },
        }
    }

    /// Make room.
    fn clear(&self, plan: &mut Plan<'_>) {
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        match self {
            Self::None
            | Self::Kept { is_taken: false, .. }
            | Self::Borrowed { is_taken: false, .. } => {}
            Self::Kept { path, .. } => {
                let at = plan.string(path);
                plan.must(format!("remove {path}"), libc::SYS_unlinkat, [here, at, 0]);
            }
            Self::Borrowed { path, .. } => {
                let (at, aside) = (plan.string(path), plan.string(&format!("{path}{ASIDE}")));
                let arguments = [here, at, here, aside, KEEP_BOTH];
                plan.must(format!("move {path}"), libc::SYS_renameat2, arguments);
            }
        }
    }

    /// Give the place back.
    fn give_back(&self, plan: &mut Plan<'_>) {
        let Self::Borrowed { path, is_taken } = self else { return };
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let (at, aside) = (plan.string(path), plan.string(&format!("{path}{ASIDE}")));
        if *is_taken {
            // What was bound in its place, if it was, goes with that.
            plan.must(format!("move {path} back"), libc::SYS_renameat2, [here, aside, here, at, 0]);
        } else {
            plan.may(libc::SYS_unlinkat, [here, at, 0]);
        }
    }
}
