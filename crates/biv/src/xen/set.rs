//! `biv xen set`.

use std::io;

use api::client::Client;
use api::v1::toolstack::{Ask, Reply};
use api::v1::{BalloonSize, Inspection};
use api::{Entry, Registry, keeper};

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
    if arguments.weight.is_some() || arguments.cap.is_some() || arguments.warp.is_some() {
        set_worth(arguments, &entry)?;
    }
    Ok(())
}

fn set_worth(arguments: &Set, entry: &Entry) -> Result<(), Error> {
    let mut policy = keeper::policy(&entry.directory)?;
    policy.weight = arguments.weight.unwrap_or(policy.weight);
    policy.warp = arguments.warp.unwrap_or(policy.warp);
    if let Some(cap) = arguments.cap {
        policy.cap = (cap > 0).then_some(cap);
    }
    policy.check().map_err(io::Error::other)?;
    keeper::set_policy(&entry.directory, &policy)?;
    Ok(keeper::look(&Registry::open()?)?)
}
