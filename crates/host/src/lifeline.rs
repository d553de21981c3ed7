//! What continues a stopped process when who has stopped it is no more.
//!
//! A process that SIGSTOP has stopped cannot wake itself, and who has stopped it may be killed at any moment. So the
//! host is asked beforehand: the process holds the reading end of a named pipe and has itself signalled when something
//! happens there (fcntl(2), `O_ASYNC` with `F_SETSIG`); who wants to stop it opens the other end first. When that one
//! ends, however it ends, the host closes its end, and sends SIGCONT.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `F_SETSIG` (asm-generic/fcntl.h); which signal is sent instead of SIGIO.
const SET_SIGNAL: libc::c_int = 10;

/// Have the host continue a process, or all of a process group if the number is negative, whenever nobody has the other
/// end of this named pipe open any more. It holds as long as the file is open.
///
/// # Errors
///
/// The host's: there is no such process or group, for one.
pub fn continue_at_hang_up(reader: &File, whom: i32) -> io::Result<()> {
    let descriptor = reader.as_raw_fd();
    let set = |command: libc::c_int, value: libc::c_int| {
        // SAFETY: these commands take a number, and change the open file, which is the caller's.
        let answer = unsafe { libc::fcntl(descriptor, command, value) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    };
    set(libc::F_SETOWN, whom)?;
    set(SET_SIGNAL, libc::SIGCONT)?;
    let flags = set(libc::F_GETFL, 0)?;
    set(libc::F_SETFL, flags | libc::O_ASYNC)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use rustix::fs::{FileType, Mode, OFlags, mknodat, open};
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// A named pipe, and its reading end.
    fn pipe(name: &str) -> (PathBuf, File) {
        let name = std::env::temp_dir().join(format!("biv-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&name);
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(rustix::fs::CWD, &name, FileType::Fifo, mode, 0).expect("a named pipe");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = File::from(open(&name, flags, Mode::empty()).expect("it can be read"));
        (name, reader)
    }

    fn number(child: &Child) -> i32 {
        child.id().cast_signed()
    }

    fn signal(number: i32, signal: Signal) {
        kill_process(Pid::from_raw(number).expect("a process"), signal).expect("it lives");
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().expect("there is sleep")
    }

    /// Wait until a process is stopped, or is not.
    fn wait_until_stopped(number: i32, stopped: bool) {
        let end = Instant::now() + Duration::from_secs(60);
        let is_stopped = || {
            let state = std::fs::read_to_string(format!("/proc/{number}/stat")).expect("it lives");
            state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        while is_stopped() != stopped {
            assert!(Instant::now() < end, "process {number}: stopped should be {stopped}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A process that has the writing end open.
    fn holder(pipe: &Path) -> Child {
        let script = r#"exec 3>"$0"; : >"$0.open"; exec sleep 1000"#;
        let holder = Command::new("sh").args(["-c", script]).arg(pipe).spawn().expect("a shell");
        let marker = PathBuf::from(format!("{}.open", pipe.display()));
        let end = Instant::now() + Duration::from_secs(60);
        while !marker.exists() {
            assert!(Instant::now() < end, "the pipe is not opened");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(marker).expect("it is there");
        holder
    }

    #[test]
    fn who_is_stopped_goes_on_when_the_other_is_killed() {
        let (name, reader) = pipe("lifeline");
        let mut stopped = sleeper();
        continue_at_hang_up(&reader, number(&stopped)).expect("it can be had");
        // More than once: the next one may be killed, too.
        for _ in 0..3 {
            let mut holder = holder(&name);
            signal(number(&stopped), Signal::STOP);
            wait_until_stopped(number(&stopped), true);
            holder.kill().expect("it lives");
            holder.wait().expect("it was ours");
            wait_until_stopped(number(&stopped), false);
        }
        stopped.kill().expect("it lives");
        stopped.wait().expect("it was ours");
        std::fs::remove_file(name).expect("it is there");
    }

    #[test]
    fn a_group_goes_on_together() {
        use std::os::unix::process::CommandExt;

        let (name, reader) = pipe("lifelines");
        let mut first = Command::new("sleep").arg("1000").process_group(0).spawn().expect("sleep");
        let group = number(&first);
        let mut second =
            Command::new("sleep").arg("1000").process_group(group).spawn().expect("sleep");
        continue_at_hang_up(&reader, -group).expect("it can be had");
        let mut holder = holder(&name);
        for child in [&first, &second] {
            signal(number(child), Signal::STOP);
            wait_until_stopped(number(child), true);
        }
        holder.kill().expect("it lives");
        holder.wait().expect("it was ours");
        for child in [&mut first, &mut second] {
            wait_until_stopped(number(child), false);
            child.kill().expect("it lives");
            child.wait().expect("it was ours");
        }
        assert!(continue_at_hang_up(&reader, i32::MAX).is_err());
        std::fs::remove_file(name).expect("it is there");
    }
}
