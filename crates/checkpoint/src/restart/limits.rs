//! Resource limits, and who is killed first where memory runs out.
//!
//! Some depend on how large a machine is, and who has no privileges cannot raise them. So a limit that is higher than
//! what this host allows is what it allows.

use host::processes::identity;

use super::Made;
use super::plan::Plan;
use crate::error::Error;
use crate::state::Process;

const NOT_PERMITTED: i64 = -(libc::EPERM as i64);

/// Give a process its limits.
pub(super) fn set(made: &Made, process: &Process) -> Result<(), Error> {
    let mut plan = Plan::new(process.pid, &made.seat, &made.area);
    for (resource, (soft, hard)) in process.limits.iter().enumerate() {
        let limit = plan.words(&[*soft, *hard]);
        plan.may(libc::SYS_prlimit64, [0, resource as u64, limit, 0]);
    }
    let results = plan.run()?.results;
    for (resource, (result, (soft, hard))) in results.iter().zip(&process.limits).enumerate() {
        if *result >= 0 {
            continue;
        }
        let (mut soft, mut hard) = (*soft, *hard);
        if *result == NOT_PERMITTED {
            let number = u32::try_from(resource).unwrap_or(u32::MAX);
            let now = identity::limit(made.seat.task(), number);
            let (_, highest) = now.map_err(Error::io("read a limit"))?;
            (soft, hard) = (soft.min(highest), hard.min(highest));
        }
        let mut plan = Plan::new(process.pid, &made.seat, &made.area);
        let limit = plan.words(&[soft, hard]);
        let purpose = format!("have its limit {resource} ({soft}, {hard})");
        plan.must(purpose, libc::SYS_prlimit64, [0, resource as u64, limit, 0]);
        plan.run()?;
    }
    Ok(())
}

/// Have a process be killed as soon as before where memory runs out; but not later than any other that is begun here,
/// whatever we may do ourselves.
pub(super) fn set_kill_score(made: &Made, process: &Process) -> Result<(), Error> {
    let path = format!("/proc/{}/oom_score_adj", made.seat.task());
    let io = || Error::io(format!("write {path}"));
    let now = std::fs::read_to_string(&path).map_err(io())?;
    let score = process.switches.kill_score;
    if now.trim().parse().is_ok_and(|now: i32| now < score) {
        std::fs::write(&path, score.to_string()).map_err(io())?;
    }
    Ok(())
}
