//! What users of podman and Docker type out of habit, as this program has it.
//!
//! | typed | meant |
//! | --- | --- |
//! | `images`, `pull`, `push`, `load`, `save`, `tag` | `image ls`, and `image` with the same verb |
//! | `rmi`, `info`, `version` | `image rm`, `doctor`, `--version` |
//! | `run -v HOST:GUEST` | `run --volume HOST:GUEST` |
//!
//! `-v` alone is `--verbose`. What follows it is a volume only where it would otherwise be the command, and no
//! command is called like that: so nothing that has a meaning without this gets another.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Verbs, and what they are here.
const VERBS: [(&str, &[&str]); 9] = [
    ("images", &["image", "ls"]),
    ("rmi", &["image", "rm"]),
    ("pull", &["image", "pull"]),
    ("push", &["image", "push"]),
    ("load", &["image", "load"]),
    ("save", &["image", "save"]),
    ("tag", &["image", "tag"]),
    ("info", &["doctor"]),
    ("version", &["--version"]),
];

/// A program's arguments with the verb that is meant.
pub fn with_verb(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let meant = arguments.get(1).and_then(|verb| VERBS.iter().find(|(typed, _)| verb == typed));
    if let Some((_, words)) = meant {
        arguments.splice(1..2, words.iter().map(Into::into));
    }
    arguments
}

/// Which of a program's arguments, the last of which have been understood as a command to run, is `-v` and means
/// `--volume`.
pub fn volume(arguments: &[OsString], command: &[OsString]) -> Option<usize> {
    let place = arguments.len().checked_sub(command.len() + 1)?;
    let is_volume = command.first().is_some_and(|word| is_volume(word));
    (is_volume && arguments.get(place).is_some_and(|word| word == "-v")).then_some(place)
}

/// Whether a word is a place of the host, or a name, and a place in the guest.
fn is_volume(word: &OsStr) -> bool {
    word.as_bytes().windows(2).skip(1).any(|pair| pair == b":/")
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Verb};
    use super::*;
    use clap::Parser;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn verbs_of_others_are_ours() {
        let check = |typed: &str, meant: &str| {
            assert_eq!(with_verb(words(typed)), words(meant), "{typed}");
        };
        check("biv pull nginx", "biv image pull nginx");
        check("biv images --format json", "biv image ls --format json");
        check("biv version", "biv --version");
        for same in ["biv", "biv run images", "biv rm x", "biv -- pull"] {
            check(same, same);
        }
        // None of them is a verb already.
        for (typed, meant) in VERBS {
            assert!(Cli::try_parse_from(["biv", typed, "x"]).is_err(), "{typed}");
            let error = Cli::try_parse_from([&["biv"], meant, &["--help"]].concat()).unwrap_err();
            assert!(!error.use_stderr(), "{meant:?}");
        }
    }

    #[test]
    fn what_would_be_no_command_is_a_volume() {
        let check = |line: &str, expected: Option<usize>| {
            let arguments = words(line);
            let Verb::Run(run) = Cli::try_parse_from(&arguments).unwrap().verb else { panic!() };
            assert_eq!(volume(&arguments, &run.command), expected, "{line}");
        };
        check("biv run -v ./a:/b --busybox -- ls -v x:/y", Some(2));
        check("biv run --busybox -v data:/b:ro ls", Some(3));
        check("biv run --busybox -it -v /a:/b", Some(4));
        for line in [
            "biv run -v",
            "biv run -v ls x:/y",
            "biv run rsync -v host:/x .",
            "biv run -v -- a:/b",
            "biv run a:/b",
            "biv run -v :/b",
            "biv run --volume a:/b -v ls",
        ] {
            check(line, None);
        }
    }
}
