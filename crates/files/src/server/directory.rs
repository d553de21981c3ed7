//! Names in directories.

use locks::Unpoisoned;
use rustix::fs::{FileType, OFlags, RawDir, SeekFrom, Statx, seek};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::Arc;
use zerocopy::IntoBytes;

use super::answer::Answer;
use super::inodes::{Inode, Open};
use super::request::Ask;
use super::share::Share;
use crate::limits::{MAX_NAMES_ANSWER_BYTES, NAMES_BYTES};
use crate::wire::{Dirent, EntryOut, OpenOut, ReadIn};

/// What is answered about a file that has been looked up.
pub fn entry(share: &Share, inode: &Arc<Inode>, status: &Statx) -> EntryOut {
    let (seconds, nanoseconds) = share.validity;
    EntryOut {
        nodeid: inode.number,
        generation: 0,
        entry_valid: seconds,
        attr_valid: seconds,
        entry_valid_nsec: nanoseconds,
        attr_valid_nsec: nanoseconds,
        attr: share.attributes(inode, status),
    }
}

/// `LOOKUP`. That there is nothing is an answer, too, and may be believed as long.
pub fn look_up(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let mut arguments = ask.arguments();
    let directory = share.inodes.get(ask.header.nodeid)?;
    match share.inodes.look_up(&directory, arguments.name()?) {
        Ok((inode, status)) => Answer::of(&entry(share, &inode, &status)),
        Err(Errno::NOENT) => {
            let (entry_valid, entry_valid_nsec) = share.validity;
            Answer::of(&EntryOut { entry_valid, entry_valid_nsec, ..EntryOut::default() })
        }
        Err(errno) => Err(errno),
    }
}

/// `OPENDIR`.
pub fn open(share: &Share, ask: &Ask<'_>) -> Result<Answer, Errno> {
    if share.agreed.lists_silently() {
        return Err(Errno::NOSYS);
    }
    let inode = share.inodes.get(ask.header.nodeid)?;
    let file = share.open(&inode, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let fh = share.handles.add(file, &inode)?;
    Answer::of(&OpenOut { fh, open_flags: 0, padding: 0 })
}

/// `READDIR` and `READDIRPLUS`.
pub fn read(share: &Share, ask: &Ask<'_>, with_attributes: bool) -> Result<Answer, Errno> {
    let asked: ReadIn = ask.arguments().take()?;
    let room = (asked.size as usize).min(ask.room()).min(MAX_NAMES_ANSWER_BYTES);
    let mut list = List { share, with_attributes, room, bytes: Vec::new() };
    let who = (ask.header.nodeid, asked.fh);
    share.with_open(who, |open, directory| list.read(open, directory, asked.offset))?;
    Ok(Answer::Bytes(list.bytes))
}

/// The names that fit.
struct List<'a> {
    share: &'a Share,
    with_attributes: bool,
    room: usize,
    bytes: Vec<u8>,
}

impl List<'_> {
    fn read(&mut self, open: &Open, directory: &Arc<Inode>, from: u64) -> Result<(), Errno> {
        if directory.nature(&self.share.inodes)?.is_closed {
            self.read_closed(directory, from);
            return Ok(());
        }
        let _reading = open.reading.lock().unpoisoned();
        seek(&open.file, SeekFrom::Start(from))?;
        let mut buffer = [MaybeUninit::uninit(); NAMES_BYTES];
        let mut names = RawDir::new(&open.file, &mut buffer);
        while let Some(name) = names.next() {
            let name = match name {
                Ok(name) => name,
                // What has been found is answered; the next request meets the error.
                Err(_) if !self.bytes.is_empty() => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let is_hidden = name.file_type() != FileType::Directory
                && self.share.inodes.is_closed_name(directory, name.file_name());
            if is_hidden && !is_dots(name.file_name()) {
                continue;
            }
            let dirent = Dirent {
                ino: name.ino(),
                off: name.next_entry_cookie(),
                namelen: name.file_name().count_bytes() as u32,
                kind: kind_bits(name.file_type()),
            };
            if !self.put(directory, dirent, name.file_name()) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The names of a directory in which there is nothing.
    fn read_closed(&mut self, directory: &Arc<Inode>, from: u64) {
        let kind = kind_bits(FileType::Directory);
        for (off, name) in (1..).zip([c".", c".."]).skip_while(|(off, _)| *off <= from) {
            let namelen = name.count_bytes() as u32;
            let dirent = Dirent { ino: directory.number, off, namelen, kind };
            if !self.put(directory, dirent, name) {
                return;
            }
        }
    }

    /// Adds a name; false if there is no room.
    fn put(&mut self, directory: &Arc<Inode>, dirent: Dirent, name: &CStr) -> bool {
        if !self.fits(name) {
            return false;
        }
        let known = match self.with_attributes {
            true if !is_dots(name) => self.look_up(directory, name),
            _ => EntryOut::default(),
        };
        if self.with_attributes {
            self.bytes.extend(known.as_bytes());
        }
        let ino = if known.nodeid == 0 { dirent.ino } else { known.attr.ino };
        self.bytes.extend(Dirent { ino, ..dirent }.as_bytes());
        self.bytes.extend(name.to_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        true
    }

    fn fits(&self, name: &CStr) -> bool {
        let attributes = if self.with_attributes { size_of::<EntryOut>() } else { 0 };
        let bytes = attributes + size_of::<Dirent>() + name.count_bytes();
        self.bytes.len() + bytes.next_multiple_of(8) <= self.room
    }

    /// What a name stands for; without attributes if that cannot be told, which is not an error of the
    /// directory's.
    fn look_up(&self, directory: &Arc<Inode>, name: &CStr) -> EntryOut {
        match self.share.inodes.look_up(directory, name) {
            Ok((inode, status)) => entry(self.share, &inode, &status),
            Err(_) => EntryOut::default(),
        }
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// The type as in a mode, without its lower bits (`DT_*`, readdir(3)).
fn kind_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Unknown => 0,
        kind => kind.as_raw_mode() >> 12,
    }
}
