//! Sockets.

use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use checkpoint::{Error, Slots, freeze};

use crate::several::{check, check_in};
use crate::support::{
    self, Directory, Namespace, Network, Subject, compile, entering, wait_for_lines,
};

#[test]
fn unix_sockets() {
    check("unix");
}

#[test]
fn internet_sockets() {
    check_in(Network::Own, "internet");
}

#[test]
fn connections_in_all_states() {
    check_in(Network::Own, "states");
}

#[test]
fn multicast_groups() {
    check_in(Network::Own, "groups");
}

#[test]
fn options_of_sockets() {
    check_in(Network::Own, "options");
}

/// A process that has connections with one that stays is moved, three times.
#[test]
fn connections_with_somebody_who_stays() {
    let directory = Directory::new("stays");
    let Some(program) = compile(&directory, "foreign") else { return };
    let Some(network) = Namespace::make(&[], Network::Own) else { return };
    let texts = [program.clone(), directory.path("heard"), directory.path("here")];
    let texts = texts.each_ref().map(|path| path.to_str().expect("it is UTF-8"));
    let other = Kept(entering(network.init, &texts).spawn().expect("nsenter(1) is there"));
    let heard = directory.path("heard");
    assert_eq!(wait_for_lines(&heard, 1), "listens");
    let subject = Subject::start_in(Network::Of(network.init), &directory, &program);
    let mut subject = subject.expect("namespaces could be made");
    assert_eq!(wait_for_lines(&heard, 2), "ready");
    for turn in 0..3 {
        subject.transplant();
        subject.check();
        support::kill(other.0.id(), rustix::process::Signal::USR1);
        assert_eq!(wait_for_lines(&heard, 3 + turn), "ok");
    }
}

/// A child that does not outlive the test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell that has a connection with us as its input.
#[test]
fn unix_sockets_that_lead_elsewhere_are_refused_by_name() {
    let directory = Directory::new("elsewhere");
    let path = directory.path("a name");
    let listener = UnixListener::bind(&path).expect("there is room");
    let client = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    let (ours, _) = listener.accept().expect("somebody is there");
    let ends: [std::os::fd::OwnedFd; 2] = [client.into(), ours.into()];
    let names = [path.to_str().expect("it is UTF-8"), "one without a name"];
    for (theirs, expected) in ends.iter().zip(names) {
        let mut child = Command::new("sleep");
        child.arg("600").stdin(theirs.try_clone().expect("there are descriptors"));
        let mut child =
            child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sleep(1)");
        let dump = |slots: &Slots| {
            freeze(child.id())
                .and_then(|mut frozen| frozen.dump(&mut support::NoPages, slots))
                .map(|state| state.descriptions.len())
        };
        let refused = dump(&Slots::new());
        let mut slots = Slots::new();
        slots.add("input", theirs).expect("it is open");
        let named = dump(&slots);
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
        match refused {
            Err(Error::Unsupported { what, .. }) => {
                assert!(what.ends_with(&format!("not in the tree: {expected}")), "{what}");
            }
            other => panic!("{other:?}"),
        }
        // Whoever has the other end may say so.
        match named {
            Ok(descriptions) => assert!(descriptions >= 2),
            // Whoever runs the tests may have given them more.
            Err(Error::Unsupported { what, .. }) => assert!(!what.contains("socket"), "{what}"),
            Err(error) => panic!("{error}"),
        }
    }
}
