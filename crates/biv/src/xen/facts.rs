//! What is known of a paravirtual domain that runs: by its record, by its own account, and by the
//! host's.

use api::Entry;
use api::client::Client;
use api::v1::Statistics;
use serde::Serialize;
use spec::Scheduling;

use crate::life::{Group, ps};

/// See above. What a domain says of itself is none where it does not answer.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Starting, running, paused, or not answering.
    pub state: String,
    /// Its process.
    pub pid: u32,
    /// Processors.
    pub processors: u8,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory that its guest has touched, and not given back.
    pub memory_used: Option<u64>,
    /// Seconds of the host's cores that it and its helpers have used, by the host's account.
    pub computed: f64,
    /// Its weight, cap and warp.
    pub scheduling: Scheduling,
    /// Where its kernel came from.
    pub kernel: String,
    /// The images of its disks, in the order in which the guest counts them.
    pub disks: Vec<String>,
    /// Its networks, as they are typed.
    pub networks: Vec<String>,
    /// Its command.
    pub command: Vec<String>,
}

impl Facts {
    /// Those of this domain; none if its record cannot be read.
    pub fn of(entry: &Entry) -> Option<Facts> {
        let record = entry.record.as_ref()?;
        let asked = Client::connect(entry).ok();
        let said: Option<Statistics> =
            asked.and_then(|client| client.get("/v1/domain/statistics").ok());
        let disks = record.spec.disks().map(|disk| disk.path.display().to_string());
        let networks = record.spec.networks.iter().flatten().map(|one| one.net().to_string());
        Some(Facts {
            name: record.name.to_string(),
            state: ps::state_of(entry),
            pid: record.pid,
            processors: record.processors,
            memory: record.memory,
            memory_used: said.map(|said| said.memory_used),
            computed: Group::of(record.pid.cast_signed()).computed.as_secs_f64(),
            scheduling: api::keeper::policy(&entry.directory).unwrap_or_default(),
            kernel: record.kernel.clone(),
            disks: disks.collect(),
            networks: networks.collect(),
            command: record.command.clone(),
        })
    }
}
