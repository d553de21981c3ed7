//! The file systems of a disk: those that can be read, and what others are called.

use std::io::{Read, Seek, SeekFrom};
use std::rc::Rc;

use ext4_view::{Ext4, Ext4Error};
use fatfs::{FileSystem, FsOptions};

use crate::error::Error;
use crate::limits::{ENTRIES_MAX, TEXT_MAX_BYTES};
use crate::partitions;
use crate::storage::Storage;
use crate::window::Window;

/// What tells kinds that are not read: where, what, and what they are called.
const OTHERS: [(u64, &[u8], &str); 7] = [
    (0, b"XFSB", "xfs, which is not read"),
    (0x1_0040, b"_BHRfS_M", "btrfs, which is not read"),
    (512, b"LABELONE", "LVM, which is not read"),
    (0, b"LUKS\xba\xbe", "encrypted (LUKS), which is not read"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "erofs, which is not read"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"hsqs", "squashfs, which is not read"),
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
}

impl Volumes {
    /// Looks at a disk.
    pub fn of(storage: Rc<dyn Storage>) -> Self {
        let disk = Window::whole(storage);
        let all = partitions::of(&disk).into_iter().map(|partition| {
            let (files, uuid, label) = open(&partition.window);
            Volume { number: partition.number, files, uuid, label }
        });
        Self { all: all.collect() }
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
            _ => Ok(None),
        }
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
