//! Pseudo-terminals: their numbers, and that each has its own other side.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::{Failure, check, failed};

/// Both sides of one.
pub struct Terminal {
    master: OwnedFd,
    name: String,
}

impl Terminal {
    /// A new one.
    pub fn open() -> Result<Terminal, Failure> {
        let make = || -> rustix::io::Result<Terminal> {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let master = openpt(flags)?;
            grantpt(&master)?;
            unlockpt(&master)?;
            let name = ptsname(&master, Vec::new())?.to_string_lossy().into_owned();
            Ok(Terminal { master, name })
        };
        make().map_err(|errno| failed("a pseudo-terminal")(errno.into()))
    }

    /// The name of its other side, which is there.
    pub fn name(&self) -> Result<&str, Failure> {
        std::fs::metadata(&self.name).map_err(failed(&self.name))?;
        Ok(&self.name)
    }

    /// Says the tag at one side, and hears it at the other, which is opened by its name.
    pub fn check(&self, tag: &str) -> Result<(), Failure> {
        let what = failed(&self.name);
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(&self.name, flags, Mode::empty()).map_err(|errno| what(errno.into()))?;
        let mut modes = tcgetattr(&slave).map_err(|errno| what(errno.into()))?;
        modes.make_raw();
        tcsetattr(&slave, OptionalActions::Now, &modes).map_err(|errno| what(errno.into()))?;
        File::from(slave).write_all(tag.as_bytes()).map_err(&what)?;
        let mut heard = vec![0; tag.len()];
        let master = self.master.try_clone().map_err(&what)?;
        File::from(master).read_exact(&mut heard).map_err(&what)?;
        check("terminal", &String::from_utf8_lossy(&heard), tag)
    }
}
