//! Who is at the other end of a Unix socket.
//!
//! The rights of a socket's file let nobody in but its owner, but they may have been changed.

use std::os::fd::AsFd;

use rustix::net::UCred;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Uid;

/// Whether the process at the other end is one of this user's, or of root's. Who cannot be asked for is neither.
pub fn is_of(socket: impl AsFd, owner: Uid) -> bool {
    socket_peercred(socket).is_ok_and(|who| may_connect(who, owner))
}

fn may_connect(who: UCred, owner: Uid) -> bool {
    who.uid == owner || who.uid.is_root()
}

#[cfg(test)]
mod tests {
    use rustix::process::{Gid, getpid};

    use super::*;

    #[test]
    fn only_the_user_and_root_may_connect() {
        let may = |user: u32| {
            let who = UCred { pid: getpid(), uid: Uid::from_raw(user), gid: Gid::ROOT };
            may_connect(who, Uid::from_raw(1000))
        };
        assert_eq!([1000, 0, 1001, 65534].map(may), [true, true, false, false]);
    }
}
