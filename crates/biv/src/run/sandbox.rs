//! `--sandbox`: one word for a machine that is given nothing which was not asked for.
//!
//! It is other defaults for options that there are anyway, so that each can still be said, and then is what
//! was said. What would open the machine again in a way that is easily missed is refused with it
//! (`crate::cli::Run`).

use std::time::Duration;

use vmm::Technique;

use super::guest;
use crate::cli::Run;
use crate::network::Net;

/// How long such a machine runs.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The options as they are meant, if it is a sandbox: busybox unless another root is named, no network, a
/// limit of time, and no mirror, so that the kernel's accesses to memory are looked up like any other's.
pub fn settle(arguments: &mut Run) {
    if !arguments.sandbox {
        return;
    }
    arguments.busybox |= !guest::is_plain(arguments) && !guest::has_user_space(arguments);
    arguments.net.get_or_insert(Net::None);
    limit(arguments);
}

/// The limits of a sandbox, for a machine that boots and for one that goes on from a snapshot.
pub fn limit(arguments: &mut Run) {
    arguments.timeout.get_or_insert(TIMEOUT);
    // The interpreter has none anyway.
    if !arguments.interpret {
        let techniques = arguments.without.unwrap_or_default();
        arguments.without = Some(techniques.without(Technique::Mirror));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn settled(options: &[&str]) -> Run {
        let line = [&["biv", "run", "--sandbox"], options].concat();
        let Verb::Run(mut run) = Cli::try_parse_from(line).unwrap().verb else { panic!("not run") };
        settle(&mut run);
        *run
    }

    #[test]
    fn nothing_is_given_that_was_not_asked_for() {
        let run = settled(&["--", "true"]);
        assert!(run.busybox);
        assert_eq!((run.net, run.timeout), (Some(Net::None), Some(TIMEOUT)));
        let techniques = run.without.unwrap();
        assert!(!techniques.has(Technique::Mirror) && techniques.has(Technique::Links));
    }

    #[test]
    fn what_is_said_is_meant() {
        let run = settled(&["--root", "/r", "--net", "user", "--timeout", "2", "--", "true"]);
        assert!(!run.busybox);
        assert_eq!(run.net, Some(Net::User(crate::network::User::default())));
        assert_eq!(run.timeout, Some(Duration::from_secs(2)));
        let techniques = settled(&["--without", "links", "--", "true"]).without.unwrap();
        assert!(!techniques.has(Technique::Mirror) && !techniques.has(Technique::Links));
        assert!(!settled(&["--image", "web", "--", "true"]).busybox);
    }

    #[test]
    fn what_contradicts_it_is_refused() {
        for option in [&["--here"][..], &["--root", "/r", "--root-rw"], &["--no-seccomp"]] {
            let line = [&["biv", "run", "--sandbox"], option].concat();
            let error = Cli::try_parse_from(line).expect_err("accepted").to_string();
            assert!(error.contains("--sandbox"), "{option:?}: {error}");
        }
    }
}
