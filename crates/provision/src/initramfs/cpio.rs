//! The "newc" cpio format, which Linux unpacks into its first file system: a 110-byte header of
//! hexadecimal fields, the name with a NUL, the contents, each padded to 4 bytes
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Read, Write};

/// The file type and permission bits of `st_mode`.
pub mod mode {
    /// A directory.
    pub const DIRECTORY: u32 = 0o040_000;
    /// A regular file.
    pub const FILE: u32 = 0o100_000;
    /// A symbolic link.
    pub const LINK: u32 = 0o120_000;
    /// A character device.
    pub const CHARACTER_DEVICE: u32 = 0o020_000;
    /// The bits that say which.
    pub const TYPE: u32 = 0o170_000;
}

/// The longest name that Linux unpacks, with its NUL (PATH_MAX).
pub const NAME_MAX_BYTES: usize = 4096;

/// What stands in a header besides name and length.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metadata {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, in seconds since 1970.
    pub mtime: u32,
    /// Entries with the same number other than 0 are the same file.
    pub inode: u32,
    /// How many entries are the same file.
    pub links: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

impl Metadata {
    /// Root's, with this type and these permissions.
    #[must_use]
    pub fn new(mode: u32) -> Metadata {
        Metadata { mode, links: 1, ..Metadata::default() }
    }
}

/// Writes an archive. [`Archive::finish`] ends it; one that is dropped without is cut short.
#[derive(Debug)]
pub struct Archive<W> {
    out: W,
    written: u64,
    next_inode: u32,
}

impl<W: Write> Archive<W> {
    /// An archive that goes to `out`.
    pub fn new(out: W) -> Archive<W> {
        Archive { out, written: 0, next_inode: 1 }
    }

    /// A number for [`Metadata::inode`] that no other entry has.
    pub fn unused_inode(&mut self) -> u32 {
        self.next_inode += 1;
        self.next_inode - 1
    }

    /// Adds an entry whose contents are in memory.
    pub fn add(&mut self, name: &[u8], metadata: Metadata, contents: &[u8]) -> io::Result<()> {
        let length = u32::try_from(contents.len()).map_err(|_| too_large())?;
        self.add_from(name, metadata, length, contents)
    }

    /// Adds an entry whose contents are the next `length` bytes of `contents`.
    pub fn add_from(
        &mut self,
        name: &[u8],
        metadata: Metadata,
        length: u32,
        contents: impl Read,
    ) -> io::Result<()> {
        self.header(name, metadata, length)?;
        let copied = io::copy(&mut contents.take(length.into()), &mut self.out)?;
        self.written += copied;
        if copied != u64::from(length) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it became shorter while it was read",
            ));
        }
        self.pad()
    }

    /// Ends the archive and returns where it went.
    pub fn finish(mut self) -> io::Result<W> {
        self.header(b"TRAILER!!!", Metadata::new(0), 0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn header(&mut self, name: &[u8], metadata: Metadata, length: u32) -> io::Result<()> {
        if name.len() >= NAME_MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidFilename,
                "its name is too long for an initramfs",
            ));
        }
        let inode = if metadata.inode == 0 { self.unused_inode() } else { metadata.inode };
        let fields = [
            inode,
            metadata.mode,
            metadata.uid,
            metadata.gid,
            metadata.links,
            metadata.mtime,
            length,
            0,
            0,
            metadata.device.0,
            metadata.device.1,
            name.len() as u32 + 1,
            0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(name)?;
        self.out.write_all(&[0])?;
        self.written += (header.len() + name.len() + 1) as u64;
        self.pad()
    }

    fn pad(&mut self) -> io::Result<()> {
        let rest = self.written.next_multiple_of(4) - self.written;
        self.out.write_all(&[0; 4][..rest as usize])?;
        self.written += rest;
        Ok(())
    }
}

/// The error for a file whose length has more than 32 bits.
pub fn too_large() -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        "it has 4 GiB or more, which an initramfs cannot hold",
    )
}
