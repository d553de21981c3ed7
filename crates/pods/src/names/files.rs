//! Packs and unpacks the files of a pod, by a process that is in it for as long as that takes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};

use host::rights;
use pod_protocol::{FILES_NAME, PACK, UNPACK};

use super::{Init, complaint, program};

/// The process. It is killed if this is dropped before its end.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    complaints: Option<ChildStderr>,
}

impl Helper {
    /// Packs: with where the archive comes from.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn pack(init: &Init, layers: &OwnedFd) -> io::Result<(Helper, File)> {
        let (ours, theirs) = io::pipe()?;
        Ok((Helper::start(PACK, init, layers, &theirs.into())?, OwnedFd::from(ours).into()))
    }

    /// Unpacks: with where the archive goes to.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn unpack(init: &Init, layers: &OwnedFd) -> io::Result<(Helper, File)> {
        let (theirs, ours) = io::pipe()?;
        Ok((Helper::start(UNPACK, init, layers, &theirs.into())?, OwnedFd::from(ours).into()))
    }

    fn start(what: &str, init: &Init, layers: &OwnedFd, archive: &OwnedFd) -> io::Result<Helper> {
        let program = program()?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.arg0(FILES_NAME).arg(what).env_clear().current_dir("/").process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let helper = Helper { complaints: child.stderr.take(), child };
        rights::send(&ours, &[0], &[init.process.as_fd(), layers.as_fd(), archive.as_fd()])?;
        Ok(helper)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What it complains of.
    pub fn end(mut self) -> Result<(), String> {
        let said = complaint(self.complaints.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) if said.is_empty() => {
                Err(format!("the process that does it ended: {status}"))
            }
            Ok(_) => Err(said),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
