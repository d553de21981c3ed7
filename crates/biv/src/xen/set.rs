//! `biv xen set`.

use api::client::Client;
use api::v1::toolstack::{Ask, Reply};
use api::v1::{BalloonSize, Inspection};

use crate::cli::xen::Set;
use crate::life::Error;

/// `biv xen set`.
pub fn set(arguments: &Set) -> Result<(), Error> {
    let entry = super::find(&arguments.name)?;
    if let Some(memory) = arguments.mem {
        let size = BalloonSize { memory };
        Client::connect(&entry)?.put::<Inspection>("/v1/domain/balloon", &size)?;
    }
    if let Some(count) = arguments.cpus {
        let ask = Ask::Processors { count: count.into() };
        Client::connect(&entry)?.post::<Reply>(super::TOOLSTACK, &ask)?;
    }
    Ok(())
}
