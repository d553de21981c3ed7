//! Network cards: a front-end as Linux's netfront, and such as do what it does not.

use xen_abi::grant::EntryV1;
use xen_abi::net::{
    ExtraInfo, ReceiveRequest, ReceiveResponse, TransmitRequest, TransmitResponse, extra, gso,
    limit, receive, status, transmit,
};
use xen_abi::{PAGE_BYTES, Wire};
use xen_fronts::machine::{DATA, Front, RING, address};
use xen_io::Broken;
use xen_io::Memory as _;
use xen_io::network::{
    Checksum, Given, Offload, Receiver, SegmentKind, Segmentation, Takes, Transmitter,
};

/// The largest that a slot can tell of.
const MAX_PACKET_BYTES: usize = u16::MAX as usize;

const ALL: Takes = Takes { several_pages: true, large: [true; 2], blank: [true; 2] };

/// A front-end that transmits.
struct Sender {
    front: Front,
    back: Transmitter,
}

impl Sender {
    fn new() -> Self {
        let front = Front::new(1, limit::TRANSMIT_ENTRY_BYTES as usize);
        let back = Transmitter::new(&front.grants, RING).expect("it is a ring");
        Self { front, back }
    }

    fn put(&mut self, (reference, offset): (u32, u16), flags: u16, (id, size): (u16, u16)) {
        self.front.put(&TransmitRequest { reference, offset, flags, id, size }.to_bytes());
    }

    fn put_extra(&mut self, kind: u8, flags: u8, gso_size: u16) {
        let (gso_kind, padding, gso_features) = (gso::TCPV4, 0, 0);
        let info = ExtraInfo { kind, flags, gso_size, gso_kind, padding, gso_features };
        self.front.put(&info.to_bytes());
    }

    /// The next packet that the back-end takes.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Offload)>, Broken> {
        self.front.push();
        let mut room = vec![0xee; MAX_PACKET_BYTES];
        let next = self.back.next(&mut room)?;
        Ok(next.map(|(bytes, offload)| (room[..bytes].to_vec(), offload)))
    }

    fn answers(&mut self) -> Vec<(u16, i16)> {
        self.back.publish().expect("it is fine");
        let answers: Vec<TransmitResponse> = self.front.take();
        answers.iter().map(|answer| (answer.id, answer.status)).collect()
    }
}

#[test]
fn a_packet_is_taken_from_its_page() {
    let mut sender = Sender::new();
    sender.front.machine.fill(DATA, 7);
    sender.put((DATA, 100), transmit::CSUM_BLANK | transmit::DATA_VALIDATED, (5, 60));
    let expected = Offload { checksum: Checksum::Blank, segmentation: None };
    assert_eq!(sender.next(), Ok(Some((vec![7; 60], expected))));
    assert_eq!(sender.next(), Ok(None));
    assert_eq!(sender.answers(), [(5, status::OKAY)]);
    assert_eq!(sender.front.grants.in_use(), 1, "the ring's page");
}

#[test]
fn a_large_packet_has_several_slots_and_says_how_it_is_cut() {
    let mut sender = Sender::new();
    for (page, byte) in [(DATA, 1), (DATA + 1, 2), (DATA + 2, 3)] {
        sender.front.machine.fill(page, byte);
    }
    let first = transmit::MORE_DATA | transmit::EXTRA_INFO | transmit::CSUM_BLANK;
    sender.put((DATA, 4000), first, (1, 96 + 4096 + 10));
    sender.put_extra(extra::GSO, 0, 1448);
    sender.put((DATA + 1, 0), transmit::MORE_DATA, (2, 4096));
    sender.put((DATA + 2, 50), 0, (3, 10));
    let (packet, offload) = sender.next().expect("it is fine").expect("there is one");
    assert_eq!(packet, [vec![1; 96], vec![2; 4096], vec![3; 10]].concat());
    let segmentation = Some(Segmentation { kind: SegmentKind::Tcp4, bytes: 1448 });
    assert_eq!(offload, Offload { checksum: Checksum::Blank, segmentation });
    let expected = [(1, status::OKAY), (0, status::NULL), (2, status::OKAY), (3, status::OKAY)];
    assert_eq!(sender.answers(), expected);
}

#[test]
fn a_packet_that_makes_no_sense_is_answered_and_the_next_is_taken() {
    let check = |put: &dyn Fn(&mut Sender)| {
        let mut sender = Sender::new();
        put(&mut sender);
        sender.put((DATA, 0), 0, (77, 60));
        let (packet, _) = sender.next().expect("it is fine").expect("there is one");
        assert_eq!(packet.len(), 60);
        let answers = sender.answers();
        assert_eq!(answers.last(), Some(&(77, status::OKAY)));
        assert_eq!(answers.first().map(|answer| answer.1), Some(status::ERROR));
        assert_eq!(sender.front.grants.in_use(), 1);
    };
    // Over the page's end; too short for a header; no such grant; longer in its parts than in all.
    check(&|sender| sender.put((DATA, 4090), 0, (1, 60)));
    check(&|sender| sender.put((DATA, 0), 0, (1, 13)));
    check(&|sender| sender.put((600, 0), 0, (1, 60)));
    check(&|sender| {
        sender.put((DATA, 0), transmit::MORE_DATA, (1, 60));
        sender.put((DATA, 0), 0, (2, 60));
    });
    // What goes with it is of no kind, or is cut into nothing.
    for (kind, size) in [(extra::HASH, 10), (extra::GSO, 0)] {
        check(&|sender| {
            sender.put((DATA, 0), transmit::EXTRA_INFO, (1, 60));
            sender.put_extra(kind, 0, size);
        });
    }
}

#[test]
fn a_packet_without_its_end_breaks_the_ring() {
    let mut sender = Sender::new();
    sender.put((DATA, 0), transmit::MORE_DATA, (1, 60));
    assert_eq!(sender.next(), Err(Broken::Packet));
    let mut sender = Sender::new();
    sender.put((DATA, 0), transmit::EXTRA_INFO, (1, 60));
    assert_eq!(sender.next(), Err(Broken::Packet));
    let mut sender = Sender::new();
    for _ in 0..30 {
        sender.put((DATA, 0), transmit::MORE_DATA, (1, 60));
    }
    assert_eq!(sender.next(), Err(Broken::Packet));
    let mut sender = Sender::new();
    sender.put((DATA, 0), transmit::EXTRA_INFO, (1, 60));
    (0..6).for_each(|_| sender.put_extra(extra::GSO, extra::FLAG_MORE, 10));
    assert_eq!(sender.next(), Err(Broken::Packet));
    let mut sender = Sender::new();
    sender.front.produced = 300;
    assert!(matches!(sender.next(), Err(Broken::Index { .. })));
}

/// A front-end that receives.
struct Taker {
    front: Front,
    back: Receiver,
}

impl Taker {
    fn new(takes: Takes) -> Self {
        let front = Front::new(1, limit::RECEIVE_ENTRY_BYTES as usize);
        let back = Receiver::new(&front.grants, RING, takes).expect("it is a ring");
        Self { front, back }
    }

    /// Post pages from [`DATA`] on.
    fn post(&mut self, count: u32) {
        for number in 0..count {
            let (id, reference) = (number as u16, DATA + number);
            self.front.put(&ReceiveRequest { id, padding: 0, reference }.to_bytes());
        }
        self.front.push();
    }

    fn answers(&mut self) -> Vec<ReceiveResponse> {
        self.back.publish().expect("it is fine");
        self.front.take()
    }
}

#[test]
fn a_packet_fills_as_many_pages_as_it_needs() {
    let mut taker = Taker::new(ALL);
    taker.post(4);
    let packet: Vec<u8> = (0..PAGE_BYTES + 100).map(|index| index as u8 ^ 0x55).collect();
    let offload = Offload { checksum: Checksum::Valid, segmentation: None };
    assert_eq!(taker.back.give(&packet, offload), Ok(Given::Taken));
    let answers = taker.answers();
    let found: Vec<_> = answers.iter().map(|it| (it.id, it.flags, it.status)).collect();
    let first = receive::DATA_VALIDATED | receive::MORE_DATA;
    assert_eq!(found, [(0, first, 4096), (1, 0, 100)]);
    assert_eq!(taker.front.machine.page(DATA)[..], packet[..PAGE_BYTES]);
    assert_eq!(taker.front.machine.page(DATA + 1)[..100], packet[PAGE_BYTES..]);
    assert_eq!(taker.front.grants.in_use(), 1);
}

#[test]
fn a_large_packet_says_how_it_is_cut_to_who_takes_such() {
    let segmentation = Some(Segmentation { kind: SegmentKind::Tcp6, bytes: 1440 });
    let offload = Offload { checksum: Checksum::Blank, segmentation };
    let packet = vec![9; PAGE_BYTES * 2];
    let mut taker = Taker::new(ALL);
    taker.post(3);
    assert_eq!(taker.back.give(&packet, offload), Ok(Given::Taken));
    let answers = taker.answers();
    assert_ne!(answers[0].flags & receive::EXTRA_INFO, 0);
    let info = ExtraInfo::decode(&answers[1].to_bytes());
    assert_eq!((info.kind, info.gso_size, info.gso_kind), (extra::GSO, 1440, gso::TCPV6));
    assert_eq!((answers[2].id, answers[2].status), (2, 4096));
    // The second page was not used.
    assert_eq!(taker.front.machine.page(DATA + 1), [0; PAGE_BYTES]);
    let mut taker = Taker::new(Takes { large: [true, false], ..ALL });
    taker.post(3);
    assert_eq!(taker.back.give(&packet, offload), Ok(Given::Lost));
    let mut taker = Taker::new(Takes { several_pages: false, ..ALL });
    taker.post(3);
    assert_eq!(taker.back.give(&packet, Offload::default()), Ok(Given::Lost));
}

#[test]
fn who_has_no_room_is_asked_for_as_much_as_is_needed() {
    let mut taker = Taker::new(ALL);
    taker.post(1);
    let packet = vec![1; PAGE_BYTES * 2];
    assert_eq!(taker.back.give(&packet, Offload::default()), Ok(Given::NoRoom));
    assert_eq!(taker.answers().len(), 0);
    let (id, reference) = (1, DATA + 1);
    taker.front.put(&ReceiveRequest { id, padding: 0, reference }.to_bytes());
    assert!(taker.front.push(), "the back-end wants to know of it");
    assert_eq!(taker.back.give(&packet, Offload::default()), Ok(Given::Taken));
}

#[test]
fn a_packet_for_pages_that_are_not_granted_is_lost() {
    let mut taker = Taker::new(ALL);
    let (id, padding) = (3, 0);
    taker.front.put(&ReceiveRequest { id, padding, reference: 600 }.to_bytes());
    taker.front.push();
    assert_eq!(taker.back.give(&[1; 60], Offload::default()), Ok(Given::Lost));
    assert_eq!(taker.answers()[0].status, status::ERROR);
    assert_eq!(taker.front.grants.in_use(), 1);
}

#[test]
fn whatever_is_in_the_rings_nothing_is_written_but_what_is_granted() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..200 {
        let (mut sender, mut taker) = (Sender::new(), Taker::new(ALL));
        // No grant is for this frame.
        let (closed, none) = (30, EntryV1 { flags: 0, domain: 0, frame: 0 });
        for front in [&sender.front, &taker.front] {
            front.machine.fill(closed, 0xcc);
            front.machine.set_entry(closed, none);
        }
        for offset in (64..PAGE_BYTES as u64).step_by(8) {
            let word = random.u64(..) & random.u64(..) & 0x00ff_0fff_003f_007f;
            for front in [&sender.front, &taker.front] {
                let at = address(RING).plus(offset);
                front.machine.write(at, &word.to_le_bytes()).expect("it is there");
            }
        }
        for front in [&sender.front, &taker.front] {
            front.set(0, random.u32(0..300));
        }
        let mut packet = Vec::new();
        for _ in 0..300 {
            if !matches!(sender.back.next(&mut packet), Ok(Some(_))) {
                break;
            }
            assert!(packet.len() <= limit::TRANSMIT_BYTES as usize);
        }
        for _ in 0..50 {
            let bytes = vec![1; random.usize(0..9000)];
            if taker.back.give(&bytes, Offload::default()).is_err() {
                break;
            }
        }
        for front in [&sender.front, &taker.front] {
            assert_eq!(front.grants.in_use(), 1);
            assert_eq!(front.machine.page(closed), [0xcc; PAGE_BYTES]);
        }
    }
}
