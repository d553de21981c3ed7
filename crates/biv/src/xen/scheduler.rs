//! `biv xen scheduler`.

use api::Registry;
use api::keeper::{self, SchedulerKind};

use crate::cli::xen::{Scheduler, SchedulerName};
use crate::life::Error;
use crate::print;

/// `biv xen scheduler`.
pub fn scheduler(arguments: &Scheduler) -> Result<(), Error> {
    let registry = Registry::open()?;
    let Some(name) = arguments.scheduler else {
        let name = match keeper::scheduler(&registry) {
            SchedulerKind::Bvt => "bvt\n",
            SchedulerKind::Host => "host\n",
        };
        return Ok(print::text(name)?);
    };
    let kind = match name {
        SchedulerName::Bvt => SchedulerKind::Bvt,
        SchedulerName::Host => SchedulerKind::Host,
    };
    keeper::set_scheduler(&registry, kind)?;
    Ok(keeper::look(&registry)?)
}
