//! The order for the guest's init: the command that it is to run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use protocol::Order;
use spec::Spec;

use super::directories::Directories;
use session::environment;
use session::{shell, terminal};

/// What runs when no command is given, and nobody types who has a shell of his own there.
pub const SHELL: [&str; 2] = ["/bin/sh", "-l"];

/// The program that runs, and its arguments: by default a shell, for somebody at a terminal his own, if the guest looks
/// like the host.
pub fn arguments(spec: &Spec, directories: &Directories) -> Vec<OsString> {
    let process = &spec.process;
    if !process.args.is_empty() {
        return process.args.clone();
    }
    let is_own = directories.is_the_host && is_on_terminal(spec);
    match is_own.then(|| shell::of(process.user.as_deref())).flatten() {
        Some(shell) => vec![shell.into(), SHELL[1].into()],
        None => SHELL.map(OsString::from).to_vec(),
    }
}

/// What the kernel gives process 1 for its environment (`envp_init` in init/main.c).
const OF_INIT: [&[u8]; 2] = [b"HOME=/", b"TERM=linux"];

/// Whether the command is to have a terminal.
pub fn is_on_terminal(spec: &Spec) -> bool {
    // The console is the terminal of a machine with a process 1 of its own.
    let has_command = spec.boot.init.is_none();
    has_command
        && (spec.process.terminal || (spec.process.args.is_empty() && terminal::is_interactive()))
}

/// What the guest's init is to run, or to become.
pub fn order(spec: &Spec, directories: &Directories) -> Order {
    match &spec.boot.init {
        Some(init) => order_of_init(spec, init),
        None => order_of_command(spec, directories),
    }
}

/// A process 1 of the guest's own, as the kernel would start it.
fn order_of_init(spec: &Spec, init: &Path) -> Order {
    let mut environment = OF_INIT.map(<[u8]>::to_vec).to_vec();
    environment::complete(&mut environment, false, &spec.process.env);
    let words = [init.as_os_str()]
        .into_iter()
        .chain(spec.process.args.iter().map(|word| -> &OsStr { word }));
    let arguments = words.map(|word| word.as_bytes().to_vec()).collect();
    Order { arguments, environment, directory: b"/".to_vec(), ..Order::default() }
}

fn order_of_command(spec: &Spec, directories: &Directories) -> Order {
    let process = &spec.process;
    let on_terminal = is_on_terminal(spec);
    let mut environment = match directories.is_the_host {
        true if process.user.is_some() => environment::of_the_host_for_another(),
        true => environment::of_the_host(),
        false => environment::of_its_own(process.user.is_some()),
    };
    environment::complete(&mut environment, on_terminal, &process.env);
    let arguments = arguments(spec, directories).into_iter().map(OsString::into_vec).collect();
    let directory = process.directory.as_ref().or(directories.working_directory.as_ref());
    Order {
        arguments,
        environment,
        directory: directory
            .map_or_else(|| b"/".to_vec(), |path| path.as_os_str().as_bytes().to_vec()),
        user: process.user.clone().unwrap_or_else(|| directories.user()).into_bytes(),
        groups: directories.groups().filter(|_| process.user.is_none()),
        terminal: on_terminal.then(terminal::size),
        is_own: false,
        closed: session::closed_streams(),
        joins_streams: session::has_one_output(),
        is_adopted: false,
    }
}

#[cfg(test)]
mod tests {
    use session::environment::PATH;

    use super::*;

    #[test]
    fn a_process_1_is_started_as_the_kernel_would() {
        let mut spec = Spec::default();
        spec.boot.init = Some("/sbin/init".into());
        spec.process.args = vec!["single".into()];
        spec.process.env = vec!["A=b".into(), "TERM=vt220".into()];
        let order = order(&spec, &Directories::default());
        assert_eq!(order.arguments, [b"/sbin/init".to_vec(), b"single".to_vec()]);
        assert_eq!(order.environment, [&b"HOME=/"[..], b"A=b", b"TERM=vt220"]);
        assert_eq!(order.directory, b"/");
        assert!(order.user.is_empty() && order.terminal.is_none());
    }

    #[test]
    fn what_is_said_of_a_command_is_ordered() {
        let mut spec = Spec::default();
        spec.process.args = vec!["ls".into(), "-l".into()];
        spec.process.env = vec!["HOME=/tmp".into(), "A=b=c".into(), "A=d".into()];
        spec.process.directory = Some("/srv".into());
        spec.process.user = Some("nobody".into());
        let order = order(&spec, &Directories::default());
        assert_eq!(order.arguments, [b"ls".to_vec(), b"-l".to_vec()]);
        assert_eq!(order.environment, [PATH, b"HOME=/tmp", b"A=d"]);
        assert_eq!(
            (order.directory.as_slice(), order.user.as_slice()),
            (&b"/srv"[..], &b"nobody"[..])
        );
    }
}
