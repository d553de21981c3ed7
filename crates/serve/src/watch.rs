//! Files of the registry, watched: what becomes ready when one of them changes (inotify(7)).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use api::{Entry, files};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::limits::GATHERING_TIME;

/// See above.
#[derive(Debug)]
pub struct Watch {
    notices: OwnedFd,
}

impl Watch {
    /// Watches nothing yet.
    ///
    /// # Errors
    ///
    /// The host's: a user has 128 of them as a rule.
    pub fn new() -> io::Result<Watch> {
        Ok(Watch { notices: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)? })
    }

    /// Watches the directory of a registry: domains come and go.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn add_registry(&self, path: &std::path::Path) -> io::Result<()> {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        inotify::add_watch(&self.notices, path, flags)?;
        Ok(())
    }

    /// Watches what tells that a domain starts or ends: its record, and that its process lets go of its lock. A watch
    /// that is there already stays as it is; one of a file that is not there comes to be the next time.
    pub fn add_life(&self, entry: &Entry) {
        self.add(entry, files::RECORD, WatchFlags::MODIFY);
        self.add(entry, files::LOCK, WatchFlags::CLOSE_WRITE);
        let directory = files::path(&entry.directory, ".");
        let _ = inotify::add_watch(&self.notices, directory, WatchFlags::CREATE);
    }

    /// Watches the log of a domain.
    pub fn add_log(&self, entry: &Entry) {
        for name in files::LOGS {
            self.add(entry, name, WatchFlags::MODIFY);
        }
    }

    fn add(&self, entry: &Entry, name: &str, flags: WatchFlags) {
        let _ = inotify::add_watch(&self.notices, files::path(&entry.directory, name), flags);
    }

    /// Waits for a change, and those that come with it, or for so long.
    pub fn wait(&self, span: Duration) {
        let mut ready = [PollFd::new(&self.notices, PollFlags::IN)];
        let span = Timespec::try_from(span).ok();
        if poll(&mut ready, span.as_ref()) == Ok(0) {
            return;
        }
        // A lock is let go of a moment after its file is closed.
        std::thread::sleep(GATHERING_TIME);
        let mut notices = [0; 4096];
        while rustix::io::read(&self.notices, &mut notices).is_ok_and(|count| count > 0) {}
    }
}
