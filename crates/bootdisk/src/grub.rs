//! GRUB's configuration: what its default choice boots.
//!
//! Its files are scripts, of which this carries out what decides the choice: variables, `if` with tests of words and
//! files, `search`, `load_env`, `configfile` and `source`, functions, and the entries of the menu. What sets up
//! screens, fonts and modules succeeds and does nothing; every other command fails. The platform is said to be EFI.
//!
//! A choice is carried out after the whole script, as GRUB does, with the variables as they are then.

use std::collections::HashMap;

use crate::choice::Choice;
use crate::entries;
use crate::error::Error;
use crate::limits::{DEPTH_MAX, ENTRIES_MAX, LINE_MAX_BYTES, STEPS_MAX, VALUE_MAX_BYTES};
use crate::script::{Command, Piece, Word, parse};
use crate::volumes::Volumes;

/// Where distributions have it, seen from the root of its file system; the last ones are in subvolumes of btrfs, whose
/// root is the default subvolume, as it is for openSUSE's GRUB, and mostly the one above all.
const PLACES: [&str; 7] = [
    "/boot/grub",
    "/boot/grub2",
    "/grub",
    "/grub2",
    "/@/boot/grub",
    "/@rootfs/boot/grub",
    "/root/boot/grub2",
];

/// What GRUB sets before it reads any of it.
const VARIABLES: [(&str, &str); 7] = [
    ("feature_menuentry_id", "y"),
    ("feature_default_font_path", "y"),
    ("feature_all_video_module", "y"),
    ("feature_platform_search_hint", "y"),
    ("feature_timeout_style", "y"),
    ("grub_platform", "efi"),
    ("grub_cpu", "x86_64"),
];

/// Commands that succeed and need not be carried out.
const IDLE: [&str; 14] = [
    "insmod",
    "true",
    "echo",
    "export",
    "save_env",
    "terminal_input",
    "terminal_output",
    "terminal",
    "loadfont",
    "serial",
    "clear",
    "sleep",
    "background_color",
    "play",
];

/// An entry of the menu.
#[derive(Debug, Clone)]
enum Entry {
    /// A script: title, name, and what it does; a menu has entries in it.
    Script { title: String, id: String, is_menu: bool, body: Vec<Command> },
    /// One of the Boot Loader Specification's.
    File { id: String, choice: Box<Choice> },
}

impl Entry {
    fn is_called(&self, name: &str) -> bool {
        match self {
            Self::Script { title, id, .. } => title == name || (!id.is_empty() && id == name),
            Self::File { id, choice } => choice.title == name || id == name,
        }
    }
}

/// The default choice of the first configuration that has one; none if there is none.
///
/// # Errors
///
/// There is one that makes no sense, and no other.
pub fn choose(volumes: &Volumes) -> Result<Option<Choice>, Error> {
    let mut failure = None;
    for volume in 0..volumes.count() {
        for place in PLACES {
            let path = format!("{place}/grub.cfg");
            let chosen = volumes.text(volume, &path).and_then(|text| match text {
                Some(text) => Interpreter::new(volumes, volume, place).chosen(&text),
                None => Ok(None),
            });
            match chosen {
                Ok(Some(choice)) => return Ok(Some(choice)),
                Ok(None) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    failure.map_or(Ok(None), Err)
}

struct Interpreter<'a> {
    volumes: &'a Volumes,
    variables: HashMap<String, String>,
    functions: HashMap<String, Vec<Command>>,
    menu: Vec<Entry>,
    choice: Choice,
    steps: usize,
}

impl<'a> Interpreter<'a> {
    fn new(volumes: &'a Volumes, volume: usize, place: &str) -> Self {
        let device = volumes.device(volume);
        let mut variables: HashMap<_, _> =
            VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        variables.insert("prefix".to_owned(), format!("({device}){place}"));
        variables.insert("root".to_owned(), device);
        Self {
            volumes,
            variables,
            functions: HashMap::new(),
            menu: Vec::new(),
            choice: Choice::default(),
            steps: 0,
        }
    }

    /// What a configuration boots by default.
    fn chosen(mut self, text: &str) -> Result<Option<Choice>, Error> {
        self.run(&parse(text)?, 0)?;
        let default = self.value("default").to_owned();
        let (mut default, mut levels) = (default.as_str(), 0);
        loop {
            let (name, rest) = default.split_once('>').unwrap_or((default, ""));
            let entry = self.entry(name).cloned();
            match entry {
                None => return Ok(None),
                Some(Entry::File { choice, .. }) => return Ok(Some(*choice)),
                Some(Entry::Script { title, is_menu: false, body, .. }) => {
                    self.choice.title = title;
                    self.run(&body, 0)?;
                    let has_kernel = !self.choice.kernel.1.is_empty();
                    return Ok(has_kernel.then_some(self.choice));
                }
                Some(Entry::Script { body, .. }) => {
                    self.menu.clear();
                    self.run(&body, 0)?;
                }
            }
            (default, levels) = (rest, levels + 1);
            if levels > DEPTH_MAX {
                return Err(Error::Endless);
            }
        }
    }

    /// The entry with that name or number; as with GRUB the first, if there is none.
    fn entry(&self, name: &str) -> Option<&Entry> {
        let named = self.menu.iter().find(|entry| entry.is_called(name));
        let numbered = || name.parse::<usize>().ok().and_then(|number| self.menu.get(number));
        named.or_else(numbered).or(self.menu.first())
    }

    fn value(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    fn set(&mut self, name: &str, value: &str) {
        if value.len() <= VALUE_MAX_BYTES && name.len() <= LINE_MAX_BYTES {
            self.variables.insert(name.to_owned(), value.to_owned());
        }
    }

    /// The words that a word comes to.
    fn expand(&self, word: &Word) -> Vec<String> {
        let (mut words, mut current) = (Vec::new(), None::<String>);
        for piece in word {
            match piece {
                Piece::Text(text) => current.get_or_insert_default().push_str(text),
                Piece::Variable { name, is_quoted: true } => {
                    current.get_or_insert_default().push_str(self.value(name));
                }
                Piece::Variable { name, is_quoted: false } => {
                    let value = self.value(name);
                    for (number, part) in value.split_whitespace().enumerate() {
                        if number > 0 {
                            words.extend(current.take());
                        }
                        current.get_or_insert_default().push_str(part);
                    }
                }
            }
        }
        words.extend(current);
        words
    }

    /// Carries commands out; whether the last one succeeded.
    fn run(&mut self, commands: &[Command], depth: usize) -> Result<bool, Error> {
        if depth > DEPTH_MAX {
            return Err(Error::Endless);
        }
        let mut succeeded = true;
        for command in commands {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(Error::Endless);
            }
            succeeded = match command {
                Command::Simple(words) => {
                    let mut expanded = Vec::new();
                    for word in words {
                        expanded.extend(self.expand(word));
                        let bytes: usize = expanded.iter().map(String::len).sum();
                        if bytes > VALUE_MAX_BYTES {
                            return Err(Error::Endless);
                        }
                    }
                    self.simple(&expanded, depth)?
                }
                Command::If(branches) => self.condition(branches, depth)?,
                Command::Menu { is_menu, words, body } => {
                    self.add_entry(*is_menu, words, body);
                    true
                }
                Command::Function(name, body) => {
                    self.functions.insert(name.clone(), body.clone());
                    true
                }
            };
        }
        Ok(succeeded)
    }

    fn condition(
        &mut self,
        branches: &[(Vec<Command>, Vec<Command>)],
        depth: usize,
    ) -> Result<bool, Error> {
        for (condition, body) in branches {
            if self.run(condition, depth + 1)? {
                return self.run(body, depth + 1);
            }
        }
        Ok(true)
    }

    fn add_entry(&mut self, is_menu: bool, words: &[Word], body: &[Command]) {
        let words: Vec<String> = words.iter().flat_map(|word| self.expand(word)).collect();
        let title = words.first().cloned().unwrap_or_default();
        let id = words.iter().position(|word| word == "--id").and_then(|at| words.get(at + 1));
        let id = id
            .or(words
                .iter()
                .find_map(|word| word.strip_prefix("--id="))
                .map(str::to_owned)
                .as_ref())
            .cloned();
        self.add(Entry::Script { title, id: id.unwrap_or_default(), is_menu, body: body.to_vec() });
    }

    fn add(&mut self, entry: Entry) {
        if self.menu.len() < ENTRIES_MAX {
            self.menu.push(entry);
        }
    }

    fn simple(&mut self, words: &[String], depth: usize) -> Result<bool, Error> {
        let Some((name, arguments)) = words.split_first() else { return Ok(true) };
        let first = arguments.first().map(String::as_str);
        match name.as_str() {
            "set" => {
                if let Some((name, value)) = first.and_then(|word| word.split_once('=')) {
                    self.set(name, value);
                }
                Ok(true)
            }
            "unset" => Ok(arguments.iter().map(|name| self.variables.remove(name)).count() > 0),
            "[" | "test" => Ok(self.test(arguments)),
            "search" | "search.fs_uuid" | "search.fs_label" | "search.file" => {
                Ok(self.search(name, arguments))
            }
            "load_env" => self.load_environment(arguments),
            "configfile" | "source" | "." => self.source(first.unwrap_or_default(), depth),
            "blscfg" => self.add_files(),
            "linux" | "linuxefi" | "linux16" => Ok(self.take_kernel(arguments)),
            "initrd" | "initrdefi" | "initrd16" => Ok(self.take_initrds(arguments)),
            name if IDLE.contains(&name) => Ok(true),
            name => match (self.functions.get(name).cloned(), name.split_once('=')) {
                (Some(body), _) => self.run(&body, depth + 1),
                (None, Some((name, value))) => {
                    self.set(name, value);
                    Ok(true)
                }
                (None, None) => Ok(false),
            },
        }
    }

    /// The volume and the path that a path means.
    fn place(&self, path: &str) -> Option<(usize, String)> {
        match path.strip_prefix('(').and_then(|path| path.split_once(')')) {
            Some((device, path)) => Some((self.volumes.by_device(device)?, path.to_owned())),
            None => Some((self.volumes.by_device(self.value("root"))?, path.to_owned())),
        }
    }

    fn has(&self, path: &str) -> bool {
        self.place(path).is_some_and(|(volume, path)| self.volumes.has(volume, &path))
    }

    /// What is behind `[`.
    fn test(&self, words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = words.strip_suffix(&["]"]).unwrap_or(&words);
        let mut either = words.split(|word| *word == "-o");
        either.any(|all| all.split(|word| *word == "-a").all(|one| self.holds(one)))
    }

    fn holds(&self, words: &[&str]) -> bool {
        match words {
            ["!", rest @ ..] => !self.holds(rest),
            ["-n", word] | [word] => !word.is_empty(),
            ["-z", word] => word.is_empty(),
            ["-s" | "-f" | "-e", path] => self.has(path),
            [one, "=" | "==", other] => one == other,
            [one, "!=", other] => one != other,
            _ => false,
        }
    }

    /// Looks for a file system; whether there is one.
    fn search(&mut self, command: &str, words: &[String]) -> bool {
        let (mut variable, mut kind) =
            ("root".to_owned(), command.trim_start_matches("search").to_owned());
        let (mut names, mut words) = (Vec::new(), words.iter());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--set" | "-s" => variable = words.next().cloned().unwrap_or_default(),
                "--fs-uuid" | "-u" => ".fs_uuid".clone_into(&mut kind),
                "--label" | "-l" | "--fs-label" => ".fs_label".clone_into(&mut kind),
                "--file" | "-f" => ".file".clone_into(&mut kind),
                "--hint" | "-h" => drop(words.next()),
                word => match word.strip_prefix("--set=") {
                    Some(name) => name.clone_into(&mut variable),
                    None if word.starts_with('-') => {}
                    None => names.push(word),
                },
            }
        }
        let Some(name) = names.first() else { return false };
        if let (true, Some(name)) = (command.contains('.'), names.get(1)) {
            (*name).clone_into(&mut variable);
        }
        let found = match kind.as_str() {
            ".fs_uuid" => self.volumes.by_uuid(name),
            ".fs_label" => self.volumes.by_label(name),
            ".file" => self.volumes.by_file(name),
            _ => None,
        };
        found.map(|volume| self.set(&variable, &self.volumes.device(volume))).is_some()
    }

    /// Takes variables from GRUB's block of them.
    fn load_environment(&mut self, words: &[String]) -> Result<bool, Error> {
        let named = words.iter().position(|word| word == "-f" || word == "--file");
        let path = named.and_then(|at| words.get(at + 1).cloned());
        let path = path.unwrap_or_else(|| format!("{}/grubenv", self.value("prefix")));
        let Some((volume, path)) = self.place(&path) else { return Ok(false) };
        let Some(text) = self.volumes.text(volume, &path)? else { return Ok(false) };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (name, value) in lines.filter_map(|line| line.split_once('=')) {
            self.set(name, value);
        }
        Ok(true)
    }

    fn source(&mut self, path: &str, depth: usize) -> Result<bool, Error> {
        let Some((volume, path)) = self.place(path) else { return Ok(false) };
        match self.volumes.text(volume, &path)? {
            Some(text) => self.run(&parse(&text)?, depth + 1),
            None => Ok(false),
        }
    }

    /// Adds the entries of the Boot Loader Specification to the menu, as Fedora's GRUB does.
    fn add_files(&mut self) -> Result<bool, Error> {
        let Some(volume) = self.volumes.by_device(self.value("root")) else { return Ok(false) };
        let found = entries::of_volume(self.volumes, volume, &self.variables)?;
        for (id, choice) in found {
            self.add(Entry::File { id, choice: Box::new(choice) });
        }
        Ok(true)
    }

    fn take_kernel(&mut self, words: &[String]) -> bool {
        let Some((path, arguments)) = words.split_first() else { return false };
        let Some(place) = self.place(path) else { return false };
        let mut line = arguments.join(" ");
        line.truncate(line.floor_char_boundary(LINE_MAX_BYTES));
        (self.choice.kernel, self.choice.command_line) = (place, line);
        true
    }

    fn take_initrds(&mut self, words: &[String]) -> bool {
        let places: Option<Vec<_>> = words.iter().map(|path| self.place(path)).collect();
        let is_known = places.is_some();
        self.choice.initrds = places.unwrap_or_default();
        is_known
    }
}
