//! Several queues of one disk, and drivers that use some of them, or make nonsense of one.

use machine::bus::Size;

use super::*;
use crate::limits::MAX_BLOCK_SHARE;

const MULTIQUEUE: u64 = 1 << 12;

/// Where the device's configuration has the number of queues (virtio 1.2, 5.2.4).
const NUMBER_OF_QUEUES: u64 = 0x2000 + 34;

fn started(disk: &Disk, queues: &[usize]) -> Rig {
    disk.new_rig(QUEUES).start_queues(VERSION_1 | FLUSH | MULTIQUEUE, queues)
}

/// Offer a request of a sector in this queue, and ring.
fn ask(rig: &mut Rig, queue: usize, at: u16, kind: u32, sector: u64) {
    rig.turn_to(queue);
    let data = match kind {
        kind::READ => (DATA, 512, WRITE),
        kind::WRITE => (DATA, 512, 0),
        _ => (0, 0, 0),
    };
    offer(rig, at, kind, sector, data);
    rig.ring();
}

/// Serve a queue that was not rung for, as whoever has finished a job does.
fn serve_again(rig: &mut Rig, queue: usize) {
    rig.shared.serve(1 << queue);
}

fn used(rig: &mut Rig, queue: usize) -> Vec<(u32, u32)> {
    rig.turn_to(queue);
    rig.used()
}

fn fill(rig: &mut Rig, queue: usize, byte: u8) {
    rig.turn_to(queue);
    rig.memory.write_slice(&[byte; 512], GuestAddress(rig.base() + DATA)).unwrap();
}

#[test]
fn the_driver_is_told_of_as_many_queues_as_there_are() {
    for (wanted, expected) in [(0, 1), (1, 1), (2, 2), (16, 16), (17, 16), (usize::MAX, 16)] {
        let mut rig = Disk::new().new_rig(wanted);
        let features = rig.get(4, Size::Dword);
        assert_eq!(features & MULTIQUEUE != 0, expected > 1, "{wanted}");
        assert_eq!(rig.get(NUMBER_OF_QUEUES, Size::Word), expected, "{wanted}");
        assert_eq!(rig.get(0x12, Size::Word), expected, "{wanted}");
        let sizes = [0, expected - 1, expected].map(|queue| {
            rig.set(0x16, Size::Word, queue);
            rig.get(0x18, Size::Word)
        });
        assert_eq!(sizes, [256, 256, 0], "{wanted}");
    }
}

#[test]
fn each_queue_is_answered_in_itself() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1, 2, 3]);
    disk.inside.lock().unwrap().slow = true;
    for queue in 0..QUEUES {
        ask(&mut rig, queue, 0, kind::READ, 10 + queue as u64);
        ask(&mut rig, queue, 1, kind::READ, 20 + queue as u64);
    }
    rig.serve();
    while disk.finish(true) {}
    // What has ended is told of when its queue is served, and not before.
    for queue in [2, 0, 3, 1] {
        assert_eq!(used(&mut rig, queue), []);
        serve_again(&mut rig, queue);
        let mut used = used(&mut rig, queue);
        used.sort_unstable();
        assert_eq!(used, [(0, 513), (3, 513)], "{queue}");
        // The one that ended last is what is there.
        assert_eq!(u64::from(byte(&rig, DATA)), 10 + queue as u64);
        assert_eq!((status(&rig, 0), status(&rig, 1)), (0, 0));
    }
}

#[test]
fn neighbours_of_different_queues_are_different_jobs() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1]);
    for (queue, at, sector) in [(0, 0, 1), (1, 0, 2), (0, 1, 2), (1, 1, 3)] {
        ask(&mut rig, queue, at, kind::READ, sector);
    }
    rig.serve();
    assert_eq!(disk.jobs(), ["read 1..3", "read 2..4"]);
}

#[test]
fn a_flush_comes_after_what_another_queue_was_told_of() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1]);
    fill(&mut rig, 1, 0xaa);
    ask(&mut rig, 1, 0, kind::WRITE, 7);
    rig.serve();
    assert_eq!(used(&mut rig, 1), [(0, 1)]);
    assert_eq!(disk.inside.lock().unwrap().bytes[7 * 512], 0xaa);
    disk.inside.lock().unwrap().slow = true;
    // This one is under way when the flush is asked for, which need not cover it, nor wait for it.
    ask(&mut rig, 1, 1, kind::WRITE, 8);
    rig.serve();
    ask(&mut rig, 0, 0, kind::FLUSH, 0);
    rig.serve();
    assert!(disk.finish(true), "the flush");
    serve_again(&mut rig, 0);
    serve_again(&mut rig, 1);
    assert_eq!((used(&mut rig, 0), used(&mut rig, 1)), (vec![(0, 1)], vec![]));
    assert!(disk.finish(true), "the write");
    serve_again(&mut rig, 1);
    assert_eq!(used(&mut rig, 1), [(3, 1)]);
    assert_eq!(disk.jobs(), ["write 7..8", "flush 0..0", "write 8..9"]);
}

/// A driver that knows of no flushing has every write flushed, in whichever queue.
#[test]
fn without_flushes_what_is_written_through_any_queue_stays() {
    let disk = Disk::new();
    let mut rig = disk.new_rig(QUEUES).start_queues(VERSION_1 | MULTIQUEUE, &[0, 3]);
    disk.inside.lock().unwrap().slow = true;
    ask(&mut rig, 3, 0, kind::WRITE, 5);
    rig.serve();
    for expected in [vec![], vec![(0, 1)]] {
        assert!(disk.finish(false));
        serve_again(&mut rig, 0);
        serve_again(&mut rig, 3);
        assert_eq!(used(&mut rig, 3), expected);
    }
    assert_eq!(disk.jobs(), ["write 5..6", "flush 0..0"]);
}

#[test]
fn zeroes_made_through_one_queue_are_read_through_another() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1]);
    rig.turn_to(1);
    let range = GuestAddress(rig.base() + DATA);
    for (at, kind, sector) in [(0, kind::DISCARD, 4u64), (1, kind::WRITE_ZEROES, 9)] {
        rig.turn_to(1);
        rig.memory.write_obj([sector, 2], range).unwrap();
        offer(&mut rig, at, kind, 0, (DATA, 16, 0));
        rig.kick();
        assert_eq!(status(&rig, at), 0);
        ask(&mut rig, 0, at, kind::READ, sector + 1);
        rig.serve();
        assert_eq!((status(&rig, at), byte(&rig, DATA)), (0, 0), "{sector}");
    }
    assert_eq!(used(&mut rig, 1).len(), 2);
    assert_eq!(disk.jobs(), ["unmap 4..6", "read 5..6", "zero 9..11", "read 10..11"]);
}

#[test]
fn what_one_queue_has_under_way_leaves_others_their_room() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1]);
    disk.inside.lock().unwrap().slow = true;
    // A driver that offers the same chain again and again before it was used.
    for _ in 0..MAX_BLOCK_REQUESTS + 10 {
        ask(&mut rig, 0, 0, kind::READ, 3);
        rig.serve();
    }
    assert_eq!(disk.inside.lock().unwrap().waiting.len(), MAX_BLOCK_REQUESTS);
    ask(&mut rig, 1, 0, kind::READ, 4);
    rig.serve();
    assert_eq!(disk.inside.lock().unwrap().waiting.len(), MAX_BLOCK_REQUESTS + 1);
    assert!(disk.finish(true));
    serve_again(&mut rig, 1);
    assert_eq!(used(&mut rig, 1), [(0, 513)]);
    assert_eq!(rig.status(), 15);
}

/// A driver that offers another request whenever one is done is left after a while for other queues.
#[test]
fn a_queue_that_never_ends_lets_others_have_their_turn() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1]);
    (0..SIZE).for_each(|entry| rig.word(AVAILABLE + 4 + 2 * u64::from(entry), 0));
    disk.inside.lock().unwrap().refilled = Some(AVAILABLE + 2);
    ask(&mut rig, 0, 0, kind::READ, 3);
    ask(&mut rig, 1, 0, kind::READ, 9);
    rig.serve();
    assert_eq!(rig.load(USED + 2), MAX_BLOCK_SHARE as u16);
    assert_eq!(used(&mut rig, 1), [(0, 513)]);
    assert_eq!(disk.inside.lock().unwrap().again, [0]);
    // It goes on when it is served again, though nobody has rung.
    disk.inside.lock().unwrap().refilled = None;
    serve_again(&mut rig, 0);
    assert_eq!(rig.load(USED + 2), rig.load(AVAILABLE + 2));
}

#[test]
fn queues_that_were_not_set_up_and_those_that_are_not_there_are_left_alone() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[2]);
    for queue in [0, 1, 3] {
        rig.turn_to(queue);
        offer(&mut rig, 0, kind::WRITE, 3, (DATA, 512, 0));
        rig.kick();
        assert_eq!(used(&mut rig, queue), [], "{queue}");
    }
    // Doorbells beyond the last queue, up to the end of the register.
    for queue in [4, 5, 63, 64, 1023] {
        rig.set(0x3000 + 4 * queue, Size::Word, queue);
        rig.serve();
    }
    rig.shared.serve(u64::MAX);
    assert_eq!((disk.jobs(), rig.status()), (vec![], 15));
    ask(&mut rig, 2, 0, kind::READ, 3);
    rig.serve();
    assert_eq!(used(&mut rig, 2), [(0, 513)]);
}

#[test]
fn a_driver_of_one_queue_need_not_know_of_others() {
    let disk = Disk::new();
    let mut rig = disk.new_rig(QUEUES).start(VERSION_1 | FLUSH);
    ask(&mut rig, 0, 0, kind::READ, 3);
    rig.serve();
    assert_eq!((used(&mut rig, 0), rig.status()), (vec![(0, 513)], 15));
}

#[test]
fn a_queue_that_makes_no_sense_stops_all_until_the_reset() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1]);
    disk.inside.lock().unwrap().slow = true;
    ask(&mut rig, 0, 0, kind::READ, 3);
    ask(&mut rig, 1, 0, kind::READ, 4);
    rig.serve();
    rig.turn_to(1);
    rig.chain(9, &[(HEADERS, 15, 0), (STATUS, 1, WRITE)]);
    rig.offer(9);
    rig.kick();
    assert_eq!(rig.status(), 15 | 64);
    // The reset waits for what both have under way.
    rig.set(0x14, Size::Byte, 0);
    assert!(disk.finish(true));
    assert_ne!(rig.status(), 0);
    assert!(disk.finish(true));
    assert_eq!(rig.status(), 0);
    assert_eq!((used(&mut rig, 0), used(&mut rig, 1)), (vec![], vec![]));
    disk.inside.lock().unwrap().slow = false;
    rig.restart();
    rig = rig.start_queues(VERSION_1 | FLUSH | MULTIQUEUE, &[0, 1]);
    for queue in [1, 0] {
        ask(&mut rig, queue, 0, kind::READ, 3);
        rig.serve();
        assert_eq!(used(&mut rig, queue), [(0, 513)]);
    }
}

/// A device comes to rest only when nothing is under way in any queue, and each goes on where it was.
#[test]
fn all_queues_go_on_from_a_saved_state() {
    let disk = Disk::new();
    let mut rig = started(&disk, &[0, 1, 3]);
    for (queue, count) in [(0, 1), (1, 3), (3, 2)] {
        for at in 0..count {
            ask(&mut rig, queue, at, kind::READ, 3);
            rig.serve();
        }
        assert_eq!(used(&mut rig, queue).len(), usize::from(count));
    }
    disk.inside.lock().unwrap().slow = true;
    ask(&mut rig, 1, 3, kind::READ, 5);
    ask(&mut rig, 3, 3, kind::READ, 6);
    rig.serve();
    let slowly = disk.clone();
    let slowly = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(slowly.finish(false) && slowly.finish(false));
    });
    rig = rig.going_on(Block::new(Box::new(disk.clone()), QUEUES)).expect("the same device");
    slowly.join().unwrap();
    // What was under way has been answered before.
    assert_eq!(used(&mut rig, 1), [(9, 513)]);
    assert_eq!(used(&mut rig, 3), [(9, 513)]);
    disk.inside.lock().unwrap().slow = false;
    for queue in [0, 1, 3] {
        ask(&mut rig, queue, 4, kind::READ, 7);
        rig.serve();
        assert_eq!(used(&mut rig, queue), [(12, 513)], "{queue}");
    }
}

#[test]
fn a_state_of_other_queues_is_refused() {
    for (ours, theirs) in [(1, 2), (2, 1), (4, 3)] {
        let disk = Disk::new();
        let rig = disk.new_rig(theirs).start(VERSION_1 | FLUSH);
        let restored = rig.going_on(Block::new(Box::new(disk.clone()), ours));
        assert!(restored.is_err(), "{theirs} to {ours}");
    }
}

proptest! {
    /// Whatever is in the rings of two queues, and whenever one is served or the device reset: nothing panics,
    /// and what was under way ends.
    #[test]
    fn several_rings_of_an_adversary(
        words in prop::collection::vec((0usize..2, 0u64..0x40, any::<u64>()), 1..40),
        steps in prop::collection::vec((0u8..7, any::<u16>()), 1..60),
    ) {
        let disk = Disk::new();
        let mut rig = started(&disk, &[0, 1]);
        disk.inside.lock().unwrap().slow = true;
        for queue in 0..2 {
            rig.turn_to(queue);
            offer(&mut rig, 0, kind::READ, 5, (DATA, 512, WRITE));
        }
        for (queue, at, value) in words {
            let place = match at % 3 {
                0 => DESCRIPTORS + 8 * (at / 3),
                1 => AVAILABLE + 8 * (at / 3 % 5),
                _ => HEADERS + 8 * (at / 3),
            };
            let place = GuestAddress(queue as u64 * QUEUE_BYTES + place);
            rig.memory.write_obj(value & 0x0003_0003_0001_ffff, place).unwrap();
        }
        for (step, value) in steps {
            let queue = u64::from(value >> 8) % 2;
            match step {
                0 => rig.word(queue * QUEUE_BYTES + AVAILABLE + 2, value % 64),
                1 => rig.set(0x3000 + 4 * queue, Size::Word, 0),
                2 => { disk.finish(value & 1 == 0); }
                3 if value % 8 == 0 => rig.set(0x14, Size::Byte, 0),
                4 => serve_again(&mut rig, queue as usize),
                _ => rig.serve(),
            }
        }
        rig.set(0x14, Size::Byte, 0);
        while disk.finish(false) {}
        prop_assert_eq!(rig.status(), 0);
    }
}
