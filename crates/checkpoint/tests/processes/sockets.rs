//! Sockets.

use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use checkpoint::{Error, Slots, freeze};

use crate::several::{check, check_in};
use crate::support::{self, Directory, Network};

#[test]
fn unix_sockets() {
    check("unix");
}

#[test]
fn internet_sockets() {
    check_in(Network::Own, "internet");
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
