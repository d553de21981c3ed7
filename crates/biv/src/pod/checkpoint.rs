//! `biv pod freeze`, `thaw` and `checkpoint`.

use std::os::fd::AsFd;

use api::client::Client;
use api::pod::{Checkpoint as How, Checkpointed, Inspection, Record};
use api::{Entry, Registry};
use serde_json::Value;

use crate::cli::Format;
use crate::cli::domains::Which;
use crate::cli::pod::Checkpoint;
use crate::life::Error;
use crate::life::for_each;
use crate::life::snapshot::must_be_free;
use crate::print;
use crate::unfinished::Unfinished;

/// `biv pod freeze`.
pub fn freeze(which: &Which) -> Result<(), Error> {
    for_each::<Record>(which, |_, entry| post(entry, "/v1/pod/freeze"))
}

/// `biv pod thaw`.
pub fn thaw(which: &Which) -> Result<(), Error> {
    for_each::<Record>(which, |_, entry| post(entry, "/v1/pod/thaw"))
}

/// Sends a request that has no body.
pub(super) fn post(entry: &Entry<Record>, path: &str) -> Result<(), Error> {
    Client::connect(entry)?.post::<Inspection>(path, &Value::Null)?;
    Ok(())
}

/// `biv pod checkpoint`. The keeper writes into a file that has its name only when it is whole: a pod that is to end
/// stays frozen until then.
pub fn checkpoint(arguments: &Checkpoint) -> Result<(), Error> {
    let registry = Registry::of_pods()?;
    let entry = registry.find(&arguments.name)?;
    let path = &arguments.output;
    must_be_free(path, arguments.force)?;
    let failed = |error| Error::File { path: path.clone(), error };
    let unfinished = Unfinished::beside(path, 0o600).map_err(failed)?;
    let how = How {
        compress: arguments.compress,
        stays_frozen: arguments.stop,
        streams: false,
        tracked: arguments.track,
        incremental: arguments.incremental,
    };
    let written: Checkpointed = Client::connect(&entry)?.post_with_file(
        "/v1/pod/checkpoint",
        &how,
        unfinished.file.as_fd(),
    )?;
    let named = unfinished.becomes(path).map_err(failed);
    if arguments.stop {
        match named {
            Ok(()) => post_kill(&entry)?,
            // Nothing is lost: it goes on.
            Err(error) => {
                post(&entry, "/v1/pod/thaw")?;
                return Err(error);
            }
        }
    } else {
        named?;
    }
    match arguments.format {
        Format::Text => Ok(()),
        Format::Json => Ok(print::json(&written)?),
    }
}

/// Ends a pod.
pub(super) fn post_kill(entry: &Entry<Record>) -> Result<(), Error> {
    let kill = api::v1::Kill { signal: None };
    Client::connect(entry)?.post::<Inspection>("/v1/pod/kill", &kill)?;
    Ok(())
}
