//! The guest's network: the loopback interface, and the machine's network card.
//!
//! The kernel's command line says how to configure the card:
//! `biv.network=ADDRESS/BITS,GATEWAY,NAMESERVER` if the host knows the address, which takes no
//! time; `biv.network=dhcp` if a network assigns it. With an address, `biv.mtu=BYTES` may say how
//! large a packet may be.

mod dhcp;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netlink::{Conversation, LOOPBACK_INDEX};

/// The kernel parameter.
const PARAMETER: &str = "biv.network=";

/// The kernel parameter with the greatest packet, for a card whose host does not say it to its driver.
const MTU_PARAMETER: &str = "biv.mtu=";

/// Where what the network has said is kept.
const NAMESERVERS: &str = "/run/biv/resolv.conf";

/// What programs read.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How long the command waits for a DHCP server; after that the network comes when it comes.
const PATIENCE: Duration = Duration::from_secs(3);

/// How an interface is to be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    address: Ipv4Addr,
    prefix_bits: u8,
    gateway: Option<Ipv4Addr>,
    nameservers: Vec<Ipv4Addr>,
    mtu: Option<u16>,
}

/// Set up what there is.
pub fn bring_up() -> io::Result<()> {
    let mut netlink = Conversation::start()?;
    netlink.raise(LOOPBACK_INDEX)?;
    let Some(how) = crate::kernel::kernel_parameter(PARAMETER) else { return Ok(()) };
    // A kernel without the driver has no interface.
    let Some((index, address)) = interface()? else { return Ok(()) };
    netlink.raise(index)?;
    if how == "dhcp" {
        return dhcp::start(index, address, PATIENCE);
    }
    let mut settings = parse(&how).ok_or_else(|| io::Error::other(format!("what is {how}?")))?;
    settings.mtu = crate::kernel::kernel_parameter(MTU_PARAMETER).and_then(|mtu| mtu.parse().ok());
    apply(&mut netlink, index, &settings)
}

fn parse(text: &str) -> Option<Settings> {
    let mut parts = text.split(',');
    let (address, bits) = parts.next()?.split_once('/')?;
    let gateway = parts.next()?.parse().ok();
    let nameservers: Result<_, _> = parts.map(str::parse).collect();
    Some(Settings {
        address: address.parse().ok()?,
        prefix_bits: bits.parse().ok().filter(|bits| *bits <= 32)?,
        gateway,
        nameservers: nameservers.ok()?,
        mtu: None,
    })
}

fn apply(netlink: &mut Conversation, index: u32, settings: &Settings) -> io::Result<()> {
    if let Some(mtu) = settings.mtu {
        netlink.set_mtu(index, mtu)?;
    }
    netlink.add_address(index, settings.address, settings.prefix_bits)?;
    if let Some(gateway) = settings.gateway {
        netlink.add_route(index, gateway)?;
    }
    // Without names there is a network all the same, and whoever asks for one is told.
    if let Err(error) = name_servers(&settings.nameservers) {
        crate::kernel::complain(&[format!("{RESOLV_CONF}: {error}")]);
    }
    Ok(())
}

/// The first interface that is a device: its number and its Ethernet address.
fn interface() -> io::Result<Option<(u32, [u8; 6])>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir("/sys/class/net")?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let Some(path) = paths.iter().find(|path| path.join("device").exists()) else {
        return Ok(None);
    };
    let read = |name| fs::read_to_string(path.join(name));
    let index = read("ifindex")?.trim().parse().map_err(io::Error::other)?;
    let mut address = [0; 6];
    for (byte, digits) in address.iter_mut().zip(read("address")?.trim().split(':')) {
        *byte = u8::from_str_radix(digits, 16).map_err(io::Error::other)?;
    }
    Ok(Some((index, address)))
}

/// Tell programs who knows names. The root may be read-only, or the host's own: what is there is covered,
/// not written.
fn name_servers(servers: &[Ipv4Addr]) -> io::Result<()> {
    if servers.is_empty() {
        return Ok(());
    }
    let text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let ours = Path::new(NAMESERVERS);
    let is_covered = ours.exists();
    fs::create_dir_all("/run/biv")?;
    fs::write(ours, text)?;
    if is_covered {
        return Ok(());
    }
    service::place::make(Path::new(RESOLV_CONF))?;
    Ok(rustix::mount::mount_bind(ours, RESOLV_CONF)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_says_everything() {
        let settings = parse("10.0.2.15/24,10.0.2.2,10.0.2.3,1.1.1.1").unwrap();
        let expected = Settings {
            address: Ipv4Addr::new(10, 0, 2, 15),
            prefix_bits: 24,
            gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
            nameservers: vec![Ipv4Addr::new(10, 0, 2, 3), Ipv4Addr::new(1, 1, 1, 1)],
            mtu: None,
        };
        assert_eq!(settings, expected);
        for wrong in ["", "10.0.2.15", "10.0.2.15/33,", "10.0.2/24,", "10.0.2.15/24,,x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
