//! /proc/PID/stat.

use crate::error::Error;

/// The fields that matter; see proc_pid_stat(5) for their numbers.
#[derive(Debug)]
pub(crate) struct Stat {
    pid: u32,
    /// The state's letter.
    pub state: char,
    fields: Vec<String>,
}

/// The number of the first field behind the name, which may hold anything.
const FIRST: usize = 3;

impl Stat {
    /// Of a task: `name` is `stat` or `task/TID/stat`.
    pub(crate) fn read(pid: u32, name: &str) -> Result<Self, Error> {
        let text = super::read(pid, name)?;
        let (_, rest) = text.rsplit_once(')').ok_or(Error::Gone(pid))?;
        let fields: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
        let state =
            fields.first().and_then(|field| field.chars().next()).ok_or(Error::Gone(pid))?;
        Ok(Self { pid, state, fields })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// A field by its number.
    pub(crate) fn field(&self, number: usize) -> Result<u64, Error> {
        self.signed(number).map(i64::cast_unsigned)
    }

    /// A field by its number that may be negative.
    pub(crate) fn signed(&self, number: usize) -> Result<i64, Error> {
        let field = self.fields.get(number - FIRST);
        let parse = |field: &String| {
            field.parse::<i64>().ok().or_else(|| Some(field.parse::<u64>().ok()?.cast_signed()))
        };
        field.and_then(parse).ok_or_else(|| {
            Error::unsupported(self.pid, format!("has no field {number} in /proc/PID/stat"))
        })
    }

    /// The fields of `struct prctl_mm_map` that are here: all but `brk`, which is 0.
    pub(crate) fn memory(&self) -> Result<[u64; 11], Error> {
        let mut fields = [0; 11];
        let numbers = [26, 27, 45, 46, 47, 0, 28, 48, 49, 50, 51];
        for (field, number) in fields.iter_mut().zip(numbers).filter(|(_, number)| *number != 0) {
            *field = self.field(number)?;
        }
        Ok(fields)
    }
}
