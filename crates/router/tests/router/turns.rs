//! Whose turn it is, and how much everybody may send.

use router::{Interface, Next, PortId, Rate, Router, Time, limits};

use crate::frames::{BROADCAST, ip, mac, packet, udp_payload};
use crate::network::{NOW, frame, in_words, network, set_rules, turn, vif};

const SECOND: u64 = 1_000_000_000;

/// Serve ports, all of which always have frames of these lengths to send, for so many turns; bytes of each.
fn serve(router: &mut Router, lengths: &[(u16, usize)], turns: usize) -> Vec<u64> {
    let frames: Vec<_> = lengths.iter().map(|(id, length)| frame_of(*id as u8, *length)).collect();
    lengths.iter().for_each(|(id, _)| router.announce(PortId::Vif(*id)));
    for _ in 0..turns {
        let Next::Turn(mut turn) = router.next_turn(NOW) else { panic!("all have something") };
        let place = lengths.iter().position(|(id, _)| PortId::Vif(*id) == turn.port());
        while turn.has_room() {
            router.submit(&mut turn, &frame(&frames[place.expect("it is one of them")]), NOW);
        }
        router.end_turn(turn, true);
    }
    let sent =
        |(id, _): &(u16, usize)| router.counters(PortId::Vif(*id)).map(|it| it.transmitted.bytes);
    lengths.iter().map(|port| sent(port).expect("it is there")).collect()
}

/// To the world.
fn frame_of(id: u8, length: usize) -> Vec<u8> {
    let from = format!("10.0.0.{id}");
    packet((mac(id), &from), (mac(200), "8.8.8.8"), 17, &udp_payload(1, 2, length - 42))
}

#[test]
fn large_frames_gain_nothing() {
    let bytes = serve(&mut network(), &[(1, 1514), (2, 9014), (3, 65_000)], 600);
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(*most - *least <= 2 * 65_549 && *least > 190 * 65_536, "{bytes:?}");
}

#[test]
fn small_frames_are_counted_by_number() {
    let bytes = serve(&mut network(), &[(1, 100), (2, 1000)], 200);
    assert_eq!(bytes, [100 * 64 * 100, 100 * 64 * 1000]);
}

#[test]
fn a_broadcast_is_paid_for_each_copy() {
    let mut router = network();
    let to_all = (BROADCAST, "10.0.0.255");
    let broadcast = packet((mac(1), "10.0.0.1"), to_all, 17, &udp_payload(1, 2, 9000));
    let mut turn = turn(&mut router, PortId::Vif(1), NOW);
    let mut count = 0;
    while turn.has_room() {
        assert_eq!(in_words(&router.submit(&mut turn, &frame(&broadcast), NOW)), "2 3 uplink");
        count += 1;
    }
    assert_eq!(count, limits::TURN_BYTES.div_ceil(3 * broadcast.len() as u32));
    router.end_turn(turn, true);
}

#[test]
fn a_debt_is_paid_from_the_next_turns() {
    let mut router = network();
    let to_all = (BROADCAST, "10.0.0.255");
    let large = packet((mac(1), "10.0.0.1"), to_all, 17, &udp_payload(1, 2, 65_000));
    router.announce(PortId::Vif(1));
    router.announce(PortId::Vif(2));
    // Each of its frames is worth three turns, so the other has three while it has one.
    let bytes = frame_of(2, 1024);
    let mut order = Vec::new();
    for _ in 0..12 {
        let Next::Turn(mut turn) = router.next_turn(NOW) else { panic!("both have something") };
        order.push(turn.port());
        while turn.has_room() {
            let bytes = if turn.port() == PortId::Vif(1) { &large } else { &bytes };
            router.submit(&mut turn, &frame(bytes), NOW);
        }
        router.end_turn(turn, true);
    }
    let first = order.iter().filter(|port| **port == PortId::Vif(1)).count();
    assert!((3..=4).contains(&first), "{order:?}");
}

#[test]
fn who_is_announced_in_its_turn_has_another() {
    let mut router = network();
    let (one, two) = (PortId::Vif(1), PortId::Vif(2));
    router.announce(one);
    router.announce(one);
    router.announce(two);
    let Next::Turn(first) = router.next_turn(NOW) else { panic!("one has something") };
    router.announce(one);
    router.end_turn(first, false);
    let next: Vec<_> = (0..3)
        .map(|_| match router.next_turn(NOW) {
            Next::Turn(turn) => {
                let port = turn.port();
                router.end_turn(turn, false);
                Some(port)
            }
            _ => None,
        })
        .collect();
    assert_eq!(next, [Some(two), Some(one), None]);
}

#[test]
fn a_port_that_is_removed_in_its_turn_sends_nothing() {
    let mut router = network();
    let mut turn = turn(&mut router, PortId::Vif(1), NOW);
    router.remove(PortId::Vif(1)).expect("it is there");
    let bytes = frame_of(1, 100);
    assert_eq!(in_words(&router.submit(&mut turn, &frame(&bytes), NOW)), "no-destination");
    router.end_turn(turn, true);
    assert!(matches!(router.next_turn(NOW), Next::Idle));
}

/// Bytes that a port with a rate sends in a time, which always has something to send.
fn sent(rate: Rate, seconds: u64, length: usize) -> u64 {
    let mut router = network();
    router.set_rate(PortId::Vif(1), Some(rate), Time(0)).expect("it is possible");
    let bytes = frame_of(1, length);
    router.announce(PortId::Vif(1));
    let mut now = Time(0);
    while now.0 < seconds * SECOND {
        match router.next_turn(now) {
            Next::Turn(mut turn) => {
                while turn.has_room() {
                    router.submit(&mut turn, &frame(&bytes), now);
                }
                router.end_turn(turn, true);
            }
            Next::Wait(until) => {
                assert!(until > now, "it waits for what has been");
                now = until;
            }
            Next::Idle => panic!("it has something to send"),
        }
    }
    router.counters(PortId::Vif(1)).expect("it is there").transmitted.bytes
}

#[test]
fn rates_are_kept_to() {
    for (speed, burst, length) in
        [(1_000_000, 10_000, 1514), (12_345, 1, 60), (7, 100, 60), (250_000_000, 1 << 20, 65_000)]
    {
        let rate = Rate { bytes_per_second: speed, burst_bytes: burst };
        let (bytes, length_u64) = (sent(rate, 20, length), length as u64);
        let allowed = 20 * speed + burst;
        assert!(bytes <= allowed + length_u64, "{rate:?}: {bytes}");
        assert!(bytes + length_u64 >= 20 * speed, "{rate:?}: {bytes}");
    }
}

#[test]
fn a_rate_of_a_rule_drops_the_rest() {
    let mut router = network();
    set_rules(&mut router, PortId::Vif(1), "tx rate 10k burst 5k udp dst-port 2\n");
    let bytes = frame_of(1, 1000);
    let mut passed = 0;
    for millisecond in 0..10_000 {
        let now = Time(NOW.0 + millisecond * SECOND / 1000);
        let mut turn = turn(&mut router, PortId::Vif(1), now);
        passed += usize::from(router.submit(&mut turn, &frame(&bytes), now).dropped.is_none());
        router.end_turn(turn, false);
    }
    assert!((104..=106).contains(&passed), "{passed}");
    let counters = router.counters(PortId::Vif(1)).expect("it is there");
    assert_eq!(counters.dropped(router::Reason::Rate).packets, 10_000 - passed as u64);
}

#[test]
fn senders_of_one_ten_and_a_hundred_flows_share_evenly() {
    let bytes = serve(&mut network(), &[(1, 1514), (2, 1514), (3, 1514)], 3000);
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(most - least <= most / 100, "{bytes:?}");
}

#[test]
fn a_full_router_takes_no_more() {
    let mut router = Router::new();
    for number in 0..limits::MAX_VIFS as u16 {
        let [high, low] = number.to_be_bytes();
        let mac = router::Mac([2, 0, 0, 0, high, low]);
        let interface = Interface { mac: Some(mac), ..Interface::default() };
        router.add(PortId::Vif(number), interface, NOW).expect("there is room");
    }
    assert!(router.add(PortId::Vif(5000), vif(1), NOW).is_err());
    let uplink = Interface { addresses: vec![ip("10.0.0.254")], ..Interface::default() };
    router.add(PortId::Uplink, uplink, NOW).expect("it is no VIF");
    let (from, to) = ((router::Mac([2, 0, 0, 0, 0, 1]), "0.0.0.0"), (BROADCAST, "255.255.255.255"));
    let bytes = packet(from, to, 17, &udp_payload(68, 67, 40));
    let mut turn = turn(&mut router, PortId::Vif(1), NOW);
    let decision = router.submit(&mut turn, &frame(&bytes), NOW);
    assert_eq!(decision.destinations.len(), limits::MAX_VIFS);
    assert!(!turn.has_room(), "it has asked a thousand");
    router.end_turn(turn, false);
}
