//! A client, from its connection to its end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{DisconnectReason, GdbStub, GdbStubError, MultiThreadStopReason};
use host::poll::{PollFlags, Poller};

use crate::debuggee::{Debuggee, Refused};
use crate::target::Debugged;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 4096;

/// The longest packet, in bytes. gdb asks for less memory at once.
const PACKET_BYTES: usize = 16 << 10;

/// How a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client has left, or was lost, or has said what nobody should say.
    Left,
    /// The client wants the machine to end.
    Kill,
}

/// A connection.
pub trait Stream: Read + Write + AsFd {}

impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// One session, with what is to be looked at besides while it lasts.
pub struct Session<'a> {
    /// The client.
    pub stream: Box<dyn Stream>,
    /// What to do when this is readable: others who want to be served.
    pub others: Option<(BorrowedFd<'a>, &'a dyn Fn())>,
}

/// The client's end of the protocol. What is written leaves when a packet is whole.
struct Client<'a> {
    session: Session<'a>,
    received: Vec<u8>,
    /// How many of these have been taken.
    taken: usize,
    outgoing: Vec<u8>,
}

/// What has been waited for.
enum Event {
    Byte(u8),
    Stopped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Client,
    Machine,
    Others,
}

impl Session<'_> {
    /// Serve the client. The machine stands still from here on, goes on as the client says, and in the end in any
    /// case, with nothing left of the client's.
    pub fn serve(self, machine: &mut impl Debuggee) -> Ending {
        let served = catch_unwind(AssertUnwindSafe(|| converse(self, machine)));
        machine.leave();
        match served {
            Ok(Ok(ending)) => {
                if ending == Ending::Kill {
                    machine.kill();
                }
                ending
            }
            Ok(Err(error)) => {
                tracing::info!("the debugger is gone: {error}");
                Ending::Left
            }
            Err(_) => Ending::Left,
        }
    }
}

fn converse(
    session: Session<'_>,
    machine: &mut impl Debuggee,
) -> Result<Ending, GdbStubError<Refused, io::Error>> {
    let client = Client { session, received: Vec::new(), taken: 0, outgoing: Vec::new() };
    let mut target = Debugged::new(machine);
    let mut packet = vec![0; PACKET_BYTES];
    let stub = GdbStub::builder(client).with_packet_buffer(&mut packet);
    // It fails without a buffer.
    let Ok(stub) = stub.build() else { return Ok(Ending::Left) };
    let mut state = stub.run_state_machine(&mut target)?;
    let mut runs = false;
    loop {
        state = match state {
            GdbStubStateMachine::Idle(mut idle) => {
                runs = false;
                match idle.borrow_conn().next(None) {
                    Ok(Event::Byte(byte)) => idle.incoming_data(&mut target, byte)?,
                    Ok(Event::Stopped) => idle.into(),
                    Err(_) => return Ok(Ending::Left),
                }
            }
            GdbStubStateMachine::Running(mut running) => {
                runs = true;
                if target.has_stopped()
                    && let Some(reason) = target.stopped()
                {
                    running.report_stop(&mut target, reason)?
                } else {
                    match running.borrow_conn().next(Some(target.machine.event())) {
                        Ok(Event::Byte(byte)) => running.incoming_data(&mut target, byte)?,
                        Ok(Event::Stopped) => match target.stopped() {
                            Some(reason) => running.report_stop(&mut target, reason)?,
                            None => running.into(),
                        },
                        Err(_) => return Ok(Ending::Left),
                    }
                }
            }
            GdbStubStateMachine::CtrlCInterrupt(interrupted) => {
                // One that comes when the machine has just stopped is for a machine that runs.
                let reason: Option<MultiThreadStopReason<u64>> = runs.then(|| target.interrupt());
                interrupted.interrupt_handled(&mut target, reason)?
            }
            GdbStubStateMachine::Disconnected(gone) => {
                return Ok(match gone.get_reason() {
                    DisconnectReason::Kill => Ending::Kill,
                    _ => Ending::Left,
                });
            }
        };
    }
}

impl Client<'_> {
    /// Wait for a byte, or for the machine to stop.
    fn next(&mut self, stops: Option<BorrowedFd<'_>>) -> io::Result<Event> {
        loop {
            if let Some(&byte) = self.received.get(self.taken) {
                self.taken += 1;
                return Ok(Event::Byte(byte));
            }
            let ready = self.wait(stops)?;
            if ready.contains(&Source::Machine) {
                return Ok(Event::Stopped);
            }
            // Whoever comes when the client has left is not turned away.
            if ready.contains(&Source::Client) {
                self.receive()?;
            } else if let Some((_, refuse)) = self.session.others {
                refuse();
            }
        }
    }

    fn wait(&self, stops: Option<BorrowedFd<'_>>) -> io::Result<Vec<Source>> {
        let mut poller = Poller::new();
        poller.register(Source::Client, self.session.stream.as_fd(), PollFlags::IN);
        if let Some(stops) = stops {
            poller.register(Source::Machine, stops, PollFlags::IN);
        }
        if let Some((others, _)) = self.session.others {
            poller.register(Source::Others, others, PollFlags::IN);
        }
        poller.wait(None)?;
        Ok(poller.ready().map(|(source, _)| source).collect())
    }

    fn receive(&mut self) -> io::Result<()> {
        self.received.resize(PIECE_BYTES, 0);
        self.taken = 0;
        let length = self.session.stream.read(&mut self.received);
        self.received.truncate(*length.as_ref().unwrap_or(&0));
        match length? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl Connection for Client<'_> {
    type Error = io::Error;

    fn write(&mut self, byte: u8) -> io::Result<()> {
        self.write_all(&[byte])
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.outgoing.extend_from_slice(bytes);
        if self.outgoing.len() >= PACKET_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let sent = self.session.stream.write_all(&self.outgoing);
        self.outgoing.clear();
        sent
    }
}
