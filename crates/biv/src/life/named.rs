//! What verbs need to know of what has a name: domains and pods have the same verbs.

use api::{Ended, Kept, Record, Registry, pod, registry};

/// The record of something that has a name, lives, and answers on a control socket.
pub trait Named: Kept {
    /// What the paths of its requests begin with.
    const PATH: &'static str;
    /// Where its name is.
    fn registry() -> Result<Registry<Self>, registry::Error>;
    /// How it ended, if it has and could say so.
    fn ending(&self) -> Option<&Ended>;
    /// Whether its command has a terminal.
    fn has_terminal(&self) -> bool;
}

impl Named for Record {
    const PATH: &'static str = "/v1/domain";

    fn registry() -> Result<Registry, registry::Error> {
        Registry::open()
    }

    fn ending(&self) -> Option<&Ended> {
        self.ending.as_ref()
    }

    fn has_terminal(&self) -> bool {
        self.has_terminal
    }
}

impl Named for pod::Record {
    const PATH: &'static str = "/v1/pod";

    fn registry() -> Result<Registry<Self>, registry::Error> {
        Registry::of_pods()
    }

    fn ending(&self) -> Option<&Ended> {
        self.ending.as_ref()
    }

    fn has_terminal(&self) -> bool {
        self.has_terminal
    }
}

/// The path of one of its requests.
pub fn path<R: Named>(request: &str) -> String {
    format!("{}/{request}", R::PATH)
}
