//! `biv xen audit`.

use api::client::Client;
use api::v1::toolstack::{Ask, Reply};

use crate::cli::xen::Audit;
use crate::life::Error;
use crate::print;

/// `biv xen audit`: an error if something differs.
pub fn audit(arguments: &Audit) -> Result<(), Error> {
    let entry = super::find(&arguments.name)?;
    let reply: Reply = Client::connect(&entry)?.post(super::TOOLSTACK, &Ask::Audit {})?;
    let lines = reply.differences.iter().map(|text| spec::shown::line(text) + "\n");
    print::text(&lines.collect::<String>())?;
    match reply.differences.len() {
        0 => Ok(()),
        count => Err(Error::Differences(entry.name, count)),
    }
}
