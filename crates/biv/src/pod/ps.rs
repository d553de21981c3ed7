//! `biv pod ps`.

use std::net::Ipv4Addr;

use api::Entry;
use api::pod::{Network, Record};
use serde::Serialize;

use crate::cli::domains::Ps;
use crate::life::Error;
use crate::life::ps::{age, aligned, list, reason, state_and_reason, state_of};

/// One pod as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    state: String,
    status: Option<u8>,
    /// Why it ended, if not by itself.
    reason: Option<String>,
    /// Of its keeper.
    pid: Option<u32>,
    created: u64,
    root: String,
    /// Ports of the host that lead to it.
    publish: Vec<String>,
    /// The network that it shares, and its address there.
    network: Option<String>,
    address: Option<Ipv4Addr>,
    detached: bool,
    command: Vec<String>,
}

/// See above.
pub fn ps(arguments: &Ps) -> Result<(), Error> {
    list(arguments, row, table)
}

fn row(entry: &Entry<Record>) -> Option<Row> {
    let Record { name, pid, created, root, network, detached, command, ending, .. } =
        entry.record.clone()?;
    let Network { publish, member, .. } = network.unwrap_or_default();
    Some(Row {
        name: name.to_string(),
        state: state_of(entry),
        status: ending.filter(|_| !entry.alive).map(|ending| ending.status),
        reason: reason(entry),
        pid: entry.alive.then_some(pid),
        created,
        root,
        publish: publish.iter().map(ToString::to_string).collect(),
        network: member.as_ref().map(|member| member.network.to_string()),
        address: member.map(|member| member.address),
        detached,
        command,
    })
}

fn table(rows: &[Row], now: u64, width: Option<usize>) -> String {
    let cells = |row: &Row| {
        [
            row.name.clone(),
            state_and_reason(&row.state, row.reason.as_deref()),
            row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            age(now.saturating_sub(row.created) / 1000),
            match row.publish.is_empty() {
                true => "-".to_owned(),
                false => row.publish.join(","),
            },
            row.command.join(" "),
        ]
    };
    aligned(["NAME", "STATE", "PID", "AGE", "PORTS", "COMMAND"], rows.iter().map(cells), width)
}
