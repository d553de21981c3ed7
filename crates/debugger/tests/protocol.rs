//! The protocol with a machine that there is not: what clients get, and that nothing of theirs stays.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use debugger::{
    Debuggee, Ending, Going, Places, Refused, RegisterFile, Session, Space, Stop, Watch,
};

/// Where the fake machine has memory: so many bytes from address 0 on.
const MEMORY_BYTES: usize = 0x2000;

/// Rounds of nonsense.
const ROUNDS: u64 = 3000;

/// A machine of two processors that stops, for each time that it goes on, as `script` has it.
struct Fake {
    files: [RegisterFile; 2],
    memory: Vec<u8>,
    script: Vec<(usize, Stop)>,
    stopped: Option<(usize, Stop)>,
    log: Vec<String>,
    event: (UnixStream, UnixStream),
    is_held: bool,
    is_dead: bool,
}

impl Fake {
    fn new(script: &[(usize, Stop)]) -> Self {
        let event = UnixStream::pair().unwrap();
        event.0.set_nonblocking(true).unwrap();
        Self {
            files: Default::default(),
            memory: (0..MEMORY_BYTES).map(|at| at as u8).collect(),
            script: script.iter().rev().copied().collect(),
            stopped: None,
            log: Vec::new(),
            event,
            is_held: false,
            is_dead: false,
        }
    }

    fn range(&self, at: u64, length: usize) -> Result<std::ops::Range<usize>, Refused> {
        let start = usize::try_from(at).map_err(|_| Refused)?;
        let end = start.checked_add(length).filter(|&end| end <= MEMORY_BYTES).ok_or(Refused)?;
        Ok(start..end)
    }
}

impl Debuggee for Fake {
    fn processors(&self) -> usize {
        2
    }

    fn hold(&mut self) -> bool {
        self.is_held = true;
        true
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.event.0.as_fd()
    }

    fn take_stop(&mut self) -> Option<(usize, Stop)> {
        let _ = (&self.event.0).read(&mut [0]);
        self.stopped.take()
    }

    fn go_on(&mut self, places: &Places, going: &[Going]) -> Result<(), Refused> {
        assert!(self.is_held);
        self.log.push(format!("{going:?} {:x?} {}", places.breakpoints, places.watchpoints.len()));
        self.is_held = false;
        self.stopped = self.script.pop();
        if self.stopped.is_some() {
            (&self.event.1).write_all(&[1]).unwrap();
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.is_held = false;
        self.log.push("left".to_owned());
    }

    fn registers(&mut self, processor: usize) -> Result<RegisterFile, Refused> {
        self.files.get(processor).cloned().ok_or(Refused)
    }

    fn set_registers(&mut self, processor: usize, file: &RegisterFile) -> Result<(), Refused> {
        *self.files.get_mut(processor).ok_or(Refused)? = file.clone();
        Ok(())
    }

    fn read(&mut self, _: usize, _: Space, at: u64, bytes: &mut [u8]) -> Result<usize, Refused> {
        let there = MEMORY_BYTES.saturating_sub(usize::try_from(at).map_err(|_| Refused)?);
        let length = bytes.len().min(there);
        bytes[..length].copy_from_slice(&self.memory[self.range(at, length)?]);
        if length == 0 { Err(Refused) } else { Ok(length) }
    }

    fn write(&mut self, _: usize, _: Space, at: u64, bytes: &[u8]) -> Result<(), Refused> {
        let range = self.range(at, bytes.len())?;
        self.memory[range].copy_from_slice(bytes);
        Ok(())
    }

    fn physical_of(&mut self, _: usize, at: u64) -> Result<u64, Refused> {
        self.range(at, 1).map(|_| at + 0x1000)
    }

    fn kill(&mut self) {
        self.is_dead = true;
    }
}

/// A packet: its contents and their sum.
fn packet(contents: &str) -> String {
    let sum = contents.bytes().fold(0u8, u8::wrapping_add);
    format!("${contents}#{sum:02x}")
}

/// What a client gets that talks so, and then leaves; the machine as it is then, and how the session has ended.
fn talk<T>(client: impl FnOnce(&UnixStream) -> T, mut machine: Fake) -> (T, Fake, Ending) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let served = thread::spawn(move || {
        let session = Session { stream: Box::new(theirs), others: None };
        let ending = session.serve(&mut machine);
        (machine, ending)
    });
    let said = client(&ours);
    drop(ours);
    let (machine, ending) = served.join().expect("it does not panic");
    assert!(!machine.is_held, "it goes on");
    assert_eq!(machine.log.last().map(String::as_str), Some("left"));
    (said, machine, ending)
}

/// Send all of it, and hear what comes.
fn send(mut stream: &UnixStream, bytes: &[u8]) -> String {
    // Who listens may hang up before all is there.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Send a packet, and hear the answer.
fn ask(mut stream: &UnixStream, contents: &str) -> String {
    stream.write_all((packet(contents) + "+").as_bytes()).unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while answer.len() < 3 || answer[answer.len() - 3] != b'#' {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    let (_, packet) = answer.split_once('$').unwrap();
    packet.split('#').next().unwrap().to_owned()
}

/// The answers to packets.
fn answers(packets: &[&str], machine: Fake) -> (Vec<String>, Fake) {
    let client = |stream: &UnixStream| packets.iter().map(|it| ask(stream, it)).collect();
    let (said, machine, _) = talk(client, machine);
    (said, machine)
}

#[test]
fn registers_and_memory_are_read_and_written() {
    let mut machine = Fake::new(&[]);
    machine.files[1].rip = 0x1234_5678_9abc_def0;
    let packets = ["Hg2", "p10", "P10=0102030405060708", "p10", "Hg1", "p10", "m1ffe,2", "m1ffe,4"];
    let (said, machine) = answers(&packets, machine);
    assert_eq!(said[..4], ["OK", "f0debc9a78563412", "OK", "0102030405060708"]);
    // Run-length encoded.
    assert!(said[5].starts_with("0*"), "{said:?}");
    assert_eq!(said[6..], ["feff", "feff"]);
    assert_eq!(machine.files[1].rip, 0x0807_0605_0403_0201);
    // A selector cannot be set, and there is no third processor.
    let (said, _) = answers(&["P12=00000000", "Hg3", "p10", "m9000,1", "M1fff,2:0000"], machine);
    assert!(said[0].starts_with('E') && said[3..].iter().all(|it| it.starts_with('E')), "{said:?}");
}

#[test]
fn processors_go_on_and_stop_as_they_are_told() {
    let stops = [(1, Stop::Breakpoint), (0, Stop::Step), (1, Stop::Watchpoint(Watch::Write, 0x44))];
    let packets = ["Z0,1000,1", "vCont;c", "vCont;s:1", "Z2,40,8", "z0,1000,1", "vCont;s:2;c"];
    let (said, machine) = answers(&packets, Fake::new(&stops));
    assert_eq!(said[0], "OK");
    assert!(said[1].starts_with("T05thread:") && said[1].contains("swbreak"), "{said:?}");
    assert!(said[2].starts_with("T05thread:"), "{said:?}");
    assert!(said[5].contains("watch:") && said[5].contains("44"), "{said:?}");
    let expected = ["[On, On] [1000] 0", "[Step, Held] [1000] 0", "[On, Step] [] 1", "left"];
    assert_eq!(machine.log, expected);
}

#[test]
fn who_kills_ends_the_machine_and_who_detaches_does_not() {
    let say = |contents| move |stream: &UnixStream| send(stream, packet(contents).as_bytes());
    let (_, machine, ending) = talk(say("D"), Fake::new(&[]));
    assert_eq!((machine.is_dead, ending), (false, Ending::Left));
    let (_, machine, ending) = talk(say("k"), Fake::new(&[]));
    assert_eq!((machine.is_dead, ending), (true, Ending::Kill));
}

#[test]
fn a_processor_that_runs_is_interrupted() {
    let bytes = [packet("vCont;c").as_bytes(), b"+\x03+"].concat();
    let (answer, ..) = talk(|stream| send(stream, &bytes), Fake::new(&[]));
    assert!(answer.contains("T02thread:"), "{answer:?}");
}

/// xorshift64*: the same nonsense in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

#[test]
fn nonsense_is_no_panic_and_leaves_nothing() {
    const WORDS: [&str; 32] = [
        "vCont;",
        "c",
        "s:1",
        "s:-1",
        "r0,10:2",
        ";",
        "Hg",
        "Hc-1",
        "p",
        "P",
        "=",
        "g",
        "G",
        "m",
        "M",
        "X",
        "ffffffffffffffff",
        ",",
        ":",
        "Z0,",
        "Z2,",
        "z1,",
        "Z4,",
        "qRcmd,",
        "7870",
        "20",
        "qXfer:features:read:target.xml:",
        "qThreadExtraInfo,",
        "T3",
        "vKill;1",
        "\x03",
        "00",
    ];
    /// A session survives those of its own.
    static PANICS: AtomicU32 = AtomicU32::new(0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        hook(panic);
    }));
    let mut numbers = Numbers(1);
    for _ in 0..ROUNDS {
        let mut bytes = Vec::new();
        for _ in 0..=numbers.below(4) {
            let words = (0..=numbers.below(6)).map(|_| WORDS[numbers.below(WORDS.len())]);
            bytes.extend(packet(&words.collect::<String>()).into_bytes());
            bytes.push(b'+');
        }
        if numbers.below(3) == 0 {
            let place = numbers.below(bytes.len());
            bytes[place] = numbers.below(256) as u8;
        }
        let machine = Fake::new(&[(1, Stop::Step), (0, Stop::Breakpoint)]);
        talk(|stream| send(stream, &bytes), machine);
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn ranges_that_are_watched_have_a_limit() {
    let (said, _) = answers(&["Z2,0,ffffffffffffffff", "Z2,0,8", "Z2,0,0"], Fake::new(&[]));
    assert_eq!(said, ["E16", "OK", "E16"]);
}
