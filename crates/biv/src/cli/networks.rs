//! The networks of a machine, as options say them.

use std::net::Ipv4Addr;

use spec::{Name, Net, Network, Ports, User};

use super::image::publish_exposed;
use super::ports::published;

/// The network as it is with what `--network` and `--ip` say.
pub fn shared(
    net: Option<Net>,
    network: Option<Name>,
    address: Option<Ipv4Addr>,
    alias: Option<Name>,
) -> Result<Option<Net>, String> {
    let Some(name) = &network else { return Ok(net) };
    match name.as_str() {
        "none" if net.is_none() && address.is_none() && alias.is_none() => {
            return Ok(Some(Net::None));
        }
        "host" => return Err("no machine is in the host's network; see --net user,host".to_owned()),
        _ => {}
    }
    match net.unwrap_or(Net::User(User::default())) {
        Net::User(user) => Ok(Some(Net::User(User { network, address, alias, ..user }))),
        _ => Err("--network goes with --net user and user,host".to_owned()),
    }
}

/// The networks that a machine has, with these ports published, or all that its image exposes; none, if nothing is
/// said.
pub fn networks(
    net: Option<Net>,
    publish: Vec<Ports>,
    publish_all: bool,
) -> Result<Option<Vec<Network>>, String> {
    let publish = published(publish)?;
    // Who publishes ports means the network that they lead to.
    let publishes = publish_all || !publish.is_empty();
    let net = net.or(publishes.then(|| Net::User(User::default())));
    let mut networks = net.map(|net| net.networks(publish)).transpose()?;
    publish_exposed(&mut networks, publish_all)?;
    Ok(networks)
}
