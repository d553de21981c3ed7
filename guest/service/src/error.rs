//! Why the channel to the host ended before the command did.

use std::io;

use protocol::Frame;

/// Why the channel came to an end before the command did.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The line or a stream failed.
    #[error("guest channel: {0}")]
    Line(#[from] io::Error),
    /// The host sent what is no conversation.
    #[error(transparent)]
    Protocol(#[from] protocol::Error),
    /// The host's order makes no sense.
    #[error(transparent)]
    Order(#[from] protocol::OrderError),
    /// The host sent a frame that only a guest sends, or at the wrong time.
    #[error("the host sent a {0} frame out of turn")]
    OutOfTurn(&'static str),
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Error {
        Error::Line(error.into())
    }
}

/// What a frame is called where it does not belong.
pub fn name_of(frame: &Frame) -> &'static str {
    match frame {
        Frame::Order(_) => "Order",
        Frame::Start => "Start",
        Frame::Stdin(_) => "Stdin",
        Frame::StdinEnd => "StdinEnd",
        Frame::Signal(_) => "Signal",
        Frame::WindowSize { .. } => "WindowSize",
        Frame::Close => "Close",
        Frame::Terminate => "Terminate",
        Frame::Time(_) => "Time",
        Frame::Console(_) => "Console",
        Frame::Mounts(_) => "Mounts",
        Frame::Devices(_) => "Devices",
        Frame::Hostname(_) => "Hostname",
        Frame::Prepare => "Prepare",
        Frame::Seed(_) => "Seed",
        Frame::Synchronize => "Synchronize",
        Frame::Adopted => "Adopted",
        _ => "guest's",
    }
}
