//! `biv serve`: the server of the crate [`serve`], which has this program's verbs started as processes of their own.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;

use api::{Registry, files, registry};
use serve::{Execution, Place, Program, Server, Snapshot, Usage, Verb, Web, socket};

use crate::cli::Serve;
use crate::life::Group;
use crate::print;

/// The first descriptor of those that a service manager hands over (sd_listen_fds(3)).
const FIRST_PASSED: i32 = 3;

/// What a service manager says of them. It is not for the processes that are started.
const PASSED: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry, which the socket is in.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// The socket.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// The socket of a service manager.
    #[error("cannot use the socket that this process was started with: {0}")]
    Passed(io::Error),
    /// The port for browsers.
    #[error("cannot serve a web page: {0}")]
    Web(io::Error),
    /// There are several.
    #[error("this process was started with {0} sockets; one is served")]
    Several(u32),
    /// The host.
    #[error("cannot serve: {0}")]
    Host(#[from] io::Error),
}

/// `biv serve`.
///
/// # Errors
///
/// There is a server already, or the host's.
pub fn serve(arguments: &Serve) -> Result<(), Error> {
    let registry = Registry::open()?;
    host::inherited::raise_descriptor_limit();
    let (listener, place) = match passed()? {
        Some(listener) => (listener, None),
        None => {
            let socket = arguments.socket.clone();
            let socket = socket.unwrap_or_else(|| registry.path().join(files::SERVER));
            let (listener, place) = Place::listen(&socket)?;
            (listener, Some(place))
        }
    };
    let web = arguments.web.map(Web::listen).transpose().map_err(Error::Web)?;
    if let Some(web) = &web {
        print::text(&format!("{}\n", web.url()))?;
    }
    let server = Server { program: Box::new(This), listener, place, web, idle: arguments.idle };
    Ok(server.run()?)
}

/// The socket that a service manager has started this process with, if it has.
fn passed() -> Result<Option<UnixListener>, Error> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number(PASSED[0]) != Some(std::process::id()) {
        return Ok(None);
    }
    match number(PASSED[1]) {
        Some(1) => {
            let passed = host::inherited::take_marked(FIRST_PASSED).and_then(listening);
            Ok(Some(passed.map_err(Error::Passed)?))
        }
        Some(count @ 2..) => Err(Error::Several(count)),
        _ => Ok(None),
    }
}

/// A descriptor as a Unix socket that listens.
fn listening(descriptor: OwnedFd) -> io::Result<UnixListener> {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    let is_stream = sockopt::socket_type(&descriptor)? == SocketType::STREAM;
    let is_unix = sockopt::socket_domain(&descriptor)? == AddressFamily::UNIX;
    match is_stream && is_unix && sockopt::socket_acceptconn(&descriptor)? {
        true => Ok(UnixListener::from(descriptor)),
        false => Err(io::Error::other("it is no Unix socket that listens (ListenStream=PATH)")),
    }
}

/// This program.
struct This;

impl Program for This {
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn command(&self, verb: &Verb) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("biv").args(words(verb));
        for name in PASSED {
            command.env_remove(name);
        }
        command
    }

    fn usage(&self, process: i32) -> Usage {
        let Group { computed, memory, read, written, .. } = Group::of(process);
        Usage { computed, memory, read, written }
    }
}

/// The command line of a verb. Names begin with no hyphen, and other values are joined to their options.
fn words(verb: &Verb) -> Vec<std::ffi::OsString> {
    let mut words: Vec<std::ffi::OsString> = Vec::new();
    let mut say = |more: &[&str]| words.extend(more.iter().map(Into::into));
    match verb {
        Verb::Create(_) => say(&["run", "--spec", "-"]),
        Verb::Start(name) => say(&["start", name.as_str()]),
        Verb::Stop(name, seconds) => say(&["stop", &format!("--time={seconds}"), name.as_str()]),
        Verb::Kill(name, None) => say(&["kill", name.as_str()]),
        Verb::Kill(name, Some(signal)) => {
            say(&["kill", &format!("--signal={signal}"), name.as_str()]);
        }
        Verb::Remove(name, true) => say(&["rm", "--force", name.as_str()]),
        Verb::Remove(name, false) => say(&["rm", name.as_str()]),
        Verb::Snapshot(name, Snapshot { file, compress, force }) => {
            say(&["snapshot", "--format=json"]);
            say(if *compress { &["--compress"] } else { &[] });
            say(if *force { &["--force"] } else { &[] });
            say(&[name.as_str()]);
            words.push(file.into());
        }
        Verb::Execute(name, Execution { args, env, directory, user, input }) => {
            say(&["exec"]);
            say(if input.is_some() { &["--interactive"] } else { &[] });
            env.iter().for_each(|one| say(&[&format!("--env={one}")]));
            directory.iter().for_each(|one| say(&[&format!("--workdir={one}")]));
            user.iter().for_each(|one| say(&[&format!("--user={one}")]));
            say(&[name.as_str(), "--"]);
            args.iter().for_each(|one| say(&[one]));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Verb as Typed};

    fn typed(verb: &Verb) -> Typed {
        let line = std::iter::once("biv".into()).chain(words(verb));
        Cli::try_parse_from(line).expect("it is a command line of ours").verb
    }

    fn name() -> api::Name {
        "web".parse().expect("a name")
    }

    #[test]
    fn every_verb_is_one_of_the_command_line() {
        assert!(matches!(typed(&Verb::Create(Box::default())), Typed::Run(_)));
        assert!(matches!(typed(&Verb::Start(name())), Typed::Start(_)));
        assert!(matches!(typed(&Verb::Stop(name(), 0)), Typed::Stop(stop) if stop.time == 0));
        assert!(matches!(typed(&Verb::Kill(name(), None)), Typed::Kill(kill) if kill.signal == 9));
        let signal = Verb::Kill(name(), Some(64));
        assert!(matches!(typed(&signal), Typed::Kill(kill) if kill.signal == 64));
        assert!(matches!(typed(&Verb::Remove(name(), true)), Typed::Rm(rm) if rm.force));
        assert!(matches!(typed(&Verb::Remove(name(), false)), Typed::Rm(rm) if !rm.force));
        let wanted = Snapshot { file: "/a b/-c".into(), compress: true, force: true };
        let Typed::Snapshot(snapshot) = typed(&Verb::Snapshot(name(), wanted.clone())) else {
            panic!("it is another verb")
        };
        assert_eq!((snapshot.file, snapshot.name.as_str()), (wanted.file, "web"));
        assert!(snapshot.compress && snapshot.force);
    }

    #[test]
    fn no_word_of_a_command_is_an_option() {
        let execution = Execution {
            args: ["--tty", "--", "-x"].map(str::to_owned).to_vec(),
            env: vec!["A=--tty".to_owned()],
            directory: Some("--user=x".to_owned()),
            user: Some("-1".to_owned()),
            input: None,
        };
        let Typed::Exec(exec) = typed(&Verb::Execute(name(), execution)) else {
            panic!("it is another verb")
        };
        assert_eq!(exec.command, ["--tty", "--", "-x"]);
        assert_eq!((exec.name.as_str(), exec.user.as_deref()), ("web", Some("-1")));
        assert_eq!(exec.workdir, Some("--user=x".into()));
        assert!(!exec.tty && !exec.interactive);
    }
}
