//! A machine as what commands run in: its host says what its system must have, how late it is, and whether somebody
//! sits at its console.

use protocol::{Frame, LINE, PAYLOAD_MAX_BYTES};
use service::error::{Error, name_of};
use service::line::Line;
use service::serve::System;

use crate::clock::Clock;
use crate::console::Console;
use crate::system::Wanted;
use crate::{kernel, random, system};

/// The longest list of mounts, and of devices: far more than any has.
const LIST_MAX_BYTES: usize = 1 << 20;

/// See above.
#[derive(Default)]
pub struct Guest {
    console: Console,
    clock: Clock,
    /// What has come of what the host wants the system to have.
    wanted: Wanted,
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
        let trouble = system::prepare(&std::mem::take(&mut self.wanted));
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
            Frame::Mounts(part) if self.wanted.mounts.len() < LIST_MAX_BYTES => {
                self.wanted.mounts.extend(part);
            }
            Frame::Devices(part) if self.wanted.devices.len() < LIST_MAX_BYTES => {
                self.wanted.devices.extend(part);
            }
            Frame::Hostname(name) => self.wanted.hostname = Some(name.clone()),
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
            let wanted = Wanted { devices, ..Wanted::default() };
            let mut guest = Guest { wanted, ..Guest::default() };
            let reasons = guest.missing().expect("it is not prepared");
            assert!(reasons.contains(expected), "{reasons:?} does not say {expected:?}");
        };
        check(b"nonsense".to_vec(), "the list of devices makes no sense");
        let mut disks = Vec::new();
        Devices { kind: Kind::Disk, count: 255, is_optional: false }.encode(&mut disks);
        check(disks, "no driver for the disks");
    }
}
