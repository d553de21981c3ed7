//! Disk images.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::extent::{Extent, MAX_EXTENTS};
use crate::{Other, is_default, text};

/// A disk (virtio).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disk {
    /// The file, or block device.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// The guest may not write.
    #[serde(default, skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// The guest's writes are kept in memory and lost when it ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub snapshot: bool,
    /// The format of the file [default: detected from its first bytes].
    #[serde(default, skip_serializing_if = "is_default")]
    pub format: Option<Format>,
    /// Backing files that the image may refer to.
    #[serde(default, with = "text::list", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub backing: Vec<PathBuf>,
    /// Data files that the image may refer to.
    #[serde(default, with = "text::list", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub data_files: Vec<PathBuf>,
    /// Parts of a raw image, of which the guest sees no more: they are its disk, one behind the other. Several
    /// machines may have parts of one image [default: the whole image].
    #[serde(default, skip_serializing_if = "is_default")]
    pub extents: Vec<Extent>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// The format of a disk image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Raw: the disk's bytes.
    Raw,
    /// QEMU's qcow2.
    Qcow2,
}

impl Disk {
    /// This file, of which nothing else is said.
    #[must_use]
    pub fn of(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    /// Reads `FILE[,ro][,snapshot][,format=raw|qcow2][,backing=FILE]...[,data-file=FILE]`; in the name of a file,
    /// two commas are one.
    ///
    /// # Errors
    ///
    /// What is wrong with the word.
    pub fn parse(text: OsString) -> Result<Self, String> {
        let (disk, rest) = parse(&text)?;
        match rest.first() {
            None => Ok(disk),
            Some(part) => Err(unknown(part, "")),
        }
    }

    /// Reads what [`Self::parse`] reads, and `,extent=START+LENGTH[:ro]` any number of times.
    ///
    /// # Errors
    ///
    /// What is wrong with the word.
    pub fn parse_vbd(text: OsString) -> Result<Self, String> {
        let (mut disk, rest) = parse(&text)?;
        for part in rest {
            disk.add_extent(&part)?;
        }
        Ok(disk)
    }

    /// Take a part of a word that is to be an extent.
    pub(crate) fn add_extent(&mut self, part: &str) -> Result<(), String> {
        let extent = part.strip_prefix("extent=");
        let extent = extent.ok_or_else(|| unknown(part, ", extent=START+LENGTH"))?;
        self.extents.push(extent.parse()?);
        Ok(())
    }

    /// The word that is read as this.
    #[must_use]
    pub fn word(&self) -> OsString {
        let Self { path, read_only, snapshot, format, backing, data_files, extents, other: _ } =
            self;
        let mut word = escaped(path);
        let format = match format {
            None => "",
            Some(Format::Raw) => ",format=raw",
            Some(Format::Qcow2) => ",format=qcow2",
        };
        let read_only = if *read_only { ",ro" } else { "" };
        let snapshot = if *snapshot { ",snapshot" } else { "" };
        word.extend([read_only, snapshot, format].concat().as_bytes());
        for (option, files) in [(",backing=", backing), (",data-file=", data_files)] {
            for file in files {
                word.extend(option.as_bytes());
                word.extend(escaped(file));
            }
        }
        extents.iter().for_each(|extent| word.extend(format!(",extent={extent}").bytes()));
        OsString::from_vec(word)
    }

    /// The files that it names.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.path].into_iter().chain(&mut self.backing).chain(&mut self.data_files)
    }

    /// Whether the guest may write to no part of it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let all = !self.extents.is_empty() && self.extents.iter().all(|extent| extent.read_only);
        self.read_only || all
    }

    /// Whether something is kept that the guest writes.
    #[must_use]
    pub fn keeps_writes(&self) -> bool {
        !self.is_read_only() && !self.snapshot
    }
}

/// What is wrong with the extents of a machine's disks, if anything is.
pub(crate) fn complaint_of_extents<'a>(
    disks: impl Iterator<Item = &'a Disk>,
) -> Option<&'static str> {
    let mut all: Vec<(&Disk, &Extent)> = Vec::new();
    for disk in disks.filter(|disk| !disk.extents.is_empty()) {
        if disk.extents.len() > MAX_EXTENTS {
            return Some("a disk has 1024 extents at most (extents)");
        }
        if disk.format == Some(Format::Qcow2) || !disk.backing.is_empty() {
            return Some("only a raw image has extents (format, extents)");
        }
        if let Some(complaint) = disk.extents.iter().find_map(Extent::complaint) {
            return Some(complaint);
        }
        all.extend(disk.extents.iter().map(|extent| (disk, extent)));
    }
    let writes = |(disk, extent): &(&Disk, &Extent)| disk.keeps_writes() && !extent.read_only;
    let clash = all.iter().enumerate().any(|(index, one)| {
        all[..index].iter().any(|other| {
            one.0.path == other.0.path && (writes(one) || writes(other)) && one.1.overlaps(other.1)
        })
    });
    clash.then_some("extents that overlap are read-only (extents)")
}

/// A file's name in the word of a disk, where two commas are one.
fn escaped(path: &Path) -> Vec<u8> {
    let double = |&byte: &u8| std::iter::repeat_n(byte, 1 + usize::from(byte == b','));
    path.as_os_str().as_bytes().iter().flat_map(double).collect()
}

/// What is said of a part that nobody knows.
pub(crate) fn unknown(part: &str, more: &str) -> String {
    format!(
        "'{part}' is none of ro, snapshot, format=raw, format=qcow2, backing=FILE, \
         data-file=FILE{more} (a \
         comma in the name of a file is written twice)"
    )
}

/// What is said of any disk, and the rest.
pub(crate) fn parse(text: &OsStr) -> Result<(Disk, Vec<String>), String> {
    let mut parts = split(text.as_bytes()).into_iter();
    let path = parts.next().unwrap_or_default();
    if path.is_empty() {
        return Err("no file is named".to_owned());
    }
    let path = PathBuf::from(OsString::from_vec(path));
    let mut disk = Disk::of(path);
    let mut rest = Vec::new();
    for part in parts {
        match part.as_slice() {
            b"ro" => disk.read_only = true,
            b"snapshot" => disk.snapshot = true,
            b"format=raw" => disk.format = Some(Format::Raw),
            b"format=qcow2" => disk.format = Some(Format::Qcow2),
            other => match referred(other) {
                Some((b"backing", file)) => disk.backing.push(file),
                Some((b"data-file", file)) => disk.data_files.push(file),
                _ => rest.push(String::from_utf8_lossy(other).into_owned()),
            },
        }
    }
    Ok((disk, rest))
}

/// `KEY=FILE`.
fn referred(part: &[u8]) -> Option<(&[u8], PathBuf)> {
    let at = part.iter().position(|byte| *byte == b'=')?;
    let (key, file) = (&part[..at], &part[at + 1..]);
    (!file.is_empty()).then(|| (key, PathBuf::from(OsStr::from_bytes(file))))
}

/// Splits at single commas.
pub(crate) fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskRoot;

    #[test]
    fn the_argument_is_a_file_and_what_is_said_of_it() {
        let check = |text: &str, path: &str, read_only, snapshot, format| {
            let expected = Disk { read_only, snapshot, format, ..Disk::of(path.into()) };
            assert_eq!(Disk::parse(text.into()), Ok(expected), "{text}");
        };
        check("a.img", "a.img", false, false, None);
        check("/x/a.img,ro", "/x/a.img", true, false, None);
        check("a,,b.img,snapshot,format=raw", "a,b.img", false, true, Some(Format::Raw));
        check(",,,,", ",,", false, false, None);
        check("a,format=qcow2", "a", false, false, Some(Format::Qcow2));
        for wrong in ["", ",ro", "a,", "a,rw", "a,b.img", "a,format=", "a,ro,"] {
            assert!(Disk::parse(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_that_an_image_refers_to_are_named_behind_it() {
        let text = "a,backing=/b,,c,ro,backing=d=e,data-file=f";
        let disk = Disk::parse(text.into()).unwrap();
        assert_eq!(disk.backing, [PathBuf::from("/b,c"), PathBuf::from("d=e")]);
        assert_eq!(disk.data_files, [PathBuf::from("f")]);
        assert!(disk.read_only);
        for wrong in ["a,backing=", "a,backing", "a,data-file=", "a,datafile=b"] {
            assert!(Disk::parse(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_root_may_be_a_partition() {
        let root = |text: &str| DiskRoot::parse(text.into());
        assert_eq!(root("a,snapshot").unwrap().device(), "vda");
        assert_eq!(root("a,part=3,ro").unwrap().device(), "vda3");
        for wrong in ["a,part=0", "a,part=", "a,part=x", "a,part=256", "a,root", ",part=1"] {
            assert!(root(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn extents_that_overlap_are_read_only() {
        let check = |words: &[&str], is_good: bool| {
            let disks = words.iter().map(|word| Disk::parse_vbd((*word).into()));
            let disks: Vec<_> = disks.collect::<Result<_, _>>().unwrap();
            assert_eq!(complaint_of_extents(disks.iter()).is_none(), is_good, "{words:?}");
        };
        check(&["a,extent=0+1K,extent=1K+1K"], true);
        check(&["a,extent=0+1K,extent=512+1K"], false);
        check(&["a,extent=0+1K:ro,extent=512+1K"], false);
        check(&["a,ro,extent=0+1K,extent=512+1K"], true);
        check(&["a,extent=0+1K:ro,extent=512+1K:ro"], true);
        check(&["a,extent=0+1K", "a,extent=1K+1K"], true);
        check(&["a,extent=0+1K", "a,extent=0+512:ro"], false);
        check(&["a,extent=0+1K", "b,extent=0+1K"], true);
        check(&["a,extent=0+1K,format=qcow2"], false);
    }
}
