//! A TAP interface of the host.

use std::io;
use std::os::fd::OwnedFd;

use super::Error;

/// The queues of an interface, one for each processor if it can have several.
pub fn open(name: &str, processors: usize) -> Result<Vec<OwnedFd>, Error> {
    host::tap::open(name, processors.min(8)).map_err(|error| Error::Tap(name.to_owned(), error))
}

/// An Ethernet address that no other card on the network has: a random one, in the range that
/// virtual machines use.
pub fn random_address() -> io::Result<[u8; 6]> {
    let mut address = [0x52, 0x54, 0x00, 0, 0, 0];
    rustix::rand::getrandom(&mut address[3..], rustix::rand::GetRandomFlags::empty())?;
    Ok(address)
}
