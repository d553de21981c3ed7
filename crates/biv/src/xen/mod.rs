//! `biv xen`: the verbs about paravirtual domains, each in a file of its own. [`facts`] is what they
//! know of a domain.
//!
//! A paravirtual domain is a domain like any other: it is in the registry and answers on its socket.
//! What is here shows and changes what only it has.

use api::{Entry, Registry};
use spec::Board;

use crate::cli::xen::XenAction;
use crate::life::Error;

mod admission;
mod audit;
mod facts;
mod info;
mod list;
mod rules;
mod scheduler;
mod set;
mod store;
mod top;
mod vif;

/// Where a domain is asked for what its domain 0 could do.
const TOOLSTACK: &str = "/v1/domain/toolstack";

/// `biv xen`.
pub fn xen(action: &XenAction) -> Result<(), Error> {
    match action {
        XenAction::List(arguments) => list::list(arguments),
        XenAction::Info(arguments) => info::info(arguments),
        XenAction::Rules(arguments) => rules::rules(arguments),
        XenAction::Vif(arguments) => vif::vif(arguments),
        XenAction::Set(arguments) => set::set(arguments),
        XenAction::Store(arguments) => store::store(arguments),
        XenAction::Audit(arguments) => audit::audit(arguments),
        XenAction::Top(arguments) => top::top(arguments),
        XenAction::Scheduler(arguments) => scheduler::scheduler(arguments),
        XenAction::Admission(arguments) => admission::admission(arguments),
    }
}

/// The paravirtual domain of that name, which runs.
fn find(name: &str) -> Result<Entry, Error> {
    let entry = Registry::open()?.find(name)?;
    if !is_paravirtual(&entry) {
        return Err(Error::NotParavirtual(entry.name));
    }
    if !entry.alive {
        return Err(api::client::Error::NotRunning(api::Kind::Domain, entry.name).into());
    }
    Ok(entry)
}

/// Whether a domain is a paravirtual one.
fn is_paravirtual(entry: &Entry) -> bool {
    entry.record.as_ref().is_some_and(|record| record.spec.machine.board == Board::Xen)
}
