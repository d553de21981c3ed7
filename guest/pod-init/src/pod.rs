//! A pod as what commands run in.

use protocol::Frame;
use service::error::{Error, name_of};
use service::line::Line;
use service::reaper::End;
use service::serve::{Next, System};

/// See above. It was prepared before the keeper hears of it, has the host's clock and no console.
pub struct Pod;

impl System for Pod {
    const PLACE: &'static str = "pod";

    const ADOPTS: bool = true;

    fn obey(&mut self, frame: &Frame, _line: &mut Line) -> Result<Next, Error> {
        match frame {
            Frame::Prepare => Ok(Next::GoOn),
            _ => Err(Error::OutOfTurn(name_of(frame))),
        }
    }

    fn has_ended(&mut self, _pid: u32, _end: End) {}
}
