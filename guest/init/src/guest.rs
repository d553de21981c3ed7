//! A machine as what commands run in: its host says what its system must have, how late it is, and whether somebody
//! sits at its console.

use protocol::{Frame, LINE, PAYLOAD_MAX_BYTES};
use service::error::{Error, name_of};
use service::line::Line;
use service::reaper::End;
use service::serve::{Next, System};

use crate::clock::Clock;
use crate::console::Console;
use crate::process_one::Ordered;
use crate::system::{Life, Wanted};
use crate::{kernel, random, system};

/// The kernel parameter of a machine that reboots: another system may have had the line.
const REBOOTS: &str = "biv.reboots";

/// The longest list of mounts, and of devices: far more than any has.
const LIST_MAX_BYTES: usize = 1 << 20;

/// See above.
#[derive(Default)]
pub struct Guest {
    console: Console,
    clock: Clock,
    /// What has come of what the host wants the system to have.
    wanted: Wanted,
    /// The program that is to be process 1.
    pub process_one: Ordered,
}

/// What is next in a system that lacks this, of which the host is told: without what the host wants nothing runs.
fn refuse_if(reasons: Option<String>, line: &mut Line) -> Option<Next> {
    let mut text = reasons?.into_bytes();
    text.truncate(PAYLOAD_MAX_BYTES);
    line.send(LINE, &Frame::Unprepared(text));
    Some(Next::Refuse)
}

impl Guest {
    /// Prepares the system; what it lacks of what the host wants, if it does.
    fn missing(&mut self) -> Option<String> {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.life = if self.process_one.is_some() { Life::ItsOwn } else { Life::Ours };
        let trouble = system::prepare(&wanted);
        kernel::complain(&trouble.remarks);
        kernel::complain(&trouble.failures);
        (!trouble.failures.is_empty()).then(|| trouble.failures.join("; "))
    }
}

impl System for Guest {
    const PLACE: &'static str = system::PLACE;

    fn is_greeted_back(&self) -> bool {
        kernel::kernel_parameter(REBOOTS).is_some()
    }

    fn obey(&mut self, frame: &Frame, line: &mut Line) -> Result<Next, Error> {
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
            Frame::Order(part) => self.process_one.add(part)?,
            Frame::Prepare => return Ok(refuse_if(self.missing(), line).unwrap_or(Next::GoOn)),
            Frame::Start => {
                let why_not = self.process_one.complete()?;
                return Ok(refuse_if(why_not, line).unwrap_or(Next::HandOver));
            }
            Frame::Console(is_wanted) => self.console.set_wanted(*is_wanted),
            _ => return Err(Error::OutOfTurn(name_of(frame))),
        }
        Ok(Next::GoOn)
    }

    fn has_ended(&mut self, pid: u32, _end: End) {
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
