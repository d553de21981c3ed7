//! `biv cp`: a session in which the guest's init packs or unpacks files, and `biv` does the other
//! half.
//!
//! Three threads work at once: the session copies bytes between the domain's socket and pipes; one
//! thread packs or unpacks at the other end of the pipes; one keeps init's error messages. A thread
//! that ends closes its pipe, and so ends the others. Text of the guest's is printed without
//! control characters.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, PipeReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use archive::{Destination, Owner, Rules, Source};
use protocol::Order;
use protocol::copy::{self, Copy};

use super::Error;
use crate::cli::domains::Cp;
use api::client::Client;
use api::status;
use api::{Entry, Name, Registry, http};
use session::channel::Channel;
use session::terminal::{Escape, Mode};
use session::{Ending, Input, Line, Output, Outputs, Passing, Session, Signals};
use spec::shown;

/// The most of what init complains about.
const COMPLAINT_MAX_BYTES: u64 = 4096;

/// Where something is copied from or to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// An archive on a standard stream.
    Stream,
    /// A path here.
    Here(PathBuf),
    /// An absolute path in a domain's guest.
    Guest(Name, PathBuf),
}

impl End {
    /// What begins as paths do is one, whatever its names are.
    fn parse(text: &OsStr) -> End {
        let here = || End::Here(text.into());
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|&byte| byte == b':');
        match (bytes.first(), colon) {
            _ if bytes == b"-" => End::Stream,
            (Some(b'/' | b'.'), _) | (_, None) => here(),
            (_, Some(colon)) => {
                let name = std::str::from_utf8(&bytes[..colon]).ok();
                let Some(name) = name.and_then(|name| name.parse().ok()) else { return here() };
                let path = OsStr::from_bytes(&bytes[colon + 1..]);
                End::Guest(name, Path::new("/").join(path))
            }
        }
    }
}

/// `biv cp`; returns the status.
pub fn cp(arguments: &Cp) -> Result<u8, Error> {
    match (End::parse(&arguments.from), End::parse(&arguments.to)) {
        (End::Guest(name, path), End::Stream) => take(arguments, &name, path, None),
        (End::Guest(name, path), End::Here(to)) => take(arguments, &name, path, Some(to)),
        (End::Stream, End::Guest(name, path)) => give(arguments, &name, path, None),
        (End::Here(from), End::Guest(name, path)) => give(arguments, &name, path, Some(from)),
        _ => Err(Error::TwoEnds),
    }
}

/// What a copy is called in a directory; without a name, what is in it is copied.
fn name_of(path: &Path) -> Option<OsString> {
    path.file_name().filter(|_| !archive::names_contents(path)).map(OsStr::to_owned)
}

/// Takes files out of a guest: to a path, or as an archive.
fn take(arguments: &Cp, name: &Name, from: PathBuf, to: Option<PathBuf>) -> Result<u8, Error> {
    if to.is_none() && io::stdout().is_terminal() {
        return Err(Error::Terminal);
    }
    let destination = to.map(|to| Destination::Copy(to, name_of(&from)));
    let order =
        Copy::Out { path: from.into_os_string().into_vec(), follows_link: arguments.follow_link };
    let talk = Talk::begin(name, order)?;
    let Some(destination) = destination else {
        return talk.carry(Input::None, Outputs::default().stdout, None);
    };
    let owner = if arguments.archive { Owner::Kept } else { Owner::Ours };
    let (stream, output) = io::pipe()?;
    let unpacking = std::thread::spawn(move || {
        let left_out = archive::unpack(stream, &destination, &Rules::of_a_stranger(owner))?;
        if left_out > 0 {
            // Standard error may be closed; all else has gone well.
            let _ = writeln!(io::stderr(), "biv: devices were left out ({left_out})");
        }
        Ok(())
    });
    talk.carry(Input::None, Output::own("files", output.into()), Some(unpacking))
}

/// Gives a guest files: those at a path, or those of an archive.
fn give(arguments: &Cp, name: &Name, to: PathBuf, from: Option<PathBuf>) -> Result<u8, Error> {
    let source = from.as_deref().map(|from| Source::find(from, arguments.follow_link)).transpose();
    let source = source.map_err(|error| Error::Files(shown::line(&error.to_string())))?;
    let name_there = match from.as_deref().map(name_of) {
        None => copy::Name::AsItIs,
        Some(None) => copy::Name::Contents,
        Some(Some(name)) => copy::Name::Copy(name.into_vec()),
    };
    let order = Copy::In {
        path: to.into_os_string().into_vec(),
        name: name_there,
        keeps_owners: arguments.archive,
    };
    let talk = Talk::begin(name, order)?;
    let unused = Outputs::default().stdout;
    let Some(source) = source else { return talk.carry(Input::Ours, unused, None) };
    let (input, stream) = io::pipe()?;
    let packing = std::thread::spawn(move || archive::pack(&source, io::BufWriter::new(stream)));
    talk.carry(Input::From(input.into()), unused, Some(packing))
}

/// A thread that packs or unpacks.
type Files = JoinHandle<Result<(), archive::Error>>;

/// A session that has begun.
struct Talk {
    name: Name,
    channel: Channel,
    signals: Signals,
}

impl Talk {
    /// Orders init to copy. Threads are to be started later, because of the signals.
    fn begin(name: &Name, copy: Copy) -> Result<Talk, Error> {
        let entry: Entry = Registry::open()?.find(name.as_str())?;
        let (stream, received) =
            Client::connect(&entry)?.upgrade("/v1/domain/exec", http::FRAMES)?;
        let line = Line::of(stream)?;
        let order = Order {
            arguments: copy.into_arguments(),
            directory: b"/".to_vec(),
            is_own: true,
            joins_streams: false,
            ..Order::default()
        };
        let channel = Channel::new(line, &order)?.after(&received).ends_unread();
        Ok(Talk { name: name.clone(), channel, signals: Signals::block()? })
    }

    /// Carries bytes until all have ended, and says how it went: by the status, or by the first cause.
    fn carry(self, input: Input, stdout: Output, files: Option<Files>) -> Result<u8, Error> {
        let (complaints, stderr) = io::pipe()?;
        let listener = std::thread::spawn(move || listen(complaints));
        let session = Session {
            link: self.channel,
            machine: None,
            deadline: None,
            mode: Mode::Lines,
            escape: Escape::default(),
            passing: Passing::Interrupt,
            signals: self.signals,
            outputs: Outputs { stdout, stderr: Output::own("messages", stderr.into()) },
            input,
            report: None,
        };
        // The pipes are closed when this returns.
        let ending = session.run();
        let complaint = listener.join().unwrap_or_default();
        let files = files.map_or(Ok(()), |files| {
            files.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let files =
            files.map_err(|error| (is_consequence(&error), shown::line(&error.to_string())));
        match (ending?, files) {
            (Ending::Exited(0), Ok(())) => Ok(status::SUCCESS),
            (Ending::Exited(0), Err((_, text))) | (_, Err((false, text))) => {
                Err(Error::Files(text))
            }
            (Ending::Exited(_), _) => Err(Error::FilesInGuest(self.name, complaint)),
            (Ending::Signaled(signal) | Ending::Killed(signal), _) => Ok(status::of_signal(signal)),
            (Ending::Escaped | Ending::TimedOut | Ending::MachineEnded, _) => Err(Error::Lost),
        }
    }
}

/// Whether it only says that the session has ended.
fn is_consequence(error: &archive::Error) -> bool {
    matches!(error, archive::Error::Short | archive::Error::Stream(_))
}

/// The first line of what init complains about.
fn listen(mut from: PipeReader) -> String {
    let mut text = Vec::new();
    let _ = from.by_ref().take(COMPLAINT_MAX_BYTES).read_to_end(&mut text);
    let _ = io::copy(&mut from, &mut io::sink());
    shown::line(String::from_utf8_lossy(&text).lines().next().unwrap_or("init does not say why"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let check = |text: &str, expected| assert_eq!(End::parse(OsStr::new(text)), expected);
        let here = |path: &str| End::Here(path.into());
        let guest = |path: &str| End::Guest("web".parse().unwrap(), path.into());
        check("-", End::Stream);
        check("file", here("file"));
        check("./web:/file", here("./web:/file"));
        check("/web:/file", here("/web:/file"));
        check("not a name:file", here("not a name:file"));
        check("web:/etc/hosts", guest("/etc/hosts"));
        check("web:etc", guest("/etc"));
        check("web:", guest("/"));
        check("web:a:b", guest("/a:b"));
        check("web:/dir/.", guest("/dir/."));
    }
}
