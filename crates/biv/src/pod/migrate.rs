//! `biv pod migrate` and `biv pod receive`: a pod moves, for the most part while it runs.
//!
//! | sender | receiver |
//! | --- | --- |
//! | `BIVMOVE 2 NAME` | |
//! | frames: memory, while the pod runs; then it is frozen, and the rest of its image comes | keeps them in a file |
//! | an empty frame | makes the pod of it, frozen |
//! | | `READY`, or `NO` and why |
//! | `GO`: from here on it is the receiver's | lets it run |
//! | | `RUNS` |
//! | ends the pod | |
//!
//! What rules it: *one pod runs at the most, and one is there at the least*. Before `GO` the receiver removes what it
//! has when the line ends, and the sender lets the pod go on. After it the sender does neither by itself: its pod stays
//! frozen until it hears `RUNS`, and if it does not, the user is told.
//!
//! A receiver that is killed takes along what it has until then: the keeper of a pod that has not run yet ends with it.
//! If it is the sender that is killed while the image comes, the keeper writes to a pipe that nobody reads any more,
//! and lets the pod go on.
//!
//! The receiver believes nothing: what is sent is an image, which is checked as any other, and a name.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use api::client::Client;
use api::pod::{Checkpoint, Checkpointed, Record};
use api::{Entry, Name, Registry};
use pods::{STREAM_OFFSET, from_stream};
use rustix::pipe::{PipeFlags, pipe_with};
use spec::shown;

use super::checkpoint::{post, post_kill};
use super::line::Line;
use super::machine;
use crate::cli::Format;
use crate::cli::pod::{Migrate, Receive};
use crate::{life, print};

/// What a sender begins with.
const GREETING: &str = "BIVMOVE 2 ";
/// The destination of a pod in a machine that is to be on the host.
pub const HERE: &str = "here";

/// Why a pod was not moved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is not particular to moving.
    #[error(transparent)]
    Life(#[from] life::Error),
    /// A machine.
    #[error(transparent)]
    Machine(#[from] machine::Error),
    /// The report has no place.
    #[error("--format json is for destinations that are not reached over standard output")]
    Report,
    /// Only in a machine is it said here.
    #[error("--net is for machine:DOMAIN; elsewhere `biv pod receive --net` says it")]
    OtherNet,
    /// Neither a socket nor a host.
    #[error("{0:?} is no {1}")]
    Place(String, &'static str),
    /// The other side cannot be reached.
    #[error("cannot connect to {place}: {error}")]
    Connect {
        /// Where.
        place: String,
        /// Why.
        error: io::Error,
    },
    /// The line.
    #[error("the line to the other side: {0}")]
    Line(#[from] io::Error),
    /// The other side says no.
    #[error("the other side cannot have the pod: {0}")]
    Refused(String),
    /// The pod that has come cannot be made.
    #[error("{0}")]
    Restart(String),
    /// It does not speak as it should.
    #[error("the other side has gone, or is no `biv pod` of this version")]
    Gone,
    /// Nobody knows where the pod is.
    #[error(
        "the line was lost in the moment when the pod was given away; it stays frozen here. If it \
         runs there: biv pod rm -f {0}; if not: biv pod thaw {0}"
    )]
    GivenAway(Name),
}

impl From<api::registry::Error> for Error {
    fn from(error: api::registry::Error) -> Self {
        Error::Life(error.into())
    }
}

impl From<api::client::Error> for Error {
    fn from(error: api::client::Error) -> Self {
        Error::Life(error.into())
    }
}

/// `biv pod migrate`.
pub fn migrate(arguments: &Migrate) -> Result<(), Error> {
    if arguments.to == "-" {
        no_report(arguments)?;
    }
    let entry = Registry::of_pods()?.find(&arguments.name)?;
    let mut line = connect(&arguments.to, arguments.net.as_deref())?;
    let mut written = send(&mut line, &entry, arguments.compress)?;
    let is_written = Instant::now();
    if let Err(error) = hear_ready(&mut line).and_then(|()| Ok(line.say("GO")?)) {
        // Nothing has been given away.
        post(&entry, "/v1/pod/thaw")?;
        return Err(error);
    }
    match line.hear() {
        Ok(answer) if answer == "RUNS" => post_kill(&entry)?,
        _ => return Err(Error::GivenAway(entry.name.clone())),
    }
    // It runs there.
    written.frozen += u64::try_from(is_written.elapsed().as_millis()).unwrap_or(u64::MAX);
    match arguments.format {
        Format::Text => Ok(()),
        Format::Json => Ok(print::json(&written).map_err(life::Error::from)?),
    }
}

/// Refuses to report where standard output has the pod.
fn no_report(arguments: &Migrate) -> Result<(), Error> {
    match arguments.format {
        Format::Text => Ok(()),
        Format::Json => Err(Error::Report),
    }
}

/// Sends the image while it arises; the pod is frozen then. If that fails, it goes on.
fn send(line: &mut Line, entry: &Entry<Record>, compress: bool) -> Result<Checkpointed, Error> {
    line.say(&format!("{GREETING}{}", entry.name))?;
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let (written, sent) = std::thread::scope(|scope| {
        let writing = scope.spawn(move || write(entry, compress, to));
        let sent = line.send(File::from(from));
        (writing.join(), sent)
    });
    let written = written.map_err(|_| Error::Gone)?;
    let sent = match (&written, sent) {
        (Ok(_), Ok(())) => line.end_stream(),
        (_, sent) => sent,
    };
    let Err(error) = sent else { return Ok(written?) };
    if written.is_ok() {
        post(entry, "/v1/pod/thaw")?;
    }
    // Whoever does not want all of it says why.
    Err(hear_ready(line).err().unwrap_or(Error::Line(error)))
}

/// Has the keeper write the image into a pipe.
fn write(
    entry: &Entry<Record>,
    compress: bool,
    to: OwnedFd,
) -> Result<Checkpointed, api::client::Error> {
    let how = Checkpoint { compress, stays_frozen: true, streams: true, ..Checkpoint::default() };
    Client::connect(entry)?.post_with_file("/v1/pod/checkpoint", &how, to.as_fd())
}

/// Hears that the pod is there.
fn hear_ready(line: &mut Line) -> Result<(), Error> {
    let answer = line.hear()?;
    match answer.strip_prefix("NO ") {
        _ if answer == "READY" => Ok(()),
        Some(why) => Err(Error::Refused(shown::line(why))),
        None => Err(Error::Gone),
    }
}

fn connect(to: &str, net: Option<&str>) -> Result<Line, Error> {
    let failed = |error| Error::Connect { place: to.to_owned(), error };
    if let Some(machine) = to.strip_prefix("machine:").filter(|machine| !machine.is_empty()) {
        let net = net.into_iter().flat_map(|net| ["--net", net]);
        let receive: Vec<_> = ["receive"].into_iter().chain(net).chain(["-"]).collect();
        return Line::carried(machine::carrier(machine, &receive)?).map_err(failed);
    }
    if net.is_some() {
        return Err(Error::OtherNet);
    }
    let no_place =
        || Error::Place(to.to_owned(), "destination: unix:PATH, ssh:HOST, machine:DOMAIN or -");
    Line::to(to, "biv pod receive -").ok_or_else(no_place)?.map_err(failed)
}

/// `biv pod --in MACHINE migrate NAME here`: the machine sends, and the host receives.
pub fn fetch(machine: &str, arguments: &Migrate) -> Result<(), Error> {
    let failed = |error| Error::Connect { place: machine.to_owned(), error };
    no_report(arguments)?;
    let compress: &[&str] = if arguments.compress { &["--compress"] } else { &[] };
    let verb = [&["migrate"], compress, &[&arguments.name, "-"]].concat();
    let mut line = Line::carried(machine::carrier(machine, &verb)?).map_err(failed)?;
    let by_default = Receive { from: "-".to_owned(), ..Receive::default() };
    answer(&by_default, &mut line).map(drop)
}

/// `biv pod receive`.
pub fn receive(arguments: &Receive) -> Result<(), Error> {
    let failed = |error| Error::Connect { place: arguments.from.clone(), error };
    let mut line = match (arguments.from.as_str(), arguments.from.strip_prefix("unix:")) {
        ("-", _) => Line::standard(),
        (_, Some(path)) => match Line::accepted(Path::new(path)).map_err(failed)? {
            Some(line) => line,
            None => return Ok(()),
        },
        (from, None) => {
            return Err(Error::Place(from.to_owned(), "source: unix:PATH or -"));
        }
    };
    let name = answer(arguments, &mut line)?;
    if arguments.from != "-" {
        println_name(&name)?;
    }
    Ok(())
}

/// Takes a pod, whose name it returns, or says why not.
fn answer(arguments: &Receive, line: &mut Line) -> Result<Name, Error> {
    take(arguments, line).inspect_err(|error| {
        // It may have gone.
        let _ = line.say(&format!("NO {}", shown::line(&error.to_string())));
    })
}

fn println_name(name: &Name) -> io::Result<()> {
    writeln!(io::stdout(), "{name}")
}

/// Takes a pod, whose name it returns.
fn take(arguments: &Receive, line: &mut Line) -> Result<Name, Error> {
    let greeting = line.hear()?;
    let name = greeting.strip_prefix(GREETING).ok_or(Error::Gone)?;
    let name: Name = name.parse().map_err(|_| Error::Gone)?;
    let name = arguments.name.clone().unwrap_or(name);
    let mut file = host::nameless::file("pod")?;
    file.seek(SeekFrom::Start(STREAM_OFFSET))?;
    line.receive(&mut file).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Error::Gone,
        _ => Error::Line(error),
    })?;
    from_stream(&file).map_err(|_| Error::Gone)?;
    restart(arguments, &name, &file)?;
    let entry = Registry::of_pods()?.find(name.as_str())?;
    let given = line.say("READY").and_then(|()| line.hear());
    let runs = match given {
        Ok(word) if word == "GO" => post(&entry, "/v1/pod/thaw").map_err(Error::from),
        _ => Err(Error::Gone),
    };
    if let Err(error) = runs {
        // Nobody has given it away.
        let _ = post_kill(&entry);
        let _ = entry.wait();
        let _ = Registry::of_pods()?.remove(&name);
        return Err(error);
    }
    // The pod is here, whoever hears of it.
    let _ = line.say("RUNS");
    Ok(name)
}

/// Makes the pod, frozen, by the verb that does so.
fn restart(arguments: &Receive, name: &Name, file: &File) -> Result<(), Error> {
    let mut command = Command::new(std::env::current_exe()?);
    let own = std::process::id().to_string();
    command.args(["pod", "restart", "--detach", "--frozen", "--guard", &own]);
    command.args(["--name", name.as_str()]);
    if let Some(root) = &arguments.root {
        command.arg("--root").arg(root);
    }
    if let Some(image) = &arguments.image {
        command.args(["--image", image]);
    }
    command.args(arguments.rw.then_some("--rw")).args(arguments.rm.then_some("--rm"));
    if let Some(net) = &arguments.net {
        command.args(["--net", net]);
    }
    if let Some(network) = &arguments.network {
        command.args(["--network", network.as_str()]);
    }
    if let Some(address) = arguments.ip {
        command.args(["--ip", &address.to_string()]);
    }
    for ports in &arguments.publish {
        command.args(["--publish", ports]);
    }
    // The file has no name, but as one of ours.
    command.arg(format!("/proc/{own}/fd/{}", file.as_raw_fd()));
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().last().unwrap_or("biv pod restart failed");
            Err(Error::Restart(why.trim_start_matches("biv: ").to_owned()))
        }
    }
}
