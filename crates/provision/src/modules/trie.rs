//! The form in which `kmod` reads an index: strings, each with values, as a tree of their beginnings.
//!
//! Numbers are of 32 bits, the most significant byte first. A file is the magic number, the version, the place of the
//! root, and the nodes. A node is what all strings below it have next in common, ended by a NUL; the range of the
//! characters that follow, with the place of a node for each, or 0; how many values its own string has, and these, each
//! after its priority and ended by a NUL. Which of the three it has is in the upper bits of its place. (kmod,
//! libkmod/libkmod-index.c.)

use std::collections::BTreeMap;

const MAGIC: u32 = 0xb007_f457;
const VERSION: u32 = 0x0002_0001;

const HAS_PREFIX: u32 = 0x8000_0000;
const HAS_VALUES: u32 = 0x4000_0000;
const HAS_CHILDREN: u32 = 0x2000_0000;

/// The longest string; longer ones are left out, as others are that the form cannot have.
const MAX_KEY_BYTES: usize = 1024;

/// Values by their strings, the most important first, with their priorities.
pub type Entries = BTreeMap<String, Vec<(u32, String)>>;

/// The index as a file.
pub fn write(entries: &Entries) -> Vec<u8> {
    let mut file = Vec::new();
    for number in [MAGIC, VERSION, 0] {
        put(&mut file, number);
    }
    let is_possible =
        |key: &str| key.is_ascii() && !key.contains('\0') && key.len() <= MAX_KEY_BYTES;
    let all: Vec<_> = entries
        .iter()
        .filter(|(key, _)| is_possible(key))
        .map(|(key, values)| (key.as_bytes(), values.as_slice()))
        .collect();
    let root = node(&mut file, &all);
    file[8..12].copy_from_slice(&root.to_be_bytes());
    file
}

type Entry<'a> = (&'a [u8], &'a [(u32, String)]);

/// Writes the node of these entries, which are sorted; its place.
fn node(file: &mut Vec<u8>, entries: &[Entry<'_>]) -> u32 {
    let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else {
        return empty(file);
    };
    let common = first.iter().zip(*last).take_while(|(one, other)| one == other).count();
    let prefix = &first[..common];
    let mut rest: Vec<_> = entries.iter().map(|(key, values)| (&key[common..], *values)).collect();
    let own = if rest[0].0.is_empty() { rest.remove(0).1 } else { &[] };
    let mut children = Vec::new();
    for group in rest.chunk_by(|(one, _), (other, _)| one[0] == other[0]) {
        let below: Vec<_> = group.iter().map(|(key, values)| (&key[1..], *values)).collect();
        children.push((group[0].0[0], node(file, &below)));
    }
    let mut place = file.len() as u32;
    if !prefix.is_empty() {
        place |= HAS_PREFIX;
        put_string(file, prefix);
    }
    if let (Some(&(low, _)), Some(&(high, _))) = (children.first(), children.last()) {
        place |= HAS_CHILDREN;
        file.extend([low, high]);
        for character in low..=high {
            let child = children.iter().find(|(of, _)| *of == character);
            put(file, child.map_or(0, |(_, place)| *place));
        }
    }
    if !own.is_empty() {
        place |= HAS_VALUES;
        put(file, own.len() as u32);
        for (priority, value) in own {
            put(file, *priority);
            put_string(file, value.as_bytes());
        }
    }
    place
}

/// The root of nothing: a node needs something in it.
fn empty(file: &mut Vec<u8>) -> u32 {
    let place = file.len() as u32;
    put(file, 0);
    place | HAS_VALUES
}

fn put(file: &mut Vec<u8>, number: u32) {
    file.extend(number.to_be_bytes());
}

fn put_string(file: &mut Vec<u8>, string: &[u8]) {
    file.extend(string);
    file.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an index as kmod does: the string, with the values that it has.
    fn read(file: &[u8], place: u32, string: &str, found: &mut Vec<(String, u32, String)>) {
        let mut at = (place & 0x0fff_ffff) as usize;
        let number = |at: &mut usize| {
            *at += 4;
            u32::from_be_bytes(file[*at - 4..*at].try_into().unwrap())
        };
        let word = |at: &mut usize| {
            let end = file[*at..].iter().position(|&byte| byte == 0).unwrap();
            let word = String::from_utf8(file[*at..*at + end].to_vec()).unwrap();
            *at += end + 1;
            word
        };
        let mut string = string.to_owned();
        if place & HAS_PREFIX != 0 {
            string += &word(&mut at);
        }
        let mut children = Vec::new();
        if place & HAS_CHILDREN != 0 {
            let (low, high) = (file[at], file[at + 1]);
            at += 2;
            children = (low..=high).map(|character| (character, number(&mut at))).collect();
        }
        if place & HAS_VALUES != 0 {
            for _ in 0..number(&mut at) {
                let priority = number(&mut at);
                found.push((string.clone(), priority, word(&mut at)));
            }
        }
        for (character, child) in children.into_iter().filter(|(_, child)| *child != 0) {
            read(file, child, &format!("{string}{}", char::from(character)), found);
        }
    }

    #[test]
    fn an_index_has_what_was_put_there() {
        let mut entries = Entries::new();
        for key in ["ask", "ate", "on", "once", "one", "pci:v*d[a-c]sv*", "", "a"] {
            let values = (0..key.len().max(1)).map(|n| (n as u32, format!("{key}{n}")));
            entries.insert(key.into(), values.collect());
        }
        let file = write(&entries);
        let mut found = Vec::new();
        assert_eq!(file[..8], [0xb0, 0x07, 0xf4, 0x57, 0, 2, 0, 1]);
        read(&file, u32::from_be_bytes(file[8..12].try_into().unwrap()), "", &mut found);
        let expected: Vec<_> = entries
            .iter()
            .flat_map(|(key, all)| all.iter().map(|(n, value)| (key.clone(), *n, value.clone())))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_an_index_cannot_have_is_left_out() {
        let entry = |key: String| (key, vec![(0, "value".to_owned())]);
        let odd = ["\u{e4}".to_owned(), "a\0b".into(), "x".repeat(MAX_KEY_BYTES + 1)];
        let file = write(&odd.into_iter().map(entry).collect());
        assert_eq!(file, write(&Entries::new()));
        let mut found = Vec::new();
        read(&file, u32::from_be_bytes(file[8..12].try_into().unwrap()), "", &mut found);
        assert_eq!(found, []);
    }
}
