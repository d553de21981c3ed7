//! The chip: `vm-superio`'s registers, and the interrupts.

use std::convert::Infallible;
use std::io::{self, Write};

use machine::saved::{self, Unfit};
use serde::{Deserialize, Serialize};
use vm_superio::Trigger;
use vm_superio::serial::{NoEvents, Serial as Registers, SerialState};

use super::bits::{DATA_READY, DIVISOR_LATCH, Enable, FifoControl, identification, offset};
use crate::limits::POLLS_BEFORE_INPUT;

/// `vm-superio`'s own interrupt is not used.
#[derive(Debug)]
struct Unused;

impl Trigger for Unused {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Where bytes go. What cannot be written is lost, as on a line that is not connected.
struct Output(Box<dyn Write + Send>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The chip's state: what is `vm-superio`'s in the order in which that has it, and ours.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    registers: [u8; 9],
    received: Vec<u8>,
    enable: Enable,
    fifos: FifoControl,
    transmitter_empty: bool,
    listening: bool,
    polls: u32,
}

/// The chip.
pub struct Uart {
    registers: Registers<Unused, NoEvents, Output>,
    /// Bytes that an empty FIFO takes.
    capacity: usize,
    enable: Enable,
    fifos: FifoControl,
    /// The transmitter has become empty and the guest has not been told.
    transmitter_empty: bool,
    /// The guest waits for input.
    listening: bool,
    /// Reads of the line status since anything else was done.
    polls: u32,
}

impl Uart {
    pub fn new(output: Box<dyn Write + Send>) -> Self {
        let registers = Registers::new(Unused, Output(output));
        Self {
            capacity: registers.fifo_capacity(),
            registers,
            enable: Enable::empty(),
            fifos: FifoControl::empty(),
            transmitter_empty: false,
            listening: false,
            polls: 0,
        }
    }

    /// As after power-on; the output stays.
    pub fn reset(&mut self) {
        let output = std::mem::replace(self.registers.writer_mut(), Output(Box::new(io::sink())));
        *self = Self::new(output.0);
    }

    /// What a chip that goes on from here has to know.
    pub fn save(&self) -> Vec<u8> {
        let state = self.registers.state();
        saved::encode(&Saved {
            registers: [
                state.baud_divisor_low,
                state.baud_divisor_high,
                state.interrupt_enable,
                state.interrupt_identification,
                state.line_control,
                state.line_status,
                state.modem_control,
                state.modem_status,
                state.scratch,
            ],
            received: state.in_buffer,
            enable: self.enable,
            fifos: self.fifos,
            transmitter_empty: self.transmitter_empty,
            listening: self.listening,
            polls: self.polls,
        })
    }

    /// Go on from there; the output stays.
    ///
    /// # Errors
    ///
    /// [`Unfit`] when that is no state of a port.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), Unfit> {
        let saved: Saved = saved::decode(state, "a serial port")?;
        let [low, high, interrupts, identification, line, status, modem, modem_status, scratch] =
            saved.registers;
        let state = SerialState {
            baud_divisor_low: low,
            baud_divisor_high: high,
            interrupt_enable: interrupts,
            interrupt_identification: identification,
            line_control: line,
            line_status: status,
            modem_control: modem,
            modem_status,
            scratch,
            in_buffer: saved.received,
        };
        saved::check(state.in_buffer.len() <= self.capacity, "a serial port")?;
        let output = std::mem::replace(self.registers.writer_mut(), Output(Box::new(io::sink())));
        let registers = Registers::from_state(&state, Unused, NoEvents, output);
        self.registers = registers.map_err(|_| Unfit::State("a serial port".to_owned()))?;
        self.enable = saved.enable;
        self.fifos = saved.fifos;
        self.transmitter_empty = saved.transmitter_empty;
        self.listening = saved.listening;
        self.polls = saved.polls;
        Ok(())
    }

    /// The level of the interrupt line.
    pub fn interrupts(&self) -> bool {
        self.enable.contains(Enable::TRANSMITTER_EMPTY) && self.transmitter_empty
            || self.enable.contains(Enable::RECEIVED) && self.has_received()
    }

    /// Bytes that [`Self::receive`] would take.
    pub fn room(&self) -> usize {
        if self.listening { self.registers.fifo_capacity() } else { 0 }
    }

    /// Take what there is room for; how much that was.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = &bytes[..bytes.len().min(self.room())];
        // It refuses only when it is full, and takes nothing in loop-back mode.
        self.registers.enqueue_raw_bytes(taken).unwrap_or(0)
    }

    pub fn read(&mut self, at: u8) -> u8 {
        match at {
            offset::INTERRUPT_IDENTIFICATION => return self.identify(),
            offset::LINE_STATUS => {
                self.polls = self.polls.saturating_add(1);
                self.listening |= self.polls >= POLLS_BEFORE_INPUT;
            }
            _ => {}
        }
        self.registers.read(at)
    }

    pub fn write(&mut self, at: u8, value: u8) {
        self.polls = 0;
        match at {
            offset::DATA if !self.divisor_is_open() => self.transmitter_empty = true,
            offset::INTERRUPT_ENABLE if !self.divisor_is_open() => {
                self.set_enable(Enable::from_bits_truncate(value));
            }
            offset::FIFO_CONTROL => {
                return self.control_fifos(FifoControl::from_bits_truncate(value));
            }
            _ => {}
        }
        if let Err(error) = self.registers.write(at, value) {
            tracing::debug!(%error, "a serial port lost a byte");
        }
    }

    /// Received data comes before an empty transmitter, which is announced once.
    fn identify(&mut self) -> u8 {
        let fifos =
            if self.fifos.contains(FifoControl::ENABLED) { identification::FIFOS } else { 0 };
        let cause = if self.enable.contains(Enable::RECEIVED) && self.has_received() {
            identification::RECEIVED
        } else if self.enable.contains(Enable::TRANSMITTER_EMPTY) && self.transmitter_empty {
            self.transmitter_empty = false;
            identification::TRANSMITTER_EMPTY
        } else {
            identification::NOTHING
        };
        fifos | cause
    }

    /// The transmitter is always empty: to enable its interrupt is to have it.
    fn set_enable(&mut self, enable: Enable) {
        let newly = enable - self.enable;
        self.transmitter_empty |= newly.contains(Enable::TRANSMITTER_EMPTY);
        self.listening |= enable.contains(Enable::RECEIVED);
        self.enable = enable;
    }

    /// A driver that clears the FIFO starts anew, and is not to be given input before it asks.
    fn control_fifos(&mut self, control: FifoControl) {
        let switched = (control ^ self.fifos).contains(FifoControl::ENABLED);
        if switched || control.contains(FifoControl::CLEAR_RECEIVED) {
            self.listening = self.enable.contains(Enable::RECEIVED);
            self.clear_received();
        }
        self.fifos = control;
    }

    fn clear_received(&mut self) {
        let state = SerialState { in_buffer: Vec::new(), ..self.registers.state() };
        let line_status = state.line_status & !DATA_READY;
        let output = std::mem::replace(self.registers.writer_mut(), Output(Box::new(io::sink())));
        let state = SerialState { line_status, ..state };
        // Only a full buffer is refused, and this one is empty.
        if let Ok(registers) = Registers::from_state(&state, Unused, NoEvents, output) {
            self.registers = registers;
        }
    }

    fn divisor_is_open(&mut self) -> bool {
        self.registers.read(offset::LINE_CONTROL) & DIVISOR_LATCH != 0
    }

    fn has_received(&self) -> bool {
        self.registers.fifo_capacity() < self.capacity
    }
}
