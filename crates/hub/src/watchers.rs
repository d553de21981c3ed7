//! Clients that are attached to a domain's command (`biv attach`), beside the session of `biv run`
//! that has started it: they receive its output, and what they type is its input, too.
//!
//! The guest acknowledges the input that its command takes, and does not tell whose it was. So the
//! domain remembers which client has sent how much, in order, and divides the acknowledgements in
//! that order.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use protocol::{Frame, PAYLOAD_MAX_BYTES, WINDOW_TO_GUEST_BYTES, Window};
use rustix::event::PollFlags;

use crate::attached::{ATTACHED_MAX, AttachedClient};

/// The sender of bytes to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The session that has started it.
    Session,
    /// One who watches, or who has sent it a signal.
    Other,
}

/// See above.
#[derive(Debug)]
pub struct Watchers {
    clients: Vec<AttachedClient>,
    /// What all of them together may have on its way.
    window: Window,
    /// The senders of bytes that the guest has not acknowledged, the oldest first.
    owed: VecDeque<(Sender, u32)>,
    /// Whose turn it is to be heard.
    turn: usize,
}

impl Default for Watchers {
    fn default() -> Watchers {
        let window = Window::new(WINDOW_TO_GUEST_BYTES);
        Watchers { clients: Vec::new(), window, owed: VecDeque::new(), turn: 0 }
    }
}

impl Watchers {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// Whether another may come.
    pub fn has_room(&self) -> bool {
        self.clients.len() < ATTACHED_MAX
    }

    /// Somebody comes.
    pub fn add(&mut self, client: AttachedClient) {
        self.clients.push(client);
    }

    /// What to poll of each, and its number.
    pub fn watched(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, PollFlags)> {
        self.clients.iter().enumerate().flat_map(|(number, client)| {
            client.watched().map(move |(fd, flags)| (number, fd, flags))
        })
    }

    /// Something may have come from one of them, or there may be room.
    pub fn carry(&mut self, number: usize) {
        if let Some(client) = self.clients.get_mut(number) {
            client.carry();
        }
    }

    /// The command has written something, or ended.
    pub fn show(&mut self, frame: &Frame) {
        for client in &mut self.clients {
            client.show(frame.clone());
            match frame {
                Frame::Exited(_) | Frame::Signaled(_) => client.leave(),
                _ => client.flush(),
            }
        }
    }

    /// The command has gone, however that came.
    pub fn dismiss(&mut self) {
        self.clients.iter_mut().for_each(AttachedClient::leave);
        self.owed.clear();
    }

    /// Those who have left are forgotten.
    pub fn sweep(&mut self) {
        self.clients.retain(|client| !client.is_gone());
    }

    /// The next frame for the command, if `line` has room for it.
    pub fn next_frame(&mut self, line: &mut Window) -> Option<Frame> {
        for _ in 0..self.clients.len() {
            self.turn = (self.turn + 1) % self.clients.len();
            let client = &mut self.clients[self.turn];
            if let Some(request) = client.take_request() {
                // Signals and sizes are few; what they take of the windows is given back.
                line.take(request.wire_bytes());
                self.window.take(request.wire_bytes());
                return Some(request);
            }
            let room = self.window.payload_room(0).min(line.payload_room(0));
            let count = room.min(client.typed().len()).min(PAYLOAD_MAX_BYTES);
            if count > 0 {
                let frame = Frame::Stdin(client.typed().drain(..count).collect());
                line.take(frame.wire_bytes());
                self.window.take(frame.wire_bytes());
                client.has_taken(count);
                return Some(frame);
            }
        }
        None
    }

    /// Somebody has sent so much to the command.
    pub fn note_sent(&mut self, sender: Sender, bytes: u32) {
        match self.owed.back_mut() {
            Some((last, owed)) if *last == sender => *owed = owed.saturating_add(bytes),
            _ => self.owed.push_back((sender, bytes)),
        }
    }

    /// The guest acknowledges so much; how much of it is the session's.
    pub fn share_out(&mut self, mut credit: u32) -> u32 {
        let mut of_session = 0;
        while let Some((sender, owed)) = self.owed.front_mut() {
            let part = credit.min(*owed);
            credit -= part;
            *owed -= part;
            match sender {
                Sender::Session => of_session += part,
                Sender::Other => self.window.give_back(part),
            }
            if *owed > 0 {
                return of_session;
            }
            self.owed.pop_front();
        }
        // What nobody has sent; whoever is told does not believe it.
        of_session.saturating_add(credit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_shared_out_in_order() {
        let mut watchers = Watchers::default();
        watchers.note_sent(Sender::Session, 100);
        watchers.note_sent(Sender::Session, 50);
        watchers.note_sent(Sender::Other, 30);
        watchers.note_sent(Sender::Session, 20);
        let check = |watchers: &mut Watchers, credit, expected| {
            assert_eq!(watchers.share_out(credit), expected);
        };
        check(&mut watchers, 140, 140);
        check(&mut watchers, 20, 10);
        check(&mut watchers, 25, 5);
        check(&mut watchers, 15, 15);
        assert!(watchers.owed.is_empty());
        check(&mut watchers, 7, 7);
    }
}
