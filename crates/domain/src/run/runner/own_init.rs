//! A machine with a process 1 of its own (`--init PATH`): our init prepares its system and becomes that program, with
//! an agent of ours beside it ([`protocol`] has the conversation).
//!
//! For whoever runs it, it is like a machine with nothing of ours in it: its console is on the standard streams, it may
//! reboot, and it ends with status 0 when it switches itself off. For other commands it is like one with our init: they
//! run commands in it, and copy files.

use std::io::Read;
use std::os::unix::net::UnixStream;

use protocol::Order;

use super::{Error, GuestEnd, Prepared, Started, User, console_link, converse, lines_to_init};
use super::{command_line, watchdog};
use crate::domain::{Domain, GoingOn, ProcessOne};
use crate::run::machine;
use crate::run::paravirtual::{self, Words};
use provision::initramfs;
use session::{Outputs, Verdict};

/// What tells the guest's init that it may not be the first one to hear us.
const REBOOTS: &str = "biv.reboots";

impl Prepared<'_> {
    /// Runs it; its process 1 is what `order` says.
    pub(super) fn run_system(
        mut self,
        domain: &mut Domain,
        order: &Order,
        parameter: &str,
    ) -> Result<Verdict, Error> {
        let (spec, configuration) = (self.spec, &mut self.parts.configuration);
        let rdinit = format!("rdinit={}", initramfs::INIT);
        let Words { console: kernels, channel, mtu } =
            paravirtual::words(spec, !parameter.is_empty());
        // As in any whole system, a panic is seen on the console, and the machine stands still.
        let ours = [kernels, "cryptomgr.notests", watchdog(spec), &rdinit, REBOOTS];
        let words = [&ours[..], &[channel, parameter, mtu]].concat();
        configuration.command_line = command_line(&words, spec);
        // One that goes on from a snapshot has no kernel to boot again.
        configuration.reboot = !spec.boot.no_reboot && configuration.snapshot.is_none();
        let time = super::time_of(configuration).map_err(machine::Error::Machine)?;
        let ours = self.add_console()?;
        let lines = lines_to_init(&mut self.parts.configuration.devices, true)?;
        let (notice, notifier) = UnixStream::pair()?;
        let process_one = ProcessOne {
            order: order.encode().map_err(session::Error::from)?,
            notice: Some(notifier),
        };
        let (needs, conversation) = (self.needs, self.conversation);
        let end = GuestEnd { lines, needs, time, conversation };
        let (ours, trouble) = domain.serve_system(end, process_one, ours, self.snapshots)?;
        let going_on = self.child.map(|child| domain.going_on(child)).transpose()?;
        let mut outputs = Outputs::default();
        if going_on.is_some() {
            domain.log.iter().for_each(|log| outputs.keep_in(log));
        }
        let remote = domain.machine.clone();
        let (machine, _) = Started::start(spec.machine.board, self.parts, remote.clone())?;
        attend(notice, going_on, remote.clone())?;
        let user = User::at_console(spec, outputs);
        let verdict =
            converse(console_link(ours, remote)?, machine, self.deadline, user, self.signals);
        // A guest in which nothing could run has switched itself off.
        match trouble.get() {
            Some(trouble) => Err(session::Error::Guest(spec::shown::line(trouble)).into()),
            None => verdict,
        }
    }
}

/// Has a detached machine go on by itself when its process 1 runs: what is on its console before is in its log. Has a
/// machine end in which it cannot run.
fn attend(
    mut notice: UnixStream,
    going_on: Option<GoingOn>,
    machine: crate::server::Machine,
) -> Result<(), Error> {
    std::thread::Builder::new().name("booting".into()).spawn(move || {
        match (notice.read_exact(&mut [0]), going_on) {
            // What cannot be told to whoever waits is nobody's loss.
            (Ok(()), Some(going_on)) => drop(going_on.go_on(&mut Outputs::default())),
            (Ok(()), None) => {}
            (Err(_), _) => machine.get().into_iter().for_each(vmm::Remote::stop),
        }
    })?;
    Ok(())
}
