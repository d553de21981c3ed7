//! A card with a cable that a test holds the other end of.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use machine::bus::Size;
use machine::memory::Memory;
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{Fault, Features, Frame, Network, NetworkBackend, Settings, Way};
use crate::virtio::Segment;
use crate::virtio::rig::*;

const MERGEABLE: u64 = Features::MERGEABLE.bits();

/// What the other end sees.
#[derive(Default)]
struct End {
    /// Frames for the guest, with their headers.
    incoming: VecDeque<Vec<u8>>,
    /// Frames of the guest's, with theirs.
    sent: Vec<Vec<u8>>,
    /// Frames that are taken before it is full.
    room: usize,
    calls: Vec<(usize, Way)>,
    is_pulled: bool,
    pairs: usize,
    features: Option<Features>,
    memory: Option<Arc<GuestMemoryMmap>>,
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<End>>);

impl Wire {
    fn end(&self) -> std::sync::MutexGuard<'_, End> {
        self.0.lock().unwrap()
    }
}

impl NetworkBackend for Wire {
    fn features(&self) -> Features {
        Features::HOST | Features::GUEST
    }

    fn set_features(&mut self, features: Features) {
        self.end().features = Some(features);
    }

    fn set_pairs(&mut self, pairs: usize) {
        self.end().pairs = pairs;
    }

    fn next_bytes(&mut self, _: usize) -> Result<Option<u64>, Fault> {
        let end = self.end();
        match end.is_pulled {
            true => Err(Fault::Pulled),
            false => Ok(end.incoming.front().map(|frame| frame.len() as u64)),
        }
    }

    fn receive(&mut self, _: usize, room: &[Segment]) -> Result<Option<u64>, Fault> {
        let mut end = self.end();
        let Some(frame) = end.incoming.pop_front() else { return Ok(None) };
        let all: u64 = room.iter().map(|segment| u64::from(segment.length)).sum();
        if all < frame.len() as u64 {
            return Ok(Some(0));
        }
        let memory = Arc::clone(end.memory.as_ref().unwrap());
        let written = crate::virtio::scatter(&*memory, room, &frame);
        written.map(|count| Some(count.into())).map_err(|_| Fault::NoMemory)
    }

    fn send(&mut self, _: usize, frames: &[Frame]) -> Result<usize, Fault> {
        let mut end = self.end();
        if end.is_pulled {
            return Err(Fault::Pulled);
        }
        let count = frames.len().min(end.room);
        end.room -= count;
        let memory = Arc::clone(end.memory.as_ref().unwrap());
        for frame in &frames[..count] {
            let mut bytes = Vec::new();
            for segment in &frame.segments {
                let mut piece = vec![0; segment.length as usize];
                let read = Memory::read(&*memory, GuestAddress(segment.address), &mut piece);
                read.map_err(|_| Fault::NoMemory)?;
                bytes.extend(piece);
            }
            end.sent.push(bytes);
        }
        Ok(count)
    }

    fn call_when_ready(&mut self, pair: usize, way: Way) {
        self.end().calls.push((pair, way));
    }

    fn reset(&mut self) {}
}

/// A card of which one queue is in use, and the other end of its cable.
fn start(queue: u64, features: u64) -> (Rig, Wire) {
    let wire = Wire::default();
    let settings = Settings { address: [2, 0, 0, 0, 0, 1], mtu: Some(9000), pairs: 2 };
    let mut rig = Rig::new(Network::new(Box::new(wire.clone()), settings));
    rig.set(0x16, Size::Word, queue);
    let rig = rig.start(VERSION_1 | features);
    wire.end().memory = Some(Arc::clone(&rig.memory));
    wire.end().room = usize::MAX;
    (rig, wire)
}

fn frame(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend((0..length).map(|n| n as u8 + 1));
    bytes
}

#[test]
fn the_configuration_says_who_and_how() {
    let (mut rig, _) = start(0, 0);
    let bytes: Vec<_> = (0..12).map(|at| rig.get(0x2000 + at, Size::Byte)).collect();
    assert_eq!(bytes, [2, 0, 0, 0, 0, 1, 1, 0, 2, 0, 0x28, 0x23]);
    assert_eq!(rig.get(0x15, Size::Byte), 0);
}

#[test]
fn a_frame_is_received_into_as_many_buffers_as_it_needs() {
    let (mut rig, wire) = start(0, MERGEABLE);
    for n in 0..4u16 {
        rig.chain(n, &[(0x8000 + 0x100 * u64::from(n), 64, WRITE)]);
        rig.offer(n);
    }
    wire.end().incoming.push_back(frame(100));
    rig.kick();
    assert_eq!(rig.used(), [(0, 64), (1, 48)]);
    assert_eq!(rig.load(0x8000 + 10), 2, "how many buffers");
    assert_eq!(rig.memory.read_obj::<u8>(GuestAddress(0x8000 + 12)).unwrap(), 1);
    assert_eq!(rig.memory.read_obj::<u8>(GuestAddress(0x8100)).unwrap(), 53);
    assert_eq!(wire.end().calls, [(0, Way::In)]);
    // What was not used is for the next.
    wire.end().incoming.push_back(frame(20));
    rig.kick();
    assert_eq!(rig.used(), [(2, 32)]);
}

#[test]
fn without_merging_a_frame_fits_one_buffer_or_is_lost() {
    let (mut rig, wire) = start(0, 0);
    rig.chain(0, &[(0x8000, 12, WRITE), (0x8100, 60, WRITE)]);
    rig.offer(0);
    wire.end().incoming.extend([frame(61), frame(60)]);
    rig.kick();
    assert_eq!(rig.used(), [(0, 72)]);
    assert_eq!(rig.load(0x8000 + 10), 1);
}

#[test]
fn a_frame_waits_for_room() {
    let (mut rig, wire) = start(0, MERGEABLE);
    wire.end().incoming.push_back(frame(100));
    rig.chain(0, &[(0x8000, 64, WRITE)]);
    rig.chain(1, &[(0x8100, 64, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.used(), []);
    assert_eq!(wire.end().calls, [], "the driver is waited for, not the cable");
    rig.offer(1);
    rig.kick();
    assert_eq!(rig.used(), [(0, 64), (1, 48)]);
}

#[test]
fn frames_are_sent_and_what_is_none_is_not() {
    let (mut rig, wire) = start(1, 0);
    rig.memory.write_slice(&frame(20), GuestAddress(0x8000)).unwrap();
    rig.chain(0, &[(0x8000, 12, 0), (0x800c, 20, 0)]);
    rig.chain(2, &[(0x8000, 13, 0)]);
    rig.chain(3, &[(0x8000, 0x1_0000, 0), (0x8000, 0x1000, 0)]);
    for head in [0, 2, 3, 0] {
        rig.offer(head);
    }
    rig.kick_queue(1);
    let mut used = rig.used();
    used.sort_unstable();
    assert_eq!(used, [(0, 0), (0, 0), (2, 0), (3, 0)]);
    assert_eq!(wire.end().sent, [frame(20), frame(20)]);
}

#[test]
fn what_a_full_cable_does_not_take_is_sent_later() {
    let (mut rig, wire) = start(1, 0);
    rig.chain(0, &[(0x8000, 32, 0)]);
    (0..3).for_each(|_| rig.offer(0));
    wire.end().room = 2;
    rig.kick_queue(1);
    assert_eq!((rig.used().len(), wire.end().sent.len()), (2, 2));
    assert_eq!(wire.end().calls, [(0, Way::Out)]);
    wire.end().room = 9;
    rig.kick_queue(1);
    assert_eq!((rig.used().len(), wire.end().sent.len()), (1, 3));
}

#[test]
fn a_pulled_cable_is_seen_and_what_is_sent_is_lost() {
    let (mut rig, wire) = start(1, 0);
    rig.set(0x10, Size::Word, 0);
    wire.end().is_pulled = true;
    rig.chain(0, &[(0x8000, 32, 0)]);
    rig.offer(0);
    rig.kick_queue(1);
    assert_eq!(rig.get(0x2006, Size::Word), 0, "the link is down");
    assert_eq!(rig.get(0x15, Size::Byte), 1, "the configuration has changed");
    assert_eq!(rig.get(0x1000, Size::Byte), 2, "and that was told");
    rig.offer(0);
    rig.kick_queue(1);
    assert_eq!(rig.used().len(), 2);
    assert_eq!(rig.status(), 15);
}

#[test]
fn buffers_that_are_no_memory_stop_the_device() {
    let (mut rig, wire) = start(0, MERGEABLE);
    wire.end().incoming.push_back(frame(20));
    rig.chain(0, &[(0xffff_0000, 64, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.status(), 15 | 64);
    let (mut rig, wire) = start(0, MERGEABLE);
    wire.end().incoming.push_back(frame(20));
    rig.chain(0, &[(0x8000, 11, WRITE)]);
    rig.offer(0);
    rig.kick();
    assert_eq!(rig.status(), 15 | 64, "no room for a header");
    let (mut rig, _wire) = start(1, 0);
    rig.chain(0, &[(0xffff_0000, 64, 0)]);
    rig.offer(0);
    rig.kick_queue(1);
    assert_eq!(rig.status(), 15 | 64);
}

/// What the control queue answers to a command.
fn command(rig: &mut Rig, queue: u64, bytes: &[u8]) -> u8 {
    rig.memory.write_slice(bytes, GuestAddress(0x8000)).unwrap();
    rig.memory.write_obj(77u8, GuestAddress(0x9000)).unwrap();
    rig.chain(0, &[(0x8000, 2, 0), (0x8002, bytes.len() as u32 - 2, 0), (0x9000, 1, WRITE)]);
    rig.offer(0);
    rig.kick_queue(queue);
    assert_eq!(rig.used(), [(0, 1)]);
    rig.memory.read_obj(GuestAddress(0x9000)).unwrap()
}

#[test]
fn commands_are_obeyed_or_refused() {
    let multiqueue = Features::MULTIQUEUE | Features::GUEST_CHECKSUM | Features::GUEST_TSO4;
    let (mut rig, wire) = start(4, multiqueue.bits());
    assert_eq!(wire.end().pairs, 1);
    for (pairs, answer, expected) in [(2, 0, 2), (0, 1, 2), (3, 1, 2), (1, 0, 1)] {
        assert_eq!(command(&mut rig, 4, &[4, 0, pairs, 0]), answer, "{pairs} pairs");
        assert_eq!(wire.end().pairs, expected);
    }
    assert_eq!(command(&mut rig, 4, &[1, 1, 6, 5, 4, 3, 2, 1]), 0);
    assert_eq!(rig.get(0x2000, Size::Dword), 0x0304_0506);
    let offloads = |bits: u64| [&[5, 0][..], &bits.to_le_bytes()].concat();
    assert_eq!(command(&mut rig, 4, &offloads(0)), 0);
    assert_eq!(wire.end().features, Some(Features::MULTIQUEUE));
    assert_eq!(command(&mut rig, 4, &offloads(1 << 8)), 1, "that was not accepted");
    assert_eq!(command(&mut rig, 4, &[9, 9, 9]), 1);
    assert_eq!(command(&mut rig, 4, &[4, 0, 1]), 1);
}

#[test]
fn without_several_pairs_the_control_queue_is_the_third() {
    let (mut rig, _wire) = start(2, 0);
    assert_eq!(command(&mut rig, 2, &[1, 1, 6, 5, 4, 3, 2, 1]), 0);
}

proptest! {
    /// Chains of any kind, in either queue, beside frames of any length.
    #[test]
    fn odd_buffers_and_frames_do_no_harm(
        queue in 0..5u64, features in 0..4u64,
        parts in prop::collection::vec((0..0x1_f000u64, 0..3000u32), 1..12),
        frames in prop::collection::vec(0..5000usize, 0..8), room in 0..9usize,
    ) {
        let several = (features >> 1) * Features::MULTIQUEUE.bits();
        let features = ((features & 1) * MERGEABLE) | several;
        let (mut rig, wire) = start(queue, features);
        wire.end().incoming.extend(frames.into_iter().map(frame));
        wire.end().room = room;
        let flag = if queue % 2 == 0 { WRITE } else { 0 };
        for (n, (address, length)) in (0u16..).zip(parts) {
            // Rings are left alone, so that what goes on is known.
            rig.chain(n, &[(0x8000 + address % 0x1_7000, length, flag)]);
            rig.offer(n);
            rig.kick_queue(queue);
            rig.used();
        }
        rig.set(0x14, Size::Byte, 0);
        prop_assert_eq!(rig.status(), 0);
    }
}
