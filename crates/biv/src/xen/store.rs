//! `biv xen store`: a domain's xenstore, as its domain 0 sees it.

use std::time::Duration;

use api::Entry;
use api::client::Client;
use api::v1::toolstack::{Ask, Reply};
use spec::shown::line;

use crate::cli::xen::{Store, StoreAction};
use crate::life::Error;
use crate::print;

/// How often somebody who watches looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// `biv xen store`.
pub fn store(arguments: &Store) -> Result<(), Error> {
    let entry = super::find(&arguments.domain)?;
    match &arguments.action {
        StoreAction::Ls { path, permissions } => {
            let names = ask(&entry, &Ask::List { path: path.clone() })?.names;
            for name in names {
                let below = format!("{}/{name}", path.trim_end_matches('/'));
                let node = ask(&entry, &Ask::Read { path: below })?;
                let value = line(&node.value.unwrap_or_default());
                let rights = match permissions {
                    true => format!("  ({})", node.permissions.unwrap_or_default()),
                    false => String::new(),
                };
                print::text(&format!("{} = \"{value}\"{rights}\n", line(&name)))?;
            }
            Ok(())
        }
        StoreAction::Read { path } => {
            let node = ask(&entry, &Ask::Read { path: path.clone() })?;
            let value = node.value.unwrap_or_default();
            Ok(print::text(&format!("{}\n", line(&value)))?)
        }
        StoreAction::Write { path, value } => {
            ask(&entry, &Ask::Write { path: path.clone(), value: value.clone() }).map(drop)
        }
        StoreAction::Rm { path } => ask(&entry, &Ask::Remove { path: path.clone() }).map(drop),
        StoreAction::Watch { path, count } => watch(&entry, path, *count),
    }
}

/// Print what changes, for so many changes.
fn watch(entry: &Entry, path: &str, count: Option<u64>) -> Result<(), Error> {
    let begun = ask(entry, &Ask::Watch { path: path.to_owned() })?;
    let watch = begun.watch.unwrap_or_default();
    let mut told = 0;
    loop {
        for name in ask(entry, &Ask::Events { watch })?.names {
            print::text(&format!("{}\n", line(&name)))?;
            told += 1;
            if count == Some(told) {
                return Ok(());
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

fn ask(entry: &Entry, ask: &Ask) -> Result<Reply, Error> {
    Ok(Client::connect(entry)?.post(super::TOOLSTACK, ask)?)
}
