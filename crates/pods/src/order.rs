//! The order for the pod's init: the first command.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use protocol::Order;
use session::environment;
use session::terminal;

use crate::spec::PodSpec;

/// What runs when no command is given.
const SHELL: [&[u8]; 2] = [b"/bin/sh", b"-l"];

/// Whether the command is to have a terminal.
pub fn is_on_terminal(spec: &PodSpec) -> bool {
    spec.terminal || (spec.args.is_empty() && terminal::is_interactive())
}

/// What the pod's init is to adopt: the first command of an image.
pub fn adopt(pod: &checkpoint::pod::Pod) -> Order {
    Order {
        arguments: std::iter::once(pod.first)
            .chain(pod.terminal)
            .map(|number| number.to_string().into_bytes())
            .collect(),
        terminal: pod.terminal.map(|_| terminal::size()),
        is_adopted: true,
        ..Order::default()
    }
}

/// What the pod's init is to run, in `directory` if nobody says where.
pub fn order(spec: &PodSpec, directory: &Path) -> Order {
    let on_terminal = is_on_terminal(spec);
    let mut environment = match spec.root {
        None => environment::of_the_host(),
        Some(_) => environment::of_its_own(false),
    };
    environment::complete(&mut environment, on_terminal, &spec.env);
    let arguments = match spec.args.is_empty() {
        true => SHELL.map(<[u8]>::to_vec).to_vec(),
        false => spec.args.iter().map(|argument| argument.clone().into_vec()).collect(),
    };
    let directory = spec.directory.as_deref().unwrap_or(directory);
    Order {
        arguments,
        environment,
        directory: directory.as_os_str().as_bytes().to_vec(),
        user: Vec::new(),
        groups: None,
        terminal: on_terminal.then(terminal::size),
        is_own: false,
        closed: session::closed_streams(),
        joins_streams: session::has_one_output(),
        is_adopted: false,
    }
}
