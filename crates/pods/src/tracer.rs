//! The thread that traces a pod's processes: it freezes them, writes them down, and makes them again.
//!
//! Whoever traces a process must be one thread from the beginning to the end (ptrace(2)), so this one has all that is
//! frozen, and the thread that serves requests asks it. It is asked one thing at a time.
//!
//! A frozen process that is killed ends only when its tracer has heard of it. So whoever ends the pod has this thread
//! let go first ([`Tracer::let_go`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use api::pod::Checkpointed;
use checkpoint::{Frozen, Restarted};
use protocol::Streams;
use rustix::event::{EventfdFlags, eventfd};

use crate::copying::{Copying, Known, freeze, milliseconds};
use crate::image::{self, Write};
use crate::names::Traced;
use crate::reader::Opened;

/// What the thread is to do.
#[derive(Debug)]
pub enum Ask {
    /// Stop all processes.
    Freeze,
    /// Let them go on.
    Thaw,
    /// Begin an image of the pod: copy memory while it runs, and freeze it.
    Copy(Box<Write>),
    /// Write the rest of the image that was begun.
    Write,
    /// Freeze the pod again to write that image, when it has run for so long.
    FreezeAgain(Duration),
    /// Make the processes of an image.
    Restart(Box<Restart>),
    /// Have nothing to do with any process any more.
    LetGo,
}

/// Processes to be made again.
#[derive(Debug)]
pub struct Restart {
    /// Of this image.
    pub image: Opened,
    /// Those that wait for the first command.
    pub streams: Streams,
    /// They are not to run yet.
    pub stays_frozen: bool,
}

/// What has been done.
#[derive(Debug)]
pub enum Done {
    /// All have stopped.
    Frozen,
    /// They go on.
    Thawed,
    /// They do what they like: the pod ends.
    LetGo,
    /// All have stopped, and much of their memory is copied.
    Copied,
    /// They run again: the pod could not be written down in this moment, but may be in another one.
    Unsettled(Duration),
    /// The image is written.
    Written(Checkpointed),
    /// They are there.
    Restarted,
}

/// What has come of it, and whether the processes are stopped now.
type Outcome = (Result<Done, String>, bool);

/// The thread, as the one that serves requests knows it.
#[derive(Debug)]
pub struct Tracer {
    asks: Sender<Ask>,
    outcomes: Receiver<Outcome>,
    /// An eventfd that becomes readable when something has been done.
    completion: Arc<OwnedFd>,
    is_busy: bool,
    is_frozen: bool,
}

impl Tracer {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn start(pod: Traced) -> io::Result<Tracer> {
        let completion = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ((asks, asked), (told, outcomes)) = (mpsc::channel::<Ask>(), mpsc::channel());
        let bell = Arc::clone(&completion);
        std::thread::Builder::new().name("tracer".into()).spawn(move || {
            let mut tracing = Tracing::of(pod);
            for ask in asked {
                let outcome = tracing.obey(ask);
                if told.send((outcome, tracing.is_frozen())).is_err() {
                    return;
                }
                // The counter has room.
                let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
            }
        })?;
        Ok(Tracer { asks, outcomes, completion, is_busy: false, is_frozen: false })
    }

    /// Whether it has not done yet what it was asked.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether the processes are stopped.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Asks it.
    pub fn ask(&mut self, ask: Ask) {
        // The thread ends with the process.
        self.is_busy = self.asks.send(ask).is_ok();
    }

    /// What can be read when something has been done.
    #[must_use]
    pub fn completion(&self) -> BorrowedFd<'_> {
        self.completion.as_fd()
    }

    /// What has come of what it was asked, if it is done.
    pub fn outcome(&mut self) -> Option<Result<Done, String>> {
        let mut count = [0; 8];
        // It may have been read.
        let _ = rustix::io::read(&self.completion, &mut count);
        let (outcome, is_frozen) = self.outcomes.try_recv().ok()?;
        (self.is_busy, self.is_frozen) = (false, is_frozen);
        Some(outcome)
    }

    /// What has it let go of the processes, for another thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(self.asks.clone())
    }
}

/// See [`Tracer::handle`].
#[derive(Debug)]
pub struct Handle(Sender<Ask>);

impl Handle {
    /// Has it let go, when it has done what it does.
    pub fn let_go(&self) {
        let _ = self.0.send(Ask::LetGo);
    }
}

/// What the thread has.
struct Tracing {
    pod: Traced,
    frozen: Option<Frozen>,
    /// Processes that have been made and have not run yet.
    restarted: Option<Restarted>,
    /// An image that was begun, and whether the pod was frozen before.
    copying: Option<(Copying, bool)>,
    /// What is known since the last image.
    known: Option<Known>,
}

impl Tracing {
    fn of(pod: Traced) -> Self {
        Self { pod, frozen: None, restarted: None, copying: None, known: None }
    }

    fn is_frozen(&self) -> bool {
        self.frozen.is_some() || self.restarted.is_some()
    }

    fn obey(&mut self, ask: Ask) -> Result<Done, String> {
        match ask {
            Ask::Freeze if self.restarted.is_some() => Ok(Done::Frozen),
            Ask::Freeze => self.freeze().map(|()| Done::Frozen),
            Ask::Thaw => {
                self.frozen = None;
                self.restarted.take().map_or(Ok(()), go)?;
                Ok(Done::Thawed)
            }
            Ask::Copy(_) if self.restarted.is_some() => {
                Err("it has not run yet since it was restarted".to_owned())
            }
            Ask::Copy(write) => self.copy(*write).map(|()| Done::Copied),
            Ask::Write => self.write(),
            Ask::FreezeAgain(pause) => self.freeze_again(pause).map(|()| Done::Copied),
            Ask::Restart(restart) => {
                let restarted = image::restart(&self.pod, &restart.image, &restart.streams)?;
                match restart.stays_frozen {
                    true => self.restarted = Some(restarted),
                    false => go(restarted)?,
                }
                Ok(Done::Restarted)
            }
            Ask::LetGo => {
                (self.frozen, self.restarted) = (None, None);
                (self.copying, self.known) = (None, None);
                Ok(Done::LetGo)
            }
        }
    }

    fn freeze(&mut self) -> Result<(), String> {
        if self.frozen.is_none() {
            let known = self.known.as_ref().map(Known::watched).unwrap_or_default();
            self.frozen = Some(freeze(&self.pod, &known)?);
        }
        Ok(())
    }

    fn copy(&mut self, write: Write) -> Result<(), String> {
        let mut copying = Copying::begin(write, self.known.take())?;
        let was_frozen = self.frozen.is_some();
        if !was_frozen {
            self.frozen = Some(copying.copy(&self.pod)?);
        }
        self.copying = Some((copying, was_frozen));
        Ok(())
    }

    fn write(&mut self) -> Result<Done, String> {
        let (mut copying, was_frozen) = self.copying.take().ok_or("no image was begun")?;
        if !was_frozen && let Some(frozen) = self.frozen.take() {
            let (frozen, is_settled) = copying.settle(&self.pod, frozen)?;
            if !is_settled && let Some(pause) = copying.try_again() {
                frozen.thaw();
                self.copying = Some((copying, was_frozen));
                return Ok(Done::Unsettled(pause));
            }
            self.frozen = Some(frozen);
        }
        let stays_frozen = was_frozen || copying.stays_frozen();
        if stays_frozen {
            image::drain(&self.pod, &copying.streams())?;
        }
        let result = self.finish(copying, stays_frozen);
        if result.is_err() && !was_frozen {
            self.frozen = None;
        }
        result.map(Done::Written)
    }

    /// The pod has run since it was found to be [`Done::Unsettled`].
    fn freeze_again(&mut self, pause: Duration) -> Result<(), String> {
        std::thread::sleep(pause);
        let (copying, was_frozen) = self.copying.take().ok_or("no image was begun")?;
        self.frozen = Some(copying.freeze_again(&self.pod)?);
        self.copying = Some((copying, was_frozen));
        Ok(())
    }

    fn finish(&mut self, copying: Copying, stays_frozen: bool) -> Result<Checkpointed, String> {
        let frozen = self.frozen.as_mut().ok_or("nothing is frozen")?;
        let since = frozen.since();
        let copied = copying.dump(&self.pod, frozen)?;
        let mut lasted = None;
        if !stays_frozen {
            self.frozen = None;
            lasted = Some(milliseconds(since));
        }
        let (written, known) = copied.finish(lasted)?;
        self.known = known;
        Ok(written)
    }
}

/// Lets processes run that have been made.
fn go(restarted: Restarted) -> Result<(), String> {
    restarted.go().map_err(|error| image::told(&error))
}
