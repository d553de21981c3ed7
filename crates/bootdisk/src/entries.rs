//! Entries of the Boot Loader Specification (UAPI group): a file for each kernel, with a key and a value in each line.
//! They are systemd-boot's, and those of Fedora's GRUB.

use std::collections::HashMap;

use crate::choice::Choice;
use crate::error::Error;
use crate::limits::{ENTRIES_MAX, LINE_MAX_BYTES};
use crate::versions::compare;
use crate::volumes::Volumes;

/// Where they are in their file system: that of the firmware, or one for `/boot`, or the root.
const PLACES: [(&str, &str); 2] = [("", "/loader"), ("/boot", "/boot/loader")];

/// What systemd-boot boots by default, of the first volume that has entries; none if none has any.
///
/// # Errors
///
/// A file cannot be read.
pub fn choose(volumes: &Volumes) -> Result<Option<Choice>, Error> {
    for volume in 0..volumes.count() {
        let found = of_volume(volumes, volume, &HashMap::new())?;
        let mut wanted = String::new();
        for (_, place) in PLACES {
            if let Some(text) = volumes.text(volume, &format!("{place}/loader.conf"))? {
                let default = pairs(&text).find(|(key, _)| *key == "default");
                wanted = default.map_or(wanted, |(_, value)| value.to_owned());
            }
        }
        let is_wanted = |(id, _): &&(String, Choice)| {
            matches(&wanted, id) || matches(&wanted, &format!("{id}.conf"))
        };
        let chosen = found.iter().find(is_wanted).or(found.first());
        if let Some((_, choice)) = chosen {
            return Ok(Some(choice.clone()));
        }
    }
    Ok(None)
}

/// The entries of a volume by their names, the one first that is booted if nobody says another. In their options,
/// variables have these values.
///
/// # Errors
///
/// A file cannot be read.
pub fn of_volume(
    volumes: &Volumes,
    volume: usize,
    variables: &HashMap<String, String>,
) -> Result<Vec<(String, Choice)>, Error> {
    let mut found = Vec::new();
    for (prefix, place) in PLACES {
        for name in volumes.list(volume, &format!("{place}/entries")) {
            let Some(id) = name.strip_suffix(".conf") else { continue };
            let path = format!("{place}/entries/{name}");
            let Some(text) = volumes.text(volume, &path)? else { continue };
            found.extend(Entry::read(&text, (volume, prefix), id, variables));
        }
    }
    found.truncate(ENTRIES_MAX);
    found.sort_by(|one, other| Entry::order(other, one));
    Ok(found.into_iter().map(|entry| (entry.id, entry.choice)).collect())
}

struct Entry {
    id: String,
    sort_key: String,
    version: String,
    /// It has been tried too often, and never came up.
    is_bad: bool,
    choice: Choice,
}

impl Entry {
    /// What a file says; none if it is for no Linux kernel of this architecture. Paths are below the root of the
    /// volume; where that is the root of the system, and the entries are for its `/boot`, they may be below that.
    fn read(
        text: &str,
        (volume, prefix): (usize, &str),
        id: &str,
        variables: &HashMap<String, String>,
    ) -> Option<Self> {
        let place = |path: &str| {
            let is_below = path.starts_with(&format!("{prefix}/"));
            (volume, if is_below { path.to_owned() } else { format!("{prefix}{path}") })
        };
        let name = id.split('+').next().unwrap_or(id).to_owned();
        let is_bad =
            id.split_once('+').is_some_and(|(_, tries)| tries.split('-').next() == Some("0"));
        let mut entry = Self {
            id: name,
            sort_key: String::new(),
            version: String::new(),
            is_bad,
            choice: Choice::default(),
        };
        let mut options = Vec::new();
        for (key, value) in pairs(text) {
            match key {
                "title" => value.clone_into(&mut entry.choice.title),
                "version" => value.clone_into(&mut entry.version),
                "sort-key" => value.clone_into(&mut entry.sort_key),
                "linux" => entry.choice.kernel = place(value),
                "initrd" => {
                    let paths = value.split_whitespace().filter(|path| !path.starts_with('$'));
                    entry.choice.initrds.extend(paths.map(place));
                }
                "options" => {
                    let words = value.split_whitespace().map(|word| replaced(word, variables));
                    options.extend(words.filter(|word| !word.is_empty()));
                }
                "architecture" if !value.eq_ignore_ascii_case("x64") => return None,
                _ => {}
            }
        }
        let mut line = options.join(" ");
        line.truncate(line.floor_char_boundary(LINE_MAX_BYTES));
        entry.choice.command_line = line;
        if entry.choice.title.is_empty() {
            entry.choice.title.clone_from(&entry.id);
        }
        (!entry.choice.kernel.1.is_empty()).then_some(entry)
    }

    /// Which of two is booted rather: the greater one.
    fn order(one: &Self, other: &Self) -> std::cmp::Ordering {
        let (keyed, other_keyed) = (!one.sort_key.is_empty(), !other.sort_key.is_empty());
        let by_key = match keyed && other_keyed {
            true => other
                .sort_key
                .cmp(&one.sort_key)
                .then_with(|| compare(&one.version, &other.version)),
            false => keyed.cmp(&other_keyed),
        };
        let by_name = || compare(&one.id, &other.id);
        other.is_bad.cmp(&one.is_bad).then(by_key).then_with(by_name)
    }
}

/// Keys and values.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once([' ', '\t']).map(|(key, value)| (key, value.trim())))
}

/// A word of the options, in which GRUB's variables may stand (`$kernelopts`).
fn replaced(word: &str, variables: &HashMap<String, String>) -> String {
    match word.strip_prefix('$') {
        Some(name) => variables.get(name).cloned().unwrap_or_default(),
        None => word.to_owned(),
    }
}

/// Whether a name is one of a pattern, with `*` and `?` in it.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    if pattern.len() > 256 || name.len() > 256 {
        return false;
    }
    // Which lengths of the name the pattern so far fits.
    let mut fits = vec![false; name.len() + 1];
    fits[0] = true;
    for letter in pattern {
        let before = fits.clone();
        let mut any = false;
        for (length, fit) in fits.iter_mut().enumerate() {
            any |= before[length];
            let is_one =
                length > 0 && before[length - 1] && (letter == '?' || name[length - 1] == letter);
            *fit = if letter == '*' { any } else { is_one };
        }
    }
    fits[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars_and_question_marks() {
        let check = |pattern: &str, name: &str, expected| {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} {name:?}");
        };
        for (pattern, name) in
            [("arch-*", "arch-linux"), ("*", ""), ("a?c", "abc"), ("a*b*c", "axxbyc"), ("x", "x")]
        {
            check(pattern, name, true);
        }
        for (pattern, name) in [("", "x"), ("a?", "a"), ("arch-*", "debian"), ("a*b", "abc")] {
            check(pattern, name, false);
        }
    }

    #[test]
    fn the_entry_that_is_booted_is_the_first() {
        let entry = |id: &str, text: &str| {
            let text = format!("{text}\nlinux /k\n");
            Entry::read(&text, (0, ""), id, &HashMap::new()).unwrap()
        };
        let ordered = [
            entry("z", "sort-key debian\nversion 6.10"),
            entry("y", "sort-key debian\nversion 6.9"),
            entry("x", "sort-key fedora\nversion 7"),
            entry("fedora-5.10", ""),
            entry("fedora-5.9", ""),
            entry("later+0-3", "sort-key a\nversion 9"),
        ];
        for (place, one) in ordered.iter().enumerate() {
            for (other_place, other) in ordered.iter().enumerate() {
                let order = Entry::order(other, one);
                assert_eq!(order, place.cmp(&other_place), "{} {}", one.id, other.id);
            }
        }
    }

    #[test]
    fn an_entry_says_everything() {
        let text = "# a comment\ntitle\tFedora Linux\nlinux /vmlinuz-6\n\
                    initrd /initrd-6.img $tuned_initrd\n\
                    options root=UUID=1 ro\noptions $kernelopts quiet\ngrub_arg --unrestricted\n";
        let variables = HashMap::from([("kernelopts".to_owned(), "console=ttyS0".to_owned())]);
        let found = Entry::read(text, (1, "/boot"), "id", &variables).unwrap().choice;
        assert_eq!(found.kernel, (1, "/boot/vmlinuz-6".to_owned()));
        assert_eq!(found.initrds, [(1, "/boot/initrd-6.img".to_owned())]);
        assert_eq!(found.command_line, "root=UUID=1 ro console=ttyS0 quiet");
        assert!(Entry::read("title x\nefi /a.efi\n", (0, ""), "id", &variables).is_none());
        assert!(Entry::read("linux /a\narchitecture aa64\n", (0, ""), "id", &variables).is_none());
    }
}
