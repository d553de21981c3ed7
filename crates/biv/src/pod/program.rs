//! This program in a machine: the host's file where the machine sees it, and otherwise a copy, in `/run`, which the
//! machine's memory holds.
//!
//! A copy has no more of the file than is mapped when it runs. What only debuggers read, symbols and lines, lies behind
//! that, and is most of a program that was not stripped.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use spec::shown;

/// What a machine's copies of this program are called, before what tells which program it is.
const COPY: &str = "/run/biv-of-host";

/// Prints the path of a file that has this size and time of modification, or else of a copy that is complete.
const FIND: &str = "if [ \"$(stat -L -c '%s %Y' \"$0\" 2>/dev/null)\" = \"$2\" ]; then echo \"$0\"
    elif [ -x \"$1\" ]; then echo \"$1\"; fi";

/// Makes a copy, and removes those of others. One that does not run is of no use.
const PUT: &str =
    "cat >/run/.biv-of-host.$$ && chmod 755 /run/.biv-of-host.$$ && mv /run/.biv-of-host.$$ \"$0\"
    status=$?
    [ $status != 0 ] || \"$0\" --version >/dev/null 2>&1 || { rm -f \"$0\"; status=9; }
    rm -f /run/.biv-of-host.$$
    for other in /run/biv-of-host-*; do [ \"$other\" = \"$0\" ] || rm -f \"$other\"; done
    exit $status";

/// The status of that if it does not run.
const NOT_EXECUTABLE: i32 = 9;

/// The file's header (ELF-64, System V ABI, chapter 4): its length, and where it says where the program headers are and
/// how many.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADERS: usize = 32;
const PROGRAM_HEADER_BYTES: usize = 56;
const PROGRAM_HEADER_COUNT: usize = 56;

/// Where it speaks of sections, which a copy has none of: their place, how many, and which has their names.
const OF_SECTIONS: [(usize, usize); 2] = [(40, 8), (60, 4)];

/// Of a program header: where what is mapped begins in the file, and its length.
const OFFSET: usize = 8;
const LENGTH: usize = 32;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has none of ours.
    #[error("there is no biv in the machine {0}, and none can be put there")]
    NoProgram(String),
    /// It does not run there.
    #[error(
        "biv does not run in the machine {0}, whose root lacks the C library that it needs; give \
         it a root that has one (--root, --image)"
    )]
    NoLibrary(String),
    /// A session.
    #[error("cannot run biv in the machine {machine}: {error}")]
    Session {
        /// In which.
        machine: String,
        /// Why.
        error: io::Error,
    },
}

/// What has gone wrong with a session in a machine.
pub fn failed(machine: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |error| Error::Session { machine: shown::line(machine), error }
}

/// Where this program is in a machine; it is put there if it is not.
pub fn place(machine: &str) -> Result<OsString, Error> {
    let own = std::env::current_exe().map_err(failed(machine))?;
    let metadata = std::fs::metadata(&own).map_err(failed(machine))?;
    let identity = format!("{} {}", metadata.size(), metadata.mtime());
    let copy = format!("{COPY}-{}", identity.replace(' ', "-"));
    let mut find = Command::new(&own);
    find.args(["exec", machine, "sh", "-c", FIND]).stdin(Stdio::null());
    let said = find.arg(&own).args([&copy, &identity]).stderr(Stdio::inherit()).output();
    let said = said.map_err(failed(machine))?;
    let none = || Error::NoProgram(shown::line(machine));
    if !said.status.success() {
        return Err(none());
    }
    if let Some(place) = String::from_utf8_lossy(&said.stdout).lines().next() {
        return Ok(place.into());
    }
    match put(&own, machine, &copy).map_err(failed(machine))?.code() {
        Some(0) => Ok(copy.into()),
        Some(NOT_EXECUTABLE) => Err(Error::NoLibrary(shown::line(machine))),
        _ => Err(none()),
    }
}

/// Copies the program, over a session; how that has ended.
fn put(own: &Path, machine: &str, copy: &str) -> io::Result<ExitStatus> {
    let program = Program::open(File::open("/proc/self/exe")?)?;
    let mut put = Command::new(own);
    put.args(["exec", "-i", machine, "sh", "-c", PUT, copy]).stdin(Stdio::piped());
    let mut session = put.spawn()?;
    if let Some(mut line) = session.stdin.take() {
        // If it has ended before, its status says so.
        let _ = io::copy(&mut program.read(), &mut line);
    }
    session.wait()
}

/// What is mapped of a program.
struct Program {
    header: [u8; HEADER_BYTES],
    file: File,
    bytes: u64,
}

impl Program {
    fn open(file: File) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let count = u16::from_le_bytes(array(&header, PROGRAM_HEADER_COUNT));
        let place = u64::from_le_bytes(array(&header, PROGRAM_HEADERS));
        let mut headers = vec![0; usize::from(count) * PROGRAM_HEADER_BYTES];
        file.read_exact_at(&mut headers, place)?;
        let end_of = |header: &[u8]| {
            let [offset, length] = [OFFSET, LENGTH].map(|at| u64::from_le_bytes(array(header, at)));
            offset.saturating_add(length)
        };
        let ends = headers.chunks_exact(PROGRAM_HEADER_BYTES).map(end_of);
        let mapped = ends.max().unwrap_or(0).max(place + headers.len() as u64);
        for (at, length) in OF_SECTIONS {
            header[at..at + length].fill(0);
        }
        let bytes = mapped.min(file.metadata()?.len());
        Ok(Self { header, file, bytes })
    }

    fn read(&self) -> impl Read + '_ {
        let rest = Part { file: &self.file, at: HEADER_BYTES as u64 };
        self.header.chain(rest.take(self.bytes.saturating_sub(HEADER_BYTES as u64)))
    }
}

/// A file from some place on.
struct Part<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// So many bytes of a header, which has them.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_copy_without_what_debuggers_read_runs() {
        let own = File::open("/proc/self/exe").unwrap();
        let all = own.metadata().unwrap().len();
        let program = Program::open(own).unwrap();
        let path = std::env::temp_dir().join(format!("biv-copy-{}", std::process::id()));
        let mut copy = File::create(&path).unwrap();
        io::copy(&mut program.read(), &mut copy).unwrap();
        copy.set_permissions(std::fs::Permissions::from_mode(0o700)).unwrap();
        drop(copy);
        assert!(path.metadata().unwrap().len() < all, "nothing was left out");
        let listed = Command::new(&path).arg("--list").output().unwrap();
        std::fs::remove_file(path).unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("a_copy_without_what_debuggers_read_runs: test"), "{listed}");
    }
}
