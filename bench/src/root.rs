//! The file system with applications: a Debian made by mmdebstrap, kept in the user's cache, as a directory and
//! as an ext4 image of it.
//!
//! Always the same release, so that the numbers of two hosts are about the same programs. The sources of Lua and
//! SQLite come from the same archive, as `apt-get source` gives them; so does what is in the repository that
//! git clones, which is Go's library.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The release.
const SUITE: &str = "bookworm";

/// Where it comes from: programs and sources.
const SOURCES: &str = "deb http://deb.debian.org/debian bookworm main\n\
    deb-src http://deb.debian.org/debian bookworm main\n";

/// What the scripts use, beside the smallest system. (tcl makes SQLite's sources into one file.)
const PACKAGES: &str = "\
    gcc,make,libc6-dev,sqlite3,nginx-light,wrk,apache2-utils,iperf3,povray,povray-examples,\
    lua5.4,python3,golang-go,nodejs,git,postgresql,redis-server,tcl";

/// What nobody reads is not unpacked into every machine's memory.
const DPKG_OPTIONS: [&str; 8] = [
    "path-exclude=/usr/share/doc/*",
    // dpkg does not make the directories of what it is told to include after all.
    "path-include=/usr/share/doc/povray",
    "path-include=/usr/share/doc/povray/examples",
    "path-include=/usr/share/doc/povray/examples/advanced",
    "path-include=/usr/share/doc/povray/examples/advanced/benchmark",
    "path-include=/usr/share/doc/povray/examples/advanced/benchmark/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
];

/// Run in the new system's /usr/src, outside of it.
const FETCH_SOURCES: &str = "cd \"$1/usr/src\" && \
    APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get source --download-only lua5.4 sqlite3 && \
    mkdir lua sqlite3-tree && tar -x -f lua5.4_*.orig.tar.* -C lua --strip-components=1 && \
    tar -x -f sqlite3_*.orig.tar.* -C sqlite3-tree --strip-components=1 && rm -f -- *.tar.* *.dsc";

/// Run in the new system: SQLite in one file, and a repository of Go's library.
const MAKE_SOURCES: &str = "set -e; cd /usr/src/sqlite3-tree; ./configure >/dev/null; make \
                            sqlite3.c shell.c >/dev/null; \
    mkdir ../sqlite; mv sqlite3.c sqlite3.h shell.c ../sqlite/; cd ..; rm -r sqlite3-tree; \
    mkdir /tmp/library; cd /tmp/library; cp -r /usr/share/go-*/src/. .; \
    git init -q .; git add -f .; \
    git -c user.name=bench -c user.email=bench commit -q -m library; \
    git clone -q --bare . /usr/src/library.git; git -C /usr/src/library.git gc -q; \
    cd /; rm -r /tmp/library; \
    rm -rf /var/lib/postgresql /var/cache/apt /var/lib/apt/lists";

/// The directory is renamed when what is above changes.
const EDITION: &str = "applications-2";

/// Room in the image beside its files, in parts of their size.
const ROOM: f64 = 0.15;

/// Why there are no applications.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nowhere to keep them.
    #[error(transparent)]
    Cache(#[from] provision::Error),
    /// A program.
    #[error(
        "cannot run {program}: {error}; install {program}, or leave out what needs it (--only)"
    )]
    Start {
        /// Which.
        program: &'static str,
        /// What is wrong with it.
        error: io::Error,
    },
    /// It said why.
    #[error(
        "cannot make the system with the applications: {program} failed: {reason} (mmdebstrap \
         needs root, or user namespaces and a line in /etc/subuid)"
    )]
    Failed {
        /// Which.
        program: &'static str,
        /// What it complained about.
        reason: String,
    },
    /// A file.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
}

/// The applications' file system.
#[derive(Debug, Clone)]
pub struct Applications {
    /// As a directory.
    pub directory: PathBuf,
    /// As an ext4 image of the same, without a journal.
    pub image: PathBuf,
}

impl Applications {
    fn in_place(place: &Path) -> Applications {
        Applications { directory: place.join("root"), image: place.join("root.ext4") }
    }
}

/// Both, which are made if they are not there.
pub fn provide() -> Result<Applications, Error> {
    let cache = provision::cache_directory().map_err(provision::Error::from)?.join("bench");
    let place = cache.join(EDITION);
    if place.is_dir() {
        return Ok(Applications::in_place(&place));
    }
    eprintln!("making a Debian with the applications; this is done once");
    let work = cache.join(format!("work-{}", std::process::id()));
    let fresh = work.join("fresh");
    let made = make(&work, &Applications::in_place(&fresh))
        .and_then(|()| fs::rename(&fresh, &place).map_err(at(&place)));
    let _ = fs::remove_dir_all(&work);
    // Another bench may have been faster.
    let done = Applications::in_place(&place);
    if place.is_dir() { Ok(done) } else { made.map(|()| done) }
}

fn make(work: &Path, fresh: &Applications) -> Result<(), Error> {
    let directory = &fresh.directory;
    fs::create_dir_all(directory).map_err(at(directory))?;
    let (sources, archive) = (work.join("sources.list"), work.join("root.tar"));
    fs::write(&sources, SOURCES).map_err(at(&sources))?;
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--variant=minbase", &format!("--include={PACKAGES}")]);
    mmdebstrap.args(DPKG_OPTIONS.map(|option| format!("--dpkgopt={option}")));
    mmdebstrap.args(["--aptopt=APT::Install-Recommends \"false\""]);
    mmdebstrap.arg(format!("--customize-hook={FETCH_SOURCES}"));
    mmdebstrap.arg(format!("--customize-hook=chroot \"$1\" sh -c '{MAKE_SOURCES}'"));
    mmdebstrap.arg(SUITE).arg(&archive).arg(&sources);
    run("mmdebstrap", &mut mmdebstrap)?;
    // Devices cannot be made by an ordinary user, and every system has its own.
    let mut tar = Command::new("tar");
    tar.args(["-x", "--no-same-owner", "--exclude=./dev/*", "-f"]).arg(&archive);
    run("tar", tar.arg("-C").arg(directory))?;
    let bench = directory.join("bench");
    fs::create_dir_all(&bench).map_err(at(&bench))?;
    let kib = run("du", Command::new("du").args(["-s", "-k", "--apparent-size"]).arg(directory))?;
    let kib: f64 = kib.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    // Every file ends in a block of 4 KiB that it does not fill, which the apparent size does not count.
    let size = format!("{}k", (kib * (1.0 + ROOM)) as u64 + (256 << 10));
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "root_owner=0:0", "-d"]);
    run("mkfs.ext4", mkfs.arg(directory).arg(&fresh.image).arg(size)).map(drop)
}

fn run(program: &'static str, command: &mut Command) -> Result<String, Error> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| Error::Start { program, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let complaint = text.lines().find(|line| line.starts_with("E: ")).or(text.lines().last());
    Err(Error::Failed { program, reason: complaint.unwrap_or("it did not say why").into() })
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |error| Error::File { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_the_program_complained_about() {
        let mut broken = Command::new("sh");
        broken
            .args(["-c", "echo 'I: going on'>&2; echo 'E: no such suite'>&2; echo end>&2; exit 1"]);
        let text = run("sh", &mut broken).unwrap_err().to_string();
        assert!(text.contains("sh failed: E: no such suite"), "{text}");
        let missing = run("no-such", &mut Command::new("/no/such/program")).unwrap_err();
        assert!(missing.to_string().contains("--only"));
    }
}
