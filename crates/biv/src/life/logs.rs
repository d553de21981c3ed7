//! `biv logs`: reads the domain's log files, whether the domain lives or not.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use host::poll::{PollFlags, wait_for};
use rustix::fs::inotify;

use super::{Error, Named};
use crate::cli::domains::Logs;
use api::log::{Line, Reader, Selection, Stream, last_lines, time_of};
use api::{Entry, files};

/// How often it is looked whether the domain still lives.
const LOOK: Duration = Duration::from_millis(300);

/// `biv logs`.
pub fn logs<R: Named>(arguments: &Logs) -> Result<(), Error> {
    let mut entry = R::registry()?.find(&arguments.name)?;
    let mut reader = match Reader::open(&entry.directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NoLog(R::KIND, entry.name));
        }
        reader => reader?,
    };
    // What is watched from before the first look cannot be missed.
    let watch = arguments.view.follow.then(|| watch(&entry)).transpose()?;
    let mut printer = Printer { timestamps: arguments.view.timestamps, at_start: [true; 2] };
    let lines = read(&mut reader, arguments)?;
    let shown = arguments.view.tail.map_or(&lines[..], |count| last_lines(&lines, count));
    printer.print(shown)?;
    if let Some(watch) = watch {
        // What came before the end is read after it was seen.
        while entry.alive {
            let ready = wait_for(&watch, PollFlags::IN, Some(Instant::now() + LOOK));
            if !ready.is_ok_and(|ready| ready.is_empty()) {
                let _ = rustix::io::read(&watch, &mut [0; 4096]);
            }
            entry.read_again();
            printer.print(&read(&mut reader, arguments)?)?;
        }
    }
    if let Some(reason) = super::ps::reason(&entry).filter(|_| !arguments.console) {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "biv: {}: {reason}", entry.name);
    }
    Ok(())
}

/// What the log has had since the last time, of what is wanted.
fn read(reader: &mut Reader, arguments: &Logs) -> io::Result<Vec<Line>> {
    let mut lines = reader.read()?;
    let wanted = Selection {
        since: arguments.view.since.map(time_of).unwrap_or_default(),
        until: arguments.view.until.map(time_of),
        console: arguments.console,
    };
    lines.retain(|line| wanted.has(line));
    Ok(lines)
}

/// What becomes readable when the log changes.
fn watch<R>(entry: &Entry<R>) -> io::Result<std::os::fd::OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    for name in files::LOGS {
        inotify::add_watch(
            &watch,
            files::path(&entry.directory, name),
            inotify::WatchFlags::MODIFY,
        )?;
    }
    Ok(watch)
}

struct Printer {
    timestamps: bool,
    /// Whether what comes next is the beginning of a line, of each stream.
    at_start: [bool; 2],
}

impl Printer {
    fn print(&mut self, lines: &[Line]) -> io::Result<()> {
        let of = |line: &Line| usize::from(line.stream == Stream::Stderr);
        // Whoever has both streams on a terminal, or in one file, sees everything in its order.
        for run in lines.chunk_by(|one, next| of(one) == of(next)) {
            let mut text = Vec::new();
            for line in run {
                let start = &mut self.at_start[of(line)];
                let bytes = line.bytes();
                if self.timestamps && *start {
                    text.extend_from_slice(line.time.as_bytes());
                    text.push(b' ');
                }
                *start = bytes.ends_with(b"\n");
                text.extend_from_slice(&bytes);
            }
            match run.first().map(of) {
                Some(1) => io::stderr().write_all(&text)?,
                _ => {
                    io::stdout().write_all(&text)?;
                    io::stdout().flush()?;
                }
            }
        }
        Ok(())
    }
}
