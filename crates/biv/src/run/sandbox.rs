//! `--sandbox`: one word for a machine that is given nothing which was not asked for.
//!
//! It is other defaults for what can be said anyway, which then is what was said. What would open the machine again
//! in a way that is easily missed is refused with it ([`Spec::check`]).

use std::time::Duration;

use spec::{Root, Spec};
use vmm::Technique;

use super::guest;

/// How long such a machine runs.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The machine as it is meant, if it is a sandbox: busybox unless another root is named, no network, a
/// limit of time, and no mirror, so that the kernel's accesses to memory are looked up like any other's.
pub fn settle(spec: &mut Spec) {
    if !spec.sandbox {
        return;
    }
    if !guest::is_plain(spec) && !guest::has_user_space(spec) && spec.root == Root::default() {
        spec.root = Root::Busybox;
    }
    spec.networks.get_or_insert_default();
    limit(spec);
}

/// The limits of a sandbox, for a machine that boots and for one that goes on from a snapshot.
pub fn limit(spec: &mut Spec) {
    spec.life.timeout.get_or_insert(TIMEOUT);
    let mirror = Technique::Mirror.to_string();
    // The interpreter has none anyway.
    if !spec.engine.interpret && !spec.engine.without.contains(&mirror) {
        spec.engine.without.push(mirror);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn settled(options: &[&str]) -> Spec {
        let line = [&["biv", "run", "--sandbox"], options].concat();
        let Verb::Run(run) = Cli::try_parse_from(line).unwrap().verb else { panic!("not run") };
        run.into_spec().unwrap()
    }

    #[test]
    fn nothing_is_given_that_was_not_asked_for() {
        let spec = settled(&["--", "true"]);
        assert_eq!(spec.root, Root::Busybox);
        assert_eq!((spec.networks, spec.life.timeout), (Some(Vec::new()), Some(TIMEOUT)));
        assert_eq!(spec.engine.without, ["mirror"]);
    }

    #[test]
    fn what_is_said_is_meant() {
        let spec = settled(&["--root", "/r", "--net", "user", "--timeout", "2", "--", "true"]);
        assert!(matches!(spec.root, Root::Directory(_)));
        assert_eq!(guest::net(&spec), spec::Net::User(spec::User::default()));
        assert_eq!(spec.life.timeout, Some(Duration::from_secs(2)));
        let without = settled(&["--without", "links", "--", "true"]).engine.without;
        assert_eq!(without, ["links", "mirror"]);
        assert_eq!(settled(&["--image", "web", "--", "true"]).root, Root::Image("web".into()));
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
