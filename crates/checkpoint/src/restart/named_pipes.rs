//! Named pipes: the seed holds each open for reading and writing until all ends are open, so that no open(2) waits.

use host::processes::identity;
use inject::{Area, Seat};

use super::opened::{Opened, fill, move_to, opened_with};
use super::plan::Plan;
use crate::error::Error;
use crate::state::{NamedPipe, OpenFile, State};

const HERE: u64 = i64::cast_unsigned(libc::AT_FDCWD as i64);

/// Open them and put in what was in them; the seed's descriptors.
pub(super) fn make(seat: &Seat, area: &Area, pipes: &[NamedPipe]) -> Result<Vec<u64>, Error> {
    let process = identity::open_process(seat.task()).map_err(Error::io("open the seed"))?;
    let mut made = Vec::new();
    for pipe in pipes {
        let mut plan = Plan::new(0, seat, area);
        let path = plan.string(&pipe.path);
        let flags = (libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOFOLLOW).cast_unsigned().into();
        let purpose = format!("open the named pipe {}", pipe.path);
        plan.must(purpose, libc::SYS_openat, [HERE, path, flags, 0]);
        let results = plan.run()?.results;
        let number = results.first().copied().unwrap_or(-1).cast_unsigned();
        let file = identity::descriptor_of(&process, u32::try_from(number).unwrap_or(u32::MAX));
        let file = file.map_err(Error::io("take a named pipe"))?;
        check(&file, pipe)?;
        fill(file, pipe.capacity, &pipe.content)?;
        made.push(number);
    }
    Ok(made)
}

/// What has the name now may be anything, and may be in use.
fn check(file: &rustix::fd::OwnedFd, pipe: &NamedPipe) -> Result<(), Error> {
    let failed = |error: rustix::io::Errno| Error::io("look at a named pipe")(error);
    let stat = rustix::fs::fstat(file).map_err(failed)?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let is_empty = kind == rustix::fs::FileType::Fifo
        && rustix::io::ioctl_fionread(file).map_err(failed)? == 0;
    match is_empty {
        true => Ok(()),
        false => {
            let path = &pipe.path;
            Err(Error::Host(format!("{path} is no named pipe any more, or somebody uses it")))
        }
    }
}

/// Open those ends that nobody has written to. There must be nobody who could by then.
pub(super) fn wait(seat: &Seat, area: &Area, opened: Opened, state: &State) -> Result<(), Error> {
    for (index, description) in state.descriptions.iter().enumerate() {
        let OpenFile::NamedPipe { index: pipe, waits: true } = &description.file else { continue };
        let Some(pipe) = state.named_pipes.get(*pipe) else { continue };
        let mut plan = Plan::new(0, seat, area);
        let path = plan.string(&pipe.path);
        let flags = opened_with(description.flags) | libc::O_NONBLOCK.cast_unsigned();
        let purpose = format!("open the named pipe {}", pipe.path);
        plan.must(purpose, libc::SYS_openat, [HERE, path, flags.into(), 0]);
        let results = plan.run()?.results;
        let low = results.first().copied().unwrap_or(-1).cast_unsigned();
        let number = opened.description(index);
        let mut plan = Plan::new(0, seat, area);
        move_to(&mut plan, low, number);
        let command = libc::F_SETFL.cast_unsigned().into();
        let flags = description.flags.into();
        plan.must("set a file's flags", libc::SYS_fcntl, [number, command, flags]);
        plan.run()?;
    }
    Ok(())
}
