//! The keyboard controller, to which nothing is connected.

use serde::{Deserialize, Serialize};

use super::bits::keyboard as bits;
use crate::request::{Request, Requests};

/// The controller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Keyboard {
    #[serde(skip)]
    requests: Requests,
    /// An answer that waits at port 0x60.
    answer: Option<u8>,
    /// The next byte written to port 0x60 is for the output port.
    writes_output_port: bool,
}

impl Keyboard {
    /// After reset.
    pub fn new(requests: Requests) -> Self {
        Self { requests, answer: None, writes_output_port: false }
    }

    /// The same, asking for things here.
    #[must_use]
    pub fn with_requests(self, requests: &Requests) -> Self {
        Self { requests: requests.clone(), ..self }
    }

    /// `in` from 0x60.
    pub fn read_data(&mut self) -> u8 {
        self.answer.take().unwrap_or(0)
    }

    /// `out` to 0x60: bytes for devices that are not there.
    pub fn write_data(&mut self, value: u8) {
        if std::mem::take(&mut self.writes_output_port) && value & 1 == 0 {
            self.requests.make(Request::Reset);
        }
    }

    /// `in` from 0x64: the input buffer is always empty.
    pub fn read_status(&self) -> u8 {
        let full = if self.answer.is_some() { bits::OUTPUT_FULL } else { 0 };
        bits::SYSTEM | full
    }

    /// `out` to 0x64.
    pub fn write_command(&mut self, command: u8) {
        self.writes_output_port = command == bits::WRITE_OUTPUT_PORT;
        self.answer = match command {
            bits::READ_COMMAND_BYTE => Some(bits::COMMAND_BYTE),
            bits::SELF_TEST => Some(bits::SELF_TEST_PASSED),
            bits::TEST_FIRST_PORT | bits::TEST_SECOND_PORT => Some(bits::NOT_CONNECTED),
            bits::READ_OUTPUT_PORT => Some(bits::OUTPUT_PORT),
            _ => None,
        };
        if command >= bits::PULSE && command & 1 == 0 {
            self.requests.make(Request::Reset);
        }
    }
}
