//! What is mounted in the pod (proc_pid_mountinfo(5)).

use std::path::{Path, PathBuf};

use crate::layers::{Layers, path_of_word};

/// Where a pod may have written.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it is mounted.
    pub place: PathBuf,
    /// What keeps it.
    pub kept: Kept,
}

/// What keeps what a pod writes.
#[derive(Debug, PartialEq, Eq)]
pub enum Kept {
    /// The upper part of the layer with this name.
    Layer(String),
    /// A file system in memory.
    Memory,
}

/// Where a pod may have written, by its table of mounts. What it shares with the host is not among it.
pub fn written(table: &[u8]) -> Vec<Written> {
    table.split(|&byte| byte == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Written> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let place = path_of_word(words.get(4)?);
    // Optional words end with a hyphen.
    let behind = words.iter().skip(6).position(|word| *word == b"-")? + 7;
    let (kind, options) = (words.get(behind)?, words.get(behind + 2)?);
    let kept = match *kind {
        b"tmpfs" if *words.get(3)? == b"/" => Kept::Memory,
        b"overlay" => {
            let upper =
                options.split(|&byte| byte == b',').find_map(|it| it.strip_prefix(b"upperdir="))?;
            let upper = path_of_word(upper);
            let layer = upper.strip_prefix(Layers::PLACE).ok()?.parent()?;
            Kept::Layer(layer.to_str().filter(|layer| is_number(layer))?.to_owned())
        }
        _ => return None,
    };
    Some(Written { place, kept })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A path as one that begins at the root directory that is open.
pub fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_and_memory_are_found() {
        let table = b"30 20 0:50 / / rw - tmpfs tmpfs rw,mode=755\n\
            31 30 0:51 / /us\\040r rw,nodev shared:1 - overlay overlay \
                lowerdir=.,upperdir=/layers/12/upper,workdir=/layers/12/work\n\
            32 30 0:52 /a /home/u rw - tmpfs tmpfs rw\n\
            33 30 8:1 /home /home rw - ext4 /dev/sda1 rw\n\
            34 30 0:53 / /x rw - overlay overlay \
                lowerdir=/a,upperdir=/layers/../upper,workdir=/w\n\
            nonsense\n";
        let at = |place: &str, kept| Written { place: place.into(), kept };
        let expected = [at("/", Kept::Memory), at("/us r", Kept::Layer("12".to_owned()))];
        assert_eq!(written(table), expected);
    }
}
