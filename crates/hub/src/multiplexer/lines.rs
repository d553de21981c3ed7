//! The lines to a guest's init: a virtio port, and a serial line for kernels without a driver of
//! virtio ports. The hub reads all of them until the init has greeted on one.

use std::io;

use protocol::{Decoder, Error, Frame, Progress};

use session::Line;

/// What is read at once.
pub const READ_BYTES: usize = 64 * 1024;

/// See above.
#[derive(Debug)]
pub struct Lines {
    /// Each with what has come over it. Once one is chosen it is the only one.
    all: Vec<(Line, Decoder)>,
    /// Which of those that there were is chosen.
    choice: usize,
}

impl Lines {
    /// Of these the guest chooses.
    pub fn new(lines: Vec<Line>) -> io::Result<Lines> {
        lines.iter().try_for_each(Line::set_nonblocking)?;
        let all = lines.into_iter().map(|line| (line, Decoder::after_greeting())).collect();
        Ok(Lines { all, choice: 0 })
    }

    /// Has the guest greet again and again: its process 1 is replaced, and it reboots.
    pub fn expect_further_greetings(&mut self) {
        for (_, decoder) in &mut self.all {
            *decoder = std::mem::take(decoder).with_further_greetings();
        }
    }

    /// Whether the guest may be reached.
    pub fn are_open(&self) -> bool {
        !self.all.is_empty()
    }

    /// It is not, from here on.
    pub fn close(&mut self) {
        self.all.clear();
    }

    /// Each line with its number.
    pub fn all(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.all.iter().map(|(line, _)| line).enumerate()
    }

    /// The only one, once there is one.
    pub fn chosen(&self) -> Option<&Line> {
        self.all.first().map(|(line, _)| line)
    }

    /// This one is.
    pub fn choose(&mut self, number: usize) {
        if self.all.len() > 1 {
            self.all.swap(0, number);
            self.all.truncate(1);
            self.choice = number;
        }
    }

    /// Which line was chosen, and how far what comes over it is, for [`Self::go_on`].
    pub fn progress(&self) -> (usize, Progress) {
        let progress = self.all.first().map(|(_, decoder)| decoder.progress());
        (self.choice, progress.unwrap_or_default())
    }

    /// Goes on with a conversation that was had over the line of that number.
    pub fn go_on(&mut self, number: usize, from: Progress) {
        if number < self.all.len() {
            self.choose(number);
            self.all[0].1 = Decoder::going_on(from);
        }
    }

    /// Takes what has come over a line; `false` if that was its end, with which it is closed.
    pub fn receive(&mut self, number: usize) -> io::Result<bool> {
        let Some((line, decoder)) = self.all.get_mut(number) else { return Ok(false) };
        let mut buffer = [0; READ_BYTES];
        match line.receive(&mut buffer)? {
            Some(0) => {
                self.all.remove(number);
                return Ok(false);
            }
            count => decoder.feed(&buffer[..count.unwrap_or(0)]),
        }
        Ok(true)
    }

    /// The next frame that has come over a line, and its session.
    pub fn next_frame(&mut self, number: usize) -> Result<Option<(u16, Frame)>, Error> {
        self.all.get_mut(number).map_or(Ok(None), |(_, decoder)| decoder.next_of_any())
    }
}
