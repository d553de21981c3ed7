//! Large byte buffers that are cheap to fill.
//!
//! Filling fresh memory costs a page fault for every 4 KiB; for a kernel of 50 MiB that takes longer
//! than reading it. A [`Buffer`] asks for huge pages, so that there is one fault for every 2 MiB.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::limits::MAX_STREAM_BYTES;

/// What a huge page is aligned to.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of its own, zero at first.
#[derive(Debug)]
pub struct Buffer {
    mapping: NonNull<u8>,
    mapped: usize,
    /// Where in the mapping the bytes start: at a huge page.
    start: usize,
    length: usize,
}

// SAFETY: a buffer owns its mapping, as a `Vec<u8>` owns its allocation.
unsafe impl Send for Buffer {}
// SAFETY: and `&Buffer` gives out nothing but `&[u8]`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of zeros.
    ///
    /// # Errors
    ///
    /// What Linux says if there is no room in the address space.
    pub fn new(length: usize) -> io::Result<Self> {
        let mapped = length.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choosing touches no other memory.
        let mapping =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags)? };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        // SAFETY: the range is the mapping just made; the advice does not change its contents, and a
        // kernel without huge pages refuses it, which loses nothing but time.
        let _ =
            unsafe { rustix::mm::madvise(mapping.as_ptr().cast(), mapped, Advice::LinuxHugepage) };
        Ok(Self { mapping, mapped, start, length })
    }

    /// A whole file of at most `limit` bytes. What does not know its length (a file in `/proc`) is
    /// read to its end, up to [`MAX_STREAM_BYTES`].
    ///
    /// # Errors
    ///
    /// As [`open_regular`]; that the file became shorter meanwhile, or
    /// [`io::ErrorKind::FileTooLarge`]; a file that says how long it is has not been read then.
    pub fn read(path: &Path, limit: u64) -> io::Result<Self> {
        let file = open_regular(path)?;
        match file.metadata()?.len() {
            0 => Self::read_stream(file, limit.min(MAX_STREAM_BYTES)),
            length => Self::read_file(file, length, limit),
        }
    }

    fn read_file(mut file: File, length: u64, limit: u64) -> io::Result<Self> {
        if length > limit {
            return Err(too_large(limit));
        }
        let mut buffer = Self::new(usize::try_from(length).map_err(io::Error::other)?)?;
        file.read_exact(&mut buffer)?;
        Ok(buffer)
    }

    /// Address space for all that may come is cheap; memory is used for what comes.
    fn read_stream(mut stream: File, limit: u64) -> io::Result<Self> {
        let room = usize::try_from(limit + 1).map_err(io::Error::other)?;
        let mut buffer = Self::new(room)?;
        let mut filled = 0;
        while filled < room {
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => {
                    buffer.truncate(filled);
                    return Ok(buffer);
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(too_large(limit))
    }

    /// Forget what is beyond `length`.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// Opens a file for reading that is one: a pipe may have us wait for ever, and a device may have no end.
///
/// # Errors
///
/// What Linux says, or [`io::ErrorKind::InvalidInput`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    open(path, false)
}

/// The same for writing as well.
///
/// # Errors
///
/// As [`open_regular`].
pub fn open_regular_to_write(path: &Path) -> io::Result<File> {
    open(path, true)
}

fn open(path: &Path, writes: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Without the flag, opening a pipe waits for somebody to write.
    let file = options.read(true).write(writes).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let text = format!("it is {}, not a regular file", name_of(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

fn too_large(limit: u64) -> io::Error {
    let text = match limit >> 20 {
        0 => format!("it has more than {limit} bytes"),
        mib => format!("it has more than {mib} MiB"),
    };
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start + length` is at most `mapped`, so the range is inside our own mapping,
        // readable and initialized (to zero by the kernel) until it is unmapped by `drop`.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.start), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes this the only reference.
        unsafe {
            std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(self.start), self.length)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping made by `new`, and no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zero_and_keeps_what_is_written() {
        for length in [0, 1, 4096, (2 << 20) - 1, 5 << 20] {
            let mut buffer = Buffer::new(length).unwrap();
            assert_eq!(buffer.len(), length);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
            buffer.truncate(length / 2);
            assert_eq!(buffer.len(), length / 2);
            buffer.truncate(length);
            assert_eq!(buffer.len(), length / 2);
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert!(Buffer::new(usize::MAX).is_err());
        assert!(Buffer::new(1 << 60).is_err());
    }

    #[test]
    fn files_are_read() {
        let path = std::env::temp_dir().join(format!("bivouac-{}-buffer", std::process::id()));
        let bytes: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert!(*Buffer::read(&path, u64::MAX).unwrap() == bytes);
        assert!(*Buffer::read(&path, 100_000).unwrap() == bytes);
        check_too_large(&path, 99_999);
        std::fs::remove_file(&path).unwrap();
        assert!(Buffer::read(&path, u64::MAX).is_err());
        assert!(!Buffer::read(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("bivouac-{}-pipe", std::process::id()));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let pipe = Buffer::read(&path, 1 << 20);
        std::fs::remove_file(&path).unwrap();
        let others = ["/dev/zero", "/dev/null", "/"].map(|path| Buffer::read(Path::new(path), 0));
        let names = ["a pipe", "a device", "a device", "a directory"];
        for (read, name) in [pipe].into_iter().chain(others).zip(names) {
            let error = read.expect_err("it was read");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), format!("it is {name}, not a regular file"));
        }
    }

    #[track_caller]
    fn check_too_large(path: &Path, limit: u64) {
        let error = Buffer::read(path, limit).expect_err("it was read");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
    }

    #[test]
    fn what_is_too_large_is_not_read() {
        let path = std::env::temp_dir().join(format!("bivouac-{}-hole", std::process::id()));
        let file = File::create(&path).unwrap();
        // More than any host has; nothing of it is stored.
        file.set_len(1 << 42).unwrap();
        check_too_large(&path, 1 << 41);
        std::fs::remove_file(&path).unwrap();
        check_too_large(Path::new("/proc/self/status"), 10);
    }
}
