//! A machine as what commands run in: its host says what its system must have, how late it is, and whether somebody
//! sits at its console.

use protocol::{Frame, LINE, PAYLOAD_MAX_BYTES};
use service::error::{Error, name_of};
use service::line::Line;
use service::serve::System;

use crate::clock::Clock;
use crate::console::Console;
use crate::{kernel, random, system};

/// The longest list of mounts, and of devices: far more than any has.
const LIST_MAX_BYTES: usize = 1 << 20;

/// See above.
#[derive(Default)]
pub struct Guest {
    console: Console,
    clock: Clock,
    /// What has come of the list of what is to be mounted.
    mounts: Vec<u8>,
    /// The same of the devices that are to have a driver.
    devices: Vec<u8>,
}

impl Guest {
    /// Has the system prepared; whether it is what the host wants. Without that, nothing runs in it, and the host is
    /// told so.
    fn prepare(&mut self, line: &mut Line) -> bool {
        let reasons = self.missing();
        if let Some(reasons) = &reasons {
            let mut text = reasons.clone().into_bytes();
            text.truncate(PAYLOAD_MAX_BYTES);
            line.send(LINE, &Frame::Unprepared(text));
        }
        reasons.is_none()
    }

    /// Prepares the system; what it lacks of what the host wants, if it does.
    fn missing(&mut self) -> Option<String> {
        let mounts = std::mem::take(&mut self.mounts);
        let trouble = system::prepare(&mounts, &std::mem::take(&mut self.devices));
        kernel::complain(&trouble.remarks);
        kernel::complain(&trouble.failures);
        (!trouble.failures.is_empty()).then(|| trouble.failures.join("; "))
    }
}

impl System for Guest {
    const PLACE: &'static str = system::PLACE;

    fn obey(&mut self, frame: &Frame, line: &mut Line) -> Result<bool, Error> {
        match frame {
            Frame::Time(time) => self.clock.hear(time),
            Frame::Seed(bytes) => random::add(bytes),
            Frame::Mounts(part) if self.mounts.len() < LIST_MAX_BYTES => self.mounts.extend(part),
            Frame::Devices(part) if self.devices.len() < LIST_MAX_BYTES => {
                self.devices.extend(part);
            }
            Frame::Prepare => return Ok(self.prepare(line)),
            Frame::Console(is_wanted) => self.console.set_wanted(*is_wanted),
            _ => return Err(Error::OutOfTurn(name_of(frame))),
        }
        Ok(true)
    }

    fn has_ended(&mut self, pid: u32) {
        self.console.has_ended(pid);
    }
}

#[cfg(test)]
mod tests {
    use protocol::devices::{Devices, Kind};

    use super::*;

    #[test]
    fn a_system_that_cannot_be_prepared_says_why() {
        let check = |devices: Vec<u8>, expected: &str| {
            let mut guest = Guest { devices, ..Guest::default() };
            let reasons = guest.missing().expect("it is not prepared");
            assert!(reasons.contains(expected), "{reasons:?} does not say {expected:?}");
        };
        check(b"nonsense".to_vec(), "the list of devices makes no sense");
        let mut disks = Vec::new();
        Devices { kind: Kind::Disk, count: 255, is_optional: false }.encode(&mut disks);
        check(disks, "no driver for the disks");
    }
}
