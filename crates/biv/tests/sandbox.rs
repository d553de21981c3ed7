//! What `--sandbox` means.

#![forbid(unsafe_code)]

use biv::cli::{Cli, Verb};
use clap::Parser;
use domain::run::sandbox::TIMEOUT;
use spec::{Net, Root, Spec, User};

fn settled(options: &[&str]) -> Spec {
    let line = [&["biv", "run", "--sandbox"], options].concat();
    let Verb::Run(run) = Cli::try_parse_from(line).unwrap().verb else { panic!("not run") };
    run.into_spec().unwrap().into_inner()
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
    let net = spec.networks.as_deref().and_then(<[_]>::first).map(spec::Network::net);
    assert_eq!(net, Some(Net::User(User::default())));
    assert_eq!(spec.life.timeout, Some(std::time::Duration::from_secs(2)));
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
