use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::bus;
use vm_memory::Bytes;

use super::*;
use crate::virtio::console::Size;
use crate::virtio::rig::*;

/// What has been sent, what has come, and how much is taken.
#[derive(Default)]
struct Wire {
    sent: Vec<u8>,
    room: usize,
    coming: VecDeque<u8>,
    calls: [u32; 2],
}

#[derive(Clone, Default)]
struct Fake {
    wire: Arc<Mutex<Wire>>,
    bells: Arc<AtomicU64>,
}

impl Terminal for Fake {
    fn size(&self) -> Size {
        Size::default()
    }

    fn show(&mut self, bytes: &[u8]) -> usize {
        let mut wire = self.wire.lock().unwrap();
        let count = bytes.len().min(wire.room);
        wire.room -= count;
        wire.sent.extend(&bytes[..count]);
        count
    }

    fn typed(&mut self, buffer: &mut [u8]) -> usize {
        let mut wire = self.wire.lock().unwrap();
        let count = buffer.len().min(wire.coming.len());
        buffer.iter_mut().zip(wire.coming.drain(..count)).for_each(|(to, from)| *to = from);
        count
    }

    fn call_when_typed(&mut self) {
        self.wire.lock().unwrap().calls[0] += 1;
    }

    fn call_when_free(&mut self) {
        self.wire.lock().unwrap().calls[1] += 1;
    }
}

impl Doorbell for Fake {
    fn ring(&self, queue: usize) {
        self.bells.fetch_or(1 << queue, Ordering::SeqCst);
    }
}

const MULTIPORT: u64 = 2;

fn port(fake: &Fake) -> Port {
    Port::new("test", Box::new(fake.clone()), Arc::new(fake.clone()))
}

/// A port whose driver has this queue.
fn start(queue: usize) -> (Rig, Fake) {
    let fake = Fake::default();
    fake.wire.lock().unwrap().room = usize::MAX;
    let mut rig = Rig::new(port(&fake));
    rig.set(0x16, bus::Size::Word, queue as u64);
    (rig.start(VERSION_1 | MULTIPORT), fake)
}

/// What the guest says of port 0.
fn message(event: u16, value: u16) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[4..6].copy_from_slice(&event.to_le_bytes());
    bytes[6..].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// The messages that a driver is given which has said these.
fn answers(said: &[[u8; 8]]) -> (Vec<Vec<u8>>, u64) {
    let fake = Fake::default();
    let mut device = port(&fake);
    said.iter().for_each(|said| {
        let [_, _, _, _, e0, e1, v0, v1] = *said;
        device.obey(u16::from_le_bytes([e0, e1]), u16::from_le_bytes([v0, v1]) != 0);
    });
    (device.state.messages.into(), fake.bells.load(Ordering::SeqCst))
}

#[test]
fn a_driver_learns_of_the_port_and_its_name() {
    let (told, rung) =
        answers(&[message(control::DEVICE_READY, 1), message(control::PORT_READY, 1)]);
    let named = [&message(control::PORT_NAME, 1)[..], b"test"].concat();
    let expected = [&message(control::DEVICE_ADD, 1)[..], &named, &message(control::PORT_OPEN, 1)];
    assert_eq!((told, rung), (expected.map(<[u8]>::to_vec).to_vec(), 1 << CONTROL_TO_GUEST));
    let (told, _) = answers(&[message(control::DEVICE_READY, 0), message(99, 1)]);
    assert_eq!(told, Vec::<Vec<u8>>::new());
    let (told, _) = answers(&[message(control::PORT_READY, 1); 100]);
    assert_eq!(told.len(), MAX_PORT_MESSAGES);
}

#[test]
fn what_the_driver_says_is_heard() {
    let (mut rig, fake) = start(3);
    rig.memory.write_slice(&message(control::DEVICE_READY, 1), GuestAddress(0x5000)).unwrap();
    rig.chain(0, &[(0x5000, 8, 0)]);
    rig.chain(1, &[(0x5000, 7, 0)]);
    rig.offer(0);
    rig.offer(1);
    rig.kick_queue(3);
    assert_eq!(rig.used(), [(0, 0), (1, 0)]);
    assert_eq!(fake.bells.load(Ordering::SeqCst), 1 << CONTROL_TO_GUEST);
}

#[test]
fn what_comes_before_a_program_has_opened_it_waits() {
    let fake = Fake::default();
    fake.wire.lock().unwrap().coming.extend(b"abcdef");
    let mut device = port(&fake);
    let mut state = State { is_open: true, ..State::default() };
    let closed = Rig::new(port(&fake)).start(VERSION_1 | MULTIPORT);
    let serve = |mut rig: Rig| {
        rig.chain(0, &[(0x5000, 2, WRITE)]);
        rig.chain(1, &[(0x6000, 100, WRITE)]);
        rig.offer(0);
        rig.offer(1);
        rig.kick();
        rig.used()
    };
    assert_eq!(serve(closed), []);
    std::mem::swap(&mut device.state, &mut state);
    assert_eq!(serve(Rig::new(device).start(VERSION_1 | MULTIPORT)), [(0, 2), (1, 4)]);
    assert_eq!(fake.wire.lock().unwrap().calls, [1, 0]);
}

#[test]
fn what_is_sent_goes_on_in_the_middle_after_a_snapshot() {
    let (mut rig, first) = start(TRANSMIT);
    let text: Vec<u8> = (0..40_000_u32).map(|n| (n / 7) as u8).collect();
    rig.memory.write_slice(&text, GuestAddress(0x8000)).unwrap();
    first.wire.lock().unwrap().room = 35_000;
    rig.chain(0, &[(0x8000, 1000, 0), (0x8000 + 1000, 39_000, 0)]);
    rig.offer(0);
    rig.kick_queue(TRANSMIT as u64);
    assert_eq!((rig.used(), first.wire.lock().unwrap().calls), (vec![], [0, 1]));
    let second = Fake::default();
    second.wire.lock().unwrap().room = usize::MAX;
    let mut rig = rig.going_on(port(&second)).unwrap();
    rig.kick_queue(TRANSMIT as u64);
    assert_eq!(rig.used(), [(0, 0)]);
    let sent =
        [&first.wire.lock().unwrap().sent[..], &second.wire.lock().unwrap().sent[..]].concat();
    assert!(sent == text, "{} bytes", sent.len());
}

#[test]
fn a_port_that_is_open_stays_so_after_a_snapshot() {
    let fake = Fake::default();
    let mut device = port(&fake);
    device.obey(control::PORT_OPEN, true);
    device.obey(control::PORT_READY, true);
    device.state.received = b"given, to come".to_vec();
    device.state.given = 7;
    let mut other = port(&fake);
    other.restore(1, &device.save()).unwrap();
    assert_eq!((other.state.is_open, &other.state.messages), (true, &device.state.messages));
    assert_eq!(other.state.received, b"to come");
    assert!(other.restore(1, b"nonsense").is_err());
}

#[test]
fn buffers_that_are_no_memory_stop_the_device() {
    for (queue, flag) in [(TRANSMIT, 0), (3, 0)] {
        let (mut rig, _fake) = start(queue);
        rig.chain(0, &[(0xf000_0000, 10, flag)]);
        rig.offer(0);
        rig.kick_queue(queue as u64);
        assert_eq!((rig.used(), rig.status()), (vec![], 15 | 64));
    }
}

#[test]
fn a_driver_without_ports_sends_to_nobody() {
    let fake = Fake::default();
    let mut rig = Rig::new(port(&fake));
    rig.set(0x16, bus::Size::Word, TRANSMIT as u64);
    let mut rig = rig.start(VERSION_1);
    rig.chain(0, &[(0x8000, 100, 0)]);
    rig.offer(0);
    rig.kick_queue(TRANSMIT as u64);
    assert_eq!(rig.used(), [(0, 0)]);
    assert!(fake.wire.lock().unwrap().sent.is_empty());
}
