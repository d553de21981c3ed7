//! ACPI's fixed hardware registers (ACPI 6.5, 4.8.3) and the PC's ways to reset.

use serde::{Deserialize, Serialize};

use bitflags::bitflags;

use crate::time::Hertz;

/// The PM timer's frequency (ACPI 6.5, 4.8.2.1).
pub const TIMER_FREQUENCY: Hertz = Hertz(3_579_545);

/// Offsets from the first port.
#[allow(missing_docs)]
pub mod offset {
    pub const STATUS: u16 = 0;
    pub const ENABLE: u16 = 2;
    pub const CONTROL: u16 = 4;
    pub const TIMER: u16 = 8;
    /// Ports in all.
    pub const END: u16 = 12;
}

/// SLP_TYPa of the state in which the machine is off: what QEMU uses, so that kernels which know
/// the value without asking ACPI are right.
pub const SLEEP_TYPE_OFF: u16 = 0;

bitflags! {
    /// PM1 status and enable registers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Events: u16 {
        /// The PM timer's highest bit has changed.
        const TIMER = 1 << 0;
        const BUS_MASTER = 1 << 4;
        const GLOBAL = 1 << 5;
        const POWER_BUTTON = 1 << 8;
        const SLEEP_BUTTON = 1 << 9;
        const CLOCK = 1 << 10;
        const WAKE = 1 << 15;
    }

    /// PM1 control register.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Control: u16 {
        /// Events make SCIs, not SMIs; always.
        const SCI_ENABLED = 1 << 0;
        const BUS_MASTER_RELOAD = 1 << 1;
        const GLOBAL_RELEASE = 1 << 2;
        const SLEEP_TYPE = 7 << 10;
        /// Go to sleep; reads as zero.
        const SLEEP = 1 << 13;
    }

    /// The reset control register 0xcf9 (ICH9 13.7.5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ResetControl: u8 {
        /// A reset is to be a hard one.
        const HARD = 1 << 1;
        /// Reset when this goes from 0 to 1.
        const RESET = 1 << 2;
        /// And switch the power off and on.
        const FULL = 1 << 3;
    }

    /// System control port A, 0x92.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ControlA: u8 {
        /// Reset the processor when this goes from 0 to 1.
        const RESET = 1 << 0;
        /// Address line 20 is not forced to zero; here it never is.
        const A20 = 1 << 1;
    }
}

/// Commands of the keyboard controller (IBM PC/AT technical reference; OSDev "8042").
#[allow(missing_docs)]
pub mod keyboard {
    pub const READ_COMMAND_BYTE: u8 = 0x20;
    pub const TEST_SECOND_PORT: u8 = 0xa9;
    pub const SELF_TEST: u8 = 0xaa;
    pub const TEST_FIRST_PORT: u8 = 0xab;
    pub const READ_OUTPUT_PORT: u8 = 0xd0;
    pub const WRITE_OUTPUT_PORT: u8 = 0xd1;
    /// Pulse output port lines that are 0 in bits 3:0; line 0 resets.
    pub const PULSE: u8 = 0xf0;

    pub const SELF_TEST_PASSED: u8 = 0x55;
    /// Answer to a port test: the clock line is stuck low, so nothing is connected.
    pub const NOT_CONNECTED: u8 = 0x01;
    /// Output port: not reset, line 20 enabled.
    pub const OUTPUT_PORT: u8 = 0x03;
    /// Command byte: self-test passed, both ports off.
    pub const COMMAND_BYTE: u8 = 0x34;

    /// Status: there is a byte to read.
    pub const OUTPUT_FULL: u8 = 1 << 0;
    /// Status: self-test passed.
    pub const SYSTEM: u8 = 1 << 2;
}
