//! What verbs need to know of what has a name: domains and pods have the same verbs.

use std::collections::BTreeMap;

use api::client::Client;
use api::{Entry, Kept, Record, Registry, pod, registry, v1};
use serde::Serialize;
use serde::de::DeserializeOwned;
use spec::Process;

/// The record of something that has a name, lives, and answers on a control socket.
pub trait Named: Kept {
    /// What the paths of its requests begin with; a GET request of this one has what it says of itself.
    const PATH: &'static str;
    /// What it says of itself.
    type Inspection: Serialize + DeserializeOwned;
    /// Its state, by that.
    fn state(inspection: &Self::Inspection) -> &'static str;
    /// Where its name is.
    fn registry() -> Result<Registry<Self>, registry::Error>;
    /// Whether its command has a terminal.
    fn has_terminal(&self) -> bool;
    /// What was said of how its command runs, if that is for other commands in it, too.
    fn process(&self) -> Option<&Process> {
        None
    }
    /// Its labels, if it can have some.
    fn labels(&self) -> Option<&BTreeMap<String, String>>;
    /// Why it may not have ended when it was asked to, if that is known.
    fn why_deaf(&self) -> &'static str {
        ""
    }
}

impl Named for Record {
    const PATH: &'static str = "/v1/domain";

    type Inspection = v1::Inspection;

    fn state(inspection: &v1::Inspection) -> &'static str {
        match inspection.state {
            v1::State::Starting => "starting",
            v1::State::Running => "running",
            v1::State::Paused => "paused",
        }
    }

    fn registry() -> Result<Registry, registry::Error> {
        Registry::open()
    }

    fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    fn process(&self) -> Option<&Process> {
        Some(&self.spec.process)
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.spec.life.labels)
    }

    fn why_deaf(&self) -> &'static str {
        match self.has_init {
            true => "",
            false => {
                " (nobody in its guest has heeded the power button; systemd does with dbus and \
                 systemd-logind)"
            }
        }
    }
}

impl Named for pod::Record {
    const PATH: &'static str = "/v1/pod";

    type Inspection = pod::Inspection;

    fn state(inspection: &pod::Inspection) -> &'static str {
        match inspection.state {
            pod::State::Starting => "starting",
            pod::State::Running => "running",
            pod::State::Frozen => "frozen",
        }
    }

    fn registry() -> Result<Registry<Self>, registry::Error> {
        Registry::of_pods()
    }

    fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
}

/// The path of one of its requests.
pub fn path<R: Named>(request: &str) -> String {
    format!("{}/{request}", R::PATH)
}

/// What one that lives says of itself.
pub fn ask<R: Named>(entry: &Entry<R>) -> Option<R::Inspection> {
    Client::connect(entry).ok()?.get(R::PATH).ok()
}
