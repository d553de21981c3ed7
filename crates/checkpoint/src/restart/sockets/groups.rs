//! Multicast groups that sockets take part in: they join them again.

use std::os::fd::OwnedFd;

use host::processes::sockets::groups::{Membership, join};
use rustix::net::netdevice::name_to_index;

use crate::error::Error;
use crate::state::inet::Group;

/// Have a socket join its groups.
pub(super) fn join_all(socket: &OwnedFd, groups: &[Group]) -> Result<(), Error> {
    for Group { interface, address, only, sources } in groups {
        let failed = format!("join the multicast group {address} at interface {interface}");
        let index = name_to_index(socket, interface).map_err(Error::io(failed.clone()))?;
        let first = (!only).then_some(Membership::All);
        let each = match only {
            true => Membership::From,
            false => Membership::Without,
        };
        for membership in first.into_iter().chain(sources.iter().copied().map(each)) {
            join(socket, index, *address, membership).map_err(Error::io(failed.clone()))?;
        }
    }
    Ok(())
}
