//! What the guest's init mounts, as the host tells it ([`crate::Frame::Mounts`]):
//! for each mount four strings, each ended by a NUL: kind, source, place, options. A guest that cannot mount one, or
//! does not find it at its place in the end, runs no command; it can do without [`Kind::Modules`] only.

/// Something to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// How.
    pub kind: Kind,
    /// What: the tag of a directory of the host's, the name of a disk's device, or its serial number.
    pub source: Vec<u8>,
    /// Where, an absolute path; for a root it is `/`.
    pub place: Vec<u8>,
    /// Nothing may be written there.
    pub is_read_only: bool,
    /// By which file system, if it is a directory of the host's.
    pub file_system: FileSystem,
}

/// File systems that directories of the host's are mounted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileSystem {
    /// virtio-fs.
    #[default]
    VirtioFs,
    /// 9p, where the kernel has no virtio-fs.
    Nine,
}

/// Kinds of mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The root: a directory of the host's that is only read, with an overlay in the guest's memory.
    OverlaidRoot,
    /// The root: a file system (EROFS) on the disk with that serial number, or, where disks have none, of that name,
    /// with such an overlay.
    OverlaidDisk,
    /// The root: file systems (EROFS) on the first partitions of a disk, each over those before it, with such an
    /// overlay over all. The source is the disk as before, a space, and how many they are ([`Layers`]).
    OverlaidLayers,
    /// The root: a directory of the host's.
    Root,
    /// The root: a disk, or a partition of one.
    DiskRoot,
    /// A directory of the host's somewhere.
    Directory,
    /// A directory of the host's with modules of the kernel, below its release, unless the root has some.
    Modules,
    /// One with those that the kernel is to have, whatever the root has.
    OwnModules,
}

const KINDS: [(&[u8], Kind); 8] = [
    (b"overlaid-root", Kind::OverlaidRoot),
    (b"overlaid-disk", Kind::OverlaidDisk),
    (b"overlaid-layers", Kind::OverlaidLayers),
    (b"root", Kind::Root),
    (b"disk-root", Kind::DiskRoot),
    (b"directory", Kind::Directory),
    (b"modules", Kind::Modules),
    (b"own-modules", Kind::OwnModules),
];

const OPTIONS: [(&[u8], bool, FileSystem); 4] = [
    (b"ro", true, FileSystem::VirtioFs),
    (b"rw", false, FileSystem::VirtioFs),
    (b"ro,9p", true, FileSystem::Nine),
    (b"rw,9p", false, FileSystem::Nine),
];

impl Kind {
    /// Whether it is the root.
    #[must_use]
    pub fn is_root(self) -> bool {
        !matches!(self, Self::Directory | Self::Modules | Self::OwnModules)
    }
}

/// The source of [`Kind::OverlaidLayers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    /// The disk's serial number, or its name.
    pub disk: Vec<u8>,
    /// How many partitions are layers, the lowest first.
    pub count: u8,
}

impl Layers {
    /// As a source.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&self.disk[..], format!(" {}", self.count).as_bytes()].concat()
    }

    /// The inverse.
    ///
    /// # Errors
    ///
    /// [`NoMounts`].
    pub fn decode(source: &[u8]) -> Result<Self, NoMounts> {
        let at = source.iter().rposition(|byte| *byte == b' ').ok_or(NoMounts)?;
        let count = std::str::from_utf8(&source[at + 1..]).ok().and_then(|it| it.parse().ok());
        let count = count.filter(|count| *count > 0).ok_or(NoMounts)?;
        Ok(Self { disk: source[..at].to_vec(), count })
    }
}

/// The bytes are no list of mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of what is to be mounted makes no sense")]
pub struct NoMounts;

impl Mount {
    /// One by virtio-fs, if it is a directory of the host's.
    #[must_use]
    pub fn new(
        kind: Kind,
        source: impl Into<Vec<u8>>,
        place: impl Into<Vec<u8>>,
        is_read_only: bool,
    ) -> Self {
        let (source, place) = (source.into(), place.into());
        Self { kind, source, place, is_read_only, file_system: FileSystem::VirtioFs }
    }

    /// Add it to a list. What has a NUL in it cannot be a path, and makes a list that is refused.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let name =
            KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or(&b""[..], |kind| kind.0);
        let options = OPTIONS.iter().find(|(_, is_read_only, file_system)| {
            (*is_read_only, *file_system) == (self.is_read_only, self.file_system)
        });
        let options = options.map_or(&b""[..], |options| options.0);
        for part in [name, &self.source, &self.place, options] {
            out.extend_from_slice(part);
            out.push(0);
        }
    }

    /// The list that these bytes are.
    ///
    /// # Errors
    ///
    /// [`NoMounts`].
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Mount>, NoMounts> {
        let parts: Vec<_> = bytes.split_inclusive(|&byte| byte == 0).collect();
        let mount = |parts: &[&[u8]]| {
            let mut strings = parts.iter().map(|part| part.strip_suffix(b"\0"));
            let mut next = || strings.next().flatten().ok_or(NoMounts);
            let name = next()?;
            let kind = KINDS.iter().find(|(known, _)| *known == name).ok_or(NoMounts)?.1;
            let (source, place) = (next()?.to_vec(), next()?.to_vec());
            let options = next()?;
            let options = OPTIONS.iter().find(|(known, ..)| *known == options).ok_or(NoMounts)?;
            let (_, is_read_only, file_system) = *options;
            match place.first() {
                Some(b'/') => Ok(Mount { kind, source, place, is_read_only, file_system }),
                _ => Err(NoMounts),
            }
        };
        parts.chunks(4).map(mount).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_what_it_was() {
        let mounts = [
            Mount {
                kind: Kind::OverlaidRoot,
                source: b"root".to_vec(),
                place: b"/".to_vec(),
                is_read_only: true,
                file_system: FileSystem::VirtioFs,
            },
            Mount {
                kind: Kind::Directory,
                source: b"volume0".to_vec(),
                place: b"/home/\xff a".to_vec(),
                is_read_only: false,
                file_system: FileSystem::Nine,
            },
        ];
        let mut bytes = Vec::new();
        mounts.iter().for_each(|mount| mount.encode(&mut bytes));
        assert_eq!(Mount::decode_all(&bytes).unwrap(), mounts);
        assert_eq!(Mount::decode_all(b"").unwrap(), []);
    }

    #[test]
    fn layers_are_what_they_were() {
        let layers = Layers { disk: b"image/0123 4".to_vec(), count: 127 };
        assert_eq!(Layers::decode(&layers.encode()), Ok(layers));
        for source in [&b""[..], b"x", b"x ", b"x 0", b"x -1", b"x 256", b"x 1 "] {
            assert_eq!(Layers::decode(source), Err(NoMounts), "{source:?}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let wrong: [&[u8]; 7] = [
            b"root\0a\0/\0rw,8p\0",
            b"root\0a\0/\0rw",
            b"root\0a\0/\0",
            b"boot\0a\0/\0rw\0",
            b"root\0a\0b\0rw\0",
            b"root\0a\0/\0wr\0",
            b"\0\0\0\0\0",
        ];
        for bytes in wrong {
            assert_eq!(Mount::decode_all(bytes), Err(NoMounts), "{bytes:?}");
        }
    }
}
