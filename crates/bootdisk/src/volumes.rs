//! The file systems of a disk: those that can be read, and what others are called.

use std::io::{Read, Seek, SeekFrom};
use std::rc::Rc;

use ext4_view::{Ext4, Ext4Error};
use fatfs::{FileSystem, FsOptions};

use crate::error::Error;
use crate::limits::{ENTRIES_MAX, TEXT_MAX_BYTES};
use crate::partitions::{self, Partition};
use crate::served::{Connection, Served, Server};
use crate::storage::Storage;
use crate::window::Window;

/// What tells kinds that are not read: where, what, and what they are called.
const OTHERS: [(u64, &[u8], &str); 5] = [
    (512, b"LABELONE", "LVM, which is not read"),
    (0, b"LUKS\xba\xbe", "encrypted (LUKS), which is not read"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "erofs, which is not read"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"hsqs", "squashfs, which is not read"),
];

/// A kind that somebody else reads, if there is somebody.
struct Unread {
    kind: &'static str,
    /// Where it says so, and how.
    magic: (u64, &'static [u8]),
    /// Where its UUID is.
    uuid: u64,
    /// Where its label is, and how long that is.
    label: (u64, usize),
}

/// These kinds (`xfs_dsb` and `btrfs_super_block` of Linux).
const UNREAD: [Unread; 2] = [
    Unread { kind: "xfs", magic: (0, b"XFSB"), uuid: 32, label: (108, 12) },
    Unread {
        kind: "btrfs",
        magic: (0x1_0040, b"_BHRfS_M"),
        uuid: 0x1_0020,
        label: (0x1_012b, 256),
    },
];

/// The magic number of ext2, ext3 and ext4, in the superblock.
const EXT_MAGIC: (u64, [u8; 2]) = (1024 + 56, [0x53, 0xef]);

/// The serial number of FAT32 and of FAT12 and FAT16, and what says that it is FAT32.
const FAT32_SERIAL: u64 = 67;
const FAT16_SERIAL: u64 = 39;
const FAT32_NAME: (u64, &[u8]) = (82, b"FAT32");

/// What a file system is read by.
enum Files {
    Ext(Ext4),
    Fat(FileSystem<Window>),
    Served(Served),
    /// It would be, by somebody who is not there: what kind it is.
    Unread(&'static str),
    /// It cannot be: why.
    No(String),
}

/// A file system.
struct Volume {
    number: Option<u32>,
    files: Files,
    uuid: String,
    label: String,
}

/// Those of a disk.
pub struct Volumes {
    all: Vec<Volume>,
    server: Option<Rc<Server>>,
}

impl Volumes {
    /// Looks at a disk, of which somebody may be there to read what this does not.
    pub fn of(storage: Rc<dyn Storage>, connection: Option<Box<dyn Connection>>) -> Self {
        let disk = Window::whole(storage);
        let server = connection.map(|connection| Rc::new(Server::new(connection)));
        let all = partitions::of(&disk).into_iter().map(|Partition { number, window }| {
            let (mut files, uuid, label) = open(&window);
            if let (Files::Unread(kind), Some(server)) = (&files, &server) {
                files = match server.mount(kind, number) {
                    Ok(served) => Files::Served(served),
                    Err(why) => Files::No(format!("{kind}, which Linux cannot mount ({why})")),
                };
            }
            Volume { number, files, uuid, label }
        });
        Self { all: all.collect(), server }
    }

    /// An error, or what it comes of.
    pub fn blamed(&self, error: Error) -> Error {
        let is_unread = |volume: &Volume| matches!(volume.files, Files::Unread(_));
        match self.server.as_ref().and_then(|server| server.failure()) {
            Some(failure) => failure,
            None if self.all.iter().any(is_unread) => Error::Unread(Box::new(error)),
            None => error,
        }
    }

    /// How many there are, which are numbered from zero.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// What there is, for people.
    pub fn described(&self) -> String {
        let describe = |volume: &Volume| {
            let place =
                volume.number.map_or("no partitions".to_owned(), |it| format!("partition {it}"));
            let kind = match &volume.files {
                Files::Ext(_) => "ext2, ext3 or ext4",
                Files::Fat(_) => "FAT",
                Files::Served(served) => served.kind,
                Files::Unread(kind) => kind,
                Files::No(why) => why,
            };
            format!("{place}: {kind}")
        };
        self.all.iter().map(describe).collect::<Vec<_>>().join("; ")
    }

    /// What GRUB calls one.
    pub fn device(&self, volume: usize) -> String {
        let number = self.all.get(volume).and_then(|volume| volume.number);
        number.map_or("hd0".to_owned(), |number| format!("hd0,{number}"))
    }

    /// The one that GRUB calls so: `hd0,gpt1`, `hd0,msdos1`, `hd0,1`, or `hd0`.
    pub fn by_device(&self, name: &str) -> Option<usize> {
        let number = match name.split_once(',') {
            None => None,
            Some((_, partition)) => {
                let digits =
                    partition.trim_start_matches(|first: char| first.is_ascii_alphabetic());
                Some(digits.parse::<u32>().ok()?)
            }
        };
        self.all.iter().position(|volume| volume.number == number)
    }

    /// The one with that UUID.
    pub fn by_uuid(&self, uuid: &str) -> Option<usize> {
        self.all.iter().position(|it| !uuid.is_empty() && it.uuid.eq_ignore_ascii_case(uuid))
    }

    /// The one with that label.
    pub fn by_label(&self, label: &str) -> Option<usize> {
        self.all.iter().position(|volume| !label.is_empty() && volume.label == label)
    }

    /// The first one that has such a file.
    pub fn by_file(&self, path: &str) -> Option<usize> {
        (0..self.all.len()).find(|volume| self.has(*volume, path))
    }

    /// Whether there is such a file that is not empty.
    pub fn has(&self, volume: usize, path: &str) -> bool {
        self.length(volume, path).is_ok_and(|bytes| bytes.is_some_and(|bytes| bytes > 0))
    }

    /// A file, if it is there.
    pub fn read(&self, volume: usize, path: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some(bytes) = self.length(volume, path)? else { return Ok(None) };
        if bytes > limit {
            return Err(Error::TooLarge { path: path.to_owned(), bytes, limit });
        }
        let failed = |reason: String| Error::Read { path: path.to_owned(), reason };
        match self.all.get(volume).map(|volume| &volume.files) {
            Some(Files::Ext(files)) => {
                files.read(path).map(Some).map_err(|error| failed(error.to_string()))
            }
            Some(Files::Fat(files)) => {
                let mut file = files
                    .root_dir()
                    .open_file(relative(path))
                    .map_err(|it| failed(it.to_string()))?;
                let mut contents = Vec::new();
                let read = file.by_ref().take(limit).read_to_end(&mut contents);
                read.map(|_| Some(contents)).map_err(|error| failed(error.to_string()))
            }
            Some(Files::Served(served)) => served.read(path, bytes),
            _ => Ok(None),
        }
    }

    /// A file of text, if it is there. What is no UTF-8 in it is replaced.
    pub fn text(&self, volume: usize, path: &str) -> Result<Option<String>, Error> {
        let contents = self.read(volume, path, TEXT_MAX_BYTES)?;
        Ok(contents.map(|contents| String::from_utf8_lossy(&contents).into_owned()))
    }

    /// The names in a directory; none if there is no such directory.
    pub fn list(&self, volume: usize, path: &str) -> Vec<String> {
        let names: Vec<String> = match self.all.get(volume).map(|volume| &volume.files) {
            Some(Files::Ext(files)) => {
                let name = |entry: Result<ext4_view::DirEntry, Ext4Error>| {
                    Some(entry.ok()?.file_name().as_str().ok()?.to_owned())
                };
                let entries = files.read_dir(path).into_iter().flatten();
                entries.map_while(name).take(ENTRIES_MAX).collect()
            }
            Some(Files::Fat(files)) => {
                let entries = files.root_dir().open_dir(relative(path)).ok();
                let entries = entries.iter().flat_map(fatfs::Dir::iter).take(ENTRIES_MAX);
                entries.map_while(|entry| Some(entry.ok()?.file_name())).collect()
            }
            Some(Files::Served(served)) => served.list(path).unwrap_or_default(),
            _ => Vec::new(),
        };
        names
    }

    /// How long a file is, if it is there.
    fn length(&self, volume: usize, path: &str) -> Result<Option<u64>, Error> {
        let failed = |reason: String| Error::Read { path: path.to_owned(), reason };
        match self.all.get(volume).map(|volume| &volume.files) {
            Some(Files::Ext(files)) => match files.metadata(path) {
                Ok(found) => Ok((!found.is_dir()).then(|| found.len())),
                Err(Ext4Error::NotFound | Ext4Error::NotADirectory) => Ok(None),
                Err(error) => Err(failed(error.to_string())),
            },
            Some(Files::Fat(files)) => match files.root_dir().open_file(relative(path)) {
                Ok(mut file) => {
                    file.seek(SeekFrom::End(0)).map(Some).map_err(|error| failed(error.to_string()))
                }
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(failed(error.to_string())),
            },
            Some(Files::Served(served)) => served.length(path),
            _ => Ok(None),
        }
    }
}

impl Unread {
    /// The UUID of one, as it is written.
    fn uuid(&self, window: &Window) -> String {
        let mut bytes = [0; 16];
        if window.read_at(self.uuid, &mut bytes).is_err() {
            return String::new();
        }
        let digits = bytes.map(|byte| format!("{byte:02x}")).concat();
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }

    fn label(&self, window: &Window) -> String {
        let (at, length) = self.label;
        let mut bytes = vec![0; length];
        if window.read_at(at, &mut bytes).is_err() {
            return String::new();
        }
        let label = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(label).into_owned()
    }
}

/// Whether FAT has no such file: a directory in its place is no file.
fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidInput, NotFound, Other};
    matches!(error.kind(), NotFound | InvalidInput | Other)
}

/// A path as FAT's library has it.
fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// What reads a file system, its UUID and its label.
fn open(window: &Window) -> (Files, String, String) {
    let none = |why: String| (Files::No(why), String::new(), String::new());
    if window.has(EXT_MAGIC.0, &EXT_MAGIC.1) {
        return match Ext4::load(Box::new(window.clone())) {
            Ok(files) => {
                let label = files.label().to_str().unwrap_or_default().to_owned();
                let uuid = files.uuid().to_string();
                (Files::Ext(files), uuid, label)
            }
            Err(error) => none(format!("ext2, ext3 or ext4, which cannot be read ({error})")),
        };
    }
    if let Some(unread) = UNREAD.iter().find(|it| window.has(it.magic.0, it.magic.1)) {
        return (Files::Unread(unread.kind), unread.uuid(window), unread.label(window));
    }
    if let Some((_, _, name)) = OTHERS.iter().find(|(at, magic, _)| window.has(*at, magic)) {
        return none((*name).to_owned());
    }
    match FileSystem::new(window.clone(), FsOptions::new().update_accessed_date(false)) {
        Ok(files) => {
            let is_32 = window.has(FAT32_NAME.0, FAT32_NAME.1);
            let mut serial = [0; 4];
            let at = if is_32 { FAT32_SERIAL } else { FAT16_SERIAL };
            let _ = window.read_at(at, &mut serial);
            let serial = u32::from_le_bytes(serial);
            let label = files.volume_label();
            (Files::Fat(files), format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff), label)
        }
        Err(_) => none("nothing that is known".to_owned()),
    }
}
