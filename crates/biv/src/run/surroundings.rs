//! What of the host a domain that goes on from a snapshot is given: said to `biv restore`, or recorded when the
//! domain was started and vouched for by this user's `biv` ([`crate::seal`]).
//!
//! 1. *There is one language.* What is recorded are the options of `biv restore` that say the same, with absolute
//!    paths, and no others: nothing else of a file becomes an option. So a file that nobody vouches for can be
//!    asked what it wants, in words that the user can type.
//! 2. *What is said wins, one kind at a time*: root, volumes, disks, network, ports.
//! 3. *What is for watching or debugging a machine is not recorded*: consoles and traces in files, `--no-seccomp`,
//!    how code is executed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{PathBuf, absolute};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, ValueHint};

use super::directories::Volume;
use super::disk;
use crate::cli::{Run, parse_seconds};
use crate::network::{Net, Published};

/// Where the help puts them.
const HEADING: &str = "What the machine has of the host (in the place of what it had)";

/// The most of a snapshot's wishes that is shown.
const SHOWN_MAX_BYTES: usize = 2000;

/// See above.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Surroundings {
    /// Use DIR as the guest's file system, as `biv run --root` does
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = HEADING)]
    pub root: Option<PathBuf>,

    /// Let the guest write to the directory that --root names
    #[arg(long, requires = "root", help_heading = HEADING)]
    pub root_rw: bool,

    /// Let the guest give files there set-user-ID bits, as `biv run --root-suid` does
    #[arg(long, requires = "root_rw", help_heading = HEADING)]
    pub root_suid: bool,

    /// Let the guest write to --directory also where that is your home directory, or has it in it
    #[arg(long, conflicts_with_all = ["root", "image", "root_disk"], help_heading = HEADING)]
    pub here: bool,

    /// Use the root file system that `biv image build` has made under that name
    #[arg(long, value_name = "NAME", conflicts_with = "root", help_heading = HEADING)]
    pub image: Option<String>,

    /// Be in DIR, as if the machine had been started there: one that looks like the host (without --root)
    /// has DIR as its current directory, and writes to it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = HEADING)]
    pub directory: Option<PathBuf>,

    /// Show the directory HOST in the guest at GUEST, as `biv run --volume` does
    #[arg(long, value_name = "HOST:GUEST[:ro]", help_heading = HEADING)]
    pub volume: Vec<Volume>,

    /// Give the machine a disk, as `biv run --disk` does
    #[arg(long, value_name = "FILE[,ro]", value_hint = ValueHint::FilePath, help_heading = HEADING,
        value_parser = OsStringValueParser::new().try_map(disk::parse_disk))]
    pub disk: Vec<disk::Argument>,

    /// Give it the disk that has its root file system
    #[arg(long, value_name = "FILE[,part=N]", value_hint = ValueHint::FilePath, help_heading = HEADING,
        conflicts_with_all = ["root", "image"],
        value_parser = OsStringValueParser::new().try_map(disk::parse_root))]
    pub root_disk: Option<disk::Root>,

    /// Connect the machine: none, user, user,host, user,host,backend=passt, user,backend=builtin or tap:NAME
    #[arg(long, value_name = "NETWORK", help_heading = HEADING)]
    pub net: Option<Net>,

    /// Lead a port of the host's to one of the guest's: [IP:]HOSTPORT:GUESTPORT[/udp]
    #[arg(short, long, value_name = "PORTS", help_heading = HEADING)]
    pub publish: Vec<Published>,

    /// End the machine after SECONDS, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = HEADING)]
    pub timeout: Option<std::time::Duration>,
}

/// The parser of what was recorded.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Recorded {
    #[command(flatten)]
    surroundings: Surroundings,
}

/// What a machine's directories are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Likeness {
    /// Its root is shared with the host.
    pub has_shared_root: bool,
    /// It sees the directory in which it was started.
    pub sees_directory: bool,
}

impl Surroundings {
    /// Those of a machine that `biv run` starts here, with this network.
    ///
    /// # Errors
    ///
    /// There is no current directory.
    pub fn of(run: &Run, net: Net, likeness: Likeness) -> io::Result<Self> {
        let directory = likeness.sees_directory.then(std::env::current_dir).transpose()?;
        Self {
            root: run.root.clone().filter(|_| likeness.has_shared_root),
            root_rw: run.root_rw && likeness.has_shared_root,
            root_suid: run.root_suid && likeness.has_shared_root,
            here: run.here,
            image: run.image.clone().filter(|_| likeness.has_shared_root),
            directory,
            volume: run.volume.clone(),
            disk: run.disk.clone(),
            root_disk: run.root_disk.clone(),
            net: Some(net),
            publish: run.publish.clone(),
            timeout: run.timeout,
        }
        .absolute()
    }

    /// The same from any directory.
    ///
    /// # Errors
    ///
    /// There is no current directory.
    pub fn absolute(mut self) -> io::Result<Self> {
        let volumes = self.volume.iter_mut().map(|volume| &mut volume.host);
        let disks = self.disk.iter_mut().flat_map(disk::Argument::paths_mut);
        let root_disk = self.root_disk.iter_mut().flat_map(|root| root.disk.paths_mut());
        let directories = self.root.iter_mut().chain(&mut self.directory);
        for path in volumes.chain(disks).chain(root_disk).chain(directories) {
            *path = absolute(&*path)?;
        }
        Ok(self)
    }

    /// The options that say this.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let Self {
            root,
            root_rw,
            root_suid,
            here,
            image,
            directory,
            volume,
            disk,
            root_disk,
            net,
            publish,
            timeout,
        } = self;
        let mut words = Vec::new();
        let mut add = |option: &str, value: OsString| {
            // One word, whatever the value begins with.
            words.push([OsStr::new(option), &value].join(OsStr::new("=")));
        };
        root.iter().for_each(|root| add("--root", root.into()));
        image.iter().for_each(|image| add("--image", image.into()));
        directory.iter().for_each(|directory| add("--directory", directory.into()));
        volume.iter().for_each(|volume| add("--volume", volume.word()));
        root_disk.iter().for_each(|root| add("--root-disk", root.word()));
        disk.iter().for_each(|disk| add("--disk", disk.word()));
        net.iter().for_each(|net| add("--net", net.to_string().into()));
        publish.iter().for_each(|published| add("--publish", published.to_string().into()));
        let seconds = timeout.map(|timeout| timeout.as_secs_f64().to_string());
        seconds.into_iter().for_each(|seconds| add("--timeout", seconds.into()));
        for (option, is_said) in
            [("--root-rw", *root_rw), ("--root-suid", *root_suid), ("--here", *here)]
        {
            words.extend(is_said.then(|| option.into()));
        }
        words
    }

    /// The inverse of [`Self::words`]; none for anything else.
    #[must_use]
    pub fn parse(words: Vec<OsString>) -> Option<Self> {
        Recorded::try_parse_from(words).ok().map(|recorded| recorded.surroundings)
    }

    /// Whether it says where the root comes from.
    fn has_root(&self) -> bool {
        self.root.is_some() || self.image.is_some() || self.root_disk.is_some()
    }

    /// This, and what it does not speak of as `recorded` has it.
    #[must_use]
    pub fn or(self, recorded: Self) -> Self {
        let root = if self.has_root() { &self } else { &recorded };
        let (root_path, root_rw, root_suid) = (root.root.clone(), root.root_rw, root.root_suid);
        let here = if self.directory.is_some() { self.here } else { self.here || recorded.here };
        let (image, root_disk) = (root.image.clone(), root.root_disk.clone());
        Self {
            root: root_path,
            root_rw,
            root_suid,
            here,
            image,
            root_disk,
            directory: self.directory.or(recorded.directory),
            volume: if self.volume.is_empty() { recorded.volume } else { self.volume },
            disk: if self.disk.is_empty() { recorded.disk } else { self.disk },
            net: self.net.or(recorded.net),
            publish: if self.publish.is_empty() { recorded.publish } else { self.publish },
            timeout: self.timeout.or(recorded.timeout),
        }
    }

    /// What is `wanted` of the host and not spoken of here, of which some may be refused by saying so.
    #[must_use]
    pub fn missing(&self, wanted: &Self) -> Self {
        let wanted = wanted.clone();
        let is_placed = self.has_root() || self.directory.is_some();
        let is_like_the_host = !wanted.has_root();
        let has_net = self.net.is_some() || wanted.net == Some(Net::None);
        Self {
            root: wanted.root.filter(|_| !self.has_root()),
            root_rw: wanted.root_rw && !self.has_root(),
            root_suid: wanted.root_suid && !self.has_root(),
            here: wanted.here && !self.here && !is_placed,
            image: wanted.image.filter(|_| !self.has_root()),
            root_disk: wanted.root_disk.filter(|_| !self.has_root()),
            directory: wanted.directory.filter(|_| is_like_the_host && !is_placed),
            volume: if self.volume.is_empty() { wanted.volume } else { Vec::new() },
            disk: if self.disk.is_empty() { wanted.disk } else { Vec::new() },
            net: wanted.net.filter(|_| !has_net),
            publish: if self.publish.is_empty() { wanted.publish } else { Vec::new() },
            timeout: None,
        }
    }

    /// As it would be typed, whatever it is: a file may have made it up.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = self.words().iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        if text.len() > SHOWN_MAX_BYTES {
            let end = (0..=SHOWN_MAX_BYTES).rev().find(|&end| text.is_char_boundary(end));
            text.truncate(end.unwrap_or(0));
            text.push_str("...");
        }
        text
    }

    /// Puts it into the arguments of a machine.
    pub fn apply(self, run: &mut Run) {
        run.root = self.root;
        run.root_rw = self.root_rw;
        run.root_suid = self.root_suid;
        run.here = self.here;
        run.image = self.image;
        run.volume = self.volume;
        run.disk = self.disk;
        run.root_disk = self.root_disk;
        // Without a word there is none: the default is for who starts a machine of his own.
        run.net = Some(self.net.unwrap_or(Net::None));
        run.publish = self.publish;
        run.timeout = self.timeout;
    }
}

/// A word for a shell, with what a terminal would act on shown as text.
fn quoted(word: &OsStr) -> String {
    let text = String::from_utf8_lossy(word.as_bytes());
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:,=+@".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn surroundings(words: &[&str]) -> Surroundings {
        Surroundings::parse(words.iter().map(OsString::from).collect()).expect("they are options")
    }

    const ALL: [&str; 20] = [
        "--root",
        "/srv/a root",
        "--root-rw",
        "--directory",
        "/home/me",
        "--volume",
        "/data:/data",
        "--volume",
        "/src:/usr/src:ro",
        "--disk",
        "/a,,b.img,ro,format=raw",
        "--net",
        "user,host,backend=passt",
        "--publish",
        "127.0.0.1:8080:80",
        "--publish",
        "53:53/udp",
        "--timeout",
        "2.5",
        "--disk=/other",
    ];

    #[test]
    fn words_say_the_same_again() {
        let all = surroundings(&ALL);
        assert_eq!(Surroundings::parse(all.words()), Some(all));
        let disk = surroundings(&["--root-disk", "/img,part=2,ro", "--net", "tap:tap0"]);
        assert_eq!(Surroundings::parse(disk.words()), Some(disk));
        let path = OsString::from_vec(b"/\xff\n".to_vec());
        let odd = Surroundings { root: Some(path.into()), ..Surroundings::default() };
        assert_eq!(Surroundings::parse(odd.words()), Some(odd.clone()));
        assert_eq!(odd.shown(), "'--root=/\u{fffd}\\n'");
    }

    #[test]
    fn nothing_else_is_recorded() {
        let others = [
            "--console=/tmp/x",
            "--debug-console=/tmp/x",
            "--no-seccomp",
            "--perf-map",
            "--trace-blocks=/tmp/x",
            "--kernel=/tmp/x",
            "--help",
            "run",
        ];
        for other in others {
            assert_eq!(Surroundings::parse(vec![other.into()]), None, "{other}");
        }
    }

    #[test]
    fn what_is_said_takes_the_place_of_what_was_recorded() {
        let all = surroundings(&ALL);
        assert_eq!(Surroundings::default().or(all.clone()), all);
        let said = surroundings(&["--image", "pg", "--net", "none", "--volume", "/x:/y"]);
        let both = said.or(all.clone());
        assert_eq!((both.root.as_ref(), both.root_rw, both.net), (None, false, Some(Net::None)));
        assert_eq!((both.image.as_deref(), both.volume.len()), (Some("pg"), 1));
        assert_eq!((both.disk, both.publish), (all.disk, all.publish));
    }

    #[test]
    fn what_is_wanted_has_to_be_named() {
        let missing = |said: &[&str], wanted: &[&str]| {
            surroundings(said).missing(&surroundings(wanted)).shown()
        };
        assert_eq!(missing(&[], &["--net", "none"]), "");
        let host = ["--directory", "/home/me", "--net", "user", "--timeout", "9"];
        assert_eq!(missing(&[], &host), "--directory=/home/me --net=user");
        assert_eq!(missing(&["--directory", "/tmp", "--net", "none"], &host), "");
        assert_eq!(missing(&["--root", "/srv"], &host), "--net=user");
        let root = ["--root", "/", "--directory", "/home/me", "--volume", "/a:/b"];
        assert_eq!(missing(&["--directory", "/tmp"], &root), "--root=/ --volume=/a:/b");
    }
}
