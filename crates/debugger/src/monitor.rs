//! What gdb passes on unread: `monitor COMMAND`.

use std::fmt::Write;

use crate::debuggee::{Debuggee, Space};
use crate::target::Debugged;

/// Bytes that `xp` shows, unless a number is given, and at most.
const SHOWN_BYTES: usize = 64;
const SHOWN_BYTES_MAX: usize = 1024;

/// Bytes in a line of these.
const LINE_BYTES: usize = 16;

const HELP: &str = "\
monitor help                  this text
monitor processors            where each processor is
monitor translate ADDRESS     the guest-physical address of a linear one
monitor xp ADDRESS [BYTES]    guest-physical memory
monitor physical on|off       have addresses mean guest-physical ones, or linear ones again
";

impl<D: Debuggee> Debugged<'_, D> {
    /// The answer to a command.
    pub(crate) fn monitor(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split_ascii_whitespace().collect();
        match words[..] {
            [] | ["help"] => HELP.to_owned(),
            ["processors"] => self.list_processors(),
            ["translate", at] => self.translate(at),
            ["xp", at] => self.show(at, SHOWN_BYTES),
            ["xp", at, bytes] => match number(bytes).and_then(|bytes| bytes.try_into().ok()) {
                Some(bytes) => self.show(at, bytes),
                None => format!("{bytes} is not a number of bytes\n"),
            },
            ["physical", "on"] => self.look_at(Space::Physical),
            ["physical", "off"] => self.look_at(Space::Linear),
            _ => format!("there is no such command:\n{HELP}"),
        }
    }

    fn list_processors(&mut self) -> String {
        let mut text = String::new();
        for processor in 0..self.machine.processors() {
            let Ok(file) = self.machine.registers(processor) else { continue };
            let level = file.selectors[1] & 3;
            let (rip, cr3) = (file.rip, file.control[2]);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{processor}: rip {rip:#018x} level {level} cr3 {cr3:#x}");
        }
        text
    }

    fn translate(&mut self, at: &str) -> String {
        let Some(address) = number(at) else { return format!("{at} is not an address\n") };
        match self.machine.physical_of(self.processor, address) {
            Ok(physical) => format!("{physical:#x}\n"),
            Err(_) => format!("no memory is at {address:#x}\n"),
        }
    }

    fn show(&mut self, at: &str, bytes: usize) -> String {
        let Some(address) = number(at) else { return format!("{at} is not an address\n") };
        let mut buffer = vec![0; bytes.min(SHOWN_BYTES_MAX)];
        let read = self.machine.read(self.processor, Space::Physical, address, &mut buffer);
        let Ok(length) = read else { return format!("no memory is at {address:#x}\n") };
        let mut text = String::new();
        for (line, bytes) in buffer[..length].chunks(LINE_BYTES).enumerate() {
            let place = address.wrapping_add((line * LINE_BYTES) as u64);
            let _ = write!(text, "{place:#014x}:");
            bytes.iter().for_each(|byte| _ = write!(text, " {byte:02x}"));
            text.push('\n');
        }
        text
    }

    fn look_at(&mut self, space: Space) -> String {
        self.space = space;
        let name = if space == Space::Physical { "guest-physical" } else { "linear" };
        // gdb keeps what it has read of code and stacks.
        format!("addresses are {name} from here on (`flushregs` forgets what gdb has read)\n")
    }
}

/// A number as C has it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
