//! `biv snapshot`: a domain writes its state into a file that `biv` opens for it, because the
//! domain can open none. `biv` adds the host resources that were recorded when the domain was
//! started, and signs both ([`domain::seal`]), because the guest may own the domain's process.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::Error;
use crate::cli::Format;
use crate::cli::domains::Snapshot;
use crate::print;
use crate::unfinished::Unfinished;
use api::client::Client;
use api::v1::{self, Take};
use api::{Origin, Registry};
use domain::seal::{self, Purpose};

/// `biv snapshot`.
pub fn snapshot(arguments: &Snapshot) -> Result<(), Error> {
    let entry = Registry::open()?.find(&arguments.name)?;
    let path = &arguments.file;
    let failed = |error| Error::File { path: path.clone(), error };
    must_be_free(path, arguments.force)?;
    // Before anything is written: a snapshot that nobody vouches for is of little use.
    let (state, origin) = (seal::state_directory()?, Origin::of_domain(&entry.directory)?);
    let unfinished = Unfinished::beside(path, 0o600).map_err(failed)?;
    let take = Take { compress: arguments.compress };
    let client = Client::connect(&entry)?;
    let mut written: v1::Snapshot =
        client.post_with_file("/v1/domain/snapshot", &take, unfinished.file.as_fd())?;
    seal::seal(&unfinished.file, &state, Purpose::Restore, &origin.text())?;
    unfinished.file.sync_all().map_err(failed)?;
    written.file = unfinished.file.metadata().map_err(failed)?.len();
    unfinished.becomes(path).map_err(failed)?;
    match arguments.format {
        Format::Text => Ok(()),
        Format::Json => Ok(print::json(&written)?),
    }
}

/// Whether a snapshot may be written there.
pub(crate) fn must_be_free(path: &Path, force: bool) -> Result<(), Error> {
    // Elsewhere that is a stream, which a snapshot cannot go to: what is written last comes first in it.
    if path.as_os_str() == "-" {
        return Err(Error::NoStream);
    }
    if !force && path.symlink_metadata().is_ok() {
        let error =
            io::Error::new(io::ErrorKind::AlreadyExists, "there is one; --force replaces it");
        return Err(Error::File { path: path.to_owned(), error });
    }
    Ok(())
}
