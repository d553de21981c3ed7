//! /proc/PID/smaps: the mappings with all that is known about them.

use crate::error::Error;

/// A mapping as the kernel tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub start: u64,
    pub end: u64,
    /// `PROT_*`.
    pub protection: u32,
    pub shared: bool,
    pub offset: u64,
    /// The file's device and inode.
    pub file: (u64, u64),
    /// What is behind the numbers: a path, a name in brackets, or nothing.
    pub name: String,
    /// The words of `VmFlags`.
    pub flags: Vec<String>,
}

/// The mappings of a process, in order.
pub(crate) fn read(pid: u32) -> Result<Vec<Line>, Error> {
    let text = super::read(pid, "smaps")?;
    let mut lines: Vec<Line> = Vec::new();
    for text in text.lines() {
        if let Some(flags) = text.strip_prefix("VmFlags:") {
            let flags = flags.split_whitespace().map(str::to_owned).collect();
            if let Some(last) = lines.last_mut() {
                last.flags = flags;
            }
        } else if let Some(line) = parse(text) {
            lines.push(line);
        }
    }
    Ok(lines)
}

/// Where a process has private memory without a file: one range for each mapping, in order. The flags are not looked
/// at, which takes long where there is much memory.
pub(crate) fn anonymous(pid: u32) -> Result<Vec<std::ops::Range<u64>>, Error> {
    let text = super::read(pid, "maps")?;
    let lines =
        text.lines().filter_map(parse).filter(|line| !line.shared && is_anonymous(&line.name));
    Ok(lines.map(|line| line.start..line.end).collect())
}

/// Where a process has something: first addresses, and those behind it.
pub(crate) fn taken(pid: u32) -> Result<Vec<(u64, u64)>, Error> {
    let text = super::read(pid, "maps")?;
    Ok(text.lines().filter_map(parse).map(|line| (line.start, line.end)).collect())
}

/// Whether that is the name of memory without a file.
pub(crate) fn is_anonymous(name: &str) -> bool {
    name.is_empty() || name == "[heap]" || name.starts_with("[stack") || name.starts_with("[anon:")
}

/// A line of /proc/PID/maps.
fn parse(text: &str) -> Option<Line> {
    let mut rest = text;
    let mut word = || {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind;
        word
    };
    let (start, end) = word().split_once('-')?;
    let (rights, offset, device, inode) = (word(), word(), word(), word());
    let (major, minor) = device.split_once(':')?;
    let device = |text| u32::from_str_radix(text, 16).ok();
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let right =
        |index, letter, bit| if rights.get(index..=index) == Some(letter) { bit } else { 0 };
    Some(Line {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        protection: right(0, "r", 1) | right(1, "w", 2) | right(2, "x", 4),
        shared: rights.get(3..4)? == "s",
        offset: hexadecimal(offset)?,
        file: (rustix::fs::makedev(device(major)?, device(minor)?), inode.parse().ok()?),
        name: rest.trim_start().replace("\\012", "\n"),
        flags: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u64, u64, u32, bool, &str)>) {
        let parsed = parse(text);
        let found = parsed
            .as_ref()
            .map(|line| (line.start, line.end, line.protection, line.shared, line.name.as_str()));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn lines_are_parsed() {
        check(
            "1000-2000 r-xp 00001000 fe:00 12 /bin/a b",
            Some((0x1000, 0x2000, 5, false, "/bin/a b")),
        );
        check(
            "1000-2000 rw-s 00001000 00:01 12    /a\\012b",
            Some((0x1000, 0x2000, 3, true, "/a\nb")),
        );
        check("1000-2000 ---p 00000000 00:00 0 ", Some((0x1000, 0x2000, 0, false, "")));
        check("Rss:     4 kB", None);
        check("", None);
    }
}
