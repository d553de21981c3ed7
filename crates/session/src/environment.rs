//! The environment variables of a command in a guest or a pod.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::terminal;

/// The search path of commands in the guest.
pub const PATH: &[u8] = b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of the environment that mean the same in a guest that looks like the host; those of the locale
/// are listed in locale(7).
const ENVIRONMENT: [&str; 21] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ADDRESS",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TZ",
    "USER",
];

/// What of the environment a command in such a guest gets. Each variable is asked for by its name: a copy of all of
/// them would stay in this process's memory, with whatever secrets they have.
#[must_use]
pub fn of_the_host() -> Vec<Vec<u8>> {
    let pair = |name: &&str| {
        let value = std::env::var_os(name)?.into_vec();
        Some([name.as_bytes(), b"=", &value].concat())
    };
    ENVIRONMENT.iter().filter_map(pair).collect()
}

/// The same for a command of another user, without what is the caller's own: the guest says which home he has, and the
/// search path is everybody's.
#[must_use]
pub fn of_the_host_for_another() -> Vec<Vec<u8>> {
    const OWN: [&[u8]; 4] = [b"HOME=", b"LOGNAME=", b"SHELL=", b"USER="];
    let mut variables = of_the_host();
    variables.retain(|variable| !OWN.iter().any(|own| variable.starts_with(own)));
    replace(&mut variables, PATH);
    variables
}

/// What a command gets where nothing looks like the host. If it is of a user who is named, the guest says which home he
/// has.
#[must_use]
pub fn of_its_own(names_user: bool) -> Vec<Vec<u8>> {
    let home = (!names_user).then(|| b"HOME=/root".to_vec());
    std::iter::once(PATH.to_vec()).chain(home).collect()
}

/// Adds which terminal a command is on, if it is on one, and variables that are given, `NAME=VALUE`, each in the place
/// of one of that name.
pub fn complete<'a>(
    environment: &mut Vec<Vec<u8>>,
    on_terminal: bool,
    given: impl IntoIterator<Item = &'a OsString>,
) {
    environment.extend(on_terminal.then(terminal::variable));
    given.into_iter().for_each(|variable| replace(environment, variable.as_bytes()));
}

/// Puts a variable, `NAME=VALUE`, in the place of one of that name.
fn replace(environment: &mut Vec<Vec<u8>>, variable: &[u8]) {
    let name = |variable: &[u8]| variable.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
    environment.retain(|other| name(other) != name(variable));
    environment.push(variable.to_vec());
}
