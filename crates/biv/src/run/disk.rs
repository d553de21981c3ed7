//! `--disk`: files that the guest has as disks. Everything is opened here, before the machine runs.
//!
//! A file's format is what the user says, or what its first bytes say; one that was only taken for raw
//! is kept from becoming something else ([`vmm::disk::Raw`]).

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vmm::disk::{Disk, Image, Named, Overlay, QCOW2_MAGIC, Qcow2, Qcow2Error, Raw, SECTOR_BYTES};

use super::say;

mod lock;

/// What the default kernel needs for them, in the order in which it is loaded.
pub const DRIVERS: [&str; 1] = ["virtio_blk"];

/// A disk, as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// The file.
    pub path: PathBuf,
    /// The guest may not write.
    pub read_only: bool,
    /// What the guest writes vanishes with it.
    pub snapshot: bool,
    /// What the file is, if the user has said so.
    pub format: Option<Format>,
    /// The files that it may refer to.
    pub named: Named,
}

/// What a file is to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The disk's bytes.
    Raw,
    /// QEMU's format.
    Qcow2,
}

/// Why a file is no disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path} as a disk: {reason}", path = path.display())]
pub struct Error {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("{0}")]
    Open(io::Error),
    #[error("{0}; with ,ro or ,snapshot it need not be writable")]
    OpenToWrite(io::Error),
    #[error("it is a directory")]
    Directory,
    #[error("it is neither a file nor a block device")]
    Kind,
    #[error("it has {0} bytes, which is less than one sector of 512")]
    TooSmall(u64),
    #[error("it is no qcow2 image")]
    NotQcow2,
    #[error("the qcow2 image cannot be opened: {0}")]
    Qcow2(Qcow2Error),
    #[error("it is no qcow2 image, and refers to no other file")]
    RefersToNothing,
    #[error("another machine uses it (QEMU, or biv){}", if *.read_only { " and writes to it" } else { "; with ,ro two may read it" })]
    InUse { read_only: bool },
    #[error(
        "the machine's root is an image as it was when it started; that has been built anew since, or is not named \
         (--image)"
    )]
    OtherImage,
    #[error("no room for what the guest writes: {0}")]
    Snapshot(io::Error),
}

impl Argument {
    /// The word that is read as this.
    #[must_use]
    pub fn word(&self) -> OsString {
        let Self { path, read_only, snapshot, format, named } = self;
        let mut word = escaped(path);
        let format = match format {
            None => "",
            Some(Format::Raw) => ",format=raw",
            Some(Format::Qcow2) => ",format=qcow2",
        };
        let read_only = if *read_only { ",ro" } else { "" };
        let snapshot = if *snapshot { ",snapshot" } else { "" };
        word.extend([read_only, snapshot, format].concat().as_bytes());
        for (option, files) in [(",backing=", &named.backing), (",data-file=", &named.data)] {
            for file in files {
                word.extend(option.as_bytes());
                word.extend(escaped(file));
            }
        }
        OsString::from_vec(word)
    }

    /// The files that it names.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let Named { backing, data } = &mut self.named;
        [&mut self.path].into_iter().chain(backing).chain(data)
    }

    /// Whether something is kept that the guest writes.
    #[must_use]
    pub fn keeps_writes(&self) -> bool {
        !self.read_only && !self.snapshot
    }
}

/// A file's name in the word of a disk, where two commas are one.
fn escaped(path: &Path) -> Vec<u8> {
    let double = |&byte: &u8| std::iter::repeat_n(byte, 1 + usize::from(byte == b','));
    path.as_os_str().as_bytes().iter().flat_map(double).collect()
}

/// A disk that has the root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Which.
    pub disk: Argument,
    /// The number of the partition; without one, it is the whole disk.
    pub partition: Option<u8>,
}

impl Root {
    /// The word that is read as this.
    #[must_use]
    pub fn word(&self) -> OsString {
        let Self { disk, partition } = self;
        let mut word = disk.word();
        partition.iter().for_each(|number| word.push(format!(",part={number}")));
        word
    }

    /// What it is called in the guest, whose first disk it is.
    #[must_use]
    pub fn device(&self) -> String {
        self.partition.map_or("vda".to_owned(), |number| format!("vda{number}"))
    }
}

/// Reads `FILE[,ro][,snapshot][,format=raw|qcow2][,backing=FILE]...[,data-file=FILE]`; in the name of a file,
/// two commas are one.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse_disk(text: OsString) -> Result<Argument, String> {
    let (argument, rest) = parse(&text)?;
    match rest.first() {
        None => Ok(argument),
        Some(part) => Err(unknown(part, "")),
    }
}

/// The same, with `,part=N`.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse_root(text: OsString) -> Result<Root, String> {
    let (disk, rest) = parse(&text)?;
    let mut root = Root { disk, partition: None };
    for part in rest {
        let number = part.strip_prefix("part=").ok_or_else(|| unknown(&part, ", part=N"))?;
        let number = number.parse().ok().filter(|number| *number > 0);
        root.partition = Some(number.ok_or("partitions have numbers from 1 to 255")?);
    }
    Ok(root)
}

fn unknown(part: &str, more: &str) -> String {
    format!(
        "'{part}' is none of ro, snapshot, format=raw, format=qcow2, backing=FILE, data-file=FILE{more} (a \
         comma in the name of a file is written twice)"
    )
}

/// What is said of any disk, and the rest.
fn parse(text: &OsStr) -> Result<(Argument, Vec<String>), String> {
    let mut parts = split(text.as_bytes()).into_iter();
    let path = parts.next().unwrap_or_default();
    if path.is_empty() {
        return Err("no file is named".to_owned());
    }
    let path = PathBuf::from(OsString::from_vec(path));
    let named = Named::default();
    let mut argument = Argument { path, read_only: false, snapshot: false, format: None, named };
    let mut rest = Vec::new();
    for part in parts {
        match part.as_slice() {
            b"ro" => argument.read_only = true,
            b"snapshot" => argument.snapshot = true,
            b"format=raw" => argument.format = Some(Format::Raw),
            b"format=qcow2" => argument.format = Some(Format::Qcow2),
            other => match referred(other) {
                Some((b"backing", file)) => argument.named.backing.push(file),
                Some((b"data-file", file)) => argument.named.data.push(file),
                _ => rest.push(String::from_utf8_lossy(other).into_owned()),
            },
        }
    }
    Ok((argument, rest))
}

/// `KEY=FILE`.
fn referred(part: &[u8]) -> Option<(&[u8], PathBuf)> {
    let at = part.iter().position(|byte| *byte == b'=')?;
    let (key, file) = (&part[..at], &part[at + 1..]);
    (!file.is_empty()).then(|| (key, PathBuf::from(OsStr::from_bytes(file))))
}

/// Splits at single commas.
fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = bytes.iter().peekable();
    while let Some(&byte) = bytes.next() {
        if byte == b',' && bytes.next_if_eq(&&b',').is_none() {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(byte);
        }
    }
    parts
}

/// Opens disks, in their order.
///
/// # Errors
///
/// Those of [`open`].
pub fn open_all<'a>(all: impl Iterator<Item = &'a Argument>) -> Result<Vec<Disk>, Error> {
    all.map(open).collect()
}

/// A machine whose root is an image goes on without that image as it was: `name` is another, or none.
pub fn other_image(name: &str) -> Error {
    Error { path: name.into(), reason: Reason::OtherImage }
}

/// Opens a disk and everything that belongs to it.
///
/// # Errors
///
/// [`Error`] says what to do.
pub fn open(argument: &Argument) -> Result<Disk, Error> {
    let Argument { path, read_only, snapshot, .. } = argument;
    let failed = |reason| Error { path: path.clone(), reason };
    let image = open_image(argument).map_err(failed)?;
    let image: Box<dyn Image> = match snapshot {
        true => {
            let top = nameless().map_err(|error| failed(Reason::Snapshot(error)))?;
            let overlay = Overlay::new(image, top);
            Box::new(overlay.map_err(|error| failed(Reason::Snapshot(error)))?)
        }
        false => image,
    };
    let serial = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Disk {
        serial,
        name: path.display().to_string(),
        image,
        read_only: *read_only,
        complain: Arc::new(say),
    })
}

fn open_image(argument: &Argument) -> Result<Box<dyn Image>, Reason> {
    let writes = argument.keeps_writes();
    let file = open_locked(&argument.path, writes)?;
    let length = (&file).seek(SeekFrom::End(0)).map_err(Reason::Open)?;
    let mut magic = [0; QCOW2_MAGIC.len()];
    let is_qcow2 = file.read_exact_at(&mut magic, 0).is_ok() && magic == QCOW2_MAGIC;
    match argument.format {
        Some(Format::Qcow2) if !is_qcow2 => Err(Reason::NotQcow2),
        None | Some(Format::Qcow2) if is_qcow2 => qcow2(argument, file, writes),
        _ if argument.named != Named::default() => Err(Reason::RefersToNothing),
        format => raw(argument, file, length, format.is_none()),
    }
}

fn qcow2(argument: &Argument, file: File, writes: bool) -> Result<Box<dyn Image>, Reason> {
    let open = |path: &Path, writes| {
        open_locked(path, writes).map_err(|reason| io::Error::other(reason.to_string()))
    };
    let named = argument.named.clone();
    let image = Qcow2::new(file, &argument.path, writes, named, open).map_err(Reason::Qcow2)?;
    match image.bytes() {
        0 => Err(Reason::TooSmall(0)),
        _ => Ok(Box::new(image)),
    }
}

/// Opens a file that nobody writes to meanwhile, or nobody uses if it `writes`.
fn open_locked(path: &Path, writes: bool) -> Result<File, Reason> {
    let file = open_file(path, writes)?;
    match lock::lock(&file, writes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(Reason::InUse { read_only: !writes });
        }
        // Some file systems have no locks.
        Err(error) => tracing::info!("{}: not locked: {error}", path.display()),
        Ok(()) => {}
    }
    Ok(file)
}

fn raw(
    argument: &Argument,
    file: File,
    length: u64,
    is_guessed: bool,
) -> Result<Box<dyn Image>, Reason> {
    if length < SECTOR_BYTES {
        return Err(Reason::TooSmall(length));
    }
    if !length.is_multiple_of(SECTOR_BYTES) {
        let (name, more) = (argument.path.display(), length % SECTOR_BYTES);
        say(&format!("the last {more} bytes of {name} are no whole sector; the guest lacks them"));
    }
    Ok(Box::new(Raw::new(file, length, is_guessed)))
}

/// Opens a file or a block device, and nothing that would block.
fn open_file(path: &Path, writes: bool) -> Result<File, Reason> {
    let mut options = OpenOptions::new();
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = options.read(true).write(writes).custom_flags(nonblocking).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::IsADirectory => Reason::Directory,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if writes => {
            Reason::OpenToWrite(error)
        }
        _ => Reason::Open(error),
    })?;
    let kind = file.metadata().map_err(Reason::Open)?.file_type();
    match kind {
        kind if kind.is_dir() => Err(Reason::Directory),
        kind if kind.is_file() || kind.is_block_device() => Ok(file),
        _ => Err(Reason::Kind),
    }
}

/// A file without a name, which goes away with its last descriptor.
fn nameless() -> io::Result<File> {
    let directory = std::env::temp_dir();
    let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    if let Ok(file) = options.clone().custom_flags(flags).open(&directory) {
        return Ok(file);
    }
    // A file system without such files.
    let path = directory.join(format!("biv-disk-{}", std::process::id()));
    let file = options.create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_is_a_file_and_what_is_said_of_it() {
        let check = |text: &str, path: &str, read_only, snapshot, format| {
            let path = PathBuf::from(path);
            let named = Named::default();
            let expected = Argument { path, read_only, snapshot, format, named };
            assert_eq!(parse_disk(text.into()), Ok(expected), "{text}");
        };
        check("a.img", "a.img", false, false, None);
        check("/x/a.img,ro", "/x/a.img", true, false, None);
        check("a,,b.img,snapshot,format=raw", "a,b.img", false, true, Some(Format::Raw));
        check(",,,,", ",,", false, false, None);
        check("a,format=qcow2", "a", false, false, Some(Format::Qcow2));
        for wrong in ["", ",ro", "a,", "a,rw", "a,b.img", "a,format=", "a,ro,"] {
            assert!(parse_disk(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_that_an_image_refers_to_are_named_behind_it() {
        let text = "a,backing=/b,,c,ro,backing=d=e,data-file=f";
        let argument = parse_disk(text.into()).unwrap();
        let backing = vec![PathBuf::from("/b,c"), PathBuf::from("d=e")];
        assert_eq!(argument.named, Named { backing, data: vec![PathBuf::from("f")] });
        assert!(argument.read_only);
        for wrong in ["a,backing=", "a,backing", "a,data-file=", "a,datafile=b"] {
            assert!(parse_disk(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_root_may_be_a_partition() {
        let root = |text: &str| parse_root(text.into());
        assert_eq!(root("a,snapshot").unwrap().device(), "vda");
        assert_eq!(root("a,part=3,ro").unwrap().device(), "vda3");
        for wrong in ["a,part=0", "a,part=", "a,part=x", "a,part=256", "a,root", ",part=1"] {
            assert!(root(wrong).is_err(), "{wrong}");
        }
    }

    /// Opening it fails, in words that help.
    fn check(path: &Path, text: &str, expected: &str) {
        let argument = parse_disk(format!("{}{text}", path.display()).into()).unwrap();
        let error = open(&argument).expect_err("no disk").to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&path.display().to_string()) && !error.contains('\n'), "{error}");
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let directory = std::env::temp_dir().join(format!("biv-disks-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let small = directory.join("small");
        std::fs::write(&small, [0; 511]).unwrap();
        check(&directory, "", "directory");
        check(&directory, ",ro", "directory");
        check(&directory.join("none"), "", "No such file");
        check(&small, "", "it has 511 bytes");
        check(Path::new("/dev/null"), "", "neither a file nor a block device");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn two_machines_do_not_write_to_one_file() {
        let path = std::env::temp_dir().join(format!("biv-locked-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let try_both = |first: &str, second: &str| {
            let argument =
                |text: &str| parse_disk(format!("{}{text}", path.display()).into()).unwrap();
            let _first = open(&argument(first)).unwrap();
            open(&argument(second)).map(|_| ()).map_err(|error| error.to_string())
        };
        for (first, second) in [("", ""), ("", ",ro"), (",ro", ""), (",snapshot", "")] {
            let error = try_both(first, second).expect_err("both have it");
            assert!(error.contains("another machine"), "{error}");
        }
        for (first, second) in [(",ro", ",ro"), (",snapshot", ",ro"), (",snapshot", ",snapshot")] {
            try_both(first, second).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }
}
