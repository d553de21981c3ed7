//! The pages that a process is lent, and what is written into them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use crate::code::Code;
use crate::error::Error;
use crate::layout::{AREA_BYTES, CODE_BYTES, DATA, MAX_STEPS, STEP_BYTES};

/// One system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Call {
    /// The call of a number (`SYS_*`) with arguments, the others 0.
    ///
    /// # Panics
    ///
    /// For more than six arguments, which is a mistake of the caller.
    #[must_use]
    pub fn new<const N: usize>(number: i64, arguments: [u64; N]) -> Self {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        Self { number: number.cast_unsigned(), arguments: all }
    }
}

/// The area of one address space.
#[derive(Debug)]
pub struct Area {
    base: u64,
    /// /proc/PID/mem of the process.
    memory: File,
}

impl Area {
    /// An area that is mapped at `base` of a process. If `is_new`, its code is written.
    ///
    /// # Errors
    ///
    /// Where its memory cannot be opened, or written.
    pub fn attach(task: u32, base: u64, is_new: bool) -> Result<Self, Error> {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{task}/mem"));
        let area = Self { base, memory: memory.map_err(Error::trace(task))? };
        if is_new {
            area.memory.write_all_at(&Code::get().bytes, base).map_err(Error::trace(task))?;
        }
        Ok(area)
    }

    /// Its first address.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The memory of the process (/proc/PID/mem).
    #[must_use]
    pub fn memory(&self) -> &File {
        &self.memory
    }

    /// An empty script.
    #[must_use]
    pub fn script(&self) -> Script {
        Script { base: self.base, calls: Vec::new(), data: Vec::new() }
    }

    /// Where the steps begin.
    pub(crate) fn steps(&self) -> u64 {
        self.base + CODE_BYTES
    }

    pub(crate) fn write(&self, script: &Script) -> io::Result<()> {
        let mut steps = Vec::with_capacity(script.calls.len() * STEP_BYTES as usize);
        for call in &script.calls {
            steps.extend(call.number.to_le_bytes());
            steps.extend(call.arguments.iter().flat_map(|argument| argument.to_le_bytes()));
            // What nothing returns: -1, should the step never be reached.
            steps.extend((-1_i64).to_le_bytes());
        }
        self.memory.write_all_at(&steps, self.steps())?;
        self.memory.write_all_at(&script.data, self.base + DATA)
    }

    pub(crate) fn results(&self, count: usize) -> io::Result<Vec<i64>> {
        let mut steps = vec![0; count * STEP_BYTES as usize];
        self.memory.read_exact_at(&mut steps, self.steps())?;
        let steps = steps.as_chunks::<{ STEP_BYTES as usize }>().0;
        Ok(steps
            .iter()
            .map(|step| i64::from_le_bytes(*step.last_chunk().unwrap_or(&[0; 8])))
            .collect())
    }
}

/// Calls, and the data that their arguments name.
#[derive(Debug)]
pub struct Script {
    base: u64,
    pub(crate) calls: Vec<Call>,
    data: Vec<u8>,
}

impl Script {
    /// Add a call; returns its place among the results.
    pub fn call<const N: usize>(&mut self, number: i64, arguments: [u64; N]) -> usize {
        self.calls.push(Call::new(number, arguments));
        self.calls.len() - 1
    }

    /// Add data, aligned to 16 bytes; returns its address in the process.
    pub fn data(&mut self, bytes: &[u8]) -> u64 {
        self.data.resize(self.data.len().next_multiple_of(16), 0);
        let address = self.base + DATA + self.data.len() as u64;
        self.data.extend(bytes);
        address
    }

    /// Add a string with its end; returns its address in the process.
    pub fn string(&mut self, text: &[u8]) -> u64 {
        let address = self.data(text);
        self.data.push(0);
        address
    }

    /// Add room for an answer; returns its address in the process.
    pub fn room(&mut self, bytes: usize) -> u64 {
        self.data(&vec![0; bytes])
    }

    /// How many calls there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether so many more calls, with so many bytes of data, surely fit.
    #[must_use]
    pub fn has_room(&self, calls: usize, bytes: usize) -> bool {
        let data = self.data.len() + bytes + 16 * calls;
        self.calls.len() + calls <= MAX_STEPS && DATA + data as u64 <= AREA_BYTES
    }
}
