//! passt(1): a process that connects a guest's network card to sockets of the host's, without any
//! privilege.
//!
//! It goes to the background when it is ready, which is how we know; it ends when the socket does. What it
//! says until then is why it does not start.

use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};

use super::{GATEWAY, GUEST, NAMESERVER, PREFIX_BITS, Published};

/// The program.
const PROGRAM: &str = "passt";

/// The greatest packet: as the card has it.
const MTU: &str = "65520";

/// passt on its way to the background.
pub struct Starting(Child);

/// Starts it, if it is there, with this end of the cable.
pub fn start(end: &OwnedFd, published: &[Published]) -> Option<Starting> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments(end.as_raw_fd(), published));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = spawn_with(end, &mut command).ok()?;
    Some(Starting(child))
}

/// Start a process that inherits a descriptor.
pub fn spawn_with(end: &OwnedFd, command: &mut Command) -> io::Result<Child> {
    fcntl_setfd(end, FdFlags::empty())?;
    let child = command.spawn();
    fcntl_setfd(end, FdFlags::CLOEXEC)?;
    child
}

fn arguments(end: i32, published: &[Published]) -> Vec<String> {
    let words = ["--quiet", "--mtu", MTU, "--fd"].map(str::to_owned);
    let mut arguments = words.to_vec();
    arguments.push(end.to_string());
    let network = [
        ("--address", GUEST.to_string()),
        ("--netmask", PREFIX_BITS.to_string()),
        ("--gateway", GATEWAY.to_string()),
        ("--dns-forward", NAMESERVER.to_string()),
    ];
    let resolver =
        fs::read_to_string("/etc/resolv.conf").ok().and_then(|text| first_resolver(&text));
    let resolver = resolver.map(|address| ("--dns", address));
    // Ports of TCP would be UDP's, too, unless it is said which those are.
    let ports = |is_udp| {
        let of = published.iter().filter(move |published| published.is_udp == is_udp);
        let specs: Vec<_> = of.map(specification).collect();
        if specs.is_empty() { vec!["none".to_owned()] } else { specs }
    };
    let tcp = ports(false).into_iter().map(|ports| ("--tcp-ports", ports));
    let udp = ports(true).into_iter().map(|ports| ("--udp-ports", ports));
    for (option, value) in network.into_iter().chain(resolver).chain(tcp).chain(udp) {
        arguments.extend([option.to_owned(), value]);
    }
    arguments
}

fn specification(published: &Published) -> String {
    let Published { address, host, guest, .. } = published;
    match address {
        Some(address) => format!("{address}/{host}:{guest}"),
        None => format!("{host}:{guest}"),
    }
}

/// The first resolver that IPv4 reaches. passt would look itself, but takes the gateway for one on the
/// loopback interface, where only 127.0.0.1 is to be reached.
fn first_resolver(text: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let mut addresses = lines.filter_map(|rest| rest.trim().parse::<IpAddr>().ok());
    addresses.find(IpAddr::is_ipv4).map(|address| address.to_string())
}

impl Starting {
    /// Waits until it is ready.
    pub fn finish(mut self) -> Result<(), String> {
        let mut said = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            // What is not UTF-8 is no reason.
            let _ = stderr.read_to_string(&mut said);
        }
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(last_line(&said).unwrap_or_else(|| status.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Its reason: the last that it said, of its own matters.
fn last_line(said: &str) -> Option<String> {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.rfind(|line| !line.contains("syslog")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_resolver_of_ipv4_is_asked() {
        let check = |text, expected: Option<&str>| {
            assert_eq!(first_resolver(text).as_deref(), expected, "{text}");
        };
        check("# none\nsearch x\n", None);
        check("nameserver ::1\nnameserver 127.0.0.53 \nnameserver 9.9.9.9\n", Some("127.0.0.53"));
    }

    #[test]
    fn ports_are_asked_for_as_passt_has_them() {
        let published = ["8080:80", "127.0.0.1:5353:53/udp"].map(|text| text.parse().unwrap());
        let line = arguments(7, &published).join(" ");
        assert!(line.contains("--fd 7 "), "{line}");
        assert!(line.contains("--tcp-ports 8080:80 --udp-ports 127.0.0.1/5353:53"), "{line}");
        let line = arguments(7, &published[..1]).join(" ");
        assert!(line.contains("--udp-ports none"), "{line}");
    }
}
