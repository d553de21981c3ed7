//! Frames that mean harm, or nothing.

use proptest::prelude::*;
use router::{Frame, Mac, PortId};

use crate::frames::{ethernet, mac, packet, tcp, udp, udp_payload};
use crate::network::{NOW, frame, in_words, network, send, set_rules, turn};

const ONE: (Mac, &str) = (Mac([2, 0x16, 0x3e, 0, 0, 1]), "10.0.0.1");
const TWO: (Mac, &str) = (Mac([2, 0x16, 0x3e, 0, 0, 2]), "10.0.0.2");
const ONE_6: (Mac, &str) = (ONE.0, "2001:db8::1");
const TWO_6: (Mac, &str) = (TWO.0, "2001:db8::2");

#[track_caller]
fn check(bytes: &[u8], expected: &str) {
    assert_eq!(send(&mut network(), PortId::Vif(1), bytes), expected);
}

/// A frame with another byte at a place of its packet.
fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[14 + at] = byte;
    frame
}

#[test]
fn lengths_are_compared() {
    let fine = udp(ONE, TWO, (1, 2));
    check(&fine, "2");
    for length in 0..fine.len() {
        check(&fine[..length], "malformed");
    }
    // What follows the packet is padding.
    check(&[&fine[..], &[0; 30]].concat(), "2");
    check(&with(fine.clone(), 0, 0x44), "malformed");
    check(&with(fine.clone(), 0, 0x4f), "malformed");
    check(&with(fine.clone(), 0, 0x55), "malformed");
    check(&with(fine.clone(), 25, 7), "malformed");
    check(&with(fine.clone(), 24, 1), "malformed");
    check(&with(tcp(ONE, TWO, (1, 2), 0), 32, 0x40), "malformed");
    check(&with(udp(ONE_6, TWO_6, (1, 2)), 5, 19), "malformed");
    let mut router = network();
    let mut turn = turn(&mut router, PortId::Vif(1), NOW);
    let long = Frame { head: &fine, bytes: 65_550 };
    assert_eq!(in_words(&router.submit(&mut turn, &long, NOW)), "too-long");
    // Less of it than could be seen.
    let cut = Frame { head: &fine, bytes: 1000 };
    assert_eq!(in_words(&router.submit(&mut turn, &cut, NOW)), "malformed");
    router.end_turn(turn, false);
}

/// A packet of IPv4 with options.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut payload = options.to_vec();
    payload.extend(udp_payload(1, 2, 3));
    with(packet(ONE, TWO, 17, &payload), 0, 0x45 + (options.len() / 4) as u8)
}

#[test]
fn options_do_not_lead_astray() {
    check(&with_options(&[1, 1, 1, 0]), "2");
    check(&with_options(&[148, 4, 0, 0]), "2");
    check(&with_options(&[131, 3, 4, 0]), "source-routed");
    check(&with_options(&[1, 137, 3, 4]), "source-routed");
    check(&with_options(&[148, 4, 0, 0, 1, 1, 1, 131]), "source-routed");
    check(&with_options(&[148, 0, 0, 0]), "malformed");
    check(&with_options(&[148, 5, 0, 0]), "malformed");
    check(&with_options(&[1, 1, 1, 148]), "malformed");
    // What is after the end is nothing.
    check(&with_options(&[0, 131, 3, 4]), "2");
    let mut router = network();
    set_rules(&mut router, PortId::Vif(2), "rx drop udp dst-port 2\n");
    let bytes = with_options(&[1; 40]);
    assert_eq!(send(&mut router, PortId::Vif(1), &bytes), "rule");
}

#[test]
fn extension_headers_hide_nothing() {
    let mut router = network();
    set_rules(&mut router, PortId::Vif(2), "rx drop udp dst-port 2\n");
    let mut check = |first: u8, headers: &[u8], expected: &str| {
        let payload = [headers, &udp_payload(1, 2, 3)].concat();
        let bytes = packet(ONE_6, TWO_6, first, &payload);
        assert_eq!(send(&mut router, PortId::Vif(1), &bytes), expected, "{first} {headers:?}");
    };
    let header = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    check(17, &[], "rule");
    check(60, &header(17), "rule");
    check(0, &header(17), "rule");
    check(0, &[header(60), header(17)].concat(), "rule");
    check(60, &[header(0), header(17)].concat(), "malformed");
    check(51, &[17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], "rule");
    check(43, &[17, 0, 0, 0, 0, 0, 0, 0], "rule");
    check(43, &[17, 0, 0, 1, 0, 0, 0, 0], "source-routed");
    check(43, &[17, 0, 4, 1, 0, 0, 0, 0], "source-routed");
    check(44, &[17, 0, 0, 0, 0, 0, 0, 1], "rule");
    check(44, &[44, 0, 0, 0, 0, 0, 0, 1, 17, 0, 0, 0, 0, 0, 0, 1], "malformed");
    check(60, &[17, 200, 0, 0, 0, 0, 0, 0], "malformed");
    check(60, &[&[header(60); 7].concat()[..], &header(17)].concat(), "rule");
    // One more than is looked at, before a protocol that nothing is known of.
    check(60, &[&[header(60); 7].concat()[..], &header(99)].concat(), "2");
    check(60, &[&[header(60); 8].concat()[..], &header(99)].concat(), "malformed");
    // A later fragment has no ports.
    check(44, &[17, 0, 0, 8, 0, 0, 0, 1], "2");
}

#[test]
fn the_first_fragment_has_all_headers() {
    // As a first fragment that is followed by more, of whole eights of bytes.
    let first = |bytes: Vec<u8>| with(bytes, 6, 0x20);
    check(&first(packet(ONE, TWO, 6, &[0; 8])), "malformed");
    check(&first(packet(ONE, TWO, 6, &[0; 16])), "malformed");
    let mut header = [0; 24];
    header[12] = 0x50;
    check(&first(packet(ONE, TWO, 6, &header)), "2");
    check(&first(packet(ONE, TWO, 6, &header[..23])), "malformed");
    check(&first(packet(ONE, TWO, 17, &udp_payload(1, 2, 8))), "2");
    // Neighbour discovery is not cut into pieces.
    let advertisement =
        [&[58, 0, 0, 1, 0, 0, 0, 1, 136, 0, 0, 0, 0, 0, 0, 0][..], &[0; 16]].concat();
    check(&packet(ONE_6, TWO_6, 44, &advertisement), "malformed");
}

#[test]
fn options_of_neighbour_discovery_are_whole() {
    let message = |options: &[u8]| {
        let target = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let payload = [&[136, 0, 0, 0, 0, 0, 0, 0][..], &target, options].concat();
        packet(ONE_6, TWO_6, 58, &payload)
    };
    let link = [&[2, 1][..], &ONE.0.0].concat();
    check(&message(&link), "2");
    check(&message(&[0; 8]), "malformed");
    check(&message(&[14, 2, 0, 0, 0, 0, 0, 0]), "malformed");
    check(&message(&link[..7]), "malformed");
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    check(&message(&[&nonce[..], &link].concat()), "2");
    let others = [&link[..], &[1, 1], &TWO.0.0].concat();
    check(&message(&others), "malformed");
    // They go on after what is looked at.
    check(&message(&nonce.repeat(8)), "malformed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever VIF 1 sends, what arrives at VIF 2 has VIF 1's addresses.
    #[test]
    fn any_bytes_have_an_answer(
        kind in prop_oneof![Just(0x800_u16), Just(0x86dd), Just(0x806), any::<u16>()],
        start in 0..4_usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        changed in proptest::collection::vec((0..100_usize, any::<u8>()), 0..6),
    ) {
        let mut frame_bytes = match start {
            0 => ethernet(mac(1), mac(2), kind, &bytes),
            1 => packet(ONE, TWO, 17, &bytes),
            2 => packet(ONE_6, TWO_6, 0, &bytes),
            _ => tcp(ONE, TWO, (1, 2), 2),
        };
        for (at, byte) in changed {
            if let Some(place) = frame_bytes.get_mut(at) {
                *place = byte;
            }
        }
        let mut router = network();
        let mut turn = turn(&mut router, PortId::Vif(1), NOW);
        let decision = router.submit(&mut turn, &frame(&frame_bytes), NOW);
        let arrives = !decision.destinations.is_empty();
        prop_assert!(arrives || decision.dropped.is_some());
        prop_assert!(decision.destinations.iter().all(|it| it.port != PortId::Vif(1)));
        if arrives {
            prop_assert_eq!(&frame_bytes[6..12], &mac(1).0);
            if frame_bytes[12..14] == [8, 0] && frame_bytes[26..30] != [0; 4] {
                prop_assert_eq!(&frame_bytes[26..30], &[10, 0, 0, 1]);
            }
        }
        let counters = router.counters(PortId::Vif(1)).expect("it is there").clone();
        prop_assert_eq!(counters.transmitted.packets, 1);
        router.end_turn(turn, false);
    }
}
