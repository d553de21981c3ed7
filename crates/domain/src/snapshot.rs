//! Snapshots of a domain: what is stored beside the machine's state, and when a snapshot can be
//! taken.
//!
//! First a thread of its own copies memory while everything else runs. Then the hub brings the
//! conversation with the guest's init ([`super::hub`]) to a point at which another hub can go on
//! with it, and the machine is paused between two instructions of the guest, wherever that is. When
//! it runs again, a thread writes what was copied.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vmm::snapshot::{Compression, Draft, Taken, Written};

use super::job::Job;
use hub::{Conversation, Hub};

/// How long a guest's init may take to read what it was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take to come up.
const START_PATIENCE: Duration = Duration::from_secs(600);

/// The longest note that is read, in bytes: a conversation has a frame at most, and less than a hundred commands.
const NOTE_MAX_BYTES: usize = 1 << 20;

/// What is noted with a machine's state. The domain writes it, whose guest may own it: it says nothing that
/// concerns anybody but the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Which `biv` has written it.
    pub version: String,
    /// The conversation with the guest's init, if that is ours.
    pub conversation: Option<Conversation>,
    /// Whether its kernel has modules, in a directory that is the first of its directories.
    #[serde(default)]
    pub has_modules: bool,
}

impl Note {
    /// What these bytes say; none if they make no sense.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..bytes.len().min(NOTE_MAX_BYTES + 1))?;
        let note: Self = serde_json::from_slice(bytes).ok()?;
        let is_sane = note.conversation.as_ref().is_none_or(Conversation::is_sane);
        is_sane.then_some(note)
    }
}

/// What is done with a snapshot that is whole.
pub type Finish = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// The receiver of a snapshot.
enum Whose {
    /// For those who start such a machine later; once it is written, this is done with it.
    Warm(Option<Finish>),
    /// For this client, who has asked.
    Client(u64),
}

/// How far a snapshot is.
enum Stage {
    /// There is a file for it.
    Begun(File, Compression),
    /// Memory is being copied.
    Copying(Job<Draft>),
    /// The hub is falling silent; it has so long.
    Falling(Draft, Instant),
    /// It is being written.
    Writing(Job<Written>),
}

/// What comes of a stage now.
enum Step {
    /// Another, in which there is something to be done.
    On(Stage),
    /// Nothing yet.
    Not(Stage),
    /// The end.
    Over(Written),
}

/// The snapshots of a domain, of which one is taken at a time.
#[derive(Default)]
pub struct Snapshots {
    /// Why none can keep all that the machine has, if none can.
    pub obstacle: Option<&'static str>,
    /// What is noted of the machine's modules ([`Note::has_modules`]).
    has_modules: bool,
    /// The one that is being taken.
    taking: Option<(Whose, Stage)>,
}

impl Snapshots {
    /// Those of a domain, unless there is something against them.
    #[must_use]
    pub fn new(obstacle: Option<&'static str>, has_modules: bool) -> Self {
        Self { obstacle, has_modules, taking: None }
    }

    /// Take one for others, as soon as the guest's init is up.
    pub fn begin_warm(&mut self, (file, finish): (File, Finish), hub: &mut Hub) {
        hub.fall_silent();
        self.taking = Some((Whose::Warm(Some(finish)), Stage::Begun(file, Compression::None)));
    }

    /// Take one that a client has asked for.
    pub fn begin(&mut self, file: File, compression: Compression, client: u64) {
        self.taking = Some((Whose::Client(client), Stage::Begun(file, compression)));
    }

    /// Whether one is being taken.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.taking.is_some()
    }

    /// When there is something to be done about it, whatever happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.taking.as_ref()?.1 {
            Stage::Falling(_, deadline) => Some(deadline),
            _ => None,
        }
    }

    /// What can be read when there is something to be done about it.
    #[must_use]
    pub fn completion(&self) -> Option<BorrowedFd<'_>> {
        match &self.taking.as_ref()?.1 {
            Stage::Copying(job) => Some(job.completion()),
            Stage::Writing(job) => Some(job.completion()),
            Stage::Begun(..) | Stage::Falling(..) => None,
        }
    }

    /// Do what can be done about it. At its end, what came of it, and which client it was for, if any.
    pub fn advance(
        &mut self,
        machine: Option<&vmm::Remote>,
        mut hub: Option<&mut Hub>,
    ) -> Option<(Option<u64>, Result<Written, String>)> {
        let machine = machine?;
        let (mut whose, mut stage) = self.taking.take()?;
        let result = loop {
            match self.step(&mut whose, stage, machine, hub.as_deref_mut()) {
                Ok(Step::On(next)) => stage = next,
                Ok(Step::Not(same)) => {
                    self.taking = Some((whose, same));
                    return None;
                }
                Ok(Step::Over(written)) => break Ok(written),
                Err(error) => break Err(error),
            }
        };
        if let Some(hub) = hub {
            hub.speak_again();
        }
        match whose {
            Whose::Client(client) => Some((Some(client), result)),
            Whose::Warm(_) => Some((None, result)),
        }
    }

    fn step(
        &self,
        whose: &mut Whose,
        stage: Stage,
        machine: &vmm::Remote,
        hub: Option<&mut Hub>,
    ) -> Result<Step, String> {
        let text = |error: vmm::snapshot::Error| error.to_string();
        Ok(match (stage, whose) {
            (Stage::Begun(file, compression), Whose::Warm(_)) => {
                // It has little memory yet, and somebody waits.
                let draft = machine.draft(file, compression).map_err(text)?;
                Step::On(Stage::Falling(draft, Instant::now() + START_PATIENCE))
            }
            (Stage::Begun(file, compression), Whose::Client(_)) => {
                let mut draft = machine.draft(file, compression).map_err(text)?;
                let copy = move || draft.follow().map(|()| draft).map_err(text);
                Step::On(Stage::Copying(Job::start("copying", copy)?))
            }
            (Stage::Copying(job), _) => match job.result() {
                None => Step::Not(Stage::Copying(job)),
                Some(draft) => {
                    let draft = draft?;
                    hub.into_iter().for_each(Hub::fall_silent);
                    Step::On(Stage::Falling(draft, Instant::now() + PATIENCE))
                }
            },
            (Stage::Falling(draft, deadline), whose) => {
                if hub.as_ref().is_some_and(|hub| !hub.is_silent()) {
                    return match deadline <= Instant::now() {
                        true => Err("the guest's init does not answer".to_owned()),
                        false => Ok(Step::Not(Stage::Falling(draft, deadline))),
                    };
                }
                let taken = self.take(draft, machine, hub).map_err(text)?;
                match whose {
                    Whose::Warm(finish) => {
                        // Here, or the process could end before.
                        let written = taken.write().map_err(text)?;
                        let finish = finish.take().map_or(Ok(()), |finish| finish());
                        Step::Over(finish.map(|()| written).map_err(|error| error.to_string())?)
                    }
                    Whose::Client(_) => {
                        let write = move || taken.write().map_err(text);
                        Step::On(Stage::Writing(Job::start("writing", write)?))
                    }
                }
            }
            (Stage::Writing(job), _) => match job.result() {
                None => Step::Not(Stage::Writing(job)),
                Some(written) => Step::Over(written?),
            },
        })
    }

    fn take(
        &self,
        draft: Draft,
        machine: &vmm::Remote,
        mut hub: Option<&mut Hub>,
    ) -> Result<Taken, vmm::snapshot::Error> {
        let note = || {
            let note = Note {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                conversation: hub.as_deref_mut().map(Hub::conversation),
                has_modules: self.has_modules,
            };
            serde_json::to_vec(&note).unwrap_or_default()
        };
        let taken = machine.take(draft, note);
        hub.into_iter().for_each(Hub::speak_again);
        taken
    }
}
