//! A program for tests of pods. It runs in several pods and on the host at the same time, each time with another tag.
//!
//! - `hold TAG`: takes names that are the same everywhere (keys, paths, ports), marks what it gets with the tag, and
//!   says what names it got, one a line: `KIND VALUE`. When its standard input ends it checks that everything still
//!   has its own tag, and says `intact`.
//! - `storm TAG KIND ROUNDS`: makes and removes names of a kind (`ipc`, `terminals`, `processes`) in rounds, beside
//!   others that do the same with the same names, and checks each time that it meets nobody else's. It says
//!   `calm ROUNDS`. It starts itself as `born PARENT GROUP`.
//! - `ask tcp ADDRESS`: sends its standard input there, and says what it hears. `ask udp ADDRESS TEXT` likewise.
//! - `serve PORT`: repeats what it hears at that port, of TCP and UDP; it says `serving` when it does.
//! - `double PORT`: answers numbers at that port, one a line; `request ADDRESS` asks over one connection
//!   until its standard input ends, and says `connected`, and how many were answered. `get ADDRESS CONNECTIONS` and
//!   `increment ADDRESS CONNECTIONS` do so with a server of HTTP and with redis.
//! - `carrier`: says whether somebody is at the other end of the pod's interface.
//! - `kill-at STEP COMMAND..`: kills a command at its n-th step, see [`steps`]; `kill-at-of STEP PROCESS` one that
//!   runs.
//! - `measure`: says what calls about names cost here.
//!
//! A name that does not belong to it makes it fail, with one line that says which.

#![deny(unsafe_code)]

mod ipc;
mod measure;
mod network;
mod requests;
mod sockets;
mod steps;
mod storm;
mod tasks;
mod terminals;

use std::fs;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use requests::Connections::{Change, Stay};
use requests::{Protocol, request};

/// Why it fails.
type Failure = String;

/// Where it keeps files: names in directories that each pod has for itself.
const FILES: [&str; 2] = ["/tmp/bivouac-probe", "/dev/shm/bivouac-probe"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["kill-at", step, ref command @ ..] => steps::run(step, command),
        ["kill-at-of", step, process] => steps::attach(step, process),
        _ => probe(&words).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("pod-probe: {failure}");
        ExitCode::FAILURE
    })
}

/// What does not end with another's status.
fn probe(words: &[&str]) -> Result<(), Failure> {
    match words[..] {
        ["hold", tag] => hold(tag),
        ["measure"] => measure::measure(),
        // What is started to see what that costs.
        ["nothing"] => Ok(()),
        ["ask", "tcp", address] => network::ask(address),
        ["ask", "udp", address, text] => network::ask_udp(address, text),
        ["serve", port] => network::serve(port),
        ["double", port] => requests::double(port),
        ["double-slowly", port] => requests::double_slowly(port),
        ["request", address] => request(Protocol::Double, address, "1", Stay),
        ["request-anew", address, count] => request(Protocol::Double, address, count, Change),
        ["get", address, count] => request(Protocol::Http, address, count, Stay),
        ["increment", address, count] => request(Protocol::Redis, address, count, Stay),
        ["carrier"] => network::carrier(),
        ["storm", tag, kind, rounds] => rounds
            .parse()
            .map_err(|_| "no number of rounds".to_owned())
            .and_then(|rounds| storm::storm(tag, kind, rounds)),
        ["born", parent, group] => storm::born(parent, group),
        _ => {
            Err("usage: pod-probe hold TAG | storm TAG KIND ROUNDS | measure | ask tcp ADDRESS | \
                   ask udp ADDRESS TEXT | serve PORT | double PORT | request ADDRESS | \
                   get ADDRESS CONNECTIONS | increment ADDRESS CONNECTIONS | carrier"
                .to_owned())
        }
    }
}

/// Says a failure of the host's with what was done.
fn failed(what: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| format!("{what}: {error}")
}

fn hold(tag: &str) -> Result<(), Failure> {
    let mut said = String::new();
    let mut say = |kind: &str, value: &dyn std::fmt::Display| {
        said.push_str(&format!("{kind} {value}\n"));
    };
    let own = tasks::own();
    say("pid", &own.pid);
    say("group", &own.group);
    say("session", &own.session);
    say("host-name", &rustix::system::uname().nodename().to_string_lossy());
    let shared = ipc::SharedMemory::make(ipc::KEY)?;
    shared.write(tag);
    say("shared-memory", &shared.id);
    let queue = ipc::Queue::make(ipc::KEY)?;
    queue.send(tag)?;
    say("message-queue", &queue.id);
    let semaphores = ipc::Semaphores::make(ipc::KEY)?;
    semaphores.set(mark(tag))?;
    say("semaphores", &semaphores.id);
    let posix = ipc::PosixQueue::make()?;
    posix.send(tag)?;
    let listeners = sockets::Listeners::open(tag)?;
    let terminal = terminals::Terminal::open()?;
    say("terminal", &terminal.name()?);
    for path in FILES {
        fs::write(path, tag).map_err(failed(path))?;
    }
    print!("{said}");
    println!("ready");
    io::stdout().flush().map_err(failed("standard output"))?;
    let _ = io::stdin().read_to_end(&mut Vec::new());
    check("shared memory", &shared.read(), tag)?;
    check("message queue", &queue.receive()?, tag)?;
    check("semaphore", &semaphores.get()?.to_string(), &mark(tag).to_string())?;
    check("POSIX message queue", &posix.receive()?, tag)?;
    listeners.check(tag)?;
    terminal.check(tag)?;
    for path in FILES {
        check(path, &fs::read_to_string(path).map_err(failed(path))?, tag)?;
        fs::remove_file(path).map_err(failed(path))?;
    }
    println!("intact");
    Ok(())
}

/// A number for a tag, which fits into a semaphore.
fn mark(tag: &str) -> u16 {
    tag.bytes().fold(7, |sum: u16, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 30_000
}

/// What was found must be one's own.
fn check(what: &str, found: &str, tag: &str) -> Result<(), Failure> {
    match found == tag {
        true => Ok(()),
        false => Err(format!("the {what} of {tag} has {found:?}")),
    }
}
