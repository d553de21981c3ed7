//! The process that reads the image which a pod goes on from.
//!
//! What is said between it and the keeper, and what each believes, is in [`checkpoint::reader`]. Here it is started,
//! confined, and ended.
//!
//! 1. *It is confined before it sees the first byte*: it has a list of system calls by which nothing can be opened,
//!    made, sent or signalled, no capabilities, and bounded memory. It is the first to go where the host has no
//!    memory left.
//! 2. *It has nothing*: no environment, no descriptors but its two lines, until the keeper sends it files that are open
//!    to be read. What it might say on standard error nobody hears.
//! 3. *It lasts no longer than it is needed*: it is killed when the image is dropped, when the pod ends, and by the
//!    kernel with the thread of the keeper that has started it.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use checkpoint::reader::Reader;
use checkpoint::{Error, Image, Parents};
use locks::Unpoisoned;
use rustix::process::Resource;
use rustix::stdio::{stdin, stdout};
use session::helper::{bound, helper};

use crate::image::words;
use crate::limits::{READER_MAX_ADDRESS_SPACE_BYTES, READER_MAX_DESCRIPTORS};

/// The kind of process that reads images.
pub const KIND: &str = "read-image";

/// Where the kernel is told who is to go first when memory is short (proc(5)), and that.
const SCORE: (&str, &str) = ("/proc/self/oom_score_adj", "1000");

/// The process, as the keeper has it.
#[derive(Debug)]
pub(crate) struct Process(Mutex<Option<Child>>);

impl Process {
    /// Ends it; what its status is, if that is not known yet.
    pub fn end(&self) -> Option<ExitStatus> {
        // Whoever comes second waits until it has been reaped: its number may be another's then.
        let mut place = self.0.lock().unpoisoned();
        let mut child = place.take()?;
        // It may have ended.
        let _ = child.kill();
        child.wait().ok()
    }
}

/// An image, and the process that reads it, which ends with it.
#[derive(Debug)]
pub struct Opened {
    image: Image,
    process: Arc<Process>,
}

impl Opened {
    /// The process that reads it.
    pub(crate) fn process(&self) -> Arc<Process> {
        Arc::clone(&self.process)
    }
}

impl Deref for Opened {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.image
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.process.end();
    }
}

/// Has an image read, with its parents. To be called by a thread that lasts as long as the image.
pub(crate) fn open(file: &File, parents: &mut dyn Parents) -> Result<Opened, String> {
    let failed = |error: io::Error| format!("cannot start the process that reads it: {error}");
    let (reader, process) = start().map_err(failed)?;
    match Image::open_by(reader, file, parents) {
        Ok(image) => Ok(Opened { image, process }),
        Err(error) => {
            let status = process.end().filter(|_| matches!(error, Error::Reader(_)));
            Err(status.map_or_else(|| words(&error), |status| format!("{error} ({status})")))
        }
    }
}

fn start() -> io::Result<(Reader, Arc<Process>)> {
    let (reader, ends) = Reader::new()?;
    let mut command = helper(KIND, &())?;
    command.stdin(ends.requests).stdout(ends.answers).stderr(Stdio::null());
    let child = command.spawn()?;
    Ok((reader, Arc::new(Process(Mutex::new(Some(child))))))
}

/// What that process does.
///
/// # Errors
///
/// It cannot be confined, or the host fails.
pub fn serve() -> io::Result<()> {
    host::inherited::close_marked();
    // It is for the host's sake: one that does not take it goes on.
    let _ = std::fs::write(SCORE.0, SCORE.1);
    bound(&[
        (Resource::As, READER_MAX_ADDRESS_SPACE_BYTES),
        (Resource::Nofile, READER_MAX_DESCRIPTORS),
        (Resource::Fsize, 0),
    ])?;
    host::privileges::drop_all()?;
    host::confine::confine_reader().map_err(io::Error::other)?;
    checkpoint::reader::serve(stdin(), stdout())
}
