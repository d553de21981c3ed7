//! Snapshots of a domain: what is noted with the machine's state, and when it is a good time to take one.
//!
//! The machine stands still between two instructions of the guest, wherever that is. The conversation with its
//! init ([`super::hub`]) is brought to a point at which another hub can go on with it.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vmm::snapshot::{Compression, Written};

use super::hub::{Conversation, Hub};

/// How long a guest's init may take to read what it was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a domain came from: what it takes to give it the same surroundings again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The arguments of `biv run`, and the directory that it was run in, as bytes.
    pub arguments: Vec<Vec<u8>>,
    /// See [`Self::arguments`].
    pub directory: Vec<u8>,
}

/// What is noted with a machine's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Which `biv` has written it.
    pub version: String,
    /// Where the domain came from.
    pub origin: Option<Origin>,
    /// The conversation with the guest's init, if that is ours.
    pub conversation: Option<Conversation>,
}

/// For whom a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// For those who start such a machine later.
    Warm,
    /// For this client, who has asked.
    Client(u64),
}

/// What is done with a snapshot that is whole.
pub type Finish = Box<dyn FnOnce(&File) -> io::Result<()> + Send>;

/// A snapshot that is to be taken.
pub struct Taking {
    file: File,
    finish: Option<Finish>,
    compression: Compression,
    deadline: Instant,
    /// For whom.
    pub whose: Whose,
}

/// The snapshots of a domain, of which one is taken at a time.
#[derive(Default)]
pub struct Snapshots {
    /// What they say of where the domain came from.
    pub origin: Option<Origin>,
    /// The one that is to be taken.
    pub taking: Option<Taking>,
}

impl Snapshots {
    /// Those of a domain that came from there.
    #[must_use]
    pub fn of(origin: Option<Origin>) -> Self {
        Self { origin, taking: None }
    }

    /// Take one for others, as soon as the guest's init is up.
    pub fn begin_warm(&mut self, (file, finish): (File, Finish), hub: &mut Hub) {
        hub.fall_silent();
        let far = Instant::now() + Duration::from_secs(600);
        let compression = Compression::None;
        let (finish, whose) = (Some(finish), Whose::Warm);
        self.taking = Some(Taking { file, finish, compression, deadline: far, whose });
    }

    /// Take one that a client has asked for, as soon as it can be.
    pub fn begin(
        &mut self,
        file: File,
        compression: Compression,
        client: u64,
        hub: Option<&mut Hub>,
    ) {
        if let Some(hub) = hub {
            hub.fall_silent();
        }
        let deadline = Instant::now() + PATIENCE;
        let (finish, whose) = (None, Whose::Client(client));
        self.taking = Some(Taking { file, finish, compression, deadline, whose });
    }

    /// When there is something to be done about it, whatever happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.taking.as_ref().map(|taking| taking.deadline)
    }

    /// Take it if it can be; for whom it was, and what came of it.
    pub fn advance(
        &mut self,
        machine: Option<&vmm::Remote>,
        mut hub: Option<&mut Hub>,
    ) -> Option<(Whose, Result<Written, String>)> {
        let is_ready = hub.as_ref().is_none_or(|hub| hub.is_silent()) && machine.is_some();
        let mut taking = self.taking.take_if(|it| is_ready || it.deadline <= Instant::now())?;
        let result = match machine {
            Some(machine) if is_ready => self.take(&mut taking, machine, hub.as_deref_mut()),
            _ => Err("the guest's init does not answer".to_owned()),
        };
        if let Some(hub) = hub {
            hub.speak_again();
        }
        Some((taking.whose, result))
    }

    fn take(
        &self,
        taking: &mut Taking,
        machine: &vmm::Remote,
        hub: Option<&mut Hub>,
    ) -> Result<Written, String> {
        let note = || {
            let note = Note {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                origin: self.origin.clone(),
                conversation: hub.map(Hub::conversation),
            };
            serde_json::to_vec(&note).unwrap_or_default()
        };
        let written = machine.snapshot(&taking.file, note, taking.compression);
        let written = written.map_err(|error| error.to_string())?;
        if let Some(finish) = taking.finish.take() {
            finish(&taking.file).map_err(|error| error.to_string())?;
        }
        Ok(written)
    }
}
