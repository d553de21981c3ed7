//! The environment variables of a command, as they are given to every verb that runs one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};

/// The longest file of variables that is read, in bytes.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Options that name variables.
#[derive(Debug, Clone, Default, Args)]
pub struct Environment {
    /// Set an environment variable; NAME alone passes on the host's, if there is one
    #[arg(short, long, value_name = "NAME[=VALUE]", 
        value_parser = OsStringValueParser::new().try_map(parse_variable))]
    pub env: Vec<OsString>,

    /// Set the environment variables that FILE lists: a line for each, NAME=VALUE or NAME as with --env; empty lines
    /// and those that begin with "#" are skipped. --env overrides them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub env_file: Vec<PathBuf>,
}

impl Environment {
    /// The variables, NAME=VALUE, of which a later one replaces an earlier one.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or is no list of variables; for people.
    pub fn variables(&self) -> Result<Vec<OsString>, String> {
        let mut variables = Vec::new();
        for path in &self.env_file {
            let wrong = |why: String| format!("--env-file {}: {why}", path.display());
            let read = File::open(path).and_then(|file| read_text(file, FILE_MAX_BYTES));
            let text = read.map_err(|error| wrong(error.to_string()))?;
            for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
                let line = line.trim_ascii_start();
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                if !line.is_empty() && !line.starts_with(b"#") {
                    check_variable(line).map_err(|why| wrong(format!("line {number}: {why}")))?;
                    variables.extend(with_value(OsStr::from_bytes(line)));
                }
            }
        }
        variables.extend(self.env.iter().filter_map(|variable| with_value(variable)));
        Ok(variables)
    }
}

/// All of a file that has at most so many bytes.
pub(super) fn read_text(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match file.take(most + 1).read_to_end(&mut text)? as u64 > most {
        true => Err(io::Error::other(format!("it has more than {most} bytes"))),
        false => Ok(text),
    }
}

fn parse_variable(text: OsString) -> Result<OsString, String> {
    check_variable(text.as_bytes()).map(|()| text)
}

/// Whether this names a variable.
fn check_variable(text: &[u8]) -> Result<(), String> {
    let name = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    match name.is_empty() || text.contains(&0) {
        true => Err("a variable is NAME=VALUE, or NAME".to_owned()),
        false => Ok(()),
    }
}

/// A variable with its value, if it has one here.
fn with_value(variable: &OsStr) -> Option<OsString> {
    if variable.as_bytes().contains(&b'=') {
        return Some(variable.to_owned());
    }
    let value = std::env::var_os(variable)?.into_vec();
    Some(OsString::from_vec([variable.as_bytes(), b"=", &value].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_from_options_files_and_the_host() {
        let path = std::env::temp_dir().join(format!("biv-env-{}", std::process::id()));
        std::fs::write(&path, "# a list\n\nA=1\n  B=x=y z\r\nBIV_NOT_THERE\nPATH\nA=2").unwrap();
        let options = Environment {
            env: vec!["C=3".into(), "BIV_NOT_THERE".into()],
            env_file: vec![path.clone()],
        };
        let found = options.variables().unwrap();
        let host = format!("PATH={}", std::env::var("PATH").unwrap());
        assert_eq!(found, ["A=1", "B=x=y z", &host, "A=2", "C=3"]);
        std::fs::write(&path, "A=1\n=2\n").unwrap();
        let why = options.variables().unwrap_err();
        assert!(why.ends_with(": line 2: a variable is NAME=VALUE, or NAME"), "{why}");
        std::fs::write(&path, vec![b'A'; FILE_MAX_BYTES as usize + 1]).unwrap();
        assert!(options.variables().unwrap_err().contains("more than"));
        std::fs::remove_file(&path).unwrap();
        assert!(options.variables().unwrap_err().contains("No such file"));
    }

    #[test]
    fn what_has_no_name_is_no_variable() {
        for (text, is_good) in
            [("A", true), ("A=", true), ("A==", true), ("=A", false), ("", false)]
        {
            assert_eq!(parse_variable(text.into()).is_ok(), is_good, "{text:?}");
        }
        let bytes = OsString::from_vec(b"A=\xff".to_vec());
        assert_eq!(parse_variable(bytes.clone()), Ok(bytes));
    }
}
