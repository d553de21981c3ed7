//! Runs a command in the default guest under QEMU's TCG instead of Bivouac's own machine, with the
//! same init, initramfs and session: a second opinion when the three do not get on.
//!
//! `cargo run --example under_qemu -- [--tty] COMMAND ARG...`

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode, Stdio};

use biv::provision::{Guest, Part};
use biv::session::channel::Channel;
use biv::session::{Ending, Line, Session, Signals};
use biv::{initramfs, status, terminal};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, Failure> {
    let mut command: Vec<_> = std::env::args_os().skip(1).map(|word| word.into_vec()).collect();
    let on_terminal = command.first().is_some_and(|word| word == b"--tty");
    if on_terminal {
        command.remove(0);
    }
    let order = protocol::Order {
        arguments: command,
        environment: vec![b"PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_vec(), b"HOME=/root".to_vec()],
        directory: b"/".to_vec(),
        terminal: on_terminal.then(terminal::size),
    };
    let guest = Guest::provide(&[Part::Kernel, Part::Busybox])?;
    let initrd = File::from(memfd_create("initrd", MemfdFlags::CLOEXEC)?);
    (&initrd).write_all(&initramfs::default_guest(&guest.busybox()?)?)?;
    let signals = Signals::block()?;
    let path = std::env::temp_dir().join(format!("biv-qemu-{}", std::process::id()));
    let listener = UnixListener::bind(&path)?;
    let (ended, guard) = UnixStream::pair()?;
    let mut qemu = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-m", "512", "-nodefaults", "-no-reboot", "-display", "none"])
        .arg("-kernel")
        .arg(guest.kernel())
        .arg("-initrd")
        .arg(format!("/proc/{}/fd/{}", std::process::id(), initrd.as_raw_fd()))
        .args(["-serial", "file:/tmp/biv-qemu-console", "-serial"])
        .arg(format!("unix:{}", path.display()))
        .arg("-append")
        .arg(format!("console=ttyS0 panic=-1 rdinit={} biv.channel=ttyS1", initramfs::INIT))
        .stdin(Stdio::null())
        .spawn()?;
    let (line, _) = listener.accept()?;
    std::fs::remove_file(&path)?;
    let pid = Pid::from_raw(qemu.id() as i32).ok_or("QEMU has no number")?;
    let watcher = std::thread::spawn(move || {
        let status = qemu.wait();
        drop(guard);
        status
    });
    let line = Line::of(line.try_clone()?.into(), line.into());
    let link = Channel::new(line, &order)?;
    let session = Session { link, machine: ended, deadline: None, raw: on_terminal, signals };
    let ending = session.run()?;
    if matches!(ending, Ending::Killed(_) | Ending::Escaped) {
        kill_process(pid, Signal::KILL)?;
    }
    watcher.join().map_err(|_| "the watcher panicked")??;
    Ok(ExitCode::from(match ending {
        Ending::Exited(status) => status,
        Ending::Signaled(signal) | Ending::Killed(signal) => status::of_signal(signal),
        _ => status::GUEST_LOST,
    }))
}
