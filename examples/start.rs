//! Runs its arguments as a command in a machine, and ends with the command's status: `start uname -a`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use domain::CheckedSpec;
use spec::{Root, Spec};

fn main() -> ExitCode {
    // The processes that serve a machine are this program, started once more.
    domain::begin(&[]);
    // Where the host has put this program decides how fast the machine is.
    domain::settle();
    let mut spec = Spec { root: Root::Busybox, ..Spec::default() };
    spec.machine.memory = 256 << 20;
    spec.process.args = std::env::args_os().skip(1).collect();
    match CheckedSpec::new(spec).and_then(domain::launch) {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("start: {error}");
            ExitCode::FAILURE
        }
    }
}
