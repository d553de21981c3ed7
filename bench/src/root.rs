//! The file system with applications: a Debian made by mmdebstrap, kept in the user's cache.
//!
//! Always the same release, so that the numbers of two hosts are about the same programs. Lua's
//! source comes from the same archive, as `apt-get source` gives it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::biv::provision;

/// The release.
const SUITE: &str = "bookworm";

/// Where it comes from: programs and sources.
const SOURCES: &str = "deb http://deb.debian.org/debian bookworm main\n\
    deb-src http://deb.debian.org/debian bookworm main\n";

/// What the scripts use, beside the smallest system.
const PACKAGES: &str = "gcc,make,libc6-dev,sqlite3,nginx-light,wrk,iperf3,povray,povray-examples";

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
const FETCH_LUA: &str = "cd \"$1/usr/src\" && \
    APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get source --download-only lua5.4 && \
    mkdir lua && tar -x -f lua5.4_*.orig.tar.* -C lua --strip-components=1";

/// The directory is renamed when what is above changes.
const EDITION: &str = "applications-1";

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

/// The directory, which is made if it is not there.
pub fn provide() -> Result<PathBuf, Error> {
    let cache = provision::cache_directory()?.join("bench");
    let place = cache.join(EDITION);
    if place.is_dir() {
        return Ok(place);
    }
    eprintln!("making a Debian with the applications; this is done once");
    let work = cache.join(format!("work-{}", std::process::id()));
    let fresh = work.join("root");
    fs::create_dir_all(&fresh).map_err(at(&fresh))?;
    let made = make(&work, &fresh).and_then(|()| fs::rename(&fresh, &place).map_err(at(&place)));
    let _ = fs::remove_dir_all(&work);
    // Another bench may have been faster.
    if place.is_dir() { Ok(place) } else { made.map(|()| place) }
}

fn make(work: &Path, fresh: &Path) -> Result<(), Error> {
    let (sources, archive) = (work.join("sources.list"), work.join("root.tar"));
    fs::write(&sources, SOURCES).map_err(at(&sources))?;
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--variant=minbase", &format!("--include={PACKAGES}")]);
    mmdebstrap.args(DPKG_OPTIONS.map(|option| format!("--dpkgopt={option}")));
    mmdebstrap.args(["--aptopt=APT::Install-Recommends \"false\""]);
    mmdebstrap.arg(format!("--customize-hook={FETCH_LUA}"));
    mmdebstrap.arg(SUITE).arg(&archive).arg(&sources);
    run("mmdebstrap", &mut mmdebstrap)?;
    // Devices cannot be made by an ordinary user, and every system has its own.
    let mut tar = Command::new("tar");
    tar.args(["-x", "--no-same-owner", "--exclude=./dev/*", "-f"]).arg(&archive);
    run("tar", tar.arg("-C").arg(fresh))?;
    let bench = fresh.join("bench");
    fs::create_dir_all(&bench).map_err(at(&bench))
}

fn run(program: &'static str, command: &mut Command) -> Result<(), Error> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| Error::Start { program, error })?;
    if output.status.success() {
        return Ok(());
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
