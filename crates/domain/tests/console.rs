//! A domain's console between a machine and those who sit at it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use domain::console::{Console, Place};
use protocol::{Decoder, Encoder, FIRST, Frame};
use session::Line;

/// One end of a line of bytes.
fn line() -> (Line, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Line::of(theirs).unwrap(), ours)
}

/// What has come, and whether that was all.
fn read(mut stream: &UnixStream) -> (Vec<u8>, bool) {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
    while let Ok(count) = stream.read(&mut buffer) {
        all.extend(&buffer[..count]);
        if count == 0 {
            return (all, true);
        }
    }
    (all, false)
}

/// Lets the console do what it can.
fn turn(console: &mut Console) {
    for _ in 0..32 {
        let places: Vec<Place> = console.watched().iter().map(|(place, ..)| *place).collect();
        console.carry(&places);
    }
}

/// Somebody at the console.
struct Sitter {
    stream: UnixStream,
    encoder: Encoder,
    decoder: Decoder,
}

impl Sitter {
    fn sit_down(console: &mut Console) -> Sitter {
        let (line, stream) = line();
        console.connect(line, &[], &[]);
        Sitter { stream, encoder: Encoder::default(), decoder: Decoder::after_greeting() }
    }

    fn say(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        self.encoder.put_to(FIRST, frame, &mut bytes);
        // It may have been cut off.
        let _ = self.stream.write_all(&bytes);
    }

    /// What the console has shown, and whether it is over.
    fn seen(&mut self) -> (Vec<u8>, bool) {
        let (bytes, is_over) = read(&self.stream);
        self.decoder.feed(&bytes);
        let mut shown = Vec::new();
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            if let Frame::Stdout(bytes) = frame {
                shown.extend(bytes);
            }
        }
        (shown, is_over)
    }
}

#[test]
fn all_see_what_is_shown_and_all_may_type() {
    let (machine, mut guest) = line();
    let mut console = Console::new(machine, None).unwrap();
    guest.write_all(b"login: ").unwrap();
    turn(&mut console);
    let mut sitters = [Sitter::sit_down(&mut console), Sitter::sit_down(&mut console)];
    assert_eq!(console.attendance(), 2);
    for (number, sitter) in sitters.iter_mut().enumerate() {
        assert_eq!(sitter.seen().0, b"login: ", "what was shown before");
        sitter.say(&Frame::Stdin(vec![b'0' + number as u8]));
        sitter.say(&Frame::WindowSize { rows: 24 + number as u16, columns: 80 });
    }
    turn(&mut console);
    assert_eq!(read(&guest).0, b"01");
    assert_eq!((console.take_size(), console.take_size()), (Some((25, 80)), None));
    guest.write_all(b"password: ").unwrap();
    turn(&mut console);
    for sitter in &mut sitters {
        assert_eq!(sitter.seen(), (b"password: ".to_vec(), false));
    }
    drop(sitters);
    turn(&mut console);
    assert_eq!(console.attendance(), 0);
}

#[test]
fn what_was_shown_is_kept_up_to_a_limit() {
    let (machine, mut guest) = line();
    let mut console = Console::new(machine, None).unwrap();
    for number in 0..10_000 {
        guest.write_all(format!("{number}\n").as_bytes()).unwrap();
        turn(&mut console);
    }
    let (shown, _) = Sitter::sit_down(&mut console).seen();
    assert!(shown.ends_with(b"9998\n9999\n") && shown.len() == 16 << 10, "{}", shown.len());
}

#[test]
fn who_does_not_look_is_cut_off_and_who_breaks_the_rules() {
    let (machine, mut guest) = line();
    let mut console = Console::new(machine, None).unwrap();
    let mut slow = Sitter::sit_down(&mut console);
    let mut wrong = Sitter::sit_down(&mut console);
    let mut quick = Sitter::sit_down(&mut console);
    wrong.say(&Frame::Terminate);
    let mut seen = 0;
    for _ in 0..3000 {
        guest.write_all(&[b'x'; 4000]).unwrap();
        turn(&mut console);
        let now = quick.seen().0.len();
        quick.say(&Frame::Credit(now as u32 + 12));
        seen += now;
    }
    turn(&mut console);
    seen += quick.seen().0.len();
    assert_eq!(seen, 3000 * 4000);
    assert!(slow.seen().1 && wrong.seen().1 && !quick.seen().1);
}

#[test]
fn a_machine_that_does_not_read_makes_nobody_wait() {
    let (machine, guest) = line();
    let mut console = Console::new(machine, None).unwrap();
    let mut sitters = [Sitter::sit_down(&mut console), Sitter::sit_down(&mut console)];
    for _ in 0..400 {
        // More than its window, so that it is cut off.
        sitters[0].say(&Frame::Stdin(vec![b'x'; 4096]));
        turn(&mut console);
    }
    assert!(sitters[0].seen().1, "more was taken than there is room for");
    assert!(!sitters[1].seen().1);
    drop(guest);
    turn(&mut console);
    assert!(sitters[1].seen().1, "the console is no more");
}

#[test]
fn the_streams_of_a_plain_machine_lose_nothing() {
    let ((machine, mut guest), (streams, session)) = (line(), line());
    let mut console = Console::new(machine, None).unwrap().with_streams(streams).unwrap();
    let mut sitter = Sitter::sit_down(&mut console);
    let (mut sent, mut received) = (0, 0);
    // The session does not read: soon the machine has to wait.
    while guest.write_all(&[b'x'; 1000]).is_ok() {
        sent += 1000;
        assert!(sent < 16 << 20, "nobody waits");
        turn(&mut console);
        sitter.seen();
    }
    while received < sent {
        received += read(&session).0.len();
        turn(&mut console);
        received += read(&session).0.len();
        if received < sent && console.watched().is_empty() {
            break;
        }
    }
    assert!(received >= sent, "{received} of {sent}");
    (&session).write_all(b"typed").unwrap();
    sitter.say(&Frame::Stdin(b"too".to_vec()));
    turn(&mut console);
    assert_eq!(read(&guest).0.len(), 8);
}
