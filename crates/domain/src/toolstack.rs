//! What is asked of a domain of Xen's interface that its domain 0 could do ([`api::v1::toolstack`]).

use std::time::Duration;

use api::v1::Refusal;
use api::v1::toolstack::{Ask, Reply};
use vmm::{Refused, Remote, Toolstack};

/// How often an audit is made again that finds differences: a device's thread may have been at work.
const MAX_AUDITS: usize = 10;

/// Before it is made again.
const BETWEEN_AUDITS: Duration = Duration::from_millis(10);

/// The variable with which each paravirtual domain is audited when its command has ended, or it has.
const AT_END: &str = "BIVOUAC_AUDIT";

/// Do what is asked; none if the machine is of another interface.
pub fn answer(machine: &Remote, ask: &Ask) -> Option<Result<Reply, Refusal>> {
    let toolstack = machine.toolstack.as_deref()?;
    Some(match ask {
        Ask::Audit {} => Ok(audit(machine, toolstack)),
        ask => carry_out(toolstack, ask).map_err(|refused| (400, refused.to_string())),
    })
}

fn carry_out(toolstack: &dyn Toolstack, ask: &Ask) -> Result<Reply, Refused> {
    let done = Reply::default();
    Ok(match ask {
        Ask::Processors { count } => {
            toolstack.set_processors(*count as usize)?;
            done
        }
        Ask::List { path } => Reply { names: toolstack.store_list(path)?, ..done },
        Ask::Read { path } => {
            let (value, permissions) = toolstack.store_read(path)?;
            let value = String::from_utf8_lossy(&value).into_owned();
            Reply { value: Some(value), permissions: Some(permissions), ..done }
        }
        Ask::Write { path, value } => {
            toolstack.store_write(path, value.as_bytes())?;
            done
        }
        Ask::Remove { path } => {
            toolstack.store_remove(path)?;
            done
        }
        Ask::Watch { path } => Reply { watch: Some(toolstack.store_watch(path)?), ..done },
        Ask::Events { watch } => Reply { names: toolstack.store_events(*watch)?, ..done },
        Ask::Audit {} => done,
    })
}

/// Whether domains are audited at their end. The tests have it so.
pub fn audits_at_end() -> bool {
    std::env::var_os(AT_END).is_some()
}

/// Audit a domain at its end, if it is paravirtual.
///
/// # Errors
///
/// What differs.
pub fn audit_at_end(machine: &Remote) -> Result<(), String> {
    let Some(toolstack) = machine.toolstack.as_deref() else { return Ok(()) };
    toolstack.settle();
    let Reply { differences, .. } = audit(machine, toolstack);
    if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
}

/// Audit the domain's frames while its vCPUs stand still.
fn audit(machine: &Remote, toolstack: &dyn Toolstack) -> Reply {
    let was_paused = machine.is_paused();
    let mut differences = Vec::new();
    for _ in 0..MAX_AUDITS {
        machine.pause();
        differences = toolstack.audit();
        if !was_paused {
            machine.resume();
        }
        if differences.is_empty() {
            break;
        }
        std::thread::sleep(BETWEEN_AUDITS);
    }
    Reply { differences, ..Reply::default() }
}
