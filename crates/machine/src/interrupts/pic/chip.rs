//! One 8259A.

use serde::{Deserialize, Serialize};

use super::bits::{CASCADE, Icw1, Icw4, Ocw2, Ocw3};

/// The command word that a write to the data port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Expect {
    Mask,
    Icw2,
    Icw3,
    Icw4,
}

/// Inputs as bit sets: bit n is input n.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chip {
    primary: bool,
    request: u8,
    mask: u8,
    in_service: u8,
    level: u8,
    level_triggered: u8,
    /// Vector of input 0.
    base: u8,
    /// The input with the highest priority.
    first: u8,
    expect: Expect,
    icw1: Icw1,
    icw4: Icw4,
    read_in_service: bool,
    poll: bool,
    special_mask: bool,
    rotate_in_automatic_end: bool,
}

impl Chip {
    pub fn new(primary: bool) -> Self {
        Self {
            primary,
            request: 0,
            mask: 0,
            in_service: 0,
            level: 0,
            level_triggered: 0,
            base: 0,
            first: 0,
            expect: Expect::Mask,
            icw1: Icw1::empty(),
            icw4: Icw4::empty(),
            read_in_service: false,
            poll: false,
            special_mask: false,
            rotate_in_automatic_end: false,
        }
    }

    pub fn level_triggered(&self) -> u8 {
        self.level_triggered
    }

    pub fn set_level_triggered(&mut self, inputs: u8) {
        self.level_triggered = inputs;
        self.request = self.request & !inputs | self.level & inputs;
    }

    pub fn set_input(&mut self, input: u8, level: bool) {
        let bit = 1 << (input & 7);
        let rises = level && self.level & bit == 0;
        self.level = if level { self.level | bit } else { self.level & !bit };
        if self.level_triggered & bit != 0 {
            self.request = self.request & !bit | self.level & bit;
        } else if rises {
            self.request |= bit;
        }
    }

    /// The input to be served next, if it goes before what is in service.
    #[inline]
    pub fn highest_request(&self) -> Option<u8> {
        let requests = self.request & !self.mask;
        if requests == 0 {
            return None;
        }
        let mut holding = self.in_service;
        if self.special_mask {
            holding &= !self.mask;
        }
        if self.primary && self.icw4.contains(Icw4::SPECIAL_FULLY_NESTED) {
            holding &= !(1 << CASCADE);
        }
        let rank = self.rank(requests);
        (rank < self.rank(holding)).then_some((rank + self.first) & 7)
    }

    /// The vector and the input; without a request, input 7 is named but not put in service.
    pub fn acknowledge(&mut self) -> (u8, Option<u8>) {
        let input = self.highest_request();
        if let Some(input) = input {
            self.serve(input);
        }
        (self.base | input.unwrap_or(7), input)
    }

    pub fn read(&mut self, offset: u16) -> u8 {
        if std::mem::take(&mut self.poll) {
            return match self.acknowledge().1 {
                Some(input) => 0x80 | input,
                None => 0,
            };
        }
        match (offset, self.read_in_service) {
            (0, true) => self.in_service,
            (0, false) => self.request,
            _ => self.mask,
        }
    }

    pub fn write(&mut self, offset: u16, value: u8) {
        if offset != 0 {
            self.write_data(value);
        } else if value & Icw1::INITIALIZE.bits() != 0 {
            self.initialize(Icw1::from_bits_truncate(value));
        } else if value & Ocw3::MARK.bits() != 0 {
            self.operate(Ocw3::from_bits_truncate(value));
        } else {
            self.end(Ocw2::decode(value));
        }
    }

    fn write_data(&mut self, value: u8) {
        let needs_icw4 = self.icw1.contains(Icw1::NEEDS_ICW4);
        let after = if needs_icw4 { Expect::Icw4 } else { Expect::Mask };
        self.expect = match self.expect {
            Expect::Mask => {
                self.mask = value;
                Expect::Mask
            }
            Expect::Icw2 => {
                self.base = value & 0xf8;
                if self.icw1.contains(Icw1::SINGLE) { after } else { Expect::Icw3 }
            }
            Expect::Icw3 => after,
            Expect::Icw4 => {
                self.icw4 = Icw4::from_bits_truncate(value);
                Expect::Mask
            }
        };
    }

    /// Edges that were seen before are forgotten; levels are not.
    fn initialize(&mut self, icw1: Icw1) {
        *self = Self {
            request: self.level & self.level_triggered,
            level: self.level,
            level_triggered: self.level_triggered,
            base: self.base,
            expect: Expect::Icw2,
            icw1,
            ..Self::new(self.primary)
        };
    }

    fn operate(&mut self, word: Ocw3) {
        self.poll = word.contains(Ocw3::POLL);
        if word.contains(Ocw3::SELECT) {
            self.read_in_service = word.contains(Ocw3::IN_SERVICE);
        }
        if word.contains(Ocw3::SET_SPECIAL_MASK) {
            self.special_mask = word.contains(Ocw3::SPECIAL_MASK);
        }
    }

    fn end(&mut self, word: Ocw2) {
        match word {
            Ocw2::RotateInAutomaticEnd(rotate) => self.rotate_in_automatic_end = rotate,
            Ocw2::End { .. } if self.in_service == 0 => {}
            Ocw2::End { rotate } => {
                let input = (self.rank(self.in_service) + self.first) & 7;
                self.end(Ocw2::EndThis { input, rotate });
            }
            Ocw2::EndThis { input, rotate } => {
                self.in_service &= !(1 << input);
                if rotate {
                    self.first = (input + 1) & 7;
                }
            }
            Ocw2::SetPriority { lowest } => self.first = (lowest + 1) & 7,
            Ocw2::Nothing => {}
        }
    }

    fn serve(&mut self, input: u8) {
        if !self.icw4.contains(Icw4::AUTOMATIC_END) {
            self.in_service |= 1 << input;
        } else if self.rotate_in_automatic_end {
            self.first = (input + 1) & 7;
        }
        if self.level_triggered & 1 << input == 0 {
            self.request &= !(1 << input);
        }
    }

    /// How many inputs go before the first of `inputs`; 8 if there is none.
    fn rank(&self, inputs: u8) -> u8 {
        inputs.rotate_right(u32::from(self.first)).trailing_zeros() as u8
    }
}
