//! Options of `biv run` that stand in a file: what the user wants of each machine, such as its memory.
//!
//! The file is a list of options, which are put before those of the command line; so its values are what an option has
//! that is not given, and a list (`--volume`) goes on. There is no second language of options, and nothing else
//! changes what a command line means.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::environment::read_text;
use super::habits::with_verb;

/// The variable that names the file. An empty one names none.
pub const VARIABLE: &str = "BIV_CONFIG";

/// Where the file is without the variable, below the directory of the user's configuration.
const PLACE: &str = "bivouac/run.conf";

/// The longest file that is read, in bytes.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// Options of `biv run` that say by themselves what the machine is.
const WHOLE: &[&[u8]] = &[b"--spec", b"--help", b"-h", b"--version", b"-V"];

/// The arguments of this process with what its user's file says.
#[derive(Debug)]
pub struct Arguments {
    /// The program's name and all that follows.
    pub all: Vec<OsString>,
    /// The file, if it says something.
    pub file: Option<PathBuf>,
}

impl Arguments {
    /// Those of this process.
    ///
    /// # Errors
    ///
    /// The file that the variable names cannot be read, or is no list of options; for people.
    pub fn of_process() -> Result<Self, String> {
        let given = with_verb(std::env::args_os().collect());
        if !is_run(&given) {
            return Ok(Self { all: given, file: None });
        }
        let Some((path, must_exist)) = place() else { return Ok(Self { all: given, file: None }) };
        let wrong = |why: String| format!("{} ({VARIABLE}): {why}", path.display());
        let read = host::open_regular(&path).and_then(|file| read_text(file, FILE_MAX_BYTES));
        let text = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => Vec::new(),
            text => text.map_err(|error| wrong(error.to_string()))?,
        };
        let options = options(&text).map_err(wrong)?;
        let file = (!options.is_empty()).then_some(path);
        Ok(Self { all: spliced(given, options), file })
    }
}

/// Whether they run a machine that they describe.
fn is_run(arguments: &[OsString]) -> bool {
    let is_whole = |argument: &OsString| {
        let name = argument.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        WHOLE.contains(&name)
    };
    let mut options = arguments.iter().skip(2).take_while(|argument| *argument != "--");
    arguments.get(1).is_some_and(|verb| verb == "run") && !options.any(is_whole)
}

/// Where the file is, and whether it must be there.
fn place() -> Option<(PathBuf, bool)> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return (!path.is_empty()).then(|| (path.into(), true));
    }
    let directory = provision::base_directory("XDG_CONFIG_HOME", ".config")?;
    Some((directory.join(PLACE), false))
}

/// The options that a file lists: one in each line, with its value after `=` or white space.
fn options(text: &[u8]) -> Result<Vec<OsString>, String> {
    let mut options = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if !line.starts_with(b"-") || line == b"-" || line == b"--" || line.contains(&0) {
            return Err(format!("line {number} is no option, such as \"--memory 2G\""));
        }
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (name, value) = (&line[..end], line[end..].trim_ascii());
        let value = (!value.is_empty()).then_some(value);
        options.extend([name].into_iter().chain(value).map(|word| OsStr::from_bytes(word).into()));
    }
    Ok(options)
}

/// Arguments with options right after the verb.
fn spliced(mut given: Vec<OsString>, options: Vec<OsString>) -> Vec<OsString> {
    let place = given.len().min(2);
    given.splice(place..place, options);
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(Into::into).collect()
    }

    #[test]
    fn a_file_lists_options() {
        let check = |text: &str, expected: Result<&[&str], &str>| {
            let expected = expected.map(|words| words.iter().map(Into::into).collect::<Vec<_>>());
            assert_eq!(options(text.as_bytes()), expected.map_err(str::to_owned), "{text:?}");
        };
        check("", Ok(&[]));
        check("# mine\n\n --memory 2G\r\n--cpus=2\n", Ok(&["--memory", "2G", "--cpus=2"]));
        check("--env A=two words\n-i", Ok(&["--env", "A=two words", "-i"]));
        let no_option = "line 2 is no option, such as \"--memory 2G\"";
        for line in ["memory 2G", "--", "-", "--memory \0"] {
            check(&format!("\n{line}"), Err(no_option));
        }
    }

    #[test]
    fn options_come_before_those_of_the_command_line() {
        let given = words("biv run --memory 1G -- ls --spec");
        assert!(is_run(&given));
        let all = spliced(given, words("--memory 2G"));
        assert_eq!(all, words("biv run --memory 2G --memory 1G -- ls --spec"));
    }

    #[test]
    fn what_says_all_by_itself_takes_nothing_from_a_file() {
        for line in ["biv", "biv ps", "biv run --spec x", "biv run --spec=x", "biv run -h"] {
            assert!(!is_run(&words(line)), "{line}");
        }
        assert!(is_run(&words("biv run")) && is_run(&words("biv run --memory 1G ls")));
    }
}
