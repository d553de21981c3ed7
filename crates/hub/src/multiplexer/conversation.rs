//! The state of the conversation with a guest, with which another hub goes on where a snapshot of
//! the machine goes on.
//!
//! The hub stops sending, and asks the guest's init to acknowledge that it has read everything.
//! Then nothing is on its way to the guest. The hub reads what is on its way from the guest while
//! the machine is paused, and keeps a frame that has come in part. Bytes for which the guest was
//! not given credit are owed to it: their port has taken them, or will never ask for them.

use std::collections::BTreeSet;

use host::poll::{PollFlags, look_at};
use protocol::{
    Encoder, FIRST, Frame, HEADER_BYTES, LINE, PAYLOAD_MAX_BYTES, Progress, SESSIONS_MAX,
    WINDOW_OF_PORT_BYTES, WINDOW_TO_GUEST_BYTES, WINDOW_TO_HOST_BYTES, Window,
};
use serde::{Deserialize, Serialize};

use super::process_one::ProcessOne;
use super::{Hub, Port, Stage};
use session::Line;

/// How far the conversation with a guest is, for a hub that goes on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// The number of the next frame to the guest.
    to_guest: u8,
    /// The number of the next frame from it, and what has come of that.
    from_guest: u8,
    received: Vec<u8>,
    /// Which of the lines to the guest it is had over.
    line: usize,
    /// The line's window, and what of it is free.
    window: (u32, u32),
    /// Whether the guest has been told what to mount.
    is_prepared: bool,
    /// The commands that run.
    commands: Vec<CommandState>,
    /// Whether the guest has a process 1 of its own, which runs.
    #[serde(default)]
    has_process_one: bool,
}

/// A command that runs, as its hub knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandState {
    session: u16,
    /// What of its window is free.
    window: u32,
    /// What it has said and was not yet given back.
    uncredited: u32,
}

impl Conversation {
    /// Whether the first command runs.
    #[must_use]
    pub fn has_command(&self) -> bool {
        self.commands.iter().any(|command| command.session == FIRST)
    }

    /// Whether a process 1 of the guest's own runs, and no first command.
    #[must_use]
    pub fn has_process_one(&self) -> bool {
        self.has_process_one
    }

    /// Whether there can be such a conversation: what a file says of one may be anything.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        let sessions = self.commands.iter().map(|command| command.session);
        let are_sessions =
            sessions.clone().all(|session| (FIRST..=SESSIONS_MAX).contains(&session));
        let different: BTreeSet<_> = sessions.collect();
        let windows = self.commands.iter().all(|command| {
            command.window <= WINDOW_TO_GUEST_BYTES && command.uncredited <= WINDOW_TO_HOST_BYTES
        });
        are_sessions
            && windows
            && !(self.has_process_one && self.has_command())
            && different.len() == self.commands.len()
            && self.window.0 <= WINDOW_OF_PORT_BYTES
            && self.window.1 <= self.window.0
            && self.received.len() < HEADER_BYTES + PAYLOAD_MAX_BYTES
    }

    /// What the first command may be given.
    #[must_use]
    pub fn window_of_first(&self) -> Window {
        let first = self.commands.iter().find(|command| command.session == FIRST);
        Window::with_left(WINDOW_TO_GUEST_BYTES, first.map_or(0, |first| first.window))
    }
}

impl Hub {
    /// The same for a guest that goes on from a snapshot, with which `conversation` was had. The seed is
    /// randomness that no other guest has. The port of the first command is connected next, if that runs;
    /// the others are hung up on.
    pub fn going_on(mut self, conversation: &Conversation, seed: [u8; 32]) -> Hub {
        self.encoder = Encoder::going_on(conversation.to_guest);
        let (sequence, received) = (conversation.from_guest, conversation.received.clone());
        self.lines.go_on(conversation.line, Progress { sequence, received });
        let (size, left) = conversation.window;
        self.window = Window::with_left(size.min(WINDOW_OF_PORT_BYTES), left);
        if conversation.has_process_one {
            self.go_on_with_process_one();
        }
        self.is_greeted = true;
        self.is_prepared = conversation.is_prepared;
        if conversation.is_prepared {
            self.preparing.clear();
            // Whoever sat at the console sits at that of another machine.
            self.preparing.push_back(Frame::Console(false));
        }
        self.preparing.push_front(Frame::Seed(seed.to_vec()));
        if let Some(time) = self.time_frame(true) {
            self.preparing.push_front(time);
        }
        for command in conversation.commands.iter().filter(|command| command.session != FIRST) {
            if let Ok((line, _)) = Line::pair() {
                self.ports.insert(command.session, Port::of_command(line, command));
                self.hang_up(command.session);
            }
        }
        self
    }

    /// Takes the port of the first command, which goes on running.
    pub fn connect_first(&mut self, line: Line, conversation: &Conversation) {
        let first = conversation.commands.iter().find(|command| command.session == FIRST);
        let Some(first) = first else { return };
        // It will be found closed if this fails.
        let _ = line.set_nonblocking();
        self.sessions += 1;
        self.ports.insert(FIRST, Port::of_command(line, first));
    }

    /// Say nothing to the guest until [`Self::speak_again`], once it has read what was said.
    pub fn fall_silent(&mut self) {
        self.is_silent = true;
        if self.is_up() {
            self.synchronize();
        }
    }

    /// Have init say when it has read this, and so has passed on what its commands had written before it did.
    pub fn ask_for_all(&mut self) {
        if self.is_up() && !self.is_silent {
            self.synchronize();
        }
    }

    /// Whether it has said so each time, or cannot.
    #[must_use]
    pub fn has_heard_all(&self) -> bool {
        !self.is_up() || self.unread == 0
    }

    /// Whether the guest's init is up and has read all that was said.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_silent && self.is_up() && self.unread == 0 && self.outgoing.is_empty()
    }

    /// The end of silence.
    pub fn speak_again(&mut self) {
        self.is_silent = false;
        self.send_what_fits();
    }

    /// How far the conversation is, while the hub is silent and the machine stands still.
    pub fn conversation(&mut self) -> Conversation {
        self.take_what_was_sent();
        let (line, Progress { sequence, received }) = self.lines.progress();
        let commands = self.ports.iter().filter(|(_, port)| port.stage != Stage::New);
        let state = |(&session, port): (&u16, &Port)| CommandState {
            session,
            // What waits was taken from the window, and is lost with the port.
            window: port.window.left() + port.waiting.iter().map(Frame::wire_bytes).sum::<u32>(),
            uncredited: port.uncredited,
        };
        Conversation {
            to_guest: self.encoder.sequence(),
            from_guest: sequence,
            received,
            line,
            window: (self.window.size(), self.window.left()),
            is_prepared: self.is_prepared,
            commands: commands.map(state).collect(),
            has_process_one: self.process_one.as_ref().is_some_and(ProcessOne::runs),
        }
    }

    /// Hear all that has left the machine.
    fn take_what_was_sent(&mut self) {
        // Over one line: the guest has chosen.
        while self.lines.chosen().is_some_and(has_something)
            && self.lines.receive(0).is_ok_and(|it| it)
        {
            if let Err(trouble) = self.hear_all(0) {
                self.lose_guest(Some(trouble));
            }
        }
    }

    /// Have the guest say when it has read everything so far.
    pub(super) fn synchronize(&mut self) {
        self.window.take(Frame::Synchronize.wire_bytes());
        self.put(LINE, &Frame::Synchronize);
        self.unread += 1;
        self.flush_guest();
    }
}

/// Whether something has come over a line.
fn has_something(line: &Line) -> bool {
    look_at(line.from(), PollFlags::IN).is_ok_and(|ready| !ready.is_empty())
}

impl Port {
    /// That of a command which runs already: it is owed what it has not been given back, and its port has
    /// been greeted.
    fn of_command(line: Line, command: &CommandState) -> Port {
        Port {
            window: Window::with_left(WINDOW_TO_GUEST_BYTES, command.window),
            credit: command.uncredited,
            uncredited: command.uncredited,
            stage: Stage::Known,
            ..Port::new(line, &[])
        }
    }
}
