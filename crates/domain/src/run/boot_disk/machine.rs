//! A machine that reads the file systems of a disk which no process of ours does, xfs and btrfs: the default guest,
//! whose kernel has them as modules. It runs [`bootdisk::served::SCRIPT`], and has nothing but the disk.
//!
//! 1. *It is a machine as any other*, confined likewise, so that whoever wrote the disk gets from there no further than
//!    from a machine that boots it. Who talks to it is the confined process that reads the disk; this one hears its
//!    standard error only, and shows the end of that.
//! 2. *The disk stays as it is*: what it writes, because a journal is replayed, is thrown away.
//! 3. *It ends* when it is not needed any more, when its time is up, and with this process. It is in no registry.
//! 4. Its process is another execution of the program, which is told the disk only ([`ServeDisk`]): nothing that the
//!    user says of machines is for this one.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bootdisk::served::SCRIPT;
use provision::{Guest, Part};
use serde::{Deserialize, Serialize};
use spec::{Device, Disk, Engine, Machine as Hardware, Process, Root, Spec, shown};

use super::super::error::Error;
use crate::helper::again;
use crate::recent::Recent;

/// The kind of process that is such a machine.
pub const MACHINE_KIND: &str = "serve-disk";

/// What it is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeDisk {
    /// Which disk.
    pub disk: Disk,
    /// It may make the system calls only that it needs.
    pub confined: bool,
}

/// How long it may run.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Its memory. A file of any length goes through it.
const MEMORY_BYTES: u64 = 512 << 20;

/// How many of the last bytes of its standard error are shown.
const SAID_MAX_BYTES: usize = 1024;

/// One that runs.
pub struct Machine {
    /// It is to end when this is dropped.
    wanted: Sender<()>,
    watch: JoinHandle<Report>,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Its time was up.
    is_late: bool,
    /// What it said on standard error.
    said: String,
}

impl Machine {
    /// Starts one that has this disk, and is confined if it is to be; and the way to it.
    ///
    /// # Errors
    ///
    /// There is no default guest, or the host has no process for it.
    pub fn start(disk: &Disk, confine: bool) -> Result<(Self, OwnedFd), Error> {
        // It would be too long about getting it, and the user is to see that.
        Guest::provide(&[Part::Kernel, Part::Drivers, Part::Busybox])?;
        let (ours, theirs) = UnixStream::pair()?;
        let order = ServeDisk { disk: disk.clone(), confined: confine };
        let mut command = again(MACHINE_KIND, &order)?;
        // The terminal's signals are for this process, and it ends with that.
        command.process_group(0).stdin(OwnedFd::from(theirs.try_clone()?));
        let mut child = command.stdout(OwnedFd::from(theirs)).stderr(Stdio::piped()).spawn()?;
        let said = child.stderr.take();
        let (wanted, needed) = channel();
        let watch = thread::spawn(move || watch(child, said, &needed));
        Ok((Self { wanted, watch }, ours.into()))
    }

    /// Ends it.
    pub fn end(self) -> Report {
        drop(self.wanted);
        self.watch.join().unwrap_or_default()
    }
}

impl Report {
    /// Why the disk boots nothing, with what is known of the machine.
    pub fn explain(&self, reason: String) -> String {
        let seconds = TIME_MAX.as_secs();
        match (self.is_late, self.said.is_empty()) {
            (true, _) => {
                format!("the machine that reads its xfs and btrfs takes more than {seconds} s")
            }
            (false, true) => reason,
            (false, false) => {
                format!("{reason}; the machine that reads its xfs and btrfs says: {}", self.said)
            }
        }
    }
}

impl ServeDisk {
    /// The machine.
    pub fn described(&self) -> Spec {
        let disk = Disk { read_only: false, snapshot: true, ..self.disk.clone() };
        let args = ["sh", "-c", SCRIPT].map(Into::into).into();
        Spec {
            machine: Hardware { memory: MEMORY_BYTES, ..Hardware::default() },
            root: Root::Busybox,
            devices: vec![Device::Disk(disk)],
            networks: Some(Vec::new()),
            process: Process { args, ..Process::default() },
            engine: Engine { no_seccomp: !self.confined, ..Engine::default() },
            ..Spec::default()
        }
    }
}

/// Waits until a machine is not needed any more, or its time is up, and ends it.
fn watch(mut child: Child, said: Option<ChildStderr>, needed: &Receiver<()>) -> Report {
    let listener = thread::spawn(move || said.map(listen).unwrap_or_default());
    let is_late = needed.recv_timeout(TIME_MAX) == Err(RecvTimeoutError::Timeout);
    // It may have ended.
    let _ = child.kill();
    let _ = child.wait();
    Report { is_late, said: listener.join().unwrap_or_default() }
}

/// The last of what somebody says, in one line.
fn listen(mut from: impl Read) -> String {
    let (mut recent, mut bytes) = (Recent::default(), [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        recent.add(&bytes[..count]);
    }
    let kept = recent.bytes();
    let text = String::from_utf8_lossy(&kept[kept.len().saturating_sub(SAID_MAX_BYTES)..]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    shown::line(&lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_disk_and_nothing_else() {
        let disk = Disk { read_only: true, ..Disk::of("/disk".into()) };
        let spec = ServeDisk { disk, confined: true }.described();
        spec.check().unwrap();
        let disks: Vec<&Disk> = spec.disks().collect();
        assert_eq!(disks, [&Disk { snapshot: true, ..Disk::of("/disk".into()) }]);
        assert!(!disks[0].keeps_writes() && !disks[0].is_read_only());
        assert_eq!((&spec.networks, spec.mounts.len()), (&Some(Vec::new()), 0));
        assert!(!spec.engine.no_seccomp && spec.life == spec::Life::default());
    }

    #[test]
    fn what_it_says_is_one_line_with_an_end() {
        assert_eq!(listen(&b"mount: no\n\n  \x1b[2Jbiv: no\n"[..]), "mount: no; \\u{1b}[2Jbiv: no");
        assert_eq!(listen(vec![b'x'; 1 << 20].as_slice()).len(), SAID_MAX_BYTES);
        let said = |is_late, said: &str| Report { is_late, said: said.to_owned() };
        assert_eq!(said(false, "").explain("no loader".to_owned()), "no loader");
        assert!(said(false, "gone").explain("no loader".to_owned()).starts_with("no loader; "));
        assert!(said(true, "gone").explain(String::new()).contains("more than 60 s"));
    }
}
