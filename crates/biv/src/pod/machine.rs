//! Pods in machines: for hosts that forbid user namespaces, and for other kernels than the host's.
//!
//! A verb with `--in MACHINE` is said to a `biv` in the machine, over a session of `biv exec`. It is this very
//! program ([`program`]). So what a pod can do on a host it can do in a machine, and there is no protocol but that of
//! sessions.
//!
//! A pod moves into a machine, and out of it, over the standard streams of such a session, as it does over ssh's.
//!
//! What rules it: *a machine is believed no more than any other guest*. It gets the program and what the user types;
//! what comes back are streams, a status, and an image, which is checked as any other.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::program::{self, failed};
use crate::cli::domains::Exec;
use crate::cli::pod::PodAction;
use crate::life;
use api::Record;

/// Runs a program in a directory, or in the root where there is no such directory.
const ENTER: &str = "cd \"$0\" 2>/dev/null || cd /; exec \"$@\"";

/// Why there is no pod in a machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is not particular to pods.
    #[error(transparent)]
    Life(#[from] life::Error),
    /// This program there.
    #[error(transparent)]
    Program(#[from] program::Error),
}

/// A session's command that runs a verb of `biv pod` in a machine.
fn command(machine: &str, verb: &[OsString]) -> Result<Vec<OsString>, Error> {
    let mut command: Vec<OsString> = ["sh", "-c", ENTER].map(OsString::from).into();
    command.push(std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")).into());
    command.extend([program::place(machine)?, "pod".into()]);
    command.extend_from_slice(verb);
    Ok(command)
}

/// A session in which a verb of `biv pod` is carried by the standard streams.
pub fn carrier(machine: &str, verb: &[&str]) -> Result<Command, Error> {
    let verb: Vec<OsString> = verb.iter().map(OsString::from).collect();
    let mut carrier = Command::new(std::env::current_exe().map_err(failed(machine))?);
    carrier.args(["exec", "-i", "-u", "root", "-w", "/", machine]).args(command(machine, &verb)?);
    Ok(carrier)
}

/// A verb that was typed, in a machine; returns its status.
pub fn pod(machine: &str, action: &PodAction) -> Result<u8, Error> {
    let (interactive, tty) = streams(action);
    let verb = without_place(std::env::args_os());
    let command = command(machine, &verb)?;
    let exec = Exec { interactive, tty, ..Exec::of_root(machine.to_owned(), command) };
    Ok(life::exec::<Record>(&exec)?)
}

/// Whether a verb reads standard input, and whether it wants a terminal.
fn streams(action: &PodAction) -> (bool, bool) {
    let is_terminal = io::IsTerminal::is_terminal(&io::stdin());
    match action {
        PodAction::Run(run) => (run.start.interactive, run.tty),
        PodAction::Restart(restart) => (restart.start.interactive, false),
        PodAction::Exec(exec) => (exec.interactive, exec.tty),
        PodAction::Attach(_) => (true, is_terminal),
        // The line is on the standard streams.
        PodAction::Migrate(migrate) => (migrate.to == "-", false),
        PodAction::Receive(receive) => (receive.from == "-", false),
        _ => (false, false),
    }
}

/// What follows `pod` of a command line that was understood, without `--in MACHINE`: the first word that is `--in` is
/// that option, because nothing before it was taken for a command.
fn without_place(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut verb = Vec::new();
    let mut rest = arguments.skip_while(|word| word != "pod").skip(1);
    for word in rest.by_ref() {
        if word == "--in" {
            // Its value.
            rest.next();
            break;
        }
        if word.as_encoded_bytes().starts_with(OsStr::new("--in=").as_encoded_bytes()) {
            break;
        }
        verb.push(word);
    }
    verb.extend(rest);
    verb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_left_out_and_nothing_else() {
        let check = |line: &str, expected: &str| {
            let verb = without_place(line.split(' ').map(OsString::from));
            assert_eq!(verb.join(OsStr::new(" ")), *expected, "{line}");
        };
        check("biv pod --in m ps -a", "ps -a");
        check("biv pod run --in=m -d -- sh --in x", "run -d -- sh --in x");
        check("biv --quiet pod exec --in m web ls --in", "exec web ls --in");
    }
}
