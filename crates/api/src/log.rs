//! The log of a domain: the output of a detached domain's command, and of its console, in two files
//! of limited size. When one file is full, the writer truncates the other and goes on there. A
//! machine's process cannot create or rename files, so it opens both before it starts.
//!
//! Each line is a JSON object, as container engines write them, with a number that goes up:
//!
//! ```text
//! {"n":7,"time":"2026-01-31T10:20:30.123456Z","stream":"stdout","log":"what was written\n"}
//! ```
//!
//! Bytes that are not UTF-8 are in `base64` instead of `log`. A piece of output without an end of
//! line is an object of its own, and the rest of the line is another.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::files;

/// The most that one of the two files has.
pub const FILE_MAX_BYTES: u64 = 4 << 20;

/// The most of what was written that one line has.
const PIECE_MAX_BYTES: usize = 16 << 10;

/// The most that is read at once.
const READ_BYTES: usize = 64 << 10;

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;

/// Where something was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Neither: the domain's console.
    Console,
}

/// A log that several write to.
pub type Shared = Arc<Mutex<Writer>>;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its number.
    #[serde(rename = "n")]
    pub number: u64,
    /// When it was written.
    pub time: String,
    /// Where to.
    pub stream: Stream,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl Line {
    fn new(number: u64, time: &str, stream: Stream, bytes: &[u8]) -> Line {
        let (log, base64) = encoded(bytes);
        Line { number, time: time.to_owned(), stream, log, base64 }
    }

    /// What was written.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match (&self.log, &self.base64) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(text)) => BASE64.decode(text).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }
}

/// Bytes as JSON has them: as a text, or in Base64 if they are not UTF-8.
#[must_use]
pub fn encoded(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

/// Which lines are wanted. All times are of one form ([`time_of`]), and in the order of their text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// What was written then or later.
    pub since: String,
    /// What was written before that time.
    pub until: Option<String>,
    /// The output of the domain's console instead of its command's.
    pub console: bool,
}

impl Selection {
    /// Whether a line is wanted.
    #[must_use]
    pub fn has(&self, line: &Line) -> bool {
        let is_in_time =
            line.time >= self.since && self.until.as_ref().is_none_or(|until| line.time < *until);
        is_in_time && (line.stream == Stream::Console) == self.console
    }
}

/// Writes the log.
#[derive(Debug)]
pub struct Writer {
    files: [File; 2],
    current: usize,
    size: u64,
    number: u64,
    /// Bytes for which there was no room, and of which the log does not say so yet.
    lost: u64,
}

impl Writer {
    /// The log in a domain's directory; one that is there already goes on.
    pub fn create(directory: &OwnedFd) -> io::Result<Writer> {
        let part = |name| Part::of(File::from(files::create(directory, name)?));
        let [one, other] = files::LOGS;
        let mut parts = [part(one)?, part(other)?];
        let mut last = [0; 2];
        for (part, last) in parts.iter_mut().zip(&mut last) {
            let mut lines = Vec::new();
            part.read(&mut lines)?;
            *last = lines.last().map_or(0, |line| line.number);
        }
        let current = usize::from(last[1] > last[0]);
        // Without what is not whole at its end.
        let size = parts[current].offset;
        let files = parts.map(|part| part.file);
        Ok(Writer { files, current, size, number: last[current], lost: 0 })
    }

    /// Adds what was written. Where there is no room on the host, it is lost: the command goes on, and the log
    /// says so when there is room again.
    pub fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let time = time_of(SystemTime::now());
        let lost = std::mem::take(&mut self.lost);
        let mut text = self.notice_of(lost, &time);
        let was_written = self.add_lines(stream, bytes, &time, &mut text);
        if !was_written {
            self.lost = lost.saturating_add(bytes.len() as u64);
        }
    }

    /// A line that says how much is missing before it, if something is.
    fn notice_of(&mut self, lost: u64, time: &str) -> Vec<u8> {
        let mut text = Vec::new();
        if lost > 0 {
            self.number += 1;
            let notice =
                format!("biv: {lost} bytes are missing here: there was no room for the log\n");
            let line = Line::new(self.number, time, Stream::Stderr, notice.as_bytes());
            if serde_json::to_writer(&mut text, &line).is_ok() {
                text.push(b'\n');
            }
        }
        text
    }

    /// Adds lines after those that are in `text` already; whether there was room for them.
    fn add_lines(&mut self, stream: Stream, bytes: &[u8], time: &str, text: &mut Vec<u8>) -> bool {
        let mut is_written = true;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            for piece in piece.chunks(PIECE_MAX_BYTES) {
                self.number += 1;
                let start = text.len();
                let line = Line::new(self.number, time, stream, piece);
                if serde_json::to_writer(&mut *text, &line).is_ok() {
                    text.push(b'\n');
                }
                if self.size + text.len() as u64 > FILE_MAX_BYTES {
                    let first = text.split_off(start);
                    is_written &= self.put(text);
                    self.begin_anew();
                    *text = first;
                }
            }
        }
        self.put(text) && is_written
    }

    /// Whether there was room for it.
    fn put(&mut self, text: &[u8]) -> bool {
        let is_written = self.files[self.current].write_all_at(text, self.size).is_ok();
        self.size += if is_written { text.len() as u64 } else { 0 };
        is_written
    }

    fn begin_anew(&mut self) {
        self.current ^= 1;
        self.size = 0;
        // If that fails, the rest of what was there follows, which readers leave out.
        let _ = self.files[self.current].set_len(0);
    }
}

/// Reads the log, also while it is written.
#[derive(Debug)]
pub struct Reader {
    files: [Part; 2],
    /// The last line that was given out.
    last: u64,
}

#[derive(Debug)]
struct Part {
    file: File,
    /// Up to where it was read.
    offset: u64,
    /// What it begins with: another number, and it is another part of the log.
    first: u64,
}

impl Reader {
    /// The log in a domain's directory, from its beginning.
    pub fn open(directory: &OwnedFd) -> io::Result<Reader> {
        let part = |name| Part::of(File::from(files::open(directory, name)?));
        let [one, other] = files::LOGS;
        Ok(Reader { files: [part(one)?, part(other)?], last: 0 })
    }

    /// The lines that have come since the last time.
    pub fn read(&mut self) -> io::Result<Vec<Line>> {
        let mut lines = Vec::new();
        for part in &mut self.files {
            part.read(&mut lines)?;
        }
        lines.retain(|line| line.number > self.last);
        lines.sort_by_key(|line| line.number);
        lines.dedup_by_key(|line| line.number);
        self.last = lines.last().map_or(self.last, |line| line.number);
        Ok(lines)
    }
}

impl Part {
    /// All of a file.
    fn of(file: File) -> io::Result<Part> {
        Ok(Part { file, offset: 0, first: 0 })
    }

    fn read(&mut self, lines: &mut Vec<Line>) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        if size == self.offset {
            return Ok(());
        }
        let mut head = [0; 40];
        let count = self.file.read_at(&mut head, 0)?;
        let first = first_number(&head[..count]);
        if size < self.offset || first != self.first {
            (self.offset, self.first) = (0, first);
        }
        let mut text = Vec::new();
        let mut at = self.offset;
        while at < size {
            let mut piece = vec![0; READ_BYTES];
            match self.file.read_at(&mut piece, at)? {
                0 => break,
                count => text.extend_from_slice(&piece[..count]),
            }
            at = self.offset + text.len() as u64;
        }
        // What is not complete yet is read again.
        let complete = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.offset += complete as u64;
        let parsed = text[..complete].split(|&byte| byte == b'\n');
        lines.extend(parsed.filter_map(|line| serde_json::from_slice::<Line>(line).ok()));
        Ok(())
    }
}

/// The number at the beginning of `{"n":NUMBER,...`.
fn first_number(head: &[u8]) -> u64 {
    let digits = head.get(5..).unwrap_or_default();
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, &digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

/// The last lines that make up `count` lines of what was written.
#[must_use]
pub fn last_lines(lines: &[Line], count: usize) -> &[Line] {
    let mut left = count;
    for (index, line) in lines.iter().enumerate().rev() {
        let ends = line.bytes().ends_with(b"\n");
        if ends || index + 1 == lines.len() {
            if left == 0 {
                return &lines[index + 1..];
            }
            left -= 1;
        }
    }
    lines
}

/// As RFC 3339 has it, in UTC.
#[must_use]
pub fn time_of(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, seconds) = (since.as_secs() / DAY_SECONDS, since.as_secs() % DAY_SECONDS);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of the month, so many days after 1970 began.
fn date(days: u64) -> (u64, u64, u64) {
    // Years start in March here, so that the leap day is the last of its year; 400 years are an era.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * month_index + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;

    /// A directory that disappears.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> (Place, OwnedFd) {
            let path = std::env::temp_dir().join(format!("biv-log-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(CWD, &path, flags, Mode::empty()).unwrap();
            (Place(path), directory)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn times_are_written_as_people_have_them() {
        let check = |seconds, expected: &str| {
            let text = time_of(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(text, format!("{expected}.000000Z"));
        };
        check(0, "1970-01-01T00:00:00");
        check(951_782_399, "2000-02-28T23:59:59");
        check(951_782_400, "2000-02-29T00:00:00");
        check(1_767_225_599, "2025-12-31T23:59:59");
        check(4_107_542_400, "2100-03-01T00:00:00");
    }

    #[test]
    fn what_is_written_is_read_in_any_pieces() {
        let (_place, directory) = Place::new("pieces");
        let mut writer = Writer::create(&directory).unwrap();
        let mut reader = Reader::open(&directory).unwrap();
        assert_eq!(reader.read().unwrap(), []);
        let long = [b'x'; 40_000];
        let written: [(Stream, &[u8]); 5] = [
            (Stream::Stdout, b"one\ntwo\nthr"),
            (Stream::Stdout, b"ee\n"),
            (Stream::Stderr, b"\xff\xfe \"quoted\"\n"),
            (Stream::Stdout, &long),
            (Stream::Stdout, b"\n"),
        ];
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        for (stream, bytes) in written {
            writer.add(stream, bytes);
            for line in reader.read().unwrap() {
                let into = if line.stream == Stream::Stdout { &mut stdout } else { &mut stderr };
                into.extend(line.bytes());
            }
        }
        assert_eq!(stderr, b"\xff\xfe \"quoted\"\n");
        assert_eq!(stdout, [b"one\ntwo\nthree\n", &long[..], b"\n"].concat());
        let all = Reader::open(&directory).unwrap().read().unwrap();
        assert_eq!(
            all.iter().map(|line| line.number).collect::<Vec<_>>(),
            (1..=9).collect::<Vec<_>>()
        );
        assert_eq!(last_lines(&all, 0), []);
        assert_eq!(last_lines(&all, 2)[0].bytes(), b"\xff\xfe \"quoted\"\n");
        assert_eq!(last_lines(&all, 100).len(), 9);
    }

    #[test]
    fn a_log_goes_on_where_another_writer_ended() {
        let (place, directory) = Place::new("again");
        let mut follower = None;
        let mut followed = Vec::new();
        for round in 1..=3 {
            let mut writer = Writer::create(&directory).unwrap();
            writer.add(Stream::Stdout, format!("of {round}\n").as_bytes());
            writer.add(Stream::Stdout, &[&[b'x'; 9_999][..], b"\n"].concat().repeat(250));
            let follower = follower.get_or_insert_with(|| Reader::open(&directory).unwrap());
            followed.extend(follower.read().unwrap());
            // Somebody has ended it in the middle of a line.
            let at = writer.size;
            writer.files[writer.current].write_all_at(b"{\"n\":9999,\"ti", at).unwrap();
        }
        let numbers: Vec<u64> = followed.iter().map(|line| line.number).collect();
        assert_eq!(numbers, (1..=3 * 251).collect::<Vec<_>>());
        let said = followed.iter().filter(|line| line.bytes().len() < 9_999);
        let said: Vec<_> = said.map(|line| text_of(&line.bytes())).collect();
        assert_eq!(said, ["of 1\n", "of 2\n", "of 3\n"]);
        // Both files have been in use.
        let used = files::LOGS.map(|name| std::fs::metadata(place.0.join(name)).unwrap().len());
        assert!(used.iter().all(|length| *length > 0), "{used:?}");
    }

    #[test]
    fn what_was_lost_is_said() {
        let (place, directory) = Place::new("lost");
        let mut writer = Writer::create(&directory).unwrap();
        writer.add(Stream::Stdout, b"before\n");
        // A file that cannot be written is as good as one without room.
        let no_room = File::open(place.0.join(files::LOGS[0])).unwrap();
        let good = std::mem::replace(&mut writer.files[0], no_room);
        writer.add(Stream::Stdout, b"lost\n");
        writer.add(Stream::Stderr, b"lost, too\n");
        writer.files[0] = good;
        writer.add(Stream::Stdout, b"after\n");
        writer.add(Stream::Stdout, b"end\n");
        let lines = Reader::open(&directory).unwrap().read().unwrap();
        let said: Vec<_> = lines.iter().map(|line| text_of(&line.bytes())).collect();
        let notice = "biv: 15 bytes are missing here: there was no room for the log\n";
        assert_eq!(said, ["before\n", notice, "after\n", "end\n"]);
        assert_eq!(lines[1].stream, Stream::Stderr);
    }

    fn text_of(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn the_oldest_goes_when_there_is_too_much() {
        let (_place, directory) = Place::new("oldest");
        let mut writer = Writer::create(&directory).unwrap();
        let mut follower = Reader::open(&directory).unwrap();
        let mut followed = 0;
        for _ in 0..300 {
            writer.add(Stream::Stdout, &[&[b'x'; 999][..], b"\n"].concat().repeat(100));
            followed += follower.read().unwrap().len();
        }
        assert_eq!(followed, 30_000, "who follows closely misses nothing");
        let lines = Reader::open(&directory).unwrap().read().unwrap();
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers.last(), Some(&30_000));
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "there is a gap");
        let bytes: u64 = files::LOGS
            .iter()
            .map(|name| {
                File::from(files::open(&directory, name).unwrap()).metadata().unwrap().len()
            })
            .sum();
        assert!(bytes > FILE_MAX_BYTES && bytes <= 2 * FILE_MAX_BYTES, "{bytes}");
    }
}
