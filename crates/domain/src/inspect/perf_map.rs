//! `/tmp/perf-PID.map`, in which perf(1) finds the names of code that a process has generated: a
//! line `START SIZE NAME` for each piece (Linux, tools/perf/Documentation/jit-interface.txt).
//!
//! perf reads the file when it reports, which is after the process has ended; so the file stays.
//! When the engine drops its code cache, addresses are used again: the file is truncated then, and
//! has the names of the newest code.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use vmm::inspect::{CodePiece, CodeWatcher, Origin};

use super::{Error, Symbols};

/// The file does not grow beyond this; what comes then has no name.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// The file, and what it says.
pub(super) struct PerfMap {
    file: File,
    symbols: Arc<Symbols>,
    written: u64,
    /// Lines that stay when code is dropped.
    places: String,
}

impl PerfMap {
    /// Makes the file of this process. One of an earlier process of the same number goes away; one
    /// that belongs to somebody else, or a link, is not followed.
    pub(super) fn create(symbols: Arc<Symbols>) -> Result<Self, Error> {
        let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&path).and_then(|()| options.open(&path))
            }
            _ => Err(error),
        });
        let file = file.map_err(|error| Error::Create { path, error })?;
        Ok(Self::new(file, symbols))
    }

    fn new(file: File, symbols: Arc<Symbols>) -> Self {
        Self { file, symbols, written: 0, places: String::new() }
    }

    fn name(&self, code: &CodePiece<'_>) -> String {
        match code.origin {
            Origin::Engine(name) | Origin::Place(name) => format!("biv:{name}"),
            Origin::Block(guest) => self
                .symbols
                .name(guest.linear)
                .unwrap_or_else(|| format!("guest:{:#x}", guest.linear)),
        }
    }

    fn write(&mut self, text: &str) {
        if self.written + text.len() as u64 > MAX_FILE_BYTES {
            return;
        }
        self.written += text.len() as u64;
        // A full disk costs names, not the machine.
        let _ = self.file.write_all(text.as_bytes());
    }
}

impl CodeWatcher for PerfMap {
    fn added(&mut self, code: &CodePiece<'_>) {
        let line = format!("{:x} {:x} {}\n", code.start, code.size, self.name(code));
        if matches!(code.origin, Origin::Place(_)) {
            self.places.push_str(&line);
        }
        self.write(&line);
    }

    fn dropped(&mut self) {
        if self.file.set_len(0).and_then(|()| self.file.rewind()).is_ok() {
            self.written = 0;
            let places = self.places.clone();
            self.write(&places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm::inspect::{BlockId, GuestCode};

    fn block(start: u64, linear: u64) -> CodePiece<'static> {
        let guest = GuestCode {
            id: BlockId(1),
            linear,
            physical: 0x1000,
            cpl: 0,
            bits: 64,
            bytes: &[0x90],
            interpreted: false,
        };
        CodePiece { start, size: 0x20, bytes: &[0; 0x20], origin: Origin::Block(guest) }
    }

    #[test]
    fn lines_are_as_perf_wants_them() {
        let path = std::env::temp_dir().join(format!("biv-perf-map-{}", std::process::id()));
        let symbols = Symbols::parse(b"ffffffff81000000 T start\n").unwrap();
        let mut map = PerfMap::new(File::create(&path).unwrap(), Arc::new(symbols));
        let said = || std::fs::read_to_string(&path).unwrap();
        let place = Origin::Place("stubs");
        map.added(&CodePiece { start: 0x8000, size: 0x1000, bytes: &[], origin: place });
        map.added(&block(0x1000, 0xffff_ffff_8100_0010));
        map.added(&block(0x1020, 0x40_0000));
        let engine = Origin::Engine("second_look");
        map.added(&CodePiece { start: 0x1040, size: 1, bytes: &[0xc3], origin: engine });
        let all = "8000 1000 biv:stubs\n1000 20 start+0x10\n1020 20 guest:0x400000\n\
                   1040 1 biv:second_look\n";
        assert_eq!(said(), all);
        map.dropped();
        map.added(&block(0x1000, 0x1234));
        assert_eq!(said(), "8000 1000 biv:stubs\n1000 20 guest:0x1234\n");
        std::fs::remove_file(&path).unwrap();
    }
}
