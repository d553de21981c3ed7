//! Exits that are answered on the spot, because nothing that the run loop looks at follows from the answer: what a
//! paravirtual kernel asks for that concerns its page tables and its registers alone. A program that is started, or
//! that unmaps a file, makes hundreds of them.
//!
//! 1. *No event, timer, device or other vCPU is concerned* ([`XenCall::is_brief`]): there is no deadline to meet, no
//!    doorbell to attend to and nothing to pass on. Whatever other threads have for this one meanwhile kicks the
//!    processor, whose word stays that of one in the guest ([`Waker`](crate::waker::Waker)), and is an exit of its own.
//! 2. *They count as exits until the next look*, so that the run loop looks as often as ever.

use cpu::Exit;
use machine::BoardVcpu;
use machine::xen::{TableWrite, XenCall};
use vm_memory::GuestAddress;

use super::run_loop::RunLoop;
use crate::outcome::Error;
use crate::processor::Processor;

impl<P: Processor, V: BoardVcpu> RunLoop<'_, P, V> {
    /// Run until an exit that is none of these, or so many.
    ///
    /// # Errors
    ///
    /// [`Error::Processor`] when the host fails.
    pub(super) fn run_processor(&mut self, until_look: &mut u32) -> Result<Exit, Error> {
        loop {
            let exit = self.cpu.run()?;
            if *until_look == 0 || !self.answer_briefly(&exit) {
                return Ok(exit);
            }
            *until_look -= 1;
            self.activity.exits += 1;
        }
    }

    /// Answer an exit if it is such a one; whether it was.
    fn answer_briefly(&mut self, exit: &Exit) -> bool {
        match *exit {
            Exit::ParavirtualWrite { address, old, new } => {
                self.xen_write(&TableWrite { address: GuestAddress(address), old, new });
                true
            }
            Exit::ParavirtualCall { number, arguments } => {
                let call = XenCall { number, arguments };
                let is_brief = call.is_brief();
                if is_brief {
                    self.xen_call(&call);
                }
                is_brief
            }
            _ => false,
        }
    }
}
