//! The hub between several who have commands run and a guest: honest ones, slow ones, broken ones.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hub::attached::AttachedClient;
use hub::{Hub, Place, Timekeeper};
use protocol::{
    Decoder, Encoder, FIRST, Frame, LINE, SESSIONS_MAX, Time, WINDOW_OF_SERIAL_BYTES,
    WINDOW_TO_GUEST_BYTES, hello,
};
use session::{Line, Trouble};

/// A clock that stands still.
#[derive(Debug)]
struct Noon;

impl Noon {
    fn always() -> Option<Box<dyn Timekeeper>> {
        Some(Box::new(Noon))
    }
}

impl Timekeeper for Noon {
    fn now(&self) -> Time {
        Time { realtime: 12 * 3600, counter: 1, frequency: 1_000_000_000, is_start: false }
    }
}

/// One end of something that speaks frames.
struct End {
    stream: UnixStream,
    encoder: Encoder,
    decoder: Decoder,
}

impl End {
    fn pair(decoder: Decoder) -> (Line, End) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let line = Line::of(theirs).unwrap();
        (line, End { stream: ours, encoder: Encoder::default(), decoder })
    }

    fn say(&mut self, session: u16, frame: &Frame) {
        let mut bytes = Vec::new();
        self.encoder.put_to(session, frame, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Says so much more than a window of a command's that somebody has to hang up; `turn` is called in between.
    fn say_too_much(&mut self, frame: impl Fn(Vec<u8>) -> Frame, mut turn: impl FnMut()) {
        for _ in 0..3 * WINDOW_TO_GUEST_BYTES / 4096 {
            let mut bytes = Vec::new();
            self.encoder.put_to(FIRST, &frame(vec![0; 4096]), &mut bytes);
            // It may have been hung up on.
            let _ = self.stream.write_all(&bytes);
            turn();
        }
    }

    /// What it has heard, and whether the other side has hung up.
    fn heard(&mut self) -> (Vec<(u16, Frame)>, bool) {
        let mut bytes = vec![0; 1 << 20];
        let mut is_over = false;
        loop {
            match self.stream.read(&mut bytes) {
                Ok(count @ 1..) => self.decoder.feed(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The end, or that the other side has hung up on what it was sent.
                Ok(_) | Err(_) => {
                    is_over = true;
                    break;
                }
            }
        }
        (std::iter::from_fn(|| self.decoder.next_of_any().unwrap()).collect(), is_over)
    }
}

/// A hub with a guest and some ports.
struct Bench {
    hub: Hub,
    guest: End,
    trouble: Trouble,
}

impl Bench {
    fn new() -> Bench {
        let (line, guest) = End::pair(Decoder::new());
        let trouble = Trouble::default();
        let hub = Hub::new(vec![line], Vec::new(), Noon::always(), trouble.clone());
        Bench { hub: hub.unwrap(), guest, trouble }
    }

    /// A guest that has greeted, and the first port, whose command runs.
    fn running() -> (Bench, End) {
        let mut bench = Bench::new();
        let mut first = bench.port();
        let mut greeting = Vec::new();
        hello(WINDOW_OF_SERIAL_BYTES, &mut bench.guest.encoder, &mut greeting);
        bench.guest.stream.write_all(&greeting).unwrap();
        bench.turn();
        bench.order(&mut first);
        let heard = bench.guest.heard().0.len();
        assert_eq!(heard, 4, "the time, that it is to prepare, an order and a start");
        bench.guest.say(FIRST, &Frame::Started);
        bench.turn();
        assert!(matches!(first.heard().0[..], [(LINE, Frame::Hello { .. }), (1, Frame::Started)]));
        (bench, first)
    }

    fn port(&mut self) -> End {
        let (line, end) = End::pair(Decoder::after_greeting());
        self.hub.connect(line, &[], &[]).expect("there is room");
        end
    }

    /// One who watches the first command, and has heard that it runs.
    fn watcher(&mut self) -> End {
        let (line, mut end) = End::pair(Decoder::after_greeting());
        self.hub.watch(AttachedClient::new(line, &[], &[]));
        self.turn();
        assert!(matches!(end.heard().0[..], [(LINE, Frame::Hello { .. }), (1, Frame::Started)]));
        end
    }

    fn order(&mut self, port: &mut End) {
        port.say(FIRST, &Frame::Order(b"order".to_vec()));
        port.say(FIRST, &Frame::Start);
        self.turn();
    }

    /// Lets the hub do what it can.
    fn turn(&mut self) {
        for _ in 0..32 {
            let mut places: Vec<Place> =
                self.hub.watched().into_iter().map(|(place, ..)| place).collect();
            places.dedup();
            self.hub.carry(&places);
        }
    }
}

#[test]
fn sessions_are_kept_apart() {
    let (mut bench, mut first) = Bench::running();
    let mut ports: Vec<End> = (0..3).map(|_| bench.port()).collect();
    for port in &mut ports {
        bench.order(port);
    }
    let heard = bench.guest.heard().0;
    let sessions: Vec<u16> = heard.iter().map(|(session, _)| *session).collect();
    assert_eq!(sessions, [2, 2, 3, 3, 4, 4]);
    bench.guest.say(3, &Frame::Stdout(b"for the second".to_vec()));
    bench.guest.say(4, &Frame::Exited(7));
    bench.turn();
    let frames = |port: &mut End| -> Vec<Frame> {
        port.heard().0.into_iter().map(|(_, frame)| frame).collect()
    };
    assert_eq!(frames(&mut ports[0]).len(), 1, "only the greeting");
    assert_eq!(frames(&mut ports[1])[1..], [Frame::Stdout(b"for the second".to_vec())]);
    let (last, is_over) = ports[2].heard();
    assert_eq!(last.last(), Some(&(1, Frame::Exited(7))));
    assert!(is_over, "the connection ends with the command");
    assert_eq!(first.heard().0, []);
    // The number is free again.
    let mut next = bench.port();
    bench.order(&mut next);
    assert_eq!(bench.guest.heard().0[0].0, 4);
}

/// A guest whose process 1 is its own, which runs; and where that was told.
fn whole_system() -> (Bench, UnixStream) {
    let (line, guest) = End::pair(Decoder::new());
    let trouble = Trouble::default();
    let needs = vec![Frame::Mounts(b"m".to_vec())];
    let hub = Hub::new(vec![line], needs, Noon::always(), trouble.clone()).unwrap();
    let (told, notice) = UnixStream::pair().unwrap();
    told.set_nonblocking(true).unwrap();
    let mut bench = Bench { hub: hub.with_process_one(b"order", Some(notice)), guest, trouble };
    bench.boot();
    (bench, told)
}

impl Bench {
    /// Init greets, is told everything, and an agent greets after it.
    fn boot(&mut self) {
        self.greet();
        let heard: Vec<_> = self.guest.heard().0;
        assert!(heard.iter().all(|(session, _)| *session == LINE));
        let heard: Vec<_> = heard.into_iter().skip(1).map(|(_, frame)| frame).collect();
        let (mounts, order) = (Frame::Mounts(b"m".to_vec()), Frame::Order(b"order".to_vec()));
        assert_eq!(heard, [mounts, order, Frame::Prepare, Frame::Start]);
        assert!(!self.hub.is_up() && !self.hub.has_started());
        // Nobody is there to hear anything.
        self.hub.set_attended(true);
        self.hub.tell_time(Instant::now() + Duration::from_secs(100));
        self.turn();
        assert_eq!(self.guest.heard().0, []);
        self.greet();
        assert!(matches!(
            self.guest.heard().0[..],
            [(LINE, Frame::Time(_)), (LINE, Frame::Console(true))]
        ));
        assert!(self.hub.is_up() && !self.hub.has_started());
    }

    /// Whoever is in the guest begins a conversation.
    fn greet(&mut self) {
        (self.guest.encoder, self.guest.decoder) = (Encoder::default(), Decoder::after_greeting());
        let mut greeting = Vec::new();
        hello(WINDOW_OF_SERIAL_BYTES, &mut self.guest.encoder, &mut greeting);
        self.guest.stream.write_all(&greeting).unwrap();
        self.turn();
    }
}

#[test]
fn commands_run_beside_a_process_1_of_the_guests_own() {
    let (mut bench, mut told) = whole_system();
    assert_eq!(told.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    bench.guest.say(LINE, &Frame::Started);
    bench.turn();
    assert!(bench.hub.has_started());
    assert_eq!(told.read(&mut [0]).unwrap(), 1);
    let mut port = bench.port();
    bench.order(&mut port);
    let sessions: Vec<u16> = bench.guest.heard().0.iter().map(|(session, _)| *session).collect();
    assert_eq!(sessions, [2, 2], "there is no first command");
    bench.guest.say(2, &Frame::Started);
    bench.guest.say(2, &Frame::Exited(3));
    bench.turn();
    assert_eq!(port.heard().0.last(), Some(&(1, Frame::Exited(3))));
    bench.hub.terminate();
    assert_eq!(bench.guest.heard().0, [(LINE, Frame::Terminate)]);

    // The machine reboots, in the middle of a command.
    let mut port = bench.port();
    bench.order(&mut port);
    bench.guest.heard();
    bench.hub.set_attended(false);
    bench.guest.heard();
    bench.boot();
    assert!(port.heard().1, "the command has gone with its system");
    bench.guest.say(LINE, &Frame::Started);
    bench.turn();
    assert!(bench.hub.has_started());
}

#[test]
fn a_process_1_that_cannot_run_is_trouble() {
    let (mut bench, mut told) = whole_system();
    bench.guest.say(LINE, &Frame::Unprepared(b"no such file".to_vec()));
    bench.turn();
    assert_eq!(bench.trouble.get().map(String::as_str), Some("no such file"));
    assert_eq!(told.read(&mut [0]).unwrap(), 0, "it is never told that it runs");
    assert!(bench.hub.connect(End::pair(Decoder::new()).0, &[], &[]).is_err());
}

#[test]
fn another_hub_goes_on_beside_a_process_1() {
    let (mut bench, _told) = whole_system();
    bench.guest.say(LINE, &Frame::Started);
    bench.turn();
    bench.hub.fall_silent();
    assert_eq!(bench.guest.heard().0, [(LINE, Frame::Synchronize)]);
    bench.guest.say(LINE, &Frame::Synchronized);
    bench.turn();
    let conversation = bench.hub.conversation();
    assert!(conversation.is_sane() && conversation.has_process_one());
    let (line, guest) =
        End::pair(Decoder::going_on(protocol::Progress { sequence: 3, received: Vec::new() }));
    let hub = Hub::new(vec![line], Vec::new(), Noon::always(), bench.trouble.clone()).unwrap();
    let hub = hub.with_process_one(b"order", None).going_on(&conversation, [0; 32]);
    let mut other = Bench { hub, guest, trouble: bench.trouble.clone() };
    other.guest.encoder = bench.guest.encoder;
    other.turn();
    let heard = other.guest.heard().0;
    assert!(
        matches!(heard[..], [(LINE, Frame::Time(_)), (LINE, Frame::Seed(_)), (LINE, _)]),
        "{heard:?}"
    );
    assert!(other.hub.has_started());
}

#[test]
fn what_is_said_before_the_guest_is_up_waits() {
    let mut bench = Bench::new();
    let mut first = bench.port();
    bench.order(&mut first);
    assert_eq!(bench.guest.heard().0, []);
    assert!(!bench.hub.is_up() && !bench.hub.has_started());
}

#[test]
fn nobody_says_more_than_the_guests_line_takes() {
    let (mut bench, _first) = Bench::running();
    let mut ports: Vec<End> = (0..8).map(|_| bench.port()).collect();
    for port in &mut ports {
        bench.order(port);
        for _ in 0..3 {
            port.say(FIRST, &Frame::Stdin(vec![0; 4096]));
        }
    }
    bench.turn();
    let mut sent: BTreeMap<u16, usize> = BTreeMap::new();
    let mut rounds = 0;
    loop {
        let heard = bench.guest.heard().0;
        let bytes: u32 = heard.iter().map(|(_, frame)| frame.wire_bytes()).sum();
        assert!(bytes <= WINDOW_OF_SERIAL_BYTES, "{bytes} at once");
        if bytes == 0 {
            break;
        }
        for (session, frame) in heard {
            if let Frame::Stdin(data) = frame {
                *sent.entry(session).or_default() += data.len();
            }
        }
        bench.guest.say(LINE, &Frame::Credit(bytes));
        bench.turn();
        rounds += 1;
        assert!(rounds < 100, "it never ends");
    }
    assert!(rounds > 1, "all of it went at once");
    assert_eq!(sent.len(), 8);
    assert!(sent.values().all(|&bytes| bytes == 3 * 4096), "{sent:?}");
}

#[test]
fn a_port_that_breaks_the_rules_ends_alone() {
    let check = |what: &str, act: &dyn Fn(&mut End, &mut Bench)| {
        let (mut bench, mut first) = Bench::running();
        let mut port = bench.port();
        bench.order(&mut port);
        bench.guest.heard();
        act(&mut port, &mut bench);
        bench.turn();
        // Whatever it has sent of use before, the guest hears that it is over.
        for _ in 0..4 {
            bench.guest.say(LINE, &Frame::Credit(WINDOW_OF_SERIAL_BYTES));
            bench.turn();
        }
        let heard = bench.guest.heard().0;
        assert_eq!(heard.last(), Some(&(2, Frame::Close)), "{what}");
        bench.guest.say(FIRST, &Frame::Stdout(b"still here".to_vec()));
        bench.turn();
        assert_eq!(first.heard(), (vec![(1, Frame::Stdout(b"still here".to_vec()))], false));
        // What its command still says is nobody's.
        bench.guest.say(2, &Frame::Stdout(b"late".to_vec()));
        bench.guest.say(2, &Frame::Signaled(1));
        bench.turn();
        assert_eq!(bench.hub.running(), 1, "{what}");
        assert_eq!(bench.trouble.get(), None, "{what}");
    };
    check("hangs up", &|port, _| port.stream.shutdown(std::net::Shutdown::Both).unwrap());
    check("speaks as a guest", &|port, _| port.say(FIRST, &Frame::Exited(0)));
    check("orders the line about", &|port, _| port.say(LINE, &Frame::Terminate));
    check("talks nonsense", &|port, _| port.stream.write_all(b"nonsense, and more").unwrap());
    check("does not keep to its window", &|port, bench| {
        port.say_too_much(Frame::Stdin, || bench.turn());
    });
}

#[test]
fn a_guest_that_lacks_what_it_needs_says_what() {
    let (mut bench, mut first) = Bench::running();
    bench.guest.say(LINE, &Frame::Unprepared(b"no \x1b[2Jdisk".to_vec()));
    bench.turn();
    assert_eq!(bench.trouble.get().map(String::as_str), Some("no \\u{1b}[2Jdisk"));
    assert!(first.heard().1, "nobody waits for its command");
}

#[test]
fn a_guest_that_breaks_the_rules_ends_all() {
    let check = |what: &str, act: &dyn Fn(&mut Bench)| {
        let (mut bench, mut first) = Bench::running();
        act(&mut bench);
        bench.turn();
        assert!(bench.trouble.get().is_some(), "{what} was accepted");
        let mut hears_the_end = |bench: &mut Bench| {
            let is_over = first.heard().1;
            bench.turn();
            is_over
        };
        assert!((0..20).any(|_| hears_the_end(&mut bench)), "{what}");
        assert!(bench.hub.connect(End::pair(Decoder::new()).0, &[], &[]).is_err());
    };
    check("a session that nobody has", &|bench| bench.guest.say(9, &Frame::Stdout(Vec::new())));
    check("a frame of a host", &|bench| bench.guest.say(FIRST, &Frame::Start));
    check("nonsense", &|bench| bench.guest.stream.write_all(&[0x55; 64]).unwrap());
    check("another greeting", &|bench| {
        bench.guest.say(LINE, &Frame::Hello { version: 2, window: 0 })
    });
    check("more than a window", &|Bench { hub, guest, .. }| {
        guest.say_too_much(Frame::Stdout, || turn(hub));
    });
}

#[test]
fn there_is_an_end_of_sessions() {
    let (mut bench, _first) = Bench::running();
    let ports: Vec<End> = (1..SESSIONS_MAX).map(|_| bench.port()).collect();
    assert!(!bench.hub.has_room());
    assert!(bench.hub.connect(End::pair(Decoder::new()).0, &[], &[]).is_err());
    drop(ports);
    bench.turn();
    assert!(bench.hub.has_room(), "who never ordered anything leaves nothing behind");
}

#[test]
fn a_guest_that_ends_gives_everybody_what_it_has_said() {
    let (mut bench, mut first) = Bench::running();
    bench.guest.say(FIRST, &Frame::Stdout(vec![b'x'; 4096]));
    bench.guest.say(FIRST, &Frame::Exited(0));
    let (line, other) = End::pair(Decoder::new());
    drop((line, std::mem::replace(&mut bench.guest, other)));
    bench.turn();
    let (frames, is_over) = first.heard();
    assert_eq!(frames.len(), 2);
    assert!(is_over);
    assert_eq!(bench.trouble.get(), None);
}

#[test]
fn who_watches_sees_what_the_command_writes_and_how_it_ends() {
    let (mut bench, mut first) = Bench::running();
    let (mut one, mut other) = (bench.watcher(), bench.watcher());
    bench.guest.say(FIRST, &Frame::Stdout(b"out".to_vec()));
    bench.guest.say(FIRST, &Frame::Stderr(b"err".to_vec()));
    bench.guest.say(FIRST, &Frame::Exited(7));
    bench.turn();
    let said = vec![
        (1, Frame::Stdout(b"out".to_vec())),
        (1, Frame::Stderr(b"err".to_vec())),
        (1, Frame::Exited(7)),
    ];
    assert_eq!(first.heard().0, said);
    assert_eq!(one.heard(), (said.clone(), true));
    assert_eq!(other.heard(), (said, true));
    assert!(bench.hub.watched().iter().all(|(place, ..)| *place == Place::Guest(0)));
}

#[test]
fn what_watchers_type_comes_beside_what_the_session_sends() {
    let (mut bench, mut first) = Bench::running();
    let mut watchers = [bench.watcher(), bench.watcher()];
    first.say(FIRST, &Frame::Stdin(vec![b'f'; 4096]));
    bench.turn();
    for watcher in &mut watchers {
        watcher.say(FIRST, &Frame::Stdin(b"w".to_vec()));
        watcher.say(FIRST, &Frame::Signal(2));
        // The command goes on without.
        watcher.say(FIRST, &Frame::StdinEnd);
    }
    bench.turn();
    let heard = bench.guest.heard().0;
    let count = |wanted: &Frame| heard.iter().filter(|(_, frame)| frame == wanted).count();
    assert_eq!(heard[0], (1, Frame::Stdin(vec![b'f'; 4096])));
    assert_eq!((count(&Frame::Stdin(b"w".to_vec())), count(&Frame::Signal(2))), (2, 2));
    assert_eq!(heard.len(), 5);
    // What is acknowledged is the session's as far as it has sent it.
    let sent = |frames: &[(u16, Frame)]| frames.iter().map(|(_, frame)| frame.wire_bytes()).sum();
    let all: u32 = sent(&heard);
    // With its order and its start.
    bench.guest.say(FIRST, &Frame::Credit(17 + all));
    bench.turn();
    assert_eq!(first.heard().0, [(1, Frame::Credit(17 + 4102))]);
}

#[test]
fn who_watches_and_does_not_listen_is_cut_off() {
    // More than is kept for one who watches (8 MiB), and than a connection holds.
    const PIECES: usize = 2500;
    let (mut bench, mut first) = Bench::running();
    let mut watcher = bench.watcher();
    let mut taken = 0;
    for _ in 0..PIECES {
        bench.guest.say(FIRST, &Frame::Stdout(vec![0; 4000]));
        bench.turn();
        taken += first.heard().0.len();
    }
    assert_eq!(taken, PIECES, "the session waits for nobody");
    assert!(watcher.heard().1, "it is still there");
    assert_eq!(bench.trouble.get(), None);
}

#[test]
fn a_watcher_that_breaks_the_rules_ends_alone() {
    let (mut bench, mut first) = Bench::running();
    let wrong = [Frame::Order(vec![1]), Frame::Start, Frame::Terminate, Frame::Exited(0)];
    for frame in wrong {
        let mut watcher = bench.watcher();
        watcher.say(FIRST, &frame);
        bench.turn();
        assert!(watcher.heard().1, "{frame:?} was accepted");
    }
    let mut watcher = bench.watcher();
    // What its command does not take is not acknowledged.
    watcher.say_too_much(Frame::Stdin, || bench.turn());
    assert!(watcher.heard().1, "more than a window was accepted");
    bench.guest.say(FIRST, &Frame::Stdout(b"still here".to_vec()));
    bench.turn();
    assert_eq!(first.heard(), (vec![(1, Frame::Stdout(b"still here".to_vec()))], false));
}

#[test]
fn the_guest_hears_whether_somebody_sits_at_the_console() {
    let mut bench = Bench::new();
    bench.hub.set_attended(true);
    let mut greeting = Vec::new();
    hello(WINDOW_OF_SERIAL_BYTES, &mut bench.guest.encoder, &mut greeting);
    bench.guest.stream.write_all(&greeting).unwrap();
    bench.turn();
    let heard = bench.guest.heard().0;
    assert_eq!(heard[1..], [(LINE, Frame::Prepare), (LINE, Frame::Console(true))]);
    bench.hub.set_attended(true);
    bench.hub.set_attended(false);
    bench.turn();
    assert_eq!(bench.guest.heard().0, [(LINE, Frame::Console(false))]);
}

/// What has come to the first command's port, and to the guest's end.
fn turn(hub: &mut Hub) {
    for _ in 0..4 {
        hub.carry(&[Place::Guest(0), Place::Port(FIRST)]);
    }
}

#[test]
fn another_hub_goes_on_with_the_conversation() {
    let (mut bench, mut first) = Bench::running();
    bench.guest.say(FIRST, &Frame::Stdout(b"before".to_vec()));
    bench.turn();
    first.say(FIRST, &Frame::Stdin(b"typed".to_vec()));
    bench.turn();
    bench.guest.heard();
    bench.hub.fall_silent();
    assert!(!bench.hub.is_silent(), "the guest has not read everything");
    assert_eq!(bench.guest.heard().0, [(LINE, Frame::Synchronize)]);
    bench.guest.say(LINE, &Frame::Synchronized);
    first.say(FIRST, &Frame::Stdin(b"not passed on".to_vec()));
    bench.turn();
    assert!(bench.hub.is_silent());
    assert!(bench.guest.heard().0.is_empty());
    // The guest is in the middle of a frame.
    let mut frame = Vec::new();
    bench.guest.encoder.put_to(FIRST, &Frame::Stdout(b"half and half".to_vec()), &mut frame);
    bench.guest.stream.write_all(&frame[..9]).unwrap();
    let conversation = bench.hub.conversation();
    assert!(conversation.has_command());
    // The one goes on,
    bench.hub.speak_again();
    assert_eq!(bench.guest.heard().0, [(1, Frame::Stdin(b"not passed on".to_vec()))]);
    // and so does the other.
    let Bench { guest, .. } = bench;
    let (line, end) = End::pair(guest.decoder);
    let mut guest = End { stream: end.stream, encoder: guest.encoder, decoder: Decoder::new() };
    let needs = vec![Frame::Mounts(b"mounts".to_vec())];
    let mut hub = Hub::new(vec![line], needs, Noon::always(), Trouble::default())
        .unwrap()
        .going_on(&conversation, [7; 32]);
    let (port, mut second) = End::pair(Decoder::new());
    hub.connect_first(port, &conversation);
    guest.decoder = Decoder::going_on(protocol::Progress {
        // The time, Prepare, an order, a start, what was typed, and Synchronize.
        sequence: 6,
        received: Vec::new(),
    });
    guest.stream.write_all(&frame[9..]).unwrap();
    turn(&mut hub);
    let heard = guest.heard().0;
    assert!(matches!(heard[0], (LINE, Frame::Time(time)) if time.is_start), "{heard:?}");
    assert_eq!(heard[1], (LINE, Frame::Seed(vec![7; 32])));
    // What the command has said is paid for: it was taken, or comes again.
    let owed: u32 = heard
        .iter()
        .filter_map(|(session, frame)| match frame {
            Frame::Credit(credit) if *session == FIRST => Some(*credit),
            _ => None,
        })
        .sum();
    assert_eq!(owed, Frame::Started.wire_bytes() + Frame::Stdout(b"before".to_vec()).wire_bytes());
    assert_eq!(second.heard().0, [(1, Frame::Stdout(b"half and half".to_vec()))]);
    second.say(FIRST, &Frame::Stdin(b"typed again".to_vec()));
    turn(&mut hub);
    assert_eq!(guest.heard().0, [(1, Frame::Stdin(b"typed again".to_vec()))]);
}

#[test]
fn the_guest_is_told_the_time_now_and_then() {
    let (mut bench, _first) = Bench::running();
    bench.guest.heard();
    let mut told = |at: Instant| {
        bench.hub.tell_time(at);
        bench.turn();
        let heard = bench.guest.heard().0;
        assert!(heard.len() <= 1, "{heard:?}");
        heard.first().is_some_and(|frame| {
            let (LINE, Frame::Time(time)) = frame else { return false };
            !time.is_start && time.at(time.counter).is_some()
        })
    };
    let now = Instant::now();
    assert!(!told(now), "it has just been told");
    // Seconds after which it is, and none between.
    let mut last = 10;
    for interval in [2, 4, 8, 16, 32, 64, 64, 64] {
        assert!(told(now + Duration::from_secs(last)), "{interval}");
        assert!(!told(now + Duration::from_secs(last + interval - 1)), "{interval}");
        last += interval;
    }
    // A hub that is silent says nothing of it, and goes on later.
    bench.hub.fall_silent();
    bench.turn();
    bench.guest.heard();
    bench.hub.tell_time(now + Duration::from_secs(last));
    bench.turn();
    assert_eq!(bench.guest.heard().0, []);
}

/// The guest's init speaks over one of its lines; who waits for it on the others waits in vain.
#[test]
fn the_guest_chooses_its_line() {
    for choice in [0, 1] {
        let (one, first) = End::pair(Decoder::new());
        let (other, second) = End::pair(Decoder::new());
        let time = Noon::always();
        let hub = Hub::new(vec![one, other], Vec::new(), time, Trouble::default()).unwrap();
        let (mut guest, mut unused) = if choice == 0 { (first, second) } else { (second, first) };
        let mut greeting = Vec::new();
        hello(WINDOW_OF_SERIAL_BYTES, &mut guest.encoder, &mut greeting);
        unused.stream.write_all(b"noise").unwrap();
        guest.stream.write_all(&greeting).unwrap();
        let mut bench = Bench { hub, guest, trouble: Trouble::default() };
        bench.turn();
        assert!(bench.hub.is_up());
        assert!(matches!(
            bench.guest.heard().0[..],
            [(LINE, Frame::Time(_)), (LINE, Frame::Prepare)]
        ));
        assert_eq!(unused.heard(), (vec![], true), "the line {choice} was chosen");
    }
}

/// A signal does not wait behind input that its command does not read.
#[test]
fn signals_pass_before_input_that_waits() {
    let (mut bench, mut first) = Bench::running();
    let piece = vec![0; 16 * 1024];
    for _ in 0..8 {
        first.say(FIRST, &Frame::Stdin(piece.clone()));
    }
    bench.turn();
    first.say(FIRST, &Frame::Signal(15));
    bench.turn();
    let is_signal = |(_, frame): &(u16, Frame)| matches!(frame, Frame::Signal(_));
    let heard = bench.guest.heard().0;
    assert!(heard.iter().any(is_signal), "there is room for it, though not for the next input");
    assert!(heard.len() < 9, "all of the input went at once");
}

/// The guest switches off when it knows that the end of its first command was heard.
#[test]
fn the_end_of_the_first_command_is_acknowledged() {
    let (mut bench, _first) = Bench::running();
    bench.guest.say(FIRST, &Frame::Exited(0));
    bench.turn();
    assert_eq!(bench.guest.heard().0, [(FIRST, Frame::Close)]);
}

/// One that is told no time is told none, and nobody is woken for that.
#[test]
fn who_has_the_hosts_clock_is_told_no_time() {
    let (line, guest) = End::pair(Decoder::new());
    let hub = Hub::new(vec![line], Vec::new(), None, Trouble::default()).unwrap();
    let mut bench = Bench { hub, guest, trouble: Trouble::default() };
    let mut greeting = Vec::new();
    hello(WINDOW_OF_SERIAL_BYTES, &mut bench.guest.encoder, &mut greeting);
    bench.guest.stream.write_all(&greeting).unwrap();
    bench.turn();
    assert_eq!(bench.guest.heard().0, [(LINE, Frame::Prepare)]);
    assert_eq!(bench.hub.deadline(), None);
    bench.hub.tell_time(Instant::now() + Duration::from_secs(1000));
    bench.turn();
    assert_eq!(bench.guest.heard().0, []);
}
