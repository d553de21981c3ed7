//! The protocol as both ends use it, and what hostile bytes do to it.

use protocol::copy::{Copy, Name};
use protocol::{
    Decoder, Encoder, Error, Frame, MAGIC, NOISE_MAX_BYTES, Order, OrderError, Output,
    PAYLOAD_MAX_BYTES, Receipts, Streams, WINDOW_TO_GUEST_BYTES, Window, hello,
};

fn every_frame() -> Vec<Frame> {
    vec![
        Frame::Hello { version: protocol::VERSION, window: 4096 },
        Frame::Order(b"part".to_vec()),
        Frame::Start,
        Frame::Started,
        Frame::Stdin((0..=255).collect()),
        Frame::StdinEnd,
        Frame::Signal(15),
        Frame::WindowSize { rows: 24, columns: 0x1234 },
        Frame::Stdout(vec![0; PAYLOAD_MAX_BYTES]),
        Frame::Stderr(Vec::new()),
        Frame::Exited(255),
        Frame::Signaled(9),
        Frame::Credit(0xdead_beef),
        Frame::Close,
        Frame::Terminate,
        Frame::Time(protocol::Time {
            realtime: 1_700_000_000_000_000_000,
            counter: 1 << 60,
            frequency: 2_500_000_000,
            is_start: true,
        }),
        Frame::Console(true),
        Frame::Devices(vec![2, 1, 0]),
        Frame::Hostname(b"web".to_vec()),
        Frame::Unprepared(b"no disk".to_vec()),
        Frame::Streams(Streams { process: 9, pipes: [1, u64::MAX, 0], terminal: Some(7) }),
        Frame::Streams(Streams::default()),
        Frame::Adopted,
    ]
}

fn encode(frames: &[Frame]) -> Vec<u8> {
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    for frame in frames {
        encoder.put(frame, &mut bytes);
    }
    bytes
}

/// Feeds `bytes` in pieces of `piece` bytes and collects what comes out.
fn decode(mut decoder: Decoder, bytes: &[u8], piece: usize) -> Result<Vec<Frame>, Error> {
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.feed(piece);
        while let Some(frame) = decoder.next_frame()? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// A generator for hostile bytes (xorshift64*), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[test]
fn every_frame_survives_any_fragmentation() {
    let bytes = encode(&every_frame());
    for piece in [1, 2, 3, 5, 16, 4096, bytes.len()] {
        assert_eq!(decode(Decoder::new(), &bytes, piece).unwrap(), every_frame(), "by {piece}");
    }
}

#[test]
fn what_is_read_into_a_frame_is_as_if_it_had_been_put() {
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    let fill = |count: usize| {
        move |buffer: &mut [u8]| {
            buffer[..count].fill(b'x');
            Ok::<_, ()>(count)
        }
    };
    assert_eq!(encoder.read_to((1, Output::Stdout), &mut bytes, 10, fill(3)), Ok(3));
    assert_eq!(encoder.read_to((1, Output::Stdout), &mut bytes, 10, fill(0)), Ok(0));
    assert_eq!(encoder.read_to((1, Output::Stderr), &mut bytes, 10, |_| Err(7)), Err(7));
    assert_eq!(
        encoder.read_to((1, Output::Stderr), &mut bytes, 1 << 20, |it| Ok::<_, ()>(it.len())),
        Ok(PAYLOAD_MAX_BYTES)
    );
    let expected = [Frame::Stdout(b"xxx".to_vec()), Frame::Stderr(vec![0; PAYLOAD_MAX_BYTES])];
    assert_eq!(bytes, encode(&expected));
}

#[test]
fn frames_keep_their_session() {
    let (mut encoder, mut decoder, mut bytes) = (Encoder::default(), Decoder::new(), Vec::new());
    let sessions = [0, 1, 2, 0xff, 0x100, u16::MAX];
    for session in sessions {
        encoder.put_to(session, &Frame::Stdin(b"x".to_vec()), &mut bytes);
    }
    decoder.feed(&bytes);
    let heard = std::iter::from_fn(|| decoder.next_of_any().unwrap());
    assert_eq!(heard.map(|(session, _)| session).collect::<Vec<_>>(), sessions);
}

#[test]
fn wire_bytes_is_what_is_written() {
    for frame in every_frame() {
        assert_eq!(encode(std::slice::from_ref(&frame)).len(), frame.wire_bytes() as usize);
    }
}

#[test]
fn sequence_numbers_wrap() {
    let frames = vec![Frame::Start; 1000];
    assert_eq!(decode(Decoder::new(), &encode(&frames), 7).unwrap(), frames);
}

#[test]
fn a_lost_frame_is_noticed() {
    let bytes = encode(&[Frame::Start, Frame::Started, Frame::StdinEnd]);
    let mut with_gap = bytes[..6].to_vec();
    with_gap.extend_from_slice(&bytes[12..]);
    assert_eq!(
        decode(Decoder::new(), &with_gap, 64),
        Err(Error::Sequence { expected: 1, found: 2 })
    );
}

#[test]
fn the_greeting_is_found_behind_noise() {
    let (mut encoder, mut bytes) = (Encoder::default(), b"login: \x02BIV \x02\x02".to_vec());
    hello(4096, &mut encoder, &mut bytes);
    encoder.put(&Frame::Started, &mut bytes);
    let expected = vec![Frame::Hello { version: protocol::VERSION, window: 4096 }, Frame::Started];
    for piece in [1, 4, 9, 100] {
        assert_eq!(decode(Decoder::after_greeting(), &bytes, piece).unwrap(), expected);
    }
}

#[test]
fn a_conversation_begins_anew_where_that_is_expected() {
    let one = encode(&[Frame::Started, Frame::Synchronized]);
    let mut bytes = one.clone();
    bytes.extend(MAGIC);
    bytes.extend(&one);
    let expected = [Frame::Started, Frame::Synchronized, Frame::Started, Frame::Synchronized];
    for piece in 1..bytes.len() {
        let decoder = Decoder::new().with_further_greetings();
        assert_eq!(decode(decoder, &bytes, piece).unwrap(), expected, "{piece}");
        assert!(decode(Decoder::new(), &bytes, piece).is_err(), "{piece}");
    }
    // What only begins like a greeting is a frame that is out of sequence.
    let mut other = one.clone();
    other.extend([MAGIC[0], 0, 0, 0, 0, 0]);
    assert!(decode(Decoder::new().with_further_greetings(), &other, 1).is_err());
}

#[test]
fn endless_noise_is_refused() {
    let noise = vec![b'x'; NOISE_MAX_BYTES + 2 * MAGIC.len()];
    assert_eq!(decode(Decoder::after_greeting(), &noise, 100), Err(Error::NoGreeting));
}

#[test]
fn another_version_is_refused() {
    let bytes = encode(&[Frame::Hello { version: 77, window: 0 }]);
    assert_eq!(decode(Decoder::new(), &bytes, 64), Err(Error::Version(77)));
    // One that says less, as version 4 did, or more; and one of ours that is cut short.
    assert_eq!(decode(Decoder::new(), &[0x80, 0, 2, 0, 0, 0, 4, 0], 64), Err(Error::Version(4)));
    let short = [0x80, 0, 2, 0, 0, 0, protocol::VERSION as u8, 0];
    assert_eq!(decode(Decoder::new(), &short, 64), Err(Error::Length { kind: 0x80, length: 2 }));
}

#[test]
fn impossible_frames_are_refused() {
    let check = |bytes: &[u8], expected| {
        assert_eq!(decode(Decoder::new(), bytes, 64), Err(expected), "{bytes:?}");
    };
    check(&[0x7f, 0, 0, 0, 0, 0], Error::Kind(0x7f));
    check(&[0x03, 0, 0xff, 0xff, 0, 0], Error::Length { kind: 3, length: 0xffff });
    check(&[0x02, 0, 1, 0, 0, 0, 0], Error::Length { kind: 2, length: 1 });
    check(&[0x06, 0, 3, 0, 0, 0, 1, 2, 3], Error::Length { kind: 6, length: 3 });
    check(&[0x00, 0, 0, 0, 0, 0], Error::Length { kind: 0, length: 0 });
    check(&[0x84, 0, 2, 0, 0, 0, 0, 0], Error::Length { kind: 0x84, length: 2 });
}

#[test]
fn hostile_bytes_never_panic_and_never_pile_up() {
    let mut random = Random(0x1bad_b002);
    for round in 0..20_000 {
        let mut bytes = encode(&every_frame()[..(round % 8) + 1]);
        for _ in 0..random.next() % 4 {
            let at = random.next() as usize % bytes.len();
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(random.next() as usize % bytes.len() + 1);
        let piece = random.next() as usize % 64 + 1;
        if let Ok(frames) = decode(Decoder::new(), &bytes, piece) {
            assert!(encode(&frames).len() <= bytes.len());
        }
    }
}

fn order() -> Order {
    Order {
        arguments: vec![b"sh".to_vec(), b"-c".to_vec(), b"\xff\xfe\n".to_vec(), Vec::new()],
        environment: vec![b"PATH=/bin".to_vec()],
        directory: b"/".to_vec(),
        user: b"nobody".to_vec(),
        groups: Some(vec![4, 0x1234_5678]),
        terminal: Some((24, 80)),
        is_own: true,
        closed: [true, false, true],
        joins_streams: true,
        is_adopted: true,
    }
}

#[test]
fn an_order_survives() {
    for (terminal, groups) in [(None, None), (Some((0, 65535)), Some(vec![u32::MAX, 0]))] {
        let order = Order { terminal, groups, ..order() };
        assert_eq!(Order::decode(&order.encode().unwrap()), Ok(order));
    }
}

#[test]
fn what_init_does_itself_survives() {
    let (path, name) = (b"/tmp/\xff".to_vec(), b"name".to_vec());
    let mut all = Vec::new();
    for is_set in [false, true] {
        all.push(Copy::Out { path: path.clone(), follows_link: is_set });
        for name in [Name::AsItIs, Name::Copy(name.clone()), Name::Contents] {
            all.push(Copy::In { path: path.clone(), name, keeps_owners: is_set });
        }
    }
    for copy in all {
        let mut arguments = copy.clone().into_arguments();
        assert_eq!(Copy::from_arguments(&arguments), Some(copy));
        arguments.pop();
        assert_eq!(Copy::from_arguments(&arguments), None);
    }
    assert_eq!(Copy::from_arguments(&[]), None);
}

#[test]
fn bad_orders_are_refused() {
    let bytes = order().encode().unwrap();
    for end in 0..bytes.len() {
        assert_eq!(Order::decode(&bytes[..end]), Err(OrderError::Short), "cut at {end}");
    }
    let mut long = bytes.clone();
    long.push(0);
    assert_eq!(Order::decode(&long), Err(OrderError::Long));
    let nothing = Order { arguments: Vec::new(), ..order() };
    assert_eq!(Order::decode(&nothing.encode().unwrap()), Err(OrderError::NoProgram));
    let nul = Order { arguments: vec![b"a\0b".to_vec()], ..order() };
    assert_eq!(Order::decode(&nul.encode().unwrap()), Err(OrderError::NoProgram));
    let huge = Order { arguments: vec![vec![b'x'; protocol::ORDER_MAX_BYTES]], ..order() };
    assert_eq!(huge.encode(), Err(OrderError::TooLarge));
}

#[test]
fn hostile_orders_never_panic() {
    let mut random = Random(42);
    let good = order().encode().unwrap();
    for _ in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..random.next() % 5 {
            let at = random.next() as usize % bytes.len();
            bytes[at] = random.next() as u8;
        }
        if let Ok(order) = Order::decode(&bytes) {
            assert!(!order.arguments.is_empty());
        }
    }
}

#[test]
fn a_window_never_gives_more_than_it_has() {
    let mut window = Window::new(WINDOW_TO_GUEST_BYTES);
    let mut sent = 0;
    loop {
        let room = window.payload_room(protocol::CONTROL_RESERVE_BYTES);
        if room == 0 {
            break;
        }
        let frame = Frame::Stdin(vec![0; room]);
        assert!(window.take(frame.wire_bytes()));
        sent += frame.wire_bytes();
    }
    assert_eq!(sent, WINDOW_TO_GUEST_BYTES - protocol::CONTROL_RESERVE_BYTES);
    assert!(window.take(Frame::Signal(2).wire_bytes()), "control still fits");
    window.give_back(u32::MAX);
    assert!(!window.take(WINDOW_TO_GUEST_BYTES + 1), "credit that was never lent is not believed");
    assert!(window.take(WINDOW_TO_GUEST_BYTES));
}

#[test]
fn receipts_come_by_the_quarter() {
    let mut receipts = Receipts::new(400);
    assert_eq!(receipts.add(60), None);
    assert_eq!(receipts.add(60), Some(120));
    assert_eq!(receipts.add(99), None);
}
