//! `biv console` and `biv attach`: attach to a domain's console or command, beside other clients.

use std::io::{self, Write};

use super::ending::END_PATIENCE;
use super::{Error, Named, path};
use crate::cli::domains::{Attach, Console};
use api::client::Client;
use api::{Entry, Registry, http, status};
use session::channel::Channel;
use session::terminal;
use session::terminal::{Escape, Mode};
use session::{Ending, Input, Line, Link, Outputs, Passing, Session, Signals, stdin_is_terminal};

/// `biv console`; returns the exit status.
pub fn console(arguments: &Console) -> Result<u8, Error> {
    let entry = Registry::open()?.find(&arguments.name)?;
    let link = connect(&entry, "/v1/domain/console")?;
    let mode = Mode::raw_if(stdin_is_terminal());
    if mode == Mode::Raw {
        say(&format!("connected to the console of {}; press Ctrl-] to disconnect", entry.name));
    }
    let ending = session(link, mode, Input::Ours, Passing::Nothing)?.run()?;
    Ok(conclude(entry, ending, status::SUCCESS))
}

/// `biv attach`; returns the status of the command, if it has ended.
pub fn attach<R: Named>(arguments: &Attach) -> Result<u8, Error> {
    let entry = R::registry()?.find(&arguments.name)?;
    let link = connect(&entry, &path::<R>("attach"))?;
    let has_terminal = entry.record.as_ref().is_some_and(R::has_terminal);
    let mode = match (!arguments.no_stdin && stdin_is_terminal(), has_terminal) {
        (false, _) => Mode::Lines,
        (true, false) => Mode::LinesAndKey,
        (true, true) => Mode::Raw,
    };
    let passing = if arguments.sig_proxy { Passing::Keys } else { Passing::Nothing };
    if mode != Mode::Lines {
        let whose = match (mode, passing) {
            (Mode::LinesAndKey, Passing::Keys) => ", Ctrl-C is the command's",
            _ => "",
        };
        say(&format!("attached to the command of {}; press Ctrl-] to detach{whose}", entry.name));
    }
    let input = if arguments.no_stdin { Input::Endless } else { Input::Ours };
    let ending = session(link, mode, input, passing)?.run()?;
    Ok(conclude(entry, ending, status::GUEST_LOST))
}

fn connect<R: Named>(entry: &Entry<R>, path: &str) -> Result<Channel, Error> {
    let (stream, received) = Client::connect(entry)?.upgrade(path, http::FRAMES)?;
    // It may say nothing for as long as it likes.
    stream.set_read_timeout(None)?;
    Ok(Channel::watching(Line::of(stream)?)?.after(&received))
}

fn session(
    mut link: Channel,
    mode: Mode,
    input: Input,
    passing: Passing,
) -> Result<Session<Channel>, Error> {
    if mode == Mode::Raw {
        let (rows, columns) = terminal::size();
        link.resize(rows, columns);
    }
    Ok(Session {
        link,
        machine: None,
        deadline: None,
        mode,
        escape: Escape::at_once(),
        signals: Signals::block()?,
        passing,
        outputs: Outputs::default(),
        input,
        report: None,
    })
}

/// Says why it is over, if that is not plain; `status_of_end` is the status if the domain has ended.
fn conclude<R: Named>(mut entry: Entry<R>, ending: Ending, status_of_end: u8) -> u8 {
    match ending {
        Ending::Exited(status) => status,
        Ending::Signaled(signal) | Ending::Killed(signal) => status::of_signal(signal),
        Ending::Escaped => {
            // What was shown last need not have ended its line.
            say_after_line(&format!("left {}", entry.name));
            status::SUCCESS
        }
        Ending::TimedOut | Ending::MachineEnded => {
            entry.read_again();
            if entry.alive && !entry.wait_for(END_PATIENCE) {
                say_after_line(&format!("{} does not wait for who takes so little", entry.name));
                return status::FAILURE;
            }
            say_after_line(&format!("{} {} has ended", R::KIND, entry.name));
            status_of_end
        }
    }
}

fn say(text: &str) {
    // Standard error may be closed; the status still tells.
    let _ = writeln!(io::stderr(), "biv: {text}");
}

/// The same, after what was shown.
fn say_after_line(text: &str) {
    let _ = writeln!(io::stderr(), "\nbiv: {text}");
}
