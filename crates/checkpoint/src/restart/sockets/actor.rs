//! Who makes sockets, in place of processes that are not there yet, or any more.
//!
//! The kernel keeps of a connection which process has made it (`SO_PEERCRED`), and of a message which one has sent it.
//! So the seed bears one with that number for a moment, which shares its memory and its descriptors, and ends. What the
//! kernel has kept goes on telling the number.

use inject::{Area, Seat};

use crate::credentials;
use crate::error::Error;
use crate::proc::status::Status;
use crate::restart::plan::Plan;
use crate::restart::{Restarted, birth};
use crate::state::sockets::Who;

/// What an actor shares with the seed.
const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS;

/// The seed, and who acts for it at the moment.
pub(super) struct Actors<'a> {
    seat: &'a Seat,
    pub area: &'a Area,
    seed: Who,
    restarted: &'a mut Restarted,
    current: Option<(Who, Seat)>,
}

impl<'a> Actors<'a> {
    pub fn new(
        seat: &'a Seat,
        area: &'a Area,
        restarted: &'a mut Restarted,
    ) -> Result<Self, Error> {
        let status = Status::read(seat.task(), "status")?;
        let [_, user, ..] = status.numbers::<4>("Uid")?;
        let [_, group, ..] = status.numbers::<4>("Gid")?;
        let [user, group] = credentials::inside(seat.task(), [user, group])?;
        let seed = Who { pid: status.own_number("NSpid")?, user, group };
        Ok(Self { seat, area, seed, restarted, current: None })
    }

    /// Calls of the seed itself.
    pub fn plan(&self) -> Plan<'a> {
        Plan::new(0, self.seat, self.area)
    }

    /// The seed's number for us.
    pub fn task(&self) -> u32 {
        self.seat.task()
    }

    /// The user and group that own what the seed makes.
    pub fn owner(&self) -> [u32; 2] {
        [self.seed.user, self.seed.group]
    }

    /// Have somebody carry out calls; `compose` adds them.
    pub fn act(
        &mut self,
        who: Option<&Who>,
        compose: impl FnOnce(&mut Plan<'_>),
    ) -> Result<Vec<i64>, Error> {
        self.become_another(who)?;
        let seat = self.current.as_ref().map_or(self.seat, |(_, seat)| seat);
        let mut plan = Plan::new(0, seat, self.area);
        compose(&mut plan);
        Ok(plan.run()?.results)
    }

    fn become_another(&mut self, who: Option<&Who>) -> Result<(), Error> {
        let who = who.filter(|who| who.pid != 0 && **who != self.seed);
        if self.current.as_ref().map(|(current, _)| current) == who {
            return Ok(());
        }
        self.dismiss()?;
        let Some(who) = who else { return Ok(()) };
        let task = match birth::clone(self.seat, self.area, who.pid, (FLAGS, 0), self.restarted) {
            Ok(task) => task,
            // The number is that of somebody of the namespace who is not in the image: nobody can be told of it.
            Err(Error::Call { source, .. }) if source.raw_os_error() == Some(libc::EEXIST) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let status = Status::read(self.seat.task(), "status")?;
        let seat = Seat::take(task, status.mask("SigIgn")?)?;
        let mut plan = Plan::new(who.pid, &seat, self.area);
        let all = |number: u32| [u64::from(number); 3];
        if who.group != self.seed.group {
            plan.must("act as its group", libc::SYS_setresgid, all(who.group));
        }
        if who.user != self.seed.user {
            plan.must("act as its user", libc::SYS_setresuid, all(who.user));
        }
        plan.run()?;
        self.current = Some((who.clone(), seat));
        Ok(())
    }

    /// End whoever acts.
    pub fn dismiss(&mut self) -> Result<(), Error> {
        let Some((who, seat)) = self.current.take() else { return Ok(()) };
        let mut script = self.area.script();
        script.call(libc::SYS_exit, [0]);
        match seat.run(self.area, &script) {
            Err(inject::Error::Gone(_)) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(Error::Gone(seat.task())),
        }
        self.restarted.tasks.retain(|task| *task != seat.task());
        let mut plan = self.plan();
        let any = u64::from(libc::__WALL.cast_unsigned());
        plan.must("wait for who made a socket", libc::SYS_wait4, [who.pid.into(), 0, any, 0]);
        plan.run().map(drop)
    }
}
