//! The first process in a guest of `biv`: prepares the system, runs the commands that the host
//! orders, reports how they ended, and switches the machine off.
//!
//! What it is not: a service manager. It runs only the commands that the host orders, and switches
//! off when the first one ends.
//!
//! What rules it:
//!
//! 1. *The channel is its own.* Orders and streams go over the first existing device of those that
//!    the kernel command line names (`biv.channel=vport,ttyS1`), never over the console.
//! 2. *It always ends the machine.* It prints any error on the console, and then switches the power
//!    off; a guest whose init hangs or exits would look like a hung `biv`.
//! 3. *It is the parent of orphans*, and reaps them.
//! 4. *It gives way to a process 1 of the user's own* if the host says so, and serves the host beside it
//!    ([`process_one`], [`agent`]).
//! 5. *It is `modprobe`* under that name, where the root has none ([`modules`]).

#![deny(unsafe_code)]

mod accounts;
mod agent;
mod channel;
mod clock;
mod console;
mod devices;
mod disk;
mod guest;
mod hostname;
mod idle;
mod kernel;
mod layers;
mod modprobe;
mod modules;
mod network;
mod nine;
mod pages;
mod process_one;
mod random;
mod root;
mod shutdown;
mod stores;
mod system;
mod systemd;

use std::path::Path;
use std::process::ExitCode;

use service::{command, copy};

/// The kernel parameter that names the devices that may be the channel.
const CHANNEL_PARAMETER: &str = "biv.channel=";

/// What it says where it was not `biv` who chose it.
const NO_CHANNEL: &str =
    "the kernel's command line names no channel (biv.channel=DEVICE), so there is nothing to do";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    match arguments.next().as_deref().and_then(|name| name.to_str()) {
        Some(command::SESSION_NAME) => return command::run_session(arguments),
        Some(copy::COPY_NAME) => return copy::run(arguments),
        Some(agent::NAME) => return agent::run(),
        Some(name) if modules::is_modprobe(name) => return modprobe::run(arguments),
        _ => {}
    }
    if std::process::id() != 1 {
        eprintln!("init: this is the first process of a guest of biv; it runs nowhere else");
        return ExitCode::from(125);
    }
    kernel::complain(&system::begin());
    idle::sleep_longer();
    if kernel::kernel_parameter(pages::PARAMETER).as_deref() != Some(pages::BASE) {
        pages::enlarge(Path::new(pages::SIZES));
    }
    let outcome = match kernel::kernel_parameter(CHANNEL_PARAMETER) {
        Some(device) => serve(&device),
        None => Err(std::io::Error::other(NO_CHANNEL)),
    };
    if let Err(error) = outcome {
        eprintln!("init: {error}");
    }
    system::power_off();
    ExitCode::FAILURE
}

/// Serves the host over the first of these devices ([`channel::find`]), until it is to become another program.
fn serve(devices: &str) -> std::io::Result<()> {
    let device = channel::find(devices)?;
    let kept = device.try_clone()?;
    let mut guest = guest::Guest::default();
    service::serve::serve(device, &mut guest).map_err(std::io::Error::other)?;
    match guest.process_one.into_order() {
        Some(order) => Err(process_one::become_ordered(kept, &order)),
        None => Ok(()),
    }
}
