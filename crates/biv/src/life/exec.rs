//! `biv exec`: a session with a domain's guest, over its control socket.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;

use protocol::Order;
use spec::Process;

use super::{Error, Named, path};
use crate::cli::domains::{Exec, Top};
use api::client::Client;
use api::{Record, http, status};
use session::channel::Channel;
use session::environment;
use session::terminal;
use session::terminal::{Escape, Mode};
use session::{
    Ending, Input, Line, Outputs, Passing, Session, Signals, closed_streams, has_one_output,
    stdin_is_terminal,
};

/// `biv exec`; returns the status of the command.
pub fn exec<R: Named>(arguments: &Exec) -> Result<u8, Error> {
    let entry = R::registry()?.find(&arguments.name)?;
    let process = entry.record.as_ref().and_then(Named::process);
    let path = path::<R>("exec");
    let (stream, received) = Client::connect(&entry)?.upgrade(&path, http::FRAMES)?;
    let line = Line::of(stream)?;
    let input = match (arguments.interactive, arguments.tty) {
        (true, _) => Input::Ours,
        (false, true) => Input::Endless,
        (false, false) => Input::None,
    };
    let session = Session {
        link: Channel::new(line, &order(arguments, process).map_err(Error::Files)?)?
            .after(&received),
        machine: None,
        deadline: None,
        mode: Mode::raw_if(arguments.tty && arguments.interactive && stdin_is_terminal()),
        escape: Escape::default(),
        signals: Signals::block()?,
        passing: Passing::Interrupt,
        outputs: Outputs::default(),
        input,
        report: None,
    };
    Ok(match session.run()? {
        Ending::Exited(status) => status,
        Ending::Signaled(signal) | Ending::Killed(signal) => status::of_signal(signal),
        Ending::Escaped => status::of_signal(2),
        Ending::TimedOut | Ending::MachineEnded => {
            // Standard error may be closed; the status still tells.
            let _ = writeln!(io::stderr(), "biv: the {} ended before the command did", R::KIND);
            status::GUEST_LOST
        }
    })
}

/// `biv top`; returns the status of ps(1).
pub fn top(arguments: &Top) -> Result<u8, Error> {
    // All but kthreadd and its children, the kernel's threads. Busybox has fewer options and columns.
    const COLUMNS: &str = "ps --ppid 2 -p 2 --deselect -o user,pid,ppid,pcpu,etime,tty,time,args \
                           2>/dev/null || exec ps";
    let command = match arguments.options.is_empty() {
        true => ["/bin/sh", "-c", COLUMNS].map(OsString::from).to_vec(),
        false => [OsString::from("ps")].into_iter().chain(arguments.options.clone()).collect(),
    };
    exec::<Record>(&Exec::of_root(arguments.name.clone(), command))
}

/// What is to run. What is not said of it is as it was said of the command that runs already: by the image, or by
/// whoever described the machine.
fn order(arguments: &Exec, running: Option<&Process>) -> Result<Order, String> {
    let user = arguments.user.as_ref().or(running.and_then(|it| it.user.as_ref()));
    let said = running.and_then(|it| Some(it.directory.clone()?.into_os_string()));
    let directory = arguments.workdir.clone().or(said).unwrap_or_else(|| "/".into());
    let own = arguments.environment.variables()?;
    let given = running.iter().flat_map(|it| &it.env).chain(&own);
    let mut environment = environment::of_its_own(user.is_some());
    environment::complete(&mut environment, arguments.tty, given);
    Ok(Order {
        arguments: arguments.command.iter().map(|word| word.clone().into_vec()).collect(),
        environment,
        directory: directory.into_vec(),
        user: user.cloned().unwrap_or_default().into_bytes(),
        groups: None,
        terminal: arguments.tty.then(terminal::size),
        is_own: false,
        closed: closed_streams(),
        joins_streams: has_one_output(),
        is_adopted: false,
    })
}
