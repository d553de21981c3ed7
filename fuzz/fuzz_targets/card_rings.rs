//! The two rings of a domain's network card, of which the input is the front-end: slots with a form and without, where
//! it says that they end, the grants that it gives and takes back, and packets for it. Nothing is taken that is too
//! long, nothing is written but what is granted, and no grant is kept.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use xen_abi::PAGE_BYTES;
use xen_abi::grant::EntryV1;
use xen_abi::net::{ExtraInfo, ReceiveRequest, TransmitRequest, extra, limit};
use xen_fronts::machine::{DATA, Front, RING, address};
use xen_io::Memory;
use xen_io::network::{Checksum, Offload, Receiver, SegmentKind, Segmentation, Takes, Transmitter};

/// No grant is for this frame.
const CLOSED: u32 = DATA + 100;

/// Packets that are taken at once.
const MAX_PACKETS: usize = 300;

#[derive(Debug, Arbitrary)]
enum Step {
    Send { reference: u8, offset: u16, flags: u8, size: u16 },
    Extra { kind: u8, flags: u8, size: u16, of: u8 },
    Post { reference: u8 },
    Push { receives: bool },
    Index { receives: bool, which: u8, value: u32 },
    Slot { receives: bool, at: u16, value: u64 },
    Permit { receives: bool, reference: u8, frame: u8, flags: u8 },
    Revoke { receives: bool, reference: u8 },
    Take,
    Sleep,
    Give { bytes: u16, blank: bool, cut: Option<(bool, u16)> },
}

struct Card {
    sender: Front,
    transmitter: Transmitter,
    taker: Front,
    receiver: Receiver,
}

impl Card {
    fn new(takes: Takes) -> Self {
        let sender = Front::new(1, limit::TRANSMIT_ENTRY_BYTES as usize);
        let taker = Front::new(1, limit::RECEIVE_ENTRY_BYTES as usize);
        let transmitter = Transmitter::new(&sender.grants, RING).expect("it is a ring");
        let receiver = Receiver::new(&taker.grants, RING, takes).expect("it is a ring");
        for front in [&sender, &taker] {
            front.machine.fill(CLOSED, 0xcc);
            front.machine.set_entry(CLOSED, EntryV1 { flags: 0, domain: 0, frame: 0 });
        }
        Self { sender, transmitter, taker, receiver }
    }

    fn front(&mut self, receives: bool) -> &mut Front {
        if receives { &mut self.taker } else { &mut self.sender }
    }

    /// Whatever was put into a ring lately may be gone: there is always room.
    fn put(&mut self, receives: bool, bytes: &[u8]) {
        let front = self.front(receives);
        if front.produced.wrapping_sub(front.consumed) >= 250 {
            front.consumed = front.produced.wrapping_sub(1);
        }
        front.put(bytes);
    }

    fn carry_out(&mut self, step: &Step) {
        match *step {
            Step::Send { reference, offset, flags, size } => {
                let (reference, offset) = (DATA + u32::from(reference % 120), offset % 4200);
                let flags = u16::from(flags & 0xf);
                let request = TransmitRequest { reference, offset, flags, id: 1, size };
                self.put(false, &request.to_bytes());
            }
            Step::Extra { kind, flags, size, of } => {
                let (kind, flags) = (kind % 5, flags & extra::FLAG_MORE);
                let (gso_kind, padding, gso_features) = (of % 4, 0, 0);
                let info =
                    ExtraInfo { kind, flags, gso_size: size, gso_kind, padding, gso_features };
                self.put(false, &info.to_bytes());
            }
            Step::Post { reference } => {
                let reference = DATA + u32::from(reference % 120);
                let request = ReceiveRequest { id: 1, padding: 0, reference };
                self.put(true, &request.to_bytes());
            }
            Step::Push { receives } => _ = self.front(receives).push(),
            Step::Index { receives, which, value } => {
                self.front(receives).set(4 * u64::from(which % 4), value);
            }
            Step::Slot { receives, at, value } => {
                let place = address(RING).plus(u64::from(at % 512) * 8);
                let machine = &self.front(receives).machine;
                machine.write(place, &value.to_le_bytes()).expect("it is there");
            }
            Step::Permit { receives, reference, frame, flags } => {
                let (reference, frame) = (DATA + u32::from(reference % 120), u32::from(frame % 99));
                let machine = &self.front(receives).machine;
                machine.permit(reference, DATA + frame, flags.into());
            }
            Step::Revoke { receives, reference } => {
                let none = EntryV1 { flags: 0, domain: 0, frame: 0 };
                self.front(receives).machine.set_entry(DATA + u32::from(reference % 120), none);
            }
            Step::Take => self.take(),
            Step::Sleep => _ = self.transmitter.sleep(),
            Step::Give { bytes, blank, cut } => {
                let kind = |six| if six { SegmentKind::Tcp6 } else { SegmentKind::Tcp4 };
                let segmentation = cut.map(|(six, bytes)| Segmentation { kind: kind(six), bytes });
                let checksum = if blank { Checksum::Blank } else { Checksum::Valid };
                let packet = vec![1; usize::from(bytes).max(14)];
                let _ = self.receiver.give(&packet, Offload { checksum, segmentation });
                let _ = self.receiver.publish();
            }
        }
    }

    fn take(&mut self) {
        let mut room = vec![0; limit::TRANSMIT_BYTES as usize];
        for _ in 0..MAX_PACKETS {
            match self.transmitter.next(&mut room) {
                Ok(Some((bytes, _))) => assert!(bytes <= room.len()),
                _ => break,
            }
        }
        let _ = self.transmitter.publish();
    }

    fn check(&self) {
        for front in [&self.sender, &self.taker] {
            assert_eq!(front.grants.in_use(), 1, "the ring's page");
            assert_eq!(front.machine.page(CLOSED), [0xcc; PAGE_BYTES]);
        }
    }
}

fuzz_target!(|input: (u8, Vec<Step>)| {
    let (takes, steps) = input;
    let is = |bit: u8| takes >> bit & 1 != 0;
    let takes = Takes { several_pages: is(0), large: [is(1), is(2)], blank: [is(3), is(4)] };
    let mut card = Card::new(takes);
    steps.iter().for_each(|step| card.carry_out(step));
    card.check();
});
