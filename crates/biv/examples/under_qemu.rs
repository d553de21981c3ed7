//! Runs a command in the default guest under QEMU's TCG instead of Bivouac's own machine, with the
//! same init, initramfs and session: a second opinion when the three do not get on.
//!
//! `cargo run --example under_qemu -- [--tty] [--root DIR] [--mem MIB] [--cpus N] COMMAND ARG...`

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use api::status;
use provision::initramfs;
use provision::{Guest, Part};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use session::channel::Channel;
use session::terminal;
use session::terminal::{Escape, Mode};
use session::{Ending, Input, Line, Outputs, Passing, Session, Signals};

type Failure = Box<dyn std::error::Error>;

/// What the command line asks for.
struct Request {
    tty: bool,
    root: Option<PathBuf>,
    mebibytes: String,
    processors: String,
    command: Vec<Vec<u8>>,
}

impl Request {
    fn parse(words: impl Iterator<Item = OsString>) -> Result<Request, Failure> {
        let (mebibytes, processors) = ("512".to_owned(), "1".to_owned());
        let mut request =
            Request { tty: false, root: None, mebibytes, processors, command: Vec::new() };
        let mut words = words.peekable();
        while let Some(option) = words.next_if(|word| word.as_bytes().starts_with(b"--")) {
            let mut value = || words.next().ok_or("an option lacks its value");
            match option.as_bytes() {
                b"--tty" => request.tty = true,
                b"--root" => request.root = Some(value()?.into()),
                b"--mem" => request.mebibytes = value()?.to_string_lossy().into_owned(),
                b"--cpus" => request.processors = value()?.to_string_lossy().into_owned(),
                _ => return Err(format!("there is no option {}", option.display()).into()),
            }
        }
        request.command = words.map(OsStringExt::into_vec).collect();
        Ok(request)
    }

    fn order(&self) -> protocol::Order {
        protocol::Order {
            arguments: self.command.clone(),
            environment: vec![
                b"PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_vec(),
                b"HOME=/root".to_vec(),
            ],
            directory: b"/".to_vec(),
            terminal: self.tty.then(terminal::size),
            ..protocol::Order::default()
        }
    }

    /// The kernel, and what it unpacks.
    fn files(&self) -> Result<(PathBuf, File), Failure> {
        let initrd = File::from(memfd_create("initrd", MemfdFlags::CLOEXEC)?);
        let (guest, bytes) = match &self.root {
            Some(root) => {
                let memory = self.mebibytes.parse::<u64>()?.saturating_mul(1 << 20);
                (Guest::provide(&[Part::Kernel])?, initramfs::from_directory(root, memory)?)
            }
            None => {
                let guest = Guest::provide(&[Part::Kernel, Part::Busybox])?;
                let bytes = initramfs::default_guest(&guest.busybox()?)?;
                (guest, bytes)
            }
        };
        (&initrd).write_all(&bytes)?;
        Ok((guest.kernel(), initrd))
    }

    fn qemu(&self, kernel: &Path, initrd: &File, channel: &Path) -> std::io::Result<Child> {
        Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-cpu", "max", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-m", &self.mebibytes, "-smp", &self.processors])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(format!("/proc/{}/fd/{}", std::process::id(), initrd.as_raw_fd()))
            .arg("-serial")
            .arg(console())
            .arg("-serial")
            .arg(format!("unix:{}", channel.display()))
            .arg("-append")
            .arg(format!("console=ttyS0 panic=-1 rdinit={} biv.channel=ttyS1", initramfs::INIT))
            .stdin(Stdio::null())
            .spawn()
    }
}

/// Where QEMU puts what the guest's kernel says: the file that `UNDER_QEMU_CONSOLE` names.
fn console() -> OsString {
    match std::env::var_os("UNDER_QEMU_CONSOLE") {
        Some(path) => [OsStr::new("file:"), &path].into_iter().collect(),
        None => "null".into(),
    }
}

fn main() -> Result<ExitCode, Failure> {
    let request = Request::parse(std::env::args_os().skip(1))?;
    let on_terminal = request.tty;
    let order = request.order();
    let (kernel, initrd) = request.files()?;
    let signals = Signals::block()?;
    let path = std::env::temp_dir().join(format!("biv-qemu-{}", std::process::id()));
    let listener = UnixListener::bind(&path)?;
    let (ended, guard) = UnixStream::pair()?;
    let mut qemu = request.qemu(&kernel, &initrd, &path)?;
    let (line, _) = listener.accept()?;
    std::fs::remove_file(&path)?;
    let pid = Pid::from_raw(qemu.id() as i32).ok_or("QEMU has no number")?;
    let watcher = std::thread::spawn(move || {
        let status = qemu.wait();
        drop(guard);
        status
    });
    let line = Line::of(line)?;
    let link = Channel::new(line, &order)?;
    let session = Session {
        link,
        machine: Some(ended),
        deadline: None,
        mode: Mode::raw_if(on_terminal),
        escape: Escape::default(),
        signals,
        passing: Passing::Interrupt,
        outputs: Outputs::default(),
        input: Input::Ours,
        report: None,
    };
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
