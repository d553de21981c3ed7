//! The hub of a guest that greets more than once, because its process 1 is its own ([`super::process_one`]).

use std::os::unix::net::UnixStream;

use protocol::{Encoder, Frame, PART_BYTES};

use super::process_one::ProcessOne;
use super::{Hub, Stage};

impl Hub {
    /// The same for a guest whose process 1 is the program of this order (an encoded [`protocol::Order`]). There is no
    /// first command. A byte comes out of the other end of `notice` when the program runs; its end, if the guest is
    /// lost before.
    #[must_use]
    pub fn with_process_one(mut self, order: &[u8], notice: Option<UnixStream>) -> Hub {
        let parts = order.chunks(PART_BYTES).map(|part| Frame::Order(part.to_vec()));
        let prepare = self.preparing.pop_back();
        self.preparing.extend(parts.chain(prepare).chain([Frame::Start]));
        self.process_one = Some(ProcessOne::new(self.preparing.iter().cloned().collect(), notice));
        self.lines.expect_further_greetings();
        self
    }

    /// Whether the guest has a process 1 of its own, and no first command.
    #[must_use]
    pub fn has_process_one(&self) -> bool {
        self.process_one.is_some()
    }

    /// What is said next is for who greets next, if init has been told everything.
    pub(super) fn note_order(&mut self) {
        if self.preparing.is_empty()
            && let Some(process_one) = &mut self.process_one
        {
            process_one.note_order();
        }
    }

    /// Somebody greets once more.
    pub(super) fn begin_anew(&mut self) {
        let Some(process_one) = &mut self.process_one else { return };
        (self.encoder, self.unread) = (Encoder::default(), 0);
        self.outgoing.clear();
        self.preparing.clear();
        let Some(told) = process_one.note_greeting() else { return };
        self.preparing.extend(told.iter().cloned());
        self.is_prepared = false;
        let ports = std::mem::take(&mut self.ports);
        self.leaving.extend(ports.into_values().filter(|port| port.stage != Stage::Gone));
    }

    /// The conversation goes on where the program runs.
    pub(super) fn go_on_with_process_one(&mut self) {
        if let Some(process_one) = &mut self.process_one {
            process_one.go_on();
        }
        self.lines.expect_further_greetings();
    }
}
