//! A paravirtual kernel that does at random what no kernel should ends its own machine at most: nobody panics, the
//! machine can be stopped, and all uses of frames are counted as they are.
//!
//! A kernel may lose itself by what it does (its code, its stacks, its counter). Then it is ended, and another one goes
//! on with another seed, until as much has been done as is wanted. One that loops for ever is known by its silence: it
//! says something every 256 turns.
//!
//! `BIVOUAC_HOSTILE_SEEDS` (25) and `BIVOUAC_HOSTILE_TURNS` (20,000) have it do more.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vmm::devices::Serial;
use vmm::disk::{Disk, Raw};
use vmm::{Configuration, Contents, Machine, Module, Outcome, SerialBackend};

/// A kernel that has said nothing for so long has lost itself: it says something each few milliseconds.
const SILENCE: Duration = Duration::from_secs(4);

/// How long one may take altogether, on a busy host.
const PATIENCE: Duration = Duration::from_secs(120);

/// From a request to stop to the end of the machine. One that takes longer hangs.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// Kernels in one seed's place, at most: most live for thousands of turns.
const MAX_LIVES: u64 = 60;

/// What a kernel says every so many turns. (The number behind it may be one that it has scribbled over.)
const WORD: &[u8] = b"hostile:";
const TURNS: u64 = 256;

const MEMORY: u64 = 24 << 20;
const DISK: u64 = 1 << 20;

/// Counts turns by what a kernel says.
#[derive(Clone, Default)]
struct Said {
    text: Arc<Mutex<Vec<u8>>>,
    turns: Arc<AtomicU64>,
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut text = self.text.lock().expect("nobody panics");
        text.extend_from_slice(bytes);
        if let Some(end) = text.iter().rposition(|byte| *byte == b'\n') {
            let said = text[..end].windows(WORD.len()).filter(|word| *word == WORD).count();
            self.turns.fetch_add(said as u64 * TURNS, Ordering::Relaxed);
            text.drain(..=end);
        }
        let surplus = text.len().saturating_sub(1 << 16);
        text.drain(..surplus);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What one kernel came to.
struct Life {
    turns: u64,
    outcome: Outcome,
}

#[derive(Clone, Copy)]
struct Kind {
    interpret: bool,
    processors: usize,
}

fn machine(kind: Kind, seed: u64, turns: u64, said: &Said) -> Machine<vmm::XenBoard> {
    let wanted: Vec<u8> =
        [seed, turns, kind.processors as u64].iter().flat_map(|it| it.to_le_bytes()).collect();
    let output: Option<Box<dyn Write + Send>> = Some(Box::new(said.clone()));
    let image = File::from(
        rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).expect("a file"),
    );
    image.set_len(DISK).expect("it has room");
    let disk = Disk {
        serial: "hostile".into(),
        name: "hostile".into(),
        image: Box::new(Raw::new(image, DISK, false)),
        read_only: false,
        extents: Vec::new(),
        complain: Arc::new(|_| ()),
    };
    let serial = Serial::first(SerialBackend { output, input: None });
    let configuration = Configuration {
        kernel: Contents::new(paravirtual::HOSTILE),
        modules: vec![Module { data: Contents::new(wanted), ..Module::default() }],
        memory: MEMORY,
        processors: kind.processors,
        interpret: kind.interpret,
        devices: vec![Box::new(serial), Box::new(disk)],
        ..Configuration::default()
    };
    Machine::on_board(configuration).expect("a machine")
}

/// Run one kernel until it ends or is ended, and audit what it leaves.
fn live(kind: Kind, seed: u64, turns: u64) -> Life {
    let said = Said::default();
    let mut machine = machine(kind, seed, turns, &said);
    let (stop, remote) = (machine.stop_handle(), machine.remote());
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let counter = Arc::clone(&said.turns);
    let guard = std::thread::spawn(move || {
        let (began, mut before, mut changed) = (Instant::now(), 0, Instant::now());
        while changed.elapsed() < SILENCE && began.elapsed() < PATIENCE && before < 2 * turns {
            let wait = end.recv_timeout(Duration::from_millis(20));
            if wait != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                return;
            }
            let now = counter.load(Ordering::Relaxed);
            if now != before {
                (before, changed) = (now, Instant::now());
            }
        }
        stop.stop();
        let wait = end.recv_timeout(STOP_PATIENCE);
        if wait == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("seed {seed:#x}: the machine does not stop");
            std::process::abort();
        }
    });
    let outcome = machine.run().expect("the host does not fail");
    drop(ended);
    guard.join().expect("it only waits");
    audit(&remote, seed);
    Life { turns: said.turns.load(Ordering::Relaxed), outcome }
}

/// What disks' threads still use they give back soon.
fn audit(remote: &vmm::Remote, seed: u64) {
    let toolstack = remote.toolstack.as_ref().expect("it is paravirtual");
    let deadline = Instant::now() + Duration::from_secs(20);
    toolstack.settle();
    loop {
        let differences = toolstack.audit();
        if differences.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "seed {seed:#x}: {}", differences.join("\n"));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Kernels of the wanted seeds, or of one in `share` of them, each in as many lives as it takes.
fn check(kind: Kind, share: u64) {
    let seeds = number("BIVOUAC_HOSTILE_SEEDS", 25).div_ceil(share);
    let turns = number("BIVOUAC_HOSTILE_TURNS", 20_000);
    for seed in 1..=seeds {
        let (mut done, mut lives, mut lost) = (0, 0, 0);
        while done < turns && lives < MAX_LIVES {
            let life = live(kind, seed << 16 | lives, turns - done);
            lives += 1;
            done += life.turns;
            lost += u64::from(life.outcome == Outcome::Stopped);
        }
        println!("seed {seed}: {done} turns in {lives} lives, {lost} of them lost");
        assert!(done >= turns / 4, "seed {seed}: only {done} of {turns} turns in {lives} lives");
    }
}

#[test]
fn a_hostile_kernel_ends_its_own_machine_at_most() {
    check(Kind { interpret: false, processors: 1 }, 1);
}

#[test]
fn nor_does_one_that_is_interpreted_do_more() {
    check(Kind { interpret: true, processors: 1 }, 5);
}

#[test]
fn nor_does_one_of_several_processors() {
    check(Kind { interpret: false, processors: 3 }, 5);
}
