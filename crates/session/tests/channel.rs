//! The host's end of the channel against guests that are honest, slow, noisy or hostile.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use protocol::{
    CONTROL_RESERVE_BYTES, Decoder, Encoder, Frame, Order, WINDOW_TO_HOST_BYTES, hello,
};
use session::channel::Channel;
use session::{Ending, Error, Line, Link, Output, Outputs};

/// What these guests say of their line: less than the channel would use.
const WINDOW_BYTES: u32 = 16 * 1024;

/// A guest that does as a test says, at the other end of a channel.
struct Guest {
    line: UnixStream,
    encoder: Encoder,
    decoder: Decoder,
    channel: Channel,
    outputs: Outputs,
}

fn order() -> Order {
    Order { arguments: vec![b"cat".to_vec()], directory: b"/".to_vec(), ..Order::default() }
}

impl Guest {
    fn silent(order: &Order) -> Guest {
        let (ours, line) = UnixStream::pair().unwrap();
        line.set_nonblocking(true).unwrap();
        Guest {
            line,
            encoder: Encoder::default(),
            decoder: Decoder::new(),
            channel: Channel::new(Line::of(ours).unwrap(), order).unwrap(),
            outputs: Outputs::default(),
        }
    }

    /// A guest that has greeted and taken its order.
    fn running() -> Guest {
        let mut guest = Guest::silent(&order());
        guest.greet();
        guest.step().unwrap();
        let frames = guest.heard();
        assert!(matches!(frames[..], [Frame::Order(_), Frame::Start]), "{frames:?}");
        guest.say(&Frame::Started).unwrap();
        guest
    }

    fn greet(&mut self) {
        let mut bytes = Vec::new();
        hello(WINDOW_BYTES, &mut self.encoder, &mut bytes);
        self.line.write_all(&bytes).unwrap();
    }

    fn say(&mut self, frame: &Frame) -> Result<bool, Error> {
        let mut bytes = Vec::new();
        self.encoder.put(frame, &mut bytes);
        self.say_raw(&bytes)
    }

    fn say_raw(&mut self, mut bytes: &[u8]) -> Result<bool, Error> {
        let mut open = true;
        while !bytes.is_empty() {
            match self.line.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            open = self.step()?;
        }
        Ok(open)
    }

    /// Lets the host's end do what it can.
    fn step(&mut self) -> Result<bool, Error> {
        let mut open = true;
        for _ in 0..8 {
            open = self.channel.exchange(&mut self.outputs)?;
        }
        Ok(open)
    }

    /// What the host has said since the last time.
    fn heard(&mut self) -> Vec<Frame> {
        let mut bytes = vec![0; 1 << 20];
        if let Ok(count) = self.line.read(&mut bytes) {
            self.decoder.feed(&bytes[..count]);
        }
        std::iter::from_fn(|| self.decoder.next_frame().unwrap()).collect()
    }
}

#[test]
fn nothing_is_said_before_the_guest_has_greeted() {
    let mut guest = Guest::silent(&order());
    assert_eq!(guest.channel.room(), 0);
    assert!(!guest.channel.signal(2), "there is no command yet");
    guest.step().unwrap();
    assert_eq!(guest.heard(), []);
    assert!(!guest.channel.is_greeted());
}

#[test]
fn a_long_order_goes_in_parts_that_fit_the_window() {
    let long = Order { arguments: vec![vec![b'x'; 100_000]], ..order() };
    let mut guest = Guest::silent(&long);
    guest.greet();
    let mut encoded = Vec::new();
    'order: loop {
        guest.step().unwrap();
        let frames = guest.heard();
        let bytes: u32 = frames.iter().map(Frame::wire_bytes).sum();
        assert!(bytes > 0 && bytes <= WINDOW_BYTES);
        for frame in frames {
            match frame {
                Frame::Order(part) => encoded.extend(part),
                Frame::Start => break 'order,
                other => panic!("{other:?}"),
            }
        }
        guest.say(&Frame::Credit(bytes)).unwrap();
    }
    assert_eq!(Order::decode(&encoded).unwrap(), long);
}

#[test]
fn input_stops_at_the_window_and_control_does_not() {
    let mut guest = Guest::running();
    guest.heard();
    let mut sent = 0;
    while guest.channel.room() > 0 {
        let room = guest.channel.room();
        guest.channel.input(&vec![b'x'; room]);
        sent += room;
    }
    assert!(sent as u32 <= WINDOW_BYTES - CONTROL_RESERVE_BYTES);
    assert!(guest.channel.signal(15));
    guest.channel.resize(50, 132);
    guest.channel.end_of_input();
    guest.step().unwrap();
    let frames = guest.heard();
    let control = &frames[frames.len() - 3..];
    let size = Frame::WindowSize { rows: 50, columns: 132 };
    assert_eq!(control, [Frame::Signal(15), size, Frame::StdinEnd]);
    guest.say(&Frame::Credit(8192)).unwrap();
    assert!(guest.channel.room() > 0);
}

#[test]
fn a_flood_of_signals_and_sizes_stays_within_the_window() {
    let mut guest = Guest::running();
    for rows in 0..10_000 {
        guest.channel.signal(28);
        guest.channel.resize(rows, 80);
    }
    guest.step().unwrap();
    let bytes: u32 = guest.heard().iter().map(Frame::wire_bytes).sum();
    assert!(bytes <= WINDOW_BYTES);
    guest.say(&Frame::Credit(bytes)).unwrap();
    let last = Frame::WindowSize { rows: 9999, columns: 80 };
    assert!(guest.heard().contains(&last), "the last size gets through");
}

#[test]
fn streams_arrive_apart_and_are_acknowledged_when_delivered() {
    let mut guest = Guest::running();
    let data = vec![0xff; 4096];
    for _ in 0..9 {
        guest.say(&Frame::Stdout(data.clone())).unwrap();
    }
    guest.say(&Frame::Stderr(b"oops".to_vec())).unwrap();
    assert_eq!(guest.outputs.stdout.pending(), 9 * 4096);
    assert_eq!(guest.outputs.stderr.pending(), 4);
    assert_eq!(guest.heard(), [], "nothing is acknowledged before the user has it");
    guest.channel.delivered(9 * 4096);
    guest.step().unwrap();
    let frames = guest.heard();
    assert!(matches!(frames[..], [Frame::Credit(credit)] if credit >= 9 * 4096), "{frames:?}");
}

#[test]
fn endings_are_told() {
    for (frame, expected) in [
        (Frame::Exited(0), Ending::Exited(0)),
        (Frame::Exited(255), Ending::Exited(255)),
        (Frame::Signaled(9), Ending::Signaled(9)),
    ] {
        let mut guest = Guest::running();
        assert_eq!(guest.channel.ending(), None);
        guest.say(&frame).unwrap();
        assert_eq!(guest.channel.ending(), Some(expected));
    }
}

#[test]
fn a_guest_that_goes_away_is_noticed() {
    let mut guest = Guest::running();
    drop(std::mem::replace(&mut guest.line, UnixStream::pair().unwrap().0));
    assert!(!guest.channel.exchange(&mut guest.outputs).unwrap());
}

#[test]
fn nonsense_ends_the_conversation() {
    type Say = fn(&mut Guest) -> Result<bool, Error>;
    type Expected = fn(&Error) -> bool;
    let cases: [(Say, Expected); 5] = [
        (|guest| guest.say(&Frame::Start), |error| matches!(error, Error::OutOfTurn)),
        (
            |guest| guest.say(&Frame::Hello { version: protocol::VERSION, window: 4096 }),
            |error| matches!(error, Error::OutOfTurn),
        ),
        (
            |guest| guest.say_raw(&[0x99, 3, 0, 0, 1, 0]),
            |error| matches!(error, Error::Protocol(_)),
        ),
        (
            |guest| guest.say_raw(&[0x82, 2, 0xff, 0xff, 1, 0]),
            |error| matches!(error, Error::Protocol(_)),
        ),
        (
            |guest| {
                let frame = Frame::Stdout(vec![0; 4096]);
                (0..=2 * WINDOW_TO_HOST_BYTES / 4096)
                    .try_for_each(|_| guest.say(&frame).map(drop))?;
                Ok(true)
            },
            |error| matches!(error, Error::OutOfTurn),
        ),
    ];
    for (number, (say, is_expected)) in cases.into_iter().enumerate() {
        let mut guest = Guest::running();
        let error = say(&mut guest).expect_err("accepted");
        assert!(is_expected(&error), "case {number}: {error:?}");
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn output_to_a_closed_pipe_is_dropped() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // Leaked, because an output belongs to the whole process.
    let writer: &'static std::io::PipeWriter = Box::leak(Box::new(writer));
    let mut output = Output::new("standard output", writer.as_fd());
    output.queue(&[0; 10_000]);
    assert_eq!(output.give().unwrap(), 10_000);
    assert!(output.is_closed() && !output.is_pending());
}

#[test]
fn output_to_a_full_pipe_does_not_block() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer: &'static std::io::PipeWriter = Box::leak(Box::new(writer));
    let mut output = Output::new("standard output", writer.as_fd());
    let data: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
    output.queue(&data);
    let first = output.give().unwrap();
    assert!(first > 0 && first < data.len());
    let mut received = vec![0; data.len()];
    let mut at = 0;
    while at < data.len() {
        at += reader.read(&mut received[at..]).unwrap();
        output.give().unwrap();
    }
    assert_eq!(received, data);
}
