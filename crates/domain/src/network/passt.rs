//! passt(1): an unprivileged process that connects a guest's network card to sockets of the host.
//!
//! passt goes to the background when it is ready, which is how we know; it ends when its socket is
//! closed. What it prints until then is the reason why it does not start.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use uplink::{GATEWAY, GUEST, MTU, NAMESERVER, PREFIX_BITS, resolver};

use super::{Error, Published};
use crate::helper::spawn_with;

/// The program.
const PROGRAM: &str = "passt";

/// passt on its way to the background.
pub struct Starting(Child);

/// Starts it with this end of the cable.
pub fn start(end: &OwnedFd, published: &[Published]) -> Result<Starting, Error> {
    let mut command = Command::new(PROGRAM);
    // It is found by the search path, and has no use for the rest.
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.args(arguments(end.as_raw_fd(), published));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match spawn_with(end, &mut command) {
        Ok(child) => Ok(Starting(child)),
        Err(error) => Err(Error::Passt(error.to_string())),
    }
}

fn arguments(end: i32, published: &[Published]) -> Vec<String> {
    let mut arguments = vec!["--quiet".to_owned(), format!("--fd={end}")];
    let network = [
        ("--mtu", MTU.to_string()),
        ("--address", GUEST.to_string()),
        ("--netmask", PREFIX_BITS.to_string()),
        ("--gateway", GATEWAY.to_string()),
        ("--dns-forward", NAMESERVER.to_string()),
    ];
    // passt would look itself, but takes the gateway for one on the loopback interface, where only
    // 127.0.0.1 is to be reached.
    let resolver = resolver().map(|address| ("--dns", address.to_string()));
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
    // Of no address it makes all of them, IPv6's among them.
    match address.is_unspecified() {
        true => format!("{host}:{guest}"),
        false => format!("{address}/{host}:{guest}"),
    }
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
    fn ports_are_asked_for_as_passt_has_them() {
        let published =
            ["8080:80", "0.0.0.0:81:80", "5353:53/udp"].map(|text| text.parse().unwrap());
        let line = arguments(7, &published).join(" ");
        assert!(line.contains("--fd=7 "), "{line}");
        assert!(line.contains("--tcp-ports 127.0.0.1/8080:80 --tcp-ports 81:80 "), "{line}");
        assert!(line.contains("--udp-ports 127.0.0.1/5353:53"), "{line}");
        let line = arguments(7, &published[..1]).join(" ");
        assert!(line.contains("--udp-ports none"), "{line}");
    }
}
