//! A script whose calls must all succeed.

use std::io;

use inject::{Area, Outcome, Script, Seat};

use crate::error::Error;

/// Calls, and what each is for.
pub(crate) struct Plan<'a> {
    pid: u32,
    seat: &'a Seat,
    area: &'a Area,
    script: Script,
    purposes: Vec<(String, bool)>,
}

impl<'a> Plan<'a> {
    /// For a task; `pid` is the image's number.
    pub fn new(pid: u32, seat: &'a Seat, area: &'a Area) -> Self {
        Self { pid, seat, area, script: area.script(), purposes: Vec::new() }
    }

    /// A call that must succeed.
    pub fn must<const N: usize>(
        &mut self,
        purpose: impl Into<String>,
        number: i64,
        arguments: [u64; N],
    ) {
        self.script.call(number, arguments);
        self.purposes.push((purpose.into(), true));
    }

    /// A call that may fail.
    pub fn may<const N: usize>(&mut self, number: i64, arguments: [u64; N]) {
        self.script.call(number, arguments);
        self.purposes.push((String::new(), false));
    }

    /// Data for the arguments.
    pub fn data(&mut self, bytes: &[u8]) -> u64 {
        self.script.data(bytes)
    }

    /// A string for the arguments.
    pub fn string(&mut self, text: &str) -> u64 {
        self.script.string(text.as_bytes())
    }

    /// Words for the arguments.
    pub fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.script.data(&bytes)
    }

    /// Whether not much more fits.
    pub fn is_full(&self) -> bool {
        !self.script.has_room(16, 3 * crate::limits::MAX_NAME_BYTES)
    }

    /// Carry out what is there so far if not much more fits.
    pub fn flush_if_full(&mut self) -> Result<(), Error> {
        if !self.is_full() {
            return Ok(());
        }
        let next = Self::new(self.pid, self.seat, self.area);
        std::mem::replace(self, next).run().map(drop)
    }

    /// Carry it out.
    pub fn run(self) -> Result<Outcome, Error> {
        let outcome = self.seat.run(self.area, &self.script)?;
        for (result, (purpose, must)) in outcome.results.iter().zip(&self.purposes) {
            if *must && (-4095..0).contains(result) {
                let code = i32::try_from(-result).unwrap_or(libc::EINVAL);
                let source = io::Error::from_raw_os_error(code);
                return Err(Error::Call { pid: self.pid, what: purpose.clone(), source });
            }
        }
        Ok(outcome)
    }
}
