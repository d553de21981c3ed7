//! The firewall-router with a guest as an adversary: frames of any kind, rules that change, ports that come and go.
//! What leaves its VIF has its addresses, nothing comes back to it, and every turn ends.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use router::{Frame, Interface, Mac, Next, PortId, Rate, Router, Time};

#[derive(Debug, Arbitrary)]
enum Step {
    /// A frame of a port, after an Ethernet header of its own for another.
    Packet {
        from: u8,
        to: u8,
        kind: u8,
        bytes: Vec<u8>,
    },
    /// Any bytes, as the beginning of a frame of this length.
    Raw {
        from: u8,
        length: u32,
        bytes: Vec<u8>,
    },
    Rules {
        port: u8,
        text: String,
    },
    Rate {
        port: u8,
        speed: Option<u32>,
    },
    Remove {
        port: u8,
    },
    Pass {
        nanoseconds: u32,
    },
}

const VIFS: u8 = 4;

fn port(number: u8) -> PortId {
    match number % (VIFS + 1) {
        VIFS => PortId::Uplink,
        number => PortId::Vif(number.into()),
    }
}

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number % (VIFS + 1)])
}

fn add(router: &mut Router, number: u8, now: Time) {
    let number = number % (VIFS + 1);
    let addresses =
        vec![[10, 0, 0, number].into(), [0xfd00, 0, 0, 0, 0, 0, 0, number.into()].into()];
    let interface = Interface { mac: Some(mac(number)), addresses, ..Interface::default() };
    let _ = router.add(port(number), interface, now);
}

fn send(router: &mut Router, from: u8, frame: &Frame<'_>, now: Time) {
    router.announce(port(from));
    let Next::Turn(mut turn) = router.next_turn(now) else { return };
    let sender = turn.port();
    let decision = router.submit(&mut turn, frame, now);
    assert!(!decision.destinations.is_empty() || decision.dropped.is_some());
    assert!(decision.destinations.iter().all(|it| it.port != sender));
    if let (PortId::Vif(number), false) = (sender, decision.destinations.is_empty()) {
        let number = number as u8;
        assert_eq!(frame.head[6..12], mac(number).0);
        match frame.head[12..14] {
            [8, 0] => {
                assert!(frame.head[26..30] == [0; 4] || frame.head[26..30] == [10, 0, 0, number])
            }
            [8, 6] => assert_eq!(frame.head[22..28], mac(number).0),
            _ => {}
        }
    }
    router.end_turn(turn, false);
}

fuzz_target!(|steps: Vec<Step>| {
    let (mut router, mut now) = (Router::new(), Time(0));
    (0..=VIFS).for_each(|number| add(&mut router, number, now));
    for step in steps {
        match step {
            Step::Packet { from, to, kind, bytes } => {
                let kind = [[8, 0], [8, 6], [0x86, 0xdd], [0x88, 0xb5]][usize::from(kind % 4)];
                let frame = [&mac(to).0[..], &mac(from).0, &kind, &bytes].concat();
                let frame =
                    Frame { head: &frame[..frame.len().min(128)], bytes: frame.len() as u32 };
                send(&mut router, from, &frame, now);
            }
            Step::Raw { from, length, bytes } => {
                send(&mut router, from, &Frame { head: &bytes, bytes: length }, now);
            }
            Step::Rules { port: at, text } => {
                if let Ok(rules) = text.parse() {
                    let _ = router.set_rules(port(at), &rules, now);
                }
            }
            Step::Rate { port: at, speed } => {
                let _ = router.set_rate(port(at), speed.map(|speed| Rate::new(speed.into())), now);
            }
            Step::Remove { port: at } => {
                let _ = router.remove(port(at));
                add(&mut router, at, now);
            }
            Step::Pass { nanoseconds } => now = Time(now.0.saturating_add(nanoseconds.into())),
        }
    }
});
