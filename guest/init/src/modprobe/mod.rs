//! `modprobe`, for roots that have none: loads a module by its name, or those that a pattern of theirs is for, and what
//! they need.
//!
//! It reads the indexes of depmod(8) in their form as text, and no configuration but the kernel's command line. A
//! module that is packed is unpacked by the kernel.

use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::system::{delete_module, finit_module};

use self::indexes::{Found, Indexes, canonical, name_of};
use crate::modules;

mod indexes;
mod pattern;

/// What is said to users who ask for something else.
const USAGE: &str = "usage: modprobe [-q] [-v] [-b] MODULE [PARAMETER=VALUE...]
       modprobe [-q] [-v] [-b] -a MODULE...
       modprobe [-q] -r MODULE...";

/// That the file is packed (Linux, include/uapi/linux/module.h, `MODULE_INIT_COMPRESSED_FILE`).
const COMPRESSED_FILE: i32 = 4;

/// Where the kernel says what is loaded.
const LOADED: &str = "/sys/module";

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    quiet: bool,
    verbose: bool,
    all: bool,
    remove: bool,
    /// Modules or patterns; after the first parameters of it, unless it is one of several.
    words: Vec<String>,
}

impl Request {
    fn parse(arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut request = Self::default();
        let mut are_options = true;
        for word in arguments {
            let word = word.into_string().ok()?;
            match word.strip_prefix('-').filter(|_| are_options && word.len() > 1) {
                None => request.words.push(word),
                Some("-") => are_options = false,
                Some(option) => request.set(option)?,
            }
        }
        (!request.words.is_empty()).then_some(request)
    }

    fn set(&mut self, option: &str) -> Option<()> {
        let letters = match option {
            "-quiet" => "q",
            "-verbose" => "v",
            "-all" => "a",
            "-remove" => "r",
            // There is no list of what is not to be loaded, no log, and no first time.
            "-use-blacklist" | "-syslog" | "-first-time" => "b",
            letters => letters,
        };
        for letter in letters.chars() {
            match letter {
                'q' => self.quiet = true,
                'v' => self.verbose = true,
                'a' => self.all = true,
                'r' => self.remove = true,
                'b' | 's' => {}
                _ => return None,
            }
        }
        Some(())
    }

    /// The modules, and the parameters of each.
    fn modules(&self) -> Vec<(&str, String)> {
        let (first, rest) = match self.words.split_first() {
            Some((first, rest)) if !self.all && !self.remove => (first, rest),
            _ => return self.words.iter().map(|word| (word.as_str(), String::new())).collect(),
        };
        vec![(first, rest.join(" "))]
    }
}

/// Does what the arguments say.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(request) = Request::parse(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let mut status = ExitCode::SUCCESS;
    for (module, parameters) in request.modules() {
        let done = match request.remove {
            true => remove(module),
            false => {
                Loading::new(&request).and_then(|mut loading| loading.add(module, &parameters))
            }
        };
        if let Err(error) = done {
            status = ExitCode::FAILURE;
            if !request.quiet {
                eprintln!("modprobe: {error}");
            }
        }
    }
    status
}

fn remove(module: &str) -> io::Result<()> {
    let name = CString::new(canonical(module))?;
    let removed = delete_module(&name, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    removed.map_err(|errno| told(errno, &format!("cannot remove {module}")))
}

fn told(error: impl Into<io::Error>, what: &str) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// What is being loaded.
struct Loading {
    directory: PathBuf,
    indexes: Indexes,
    command_line: String,
    verbose: bool,
    /// What was looked at: a module may be wanted before another that is wanted before it.
    seen: HashSet<String>,
}

impl Loading {
    fn new(request: &Request) -> io::Result<Self> {
        let directory = modules::directory();
        let indexes = Indexes::read(&directory, &request.words)
            .map_err(|error| told(error, &format!("cannot read {}", directory.display())))?;
        let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        let seen = HashSet::new();
        Ok(Self { directory, indexes, command_line, verbose: request.verbose, seen })
    }

    /// Loads what has this name, or is for this pattern.
    fn add(&mut self, wanted: &str, parameters: &str) -> io::Result<()> {
        match self.indexes.find(wanted) {
            Found::Modules(names) => {
                names.iter().try_for_each(|name| self.add_module(name, parameters))
            }
            Found::BuiltIn => Ok(()),
            Found::Nothing => {
                let directory = self.directory.display();
                let text = format!("there is no module {wanted} in {directory}");
                Err(io::Error::new(io::ErrorKind::NotFound, text))
            }
        }
    }

    fn add_module(&mut self, name: &str, parameters: &str) -> io::Result<()> {
        if !self.seen.insert(name.to_owned()) || Path::new(LOADED).join(name).exists() {
            return Ok(());
        }
        let (before, after) = self.indexes.wishes(name);
        // It can do without.
        before.iter().for_each(|wish| drop(self.add(wish, "")));
        let path = self.indexes.path(name).unwrap_or_default().to_owned();
        for needed in self.indexes.needs(name) {
            let name = name_of(&needed).unwrap_or_default();
            if self.seen.insert(name.clone()) && !Path::new(LOADED).join(&name).exists() {
                self.load(&needed, &name, "")?;
            }
        }
        self.load(&path, name, parameters)?;
        after.iter().for_each(|wish| drop(self.add(wish, "")));
        Ok(())
    }

    /// Loads the module in this file. One that is there already is no trouble.
    fn load(&self, path: &str, name: &str, parameters: &str) -> io::Result<()> {
        let path = self.directory.join(path);
        let all = [&parameters_of(&self.command_line, name), parameters].join(" ");
        let all = all.trim();
        if self.verbose {
            println!("insmod {} {all}", path.display());
        }
        let failed = |error: io::Error| told(error, &format!("cannot load {}", path.display()));
        let flags =
            if path.extension().is_some_and(|end| end == "ko") { 0 } else { COMPRESSED_FILE };
        let file = File::open(&path).map_err(failed)?;
        match finit_module(&file, &CString::new(all)?, flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}

/// What the kernel's command line says to a module: `MODULE.PARAMETER=VALUE`.
fn parameters_of(command_line: &str, name: &str) -> String {
    let words = command_line.split_ascii_whitespace().filter_map(|word| {
        let (module, parameter) = word.split_once('.')?;
        (canonical(module) == name).then_some(parameter)
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Request> {
        Request::parse(line.split(' ').filter(|word| !word.is_empty()).map(OsString::from))
    }

    #[test]
    fn modprobe_understands_what_kernels_and_people_say() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let kernels = Request { quiet: true, words: words(&["net-pf-17"]), ..Request::default() };
        assert_eq!(parse("-q -- net-pf-17"), Some(kernels));
        let request = parse("-bv loop max_loop=1 -x").map(|request| request.words);
        assert_eq!(request, None, "an option that it does not know");
        let request = parse("-bv loop max_loop=1 part=-3").unwrap();
        assert_eq!(request.modules(), [("loop", "max_loop=1 part=-3".to_owned())]);
        let request = parse("--all loop xfs").unwrap();
        assert_eq!(request.modules(), [("loop", String::new()), ("xfs", String::new())]);
        assert!(parse("-r loop").unwrap().remove);
        for wrong in ["", "-q", "--", "-z loop", "--nothing loop"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parameters_come_from_the_command_line() {
        let line = "quiet loop.max_loop=3 snd-hda.x=1 loop.y x=loop.z";
        assert_eq!(parameters_of(line, "loop"), "max_loop=3 y");
        assert_eq!(parameters_of(line, "snd_hda"), "x=1");
        assert_eq!(parameters_of(line, "xfs"), "");
    }
}
