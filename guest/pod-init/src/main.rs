//! The first process of a pod: leaves the host's namespaces, gives the pod its names, runs the commands that the keeper
//! orders, and reports how they ended.
//!
//! Two processes run this program. The *outer* one is the keeper's child: it enters new namespaces ([`namespaces`]),
//! starts the *inner* one, and waits for it. The inner one is process 1 of the pod ([`names`]); it serves the keeper
//! as a guest's init serves its host (`service`), and has no state that outlives the pod's commands.
//!
//! A third one may, for a while, when the pod is checkpointed or restarted ([`files`]).
//!
//! What rules it:
//!
//! 1. *The pod ends with its keeper.* The outer process is killed when the keeper ends and the inner one when the outer
//!    one does (`PR_SET_PDEATHSIG`); and the inner one ends when its line is closed. The kernel ends all of a pod with
//!    its process 1.
//! 2. *Nothing of the host stays open* in the inner process but the line to the keeper and the pipe for complaints.
//! 3. *Nobody enters.* All of a pod's processes are forked in it, by this process or by another of the pod. Who packs
//!    its files is not among them, and is there only while none of them runs.

#![deny(unsafe_code)]

mod devices;
mod division;
mod error;
mod files;
mod keeper;
mod keyring;
mod layers;
mod names;
mod namespaces;
mod pod;
mod resolver;
mod root;
mod signals;
mod unshare;
mod uplink;

use std::env::ArgsOs;
use std::process::ExitCode;

use pod_protocol::{FILES_NAME, STATUS_FAILED};
use service::{command, copy};

use crate::error::Error;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let outcome = match arguments.next().as_deref().and_then(|name| name.to_str()) {
        Some(command::SESSION_NAME) => return command::run_session(arguments),
        Some(copy::COPY_NAME) => return copy::run(arguments),
        Some(namespaces::INNER_NAME) => serve(arguments).map(|()| 0),
        Some(FILES_NAME) => files::run(arguments).map(|()| 0),
        _ => namespaces::enter_and_wait(),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(STATUS_FAILED)
        }
    }
}

/// Is process 1 of a pod.
fn serve(arguments: ArgsOs) -> Result<(), Error> {
    namespaces::end_with_outer()?;
    let setup = namespaces::inner_setup(arguments)?;
    names::give(&setup)?;
    let line = names::keep_line()?;
    Ok(service::serve::serve(line, &mut pod::Pod)?)
}
