//! `biv network`, and `biv pod network`.

use std::io::{self, Write};
use std::net::Ipv4Addr;

use api::networks::{self, Description, Network, Networks};
use api::places::{Kind, residents};
use api::{Name, Registry, record, registry};
use domain::say::say;
use serde::Serialize;

use super::trunk;
use crate::cli::Format;
use crate::cli::pod_network::NetworkAction;
use crate::life::ps::{age, aligned};

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A network.
    #[error(transparent)]
    Network(#[from] networks::Error),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// Another host.
    #[error(transparent)]
    Trunk(#[from] trunk::Error),
    /// Standard output.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Somebody who lives in a network.
#[derive(Debug, Serialize)]
struct Shown {
    name: Name,
    address: Ipv4Addr,
}

/// A network as it is shown.
#[derive(Debug, Serialize)]
struct ShownNetwork {
    name: Name,
    subnet: String,
    gateway: Ipv4Addr,
    created: u64,
    pods: Vec<Shown>,
    machines: Vec<Shown>,
}

impl ShownNetwork {
    fn of(network: &Network) -> Result<ShownNetwork, Error> {
        let Description { name, subnet, created, .. } = network.description.clone();
        let residents = residents(&name)?;
        let of = |wanted: Kind| {
            let of_kind = residents.iter().filter(|it| it.kind == wanted);
            of_kind.map(|it| Shown { name: it.name.clone(), address: it.member.address }).collect()
        };
        let (pods, machines): (Vec<_>, Vec<_>) = (of(Kind::Pod), of(Kind::Machine));
        if !machines.is_empty() {
            switch_again(network);
        }
        let (subnet, gateway) = (subnet.to_string(), subnet.gateway());
        Ok(ShownNetwork { name, subnet, gateway, created, pods, machines })
    }
}

/// Has the machines of a network hear each other again, if its switch has ended: they cannot start another. That it
/// cannot be had is no reason not to show them.
fn switch_again(network: &Network) {
    if let Err(error) = pods::mend(network) {
        say(&error.to_string());
    }
}

/// See above.
pub fn network(action: NetworkAction) -> Result<(), Error> {
    let networks = Registry::of_pods()?.networks()?;
    match action {
        NetworkAction::Create { subnet, name } => {
            let made = networks.create(&name, subnet)?;
            Ok(writeln!(io::stdout(), "{}", made.description.name)?)
        }
        NetworkAction::Join { name, to } => Ok(trunk::join(networks.find(&name)?, &to)?),
        NetworkAction::Ls { format } => list(&networks, format),
        NetworkAction::Inspect { names } => {
            let shown: Result<Vec<ShownNetwork>, Error> =
                names.iter().map(|name| ShownNetwork::of(&networks.find(name)?)).collect();
            print_json(&shown?)
        }
        NetworkAction::Rm { names } => names.iter().try_for_each(|name| remove(&networks, name)),
    }
}

fn remove(networks: &Networks, name: &str) -> Result<(), Error> {
    let network = networks.find(name)?;
    let living = || residents(&network.description.name);
    // Who cannot be listed may live in it.
    living()?;
    let names = || living().into_iter().flatten().map(|it| it.name).collect();
    networks.remove(&network, names)?;
    Ok(writeln!(io::stdout(), "{name}")?)
}

fn list(networks: &Networks, format: Format) -> Result<(), Error> {
    let all = networks.list()?;
    let all = all.iter().map(ShownNetwork::of).collect::<Result<Vec<_>, Error>>()?;
    if matches!(format, Format::Json) {
        return print_json(&all);
    }
    let now = record::now();
    let names = |of: &[Shown]| {
        let names: Vec<&str> = of.iter().map(|it| it.name.as_str()).collect();
        if names.is_empty() { "-".to_owned() } else { names.join(",") }
    };
    let cells = |network: &ShownNetwork| {
        [
            network.name.to_string(),
            network.subnet.clone(),
            age(now.saturating_sub(network.created) / 1000),
            names(&network.pods),
            names(&network.machines),
        ]
    };
    let table = aligned(["NAME", "SUBNET", "AGE", "PODS", "MACHINES"], all.iter().map(cells), None);
    Ok(io::stdout().write_all(table.as_bytes())?)
}

fn print_json(all: &[ShownNetwork]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, all).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}
