//! Multicast groups that sockets take part in.
//!
//! Nobody tells which groups a socket has joined. But /proc tells in which groups each interface is, because some
//! socket has joined them or because the kernel wants them; and a socket that is asked from whom it hears a group at an
//! interface (`MCAST_MSFILTER`) says that it is no member, or is one. So each is asked for all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use host::processes::sockets::groups;

use super::entry::Entry;
use crate::error::Error;
use crate::limits::MAX_GROUP_SOURCES;
use crate::proc;
use crate::state::inet::Group;

/// A group that an interface is in.
#[derive(Debug, PartialEq, Eq)]
struct Joined {
    interface: u32,
    name: String,
    group: IpAddr,
}

/// The groups that the interfaces of a network are in.
pub(super) struct Groups(Vec<Joined>);

impl Groups {
    /// Those of the network of a process.
    pub fn read(pid: u32) -> Result<Self, Error> {
        let text = |name: &str| match proc::read(pid, name) {
            // The kernel has no such protocol.
            Err(Error::Gone(_)) => Ok(String::new()),
            other => other,
        };
        let mut joined = of_four(&text("net/igmp")?);
        joined.extend(text("net/igmp6")?.lines().filter_map(of_six));
        Ok(Self(joined))
    }

    /// Those that a socket has joined.
    pub fn of(&self, entry: &Entry) -> Result<Vec<Group>, Error> {
        let mut found = Vec::new();
        for Joined { interface, name, group } in &self.0 {
            let sources = groups::sources(&entry.socket, *interface, *group, MAX_GROUP_SOURCES);
            let sources = match sources {
                Ok(Some(sources)) => sources,
                Ok(None) => continue,
                // It has no groups of that family.
                Err(error)
                    if [libc::EOPNOTSUPP, libc::ENOPROTOOPT]
                        .map(Some)
                        .contains(&error.raw_os_error()) =>
                {
                    continue;
                }
                Err(error) => return Err(Error::io("ask for the groups of a socket")(error)),
            };
            let (interface, address, only) = (name.clone(), *group, sources.only);
            let mut sources = sources.addresses;
            sources.sort_unstable();
            found.push(Group { interface, address, only, sources });
        }
        // The order in /proc depends on who came first.
        found.sort_by(|one, other| {
            (&one.interface, one.address).cmp(&(&other.interface, other.address))
        });
        Ok(found)
    }
}

/// /proc/net/igmp: a line for each interface, and below it one for each of its groups.
fn of_four(text: &str) -> Vec<Joined> {
    let mut found = Vec::new();
    let mut current = None;
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        if !line.starts_with(char::is_whitespace) {
            let name = second.map(|name| name.trim_end_matches(':').to_owned());
            current = first.parse::<u32>().ok().zip(name);
            continue;
        }
        // The address is written as a number, which it is in memory.
        let group = u32::from_str_radix(first, 16).map(|word| Ipv4Addr::from(word.to_ne_bytes()));
        if let (Some((interface, name)), Ok(group)) = (&current, group) {
            found.push(Joined { interface: *interface, name: name.clone(), group: group.into() });
        }
    }
    found
}

/// /proc/net/igmp6: a line for each group of an interface.
fn of_six(line: &str) -> Option<Joined> {
    let mut words = line.split_whitespace();
    let interface = words.next()?.parse().ok()?;
    let name = words.next()?.to_owned();
    let group = u128::from_str_radix(words.next()?, 16).ok()?;
    Some(Joined { interface, name, group: Ipv6Addr::from(group).into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_interfaces_are_parsed() {
        let joined = |interface, name: &str, group: &str| Joined {
            interface,
            name: name.to_owned(),
            group: group.parse().expect("it is an address"),
        };
        let text = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
                    1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
                    12\tlong-name-of-15:     2      V3\n\t\t\t\t030201EF     4 0:00000000\t\t0\n";
        let expected = [joined(1, "lo", "224.0.0.1"), joined(12, "long-name-of-15", "239.1.2.3")];
        assert_eq!(of_four(text), expected);
        let line = "4    eth0            ff020000000000000000000000010007     1 00000004 0";
        assert_eq!(of_six(line), Some(joined(4, "eth0", "ff02::1:7")));
        for text in ["", "x", "1 lo", "1 lo :", "\t010000E0"] {
            assert_eq!(of_six(text), None);
            assert_eq!(of_four(text), []);
        }
    }
}
