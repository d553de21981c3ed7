//! `biv pod network`.

use std::io::{self, Write};
use std::net::Ipv4Addr;

use api::networks::{self, Description, Networks};
use api::pod::{Member, Record};
use api::{Name, Registry, record, registry};
use pods::member::members;
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

/// A pod that lives in a network.
#[derive(Debug, Serialize)]
struct Pod {
    name: Name,
    address: Ipv4Addr,
}

/// A network as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    name: Name,
    subnet: String,
    gateway: Ipv4Addr,
    created: u64,
    pods: Vec<Pod>,
}

impl Shown {
    fn of(registry: &Registry<Record>, network: Description) -> Result<Shown, Error> {
        let pod = |(name, Member { address, .. })| Pod { name, address };
        let pods = members(registry, &network.name)?.into_iter().map(pod).collect();
        let Description { name, subnet, created, .. } = network;
        Ok(Shown { name, subnet: subnet.to_string(), gateway: subnet.gateway(), created, pods })
    }
}

/// See above.
pub fn network(action: NetworkAction) -> Result<(), Error> {
    let registry = Registry::of_pods()?;
    let networks = registry.networks()?;
    match action {
        NetworkAction::Create { subnet, name } => {
            let made = networks.create(&name, subnet)?;
            Ok(writeln!(io::stdout(), "{}", made.description.name)?)
        }
        NetworkAction::Join { name, to } => Ok(trunk::join(networks.find(&name)?, &to)?),
        NetworkAction::Ls { format } => list(&registry, &networks, format),
        NetworkAction::Inspect { names } => {
            let shown: Result<Vec<Shown>, Error> = names
                .iter()
                .map(|name| Shown::of(&registry, networks.find(name)?.description))
                .collect();
            print_json(&shown?)
        }
        NetworkAction::Rm { names } => {
            names.iter().try_for_each(|name| remove(&registry, &networks, name))
        }
    }
}

fn remove(registry: &Registry<Record>, networks: &Networks, name: &str) -> Result<(), Error> {
    let network = networks.find(name)?;
    let living = || members(registry, &network.description.name);
    // Who cannot be listed may live in it.
    living()?;
    let names = || living().into_iter().flatten().map(|(name, _)| name).collect();
    networks.remove(&network, names)?;
    Ok(writeln!(io::stdout(), "{name}")?)
}

fn list(registry: &Registry<Record>, networks: &Networks, format: Format) -> Result<(), Error> {
    let all = networks.list()?.into_iter();
    let all: Result<Vec<Shown>, Error> =
        all.map(|network| Shown::of(registry, network.description)).collect();
    let all = all?;
    if matches!(format, Format::Json) {
        return print_json(&all);
    }
    let now = record::now();
    let cells = |network: &Shown| {
        let pods: Vec<&str> = network.pods.iter().map(|pod| pod.name.as_str()).collect();
        [
            network.name.to_string(),
            network.subnet.clone(),
            age(now.saturating_sub(network.created) / 1000),
            if pods.is_empty() { "-".to_owned() } else { pods.join(",") },
        ]
    };
    let table = aligned(["NAME", "SUBNET", "AGE", "PODS"], all.iter().map(cells), None);
    Ok(io::stdout().write_all(table.as_bytes())?)
}

fn print_json(all: &[Shown]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, all).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}
