//! The host's apt, for an ordinary user: with its sources, keys and transport settings, and with
//! state of our own.
//!
//! apt's configuration may contain commands to run (images of container engines empty the system's
//! package cache after each update, for instance). Therefore apt gets a configuration of its own,
//! made from what `apt-config dump` prints about sources, keys and transport, and no other.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use super::limits::APT_SILENCE_TIMEOUT;
use super::progress::Progress;

/// What is not: which lists to fetch is our business.
const DROPPED_SETTINGS: &[&str] = &["Acquire::IndexTargets", "Acquire::Languages"];

/// What is taken over from the host's configuration.
const KEPT_SETTINGS: &[&str] = &[
    "Acquire::",
    "Dir::Etc::sourcelist ",
    "Dir::Etc::sourceparts ",
    "Dir::Etc::trusted ",
    "Dir::Etc::trustedparts ",
    "Dir::Etc::netrc ",
    "Dir::Etc::netrcparts ",
];

/// How often to look whether apt-get can still go on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A file system with less than this is full: a package of the kernel's has more than 10 MiB.
const FULL_BYTES: u64 = 1 << 20;

/// Why apt did not deliver.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no apt here.
    #[error("cannot download: {0} is not installed on this host")]
    NoApt(&'static str),
    /// It could not be run or given its files.
    #[error("{what}: {error}")]
    Io {
        /// A program or a file.
        what: String,
        /// What is wrong with it.
        error: io::Error,
    },
    /// None of the sources has the package.
    #[error("apt's sources on this host have no package {0}")]
    NoPackage(String),
    /// There is no such suite, or nowhere to get it from.
    #[error("apt's sources on this host are not Debian's, or {0:?} is not the name of a suite")]
    NoSuite(String),
    /// The sources could not be read, and so had no package either.
    #[error("apt could not update the package lists: {0}")]
    Update(String),
    /// Nothing fits there.
    #[error("the disk of {path} is full; make room, or set XDG_CACHE_HOME", path = .0.display())]
    Full(PathBuf),
    /// It hangs.
    #[error("apt-get has said nothing new for {} seconds, and was \
             ended", APT_SILENCE_TIMEOUT.as_secs())]
    Silent,
    /// It said why.
    #[error("apt could not download {package}: {reason}")]
    Download {
        /// What was wanted.
        package: String,
        /// Its first complaint.
        reason: String,
    },
}

/// Variables that apt's programs get: where programs are found and how the network is reached. A copy of all of
/// them would stay in this process's memory, which is to become a machine's.
const VARIABLES: [&str; 13] = [
    "ALL_PROXY",
    "FTP_PROXY",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "PATH",
    "TMPDIR",
    "all_proxy",
    "ftp_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

fn environment() -> impl Iterator<Item = (&'static str, OsString)> {
    let ours = [("LC_ALL", OsString::from("C"))];
    VARIABLES.iter().filter_map(|&name| Some((name, std::env::var_os(name)?))).chain(ours)
}

/// A source of Debian's main packages.
struct Source {
    site: String,
    codename: String,
}

/// Those that the host's apt has, but for security updates.
fn sources() -> Result<Vec<Source>, Error> {
    let format = "$(SITE) $(RELEASE) $(COMPONENT)";
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", format, "Created-By: Packages"]);
    targets.env_clear().envs(environment());
    let listed = run(&mut targets, "apt-get")?;
    let source = |line: &str| {
        let mut words = line.split(' ');
        let (site, codename) = (words.next()?.to_owned(), words.next()?.to_owned());
        let is_main = words.next() == Some("main");
        (is_main && !codename.contains("security")).then_some(Source { site, codename })
    };
    Ok(String::from_utf8_lossy(&listed.stdout).lines().filter_map(source).collect())
}

/// From where the host's apt gets its packages.
pub fn site() -> Option<String> {
    sources().ok()?.into_iter().next().map(|source| source.site)
}

/// The suite with newer packages for the host's own release, if it is Debian's.
pub fn backports() -> Result<Option<String>, Error> {
    let source = sources()?.into_iter().next();
    let release = source.and_then(|source| source.codename.split('-').next().map(str::to_owned));
    Ok(release.map(|release| format!("{release}-backports")))
}

/// apt with private state.
#[derive(Debug)]
pub struct Apt {
    directory: PathBuf,
    configuration: PathBuf,
    /// What was wrong with the sources when their lists were read.
    complaint: Option<String>,
}

impl Apt {
    /// Prepares private directories and a configuration under `work`.
    pub fn prepare(work: &Path) -> Result<Apt, Error> {
        let directory = work.join("apt");
        for below in ["state/lists/partial", "cache/archives/partial", "log", "download"] {
            let path = directory.join(below);
            fs::create_dir_all(&path).map_err(at(&path))?;
        }
        let status = directory.join("state/status");
        fs::write(&status, "").map_err(at(&status))?;
        let host = run(Command::new("apt-config").arg("dump"), "apt-config")?;
        let configuration = directory.join("apt.conf");
        let text = private_configuration(&host.stdout, &directory);
        fs::write(&configuration, text).map_err(at(&configuration))?;
        Ok(Apt { directory, configuration, complaint: None })
    }

    /// Fetches the lists of packages. Sources that fail are left out; whether one is missed shows
    /// later.
    pub fn update(&mut self, progress: &Progress) -> Result<(), Error> {
        progress.say("reading the lists of packages");
        let mut update = self.command("apt-get");
        update.args(["update", "-o", "APT::Update::Error-Mode=any"]);
        self.complaint = self.follow(&mut update, progress)?;
        if let Some(complaint) = &self.complaint {
            tracing::info!("apt-get update: {complaint}");
        }
        Ok(())
    }

    /// Why there is none of this name.
    pub fn no_package(&self, name: &str) -> Error {
        match &self.complaint {
            Some(complaint) => Error::Update(complaint.clone()),
            None => Error::NoPackage(name.to_owned()),
        }
    }

    /// Use one suite of Debian's instead of the host's sources, from where these get theirs.
    pub fn use_suite(&self, suite: &str) -> Result<(), Error> {
        let is_name = |name: &str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./".contains(&byte))
        };
        let site = sources()?.into_iter().next().map(|source| source.site);
        let site = site.filter(|_| is_name(suite) && !suite.is_empty());
        let site = site.ok_or_else(|| Error::NoSuite(suite.to_owned()))?;
        let list = self.directory.join("sources.list");
        // Keys that are for one source only are not for this one, but Debian's are where they always are.
        let keyring = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
        let options = match keyring.is_file() {
            true => format!("[signed-by={}] ", keyring.display()),
            false => String::new(),
        };
        fs::write(&list, format!("deb {options}{site} {suite} main\n")).map_err(at(&list))?;
        let mut text = fs::read_to_string(&self.configuration).map_err(at(&self.configuration))?;
        text.push_str(&format!(
            "Dir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"/dev/null\";\n",
            list.display()
        ));
        fs::write(&self.configuration, text).map_err(at(&self.configuration))
    }

    /// What the lists say of a package; nothing if they have none of that name.
    pub fn show(&self, package: &str) -> Result<String, Error> {
        let mut show = self.command("apt-cache");
        let shown = run(show.args(["show", "--no-all-versions", package]), "apt-cache")?;
        Ok(String::from_utf8_lossy(&shown.stdout).into_owned())
    }

    /// Downloads a package; apt checks that it is what the signed lists say.
    pub fn download(&self, package: &str, progress: &Progress) -> Result<PathBuf, Error> {
        progress.say(&format!("downloading {package}"));
        let directory = self.directory.join("download");
        let mut download = self.command("apt-get");
        download.args(["download", package]).current_dir(&directory);
        let complaint = self.follow(&mut download, progress)?;
        let prefix = format!("{package}_");
        let entries = fs::read_dir(&directory).map_err(at(&directory))?;
        let file = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.file_name().is_some_and(|name| starts_with(name, &prefix)));
        match (complaint, file) {
            (None, Some(file)) => Ok(file),
            (Some(reason), _) if reason.contains("Unable to locate package") => {
                Err(self.no_package(package))
            }
            (reason, _) => Err(Error::Download {
                package: package.to_owned(),
                reason: reason.unwrap_or_else(|| "it left no file".to_owned()),
            }),
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(environment())
            .env("APT_CONFIG", &self.configuration)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        command
    }

    /// Shows how far apt-get is until it says no more, or nothing new any more: on a full disk it waits for ever,
    /// and says again and again how far it is.
    fn listen(&self, stream: ChildStdout, progress: &Progress) -> Result<(), Error> {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
            // The receiver is gone once the wait has timed out.
            lines.try_for_each(|line| sender.send(line))
        });
        let (mut said, mut heard, mut looked) = (String::new(), Instant::now(), Instant::now());
        loop {
            match lines.recv_timeout(LOOK_AGAIN) {
                Ok(line) => {
                    download_percent(&line).into_iter().for_each(|percent| progress.set(percent));
                    // What is said again and again is no progress.
                    if line != said {
                        (said, heard) = (line, Instant::now());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if looked.elapsed() >= LOOK_AGAIN {
                looked = Instant::now();
                if is_full(&self.directory) {
                    return Err(Error::Full(self.directory.clone()));
                }
            }
            if heard.elapsed() > APT_SILENCE_TIMEOUT {
                return Err(Error::Silent);
            }
        }
    }

    /// Runs apt-get and shows its progress; returns its first complaint if it failed.
    fn follow(&self, command: &mut Command, progress: &Progress) -> Result<Option<String>, Error> {
        let mut child = command
            .args(["-q", "-o", "APT::Status-Fd=1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| spawn_error("apt-get", error))?;
        let complaints = child.stderr.take().map(|mut stream| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                // What cannot be read is lost; the status still tells.
                let _ = stream.read_to_end(&mut text);
                text
            })
        });
        if let Some(stream) = child.stdout.take()
            && let Err(trouble) = self.listen(stream, progress)
        {
            // It may have ended by itself by now.
            let _ = child.kill();
            let _ = child.wait();
            return Err(trouble);
        }
        let status = child.wait().map_err(|error| spawn_error("apt-get", error))?;
        if status.success() {
            return Ok(None);
        }
        let complaints = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let complaint = first_complaint(&complaints);
        Ok(Some(complaint.unwrap_or_else(|| format!("apt-get failed ({status})"))))
    }
}

/// Whether nothing could be written to the file system of a directory.
fn is_full(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|found| found.f_bavail * found.f_frsize < FULL_BYTES)
}

fn starts_with(name: &std::ffi::OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = path.display().to_string();
    move |error| Error::Io { what, error }
}

fn spawn_error(program: &'static str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::NoApt(program),
        _ => Error::Io { what: program.to_owned(), error },
    }
}

fn run(command: &mut Command, program: &'static str) -> Result<std::process::Output, Error> {
    command.stdin(Stdio::null()).output().map_err(|error| spawn_error(program, error))
}

/// A configuration with the host's sources and transport, and state below `directory`.
fn private_configuration(host: &[u8], directory: &Path) -> String {
    let mut text = String::new();
    for line in String::from_utf8_lossy(host).lines() {
        let matches = |settings: &[&str]| settings.iter().any(|name| line.starts_with(name));
        if matches(KEPT_SETTINGS) && !matches(DROPPED_SETTINGS) {
            text.push_str(line);
            text.push('\n');
        }
    }
    let directory = directory.display();
    text.push_str(&format!(
        "Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\n\
         Dir::State \"{directory}/state\";\n\
         Dir::State::status \"{directory}/state/status\";\n\
         Dir::Cache \"{directory}/cache\";\n\
         Dir::Log \"{directory}/log\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Sandbox::User \"root\";\n\
         APT::Install-Recommends \"false\";\n\
         APT::Get::AllowUnauthenticated \"false\";\n\
         Acquire::AllowInsecureRepositories \"false\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"2\";\n\
         Acquire::http::Timeout \"30\";\n\
         Acquire::https::Timeout \"30\";\n"
    ));
    text
}

/// The percentage in `dlstatus:ITEM:PERCENT:TEXT` (apt's README.progress-reporting).
fn download_percent(line: &str) -> Option<f64> {
    line.strip_prefix("dlstatus:")?.split(':').nth(1)?.parse().ok()
}

/// The first line with which apt says that something failed.
fn first_complaint(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text
        .lines()
        .find(|line| line.starts_with("E: "))
        .or_else(|| text.lines().find(|line| !line.trim().is_empty()))?;
    Some(line.trim_start_matches("E: ").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_of_the_host_are_not_taken_over() {
        let host = b"Acquire::http::Proxy \"http://proxy:3128\";\n\
            APT::Update::Post-Invoke:: \"rm -f /var/cache/apt/archives/*.deb\";\n\
            Acquire::IndexTargets::deb::Contents-deb::MetaKey \"x\";\n\
            DPkg::Post-Invoke:: \"rm -f /var/cache/apt/archives/*.deb\";\n\
            Dir::State \"var/lib/apt\";\n";
        let text = private_configuration(host, Path::new("/tmp/x"));
        assert!(text.starts_with("Acquire::http::Proxy \"http://proxy:3128\";\nDir::Etc::main"));
        assert!(!text.contains("Invoke"));
        assert!(text.contains("Dir::State \"/tmp/x/state\";\n"));
    }

    #[test]
    fn progress_and_complaints_are_understood() {
        assert_eq!(download_percent("dlstatus:1:20.45:Retrieving file 1 of 2"), Some(20.45));
        assert_eq!(download_percent("Get:1 http://deb.debian.org"), None);
        let text = b"W: odd\nE: Failed to fetch x  Connection refused\nE: second\n";
        assert_eq!(first_complaint(text).as_deref(), Some("Failed to fetch x  Connection refused"));
    }
}
