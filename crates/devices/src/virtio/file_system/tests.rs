use std::sync::{Arc, Mutex};

use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::virtio::rig::*;

/// A server that does what a test says.
#[derive(Default)]
struct Script {
    room: usize,
    submitted: Vec<u64>,
    opcodes: Vec<u32>,
    done: VecDeque<(u64, u32)>,
    is_gone: bool,
    noted: u32,
}

#[derive(Clone, Default)]
struct Puppet(Arc<Mutex<Script>>);

impl FileServer for Puppet {
    fn submit(&mut self, token: u64, opcode: u32, _: &Chain) -> Result<bool, Gone> {
        let mut script = self.0.lock().unwrap();
        let fits = script.submitted.len() < script.room;
        if fits {
            script.submitted.push(token);
            script.opcodes.push(opcode);
        }
        if script.is_gone { Err(Gone) } else { Ok(fits) }
    }

    fn take(&mut self) -> Result<Option<(u64, u32)>, Gone> {
        let mut script = self.0.lock().unwrap();
        if script.is_gone { Err(Gone) } else { Ok(script.done.pop_front()) }
    }

    fn save(&self) -> Result<Vec<u8>, Gone> {
        let script = self.0.lock().unwrap();
        if script.is_gone { Err(Gone) } else { Ok(b"all that is known".to_vec()) }
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Gone> {
        if state == b"all that is known" { Ok(()) } else { Err(Gone) }
    }

    fn note_written(&mut self, _: &[Segment], bytes: u32) {
        self.0.lock().unwrap().noted += bytes;
    }
}

/// Where the device's configuration has the number of queues for requests (virtio 1.2, 5.11.4).
const NUMBER_OF_QUEUES: u64 = 0x2000 + 36;

fn device(tag: &str, server: &Puppet) -> FileSystem {
    FileSystem::new(tag, Box::new(server.clone()), 1)
}

fn rig(room: usize) -> (Rig, Puppet) {
    let puppet = Puppet::default();
    puppet.0.lock().unwrap().room = room;
    let rig = Rig::started(device("root", &puppet));
    for (at, number) in [(0, 7_u64), (3, 8)] {
        rig.memory.write_obj(number, GuestAddress(0x5000 + 0x100 * at + 8)).unwrap();
        rig.memory.write_obj(number as u32 + 20, GuestAddress(0x5000 + 0x100 * at + 4)).unwrap();
        let (question, place) = (0x5000 + 0x100 * at, 0x6000 + 0x100 * at);
        rig.chain(at as u16, &[(question, 40, 0), (place, 16, WRITE), (place + 16, 80, WRITE)]);
    }
    (rig, puppet)
}

#[test]
fn an_answer_comes_when_the_server_has_one() {
    let (mut rig, puppet) = rig(9);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), []);
    let token = puppet.0.lock().unwrap().submitted[0];
    puppet.0.lock().unwrap().done.extend([(token, 20), (99, 1)]);
    rig.shared.serve(1);
    assert_eq!(rig.used(), [(0, 20)]);
    assert_eq!(puppet.0.lock().unwrap().noted, 20);
}

#[test]
fn an_answer_comes_in_the_queue_of_its_request() {
    let puppet = Puppet::default();
    puppet.0.lock().unwrap().room = 9;
    let rig = Rig::new(FileSystem::new("root", Box::new(puppet.clone()), 3));
    let mut rig = rig.start_queues(VERSION_1, &[1, 3]);
    assert_eq!(rig.get(NUMBER_OF_QUEUES, machine::bus::Size::Dword), 3);
    for queue in [1, 3] {
        rig.turn_to(queue);
        rig.chain(queue as u16, &[(rig.base() + 0x5000, 40, 0), (rig.base() + 0x6000, 16, WRITE)]);
        rig.offer(queue as u16);
        rig.kick();
    }
    let [first, second] = puppet.0.lock().unwrap().submitted[..] else { panic!("two requests") };
    for (token, queue, other) in [(second, 3, 1), (first, 1, 3)] {
        puppet.0.lock().unwrap().done.push_back((token, 16));
        // Who serves another queue hears of it as well.
        rig.shared.serve(1 << other);
        rig.shared.serve(1 << queue);
        rig.turn_to(queue);
        assert_eq!(rig.used(), [(queue as u32, 16)]);
    }
}

#[test]
fn the_server_hears_what_is_asked_for() {
    let (mut rig, puppet) = rig(9);
    // One whose header is not whole asks for nothing that is known.
    rig.chain(6, &[(0x5600, 15, 0), (0x6600, 16, WRITE)]);
    for head in [0, 3, 6] {
        rig.offer(head);
    }
    rig.kick();
    assert_eq!(puppet.0.lock().unwrap().opcodes, [27, 28, 0]);
}

#[test]
fn a_server_cannot_claim_more_than_there_was_room_for() {
    let (mut rig, puppet) = rig(9);
    rig.offer(0);
    rig.kick();
    puppet.0.lock().unwrap().done.push_back((0, u32::MAX));
    rig.shared.serve(1);
    assert_eq!(rig.used(), [(0, 96)]);
}

#[test]
fn what_the_server_has_no_room_for_waits() {
    let (mut rig, puppet) = rig(1);
    rig.offer(0);
    rig.offer(3);
    rig.kick();
    assert_eq!(puppet.0.lock().unwrap().submitted.len(), 1);
    puppet.0.lock().unwrap().room = 2;
    puppet.0.lock().unwrap().done.push_back((0, 16));
    rig.shared.serve(1);
    assert_eq!(puppet.0.lock().unwrap().submitted.len(), 2);
    puppet.0.lock().unwrap().done.push_back((1, 16));
    rig.shared.serve(1);
    assert_eq!(rig.used(), [(0, 16), (3, 16)]);
}

#[test]
fn when_the_server_is_gone_everything_fails() {
    let (mut rig, puppet) = rig(9);
    rig.offer(0);
    rig.kick();
    puppet.0.lock().unwrap().is_gone = true;
    rig.shared.serve(1);
    rig.offer(3);
    rig.kick();
    assert_eq!(rig.used(), [(0, 16), (3, 16)]);
    for (at, number) in [(0x6000, 7_u64), (0x6300, 8)] {
        let [length, error]: [i32; 2] = rig.memory.read_obj(GuestAddress(at)).unwrap();
        let unique: u64 = rig.memory.read_obj(GuestAddress(at + 8)).unwrap();
        assert_eq!((length, error, unique), (16, -5, number));
    }
}

#[test]
fn a_reset_waits_for_what_is_in_flight() {
    let (mut rig, puppet) = rig(9);
    rig.offer(0);
    rig.kick();
    rig.set(0x14, machine::bus::Size::Byte, 0);
    assert_ne!(rig.status(), 0);
    puppet.0.lock().unwrap().done.push_back((0, 16));
    rig.shared.serve(1);
    assert_eq!(rig.status(), 0);
    assert_eq!(rig.used(), [], "what was in flight is not answered after a reset");
}

#[test]
fn a_device_goes_on_where_another_was() {
    let (mut rig, puppet) = rig(9);
    rig.offer(0);
    rig.kick();
    let token = puppet.0.lock().unwrap().submitted[0];
    puppet.0.lock().unwrap().done.push_back((token, 20));
    // It is asked for the answer before it is at rest.
    let other = Puppet::default();
    other.0.lock().unwrap().room = 9;
    let mut rig = rig.going_on(device("root", &other)).unwrap();
    assert_eq!(rig.used(), [(0, 20)]);
    rig.offer(3);
    rig.kick();
    let token = other.0.lock().unwrap().submitted[0];
    other.0.lock().unwrap().done.push_back((token, 16));
    rig.kick();
    assert_eq!(rig.used(), [(3, 16)]);
}

#[test]
fn a_directory_that_is_another_is_refused() {
    let (rig, _) = rig(9);
    assert!(rig.going_on(device("other", &Puppet::default())).is_err());
    let (rig, puppet) = self::rig(9);
    puppet.0.lock().unwrap().is_gone = true;
    // What nobody could keep is not known any more, and is not missed before it is asked for.
    assert!(rig.going_on(device("root", &Puppet::default())).is_ok());
}

#[test]
fn a_device_for_9p_has_one_queue_and_its_own_answers() {
    let puppet = Puppet::default();
    puppet.0.lock().unwrap().room = 9;
    let device = FileSystem::nine("biv0", Box::new(puppet.clone()));
    assert_eq!((device.kind().number, device.features(), device.queue_sizes()), (9, 1, &[128][..]));
    assert_eq!(device.configuration(), b"\x04\0biv0");
    let mut rig = Rig::started(device);
    rig.memory.write_slice(&[23, 0, 0, 0, 116, 0x34, 0x12], GuestAddress(0x5000)).unwrap();
    rig.chain(0, &[(0x5000, 23, 0), (0x6000, 11, WRITE), (0x6100, 80, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(puppet.0.lock().unwrap().opcodes, [15]);
    puppet.0.lock().unwrap().is_gone = true;
    rig.shared.serve(1);
    assert_eq!(rig.used(), [(0, 11)]);
    let mut answer = [0; 11];
    rig.memory.read_slice(&mut answer, GuestAddress(0x6000)).unwrap();
    assert_eq!(answer, [11, 0, 0, 0, 7, 0x34, 0x12, 5, 0, 0, 0]);
}
