//! /proc/PID/status.

use std::collections::BTreeMap;

use crate::error::Error;

/// The lines, by their names.
#[derive(Debug)]
pub(crate) struct Status {
    pid: u32,
    lines: BTreeMap<String, String>,
}

impl Status {
    /// Of a task: `name` is `status` or `task/TID/status`.
    pub(crate) fn read(pid: u32, name: &str) -> Result<Self, Error> {
        let text = super::read(pid, name)?;
        let split = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().to_owned()))
        };
        Ok(Self { pid, lines: text.lines().filter_map(split).collect() })
    }

    /// The words of a line; none if it is not there.
    pub(crate) fn words(&self, name: &str) -> Vec<&str> {
        self.lines.get(name).map(|line| line.split_whitespace().collect()).unwrap_or_default()
    }

    /// The numbers of a line.
    pub(crate) fn numbers<const N: usize>(&self, name: &str) -> Result<[u32; N], Error> {
        let words = self.words(name);
        let numbers: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().map_err(|_| self.lacks(name))
    }

    /// The number of a task in its own PID namespace.
    pub(crate) fn own_number(&self, name: &str) -> Result<u32, Error> {
        let words = self.words(name);
        words.last().and_then(|word| word.parse().ok()).ok_or_else(|| self.lacks(name))
    }

    /// A number in base 16.
    pub(crate) fn mask(&self, name: &str) -> Result<u64, Error> {
        let words = self.words(name);
        let parse = |word: &&str| u64::from_str_radix(word, 16).ok();
        words.first().and_then(parse).ok_or_else(|| self.lacks(name))
    }

    /// A number in base 8.
    pub(crate) fn octal(&self, name: &str) -> Result<u32, Error> {
        let words = self.words(name);
        let parse = |word: &&str| u32::from_str_radix(word, 8).ok();
        words.first().and_then(parse).ok_or_else(|| self.lacks(name))
    }

    fn lacks(&self, name: &str) -> Error {
        Error::unsupported(self.pid, format!("has no usable line {name} in /proc/PID/status"))
    }
}
