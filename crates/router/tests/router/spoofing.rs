//! Nobody speaks for another.

use router::{Interface, Mac, PortId, Reason};

use crate::frames::{BROADCAST, arp, ethernet, mac, neighbour, packet, tcp, udp, udp_payload};
use crate::network::{NOW, dropped, network, send, set_rules, vif};

const GATEWAY: (Mac, &str) = (Mac([2, 0x16, 0x3e, 0, 0, 0]), "10.0.0.254");
const ONE: (Mac, &str) = (Mac([2, 0x16, 0x3e, 0, 0, 1]), "10.0.0.1");
const TWO: (Mac, &str) = (Mac([2, 0x16, 0x3e, 0, 0, 2]), "10.0.0.2");
const ALL_NODES: (Mac, &str) = (Mac([0x33, 0x33, 0, 0, 0, 1]), "ff02::1");
const ALL_ROUTERS: (Mac, &str) = (Mac([0x33, 0x33, 0, 0, 0, 2]), "ff02::2");

/// What becomes of a frame of VIF 1, and that it is counted there if it is dropped.
#[track_caller]
fn check(bytes: &[u8], expected: &str) {
    let mut router = network();
    set_rules(&mut router, PortId::Vif(1), "tx accept\n");
    assert_eq!(send(&mut router, PortId::Vif(1), bytes), expected);
    if let Some(reason) = Reason::ALL.iter().find(|reason| reason.name() == expected) {
        assert_eq!(dropped(&router, PortId::Vif(1), *reason), 1);
    }
}

#[test]
fn a_vif_has_only_its_own_addresses() {
    check(&udp(ONE, TWO, (1000, 53)), "2");
    check(&udp((mac(3), ONE.1), TWO, (1000, 53)), "spoofed-mac");
    check(&udp((ONE.0, "10.0.0.3"), TWO, (1000, 53)), "spoofed-address");
    check(&udp((ONE.0, "2001:db8::1"), (TWO.0, "2001:db8::2"), (1000, 53)), "2");
    check(&udp((ONE.0, "2001:db8::3"), (TWO.0, "2001:db8::2"), (1000, 53)), "spoofed-address");
    check(&udp((ONE.0, "fe80::16:3eff:fe00:1"), (TWO.0, "fe80::16:3eff:fe00:2"), (9, 9)), "2");
    check(&udp((ONE.0, "fe80::16:3eff:fe00:2"), (TWO.0, "2001:db8::2"), (9, 9)), "spoofed-address");
    check(&ethernet(mac(2), mac(3), 0x88b5, &[0; 50]), "spoofed-mac");
}

#[test]
fn arp_says_nothing_of_others() {
    check(&arp(ONE.0, BROADCAST, true, ONE, "10.0.0.2"), "2");
    check(&arp(ONE.0, BROADCAST, true, (TWO.0, ONE.1), "10.0.0.2"), "spoofed-arp");
    check(&arp(ONE.0, BROADCAST, true, (ONE.0, "10.0.0.254"), "10.0.0.2"), "spoofed-arp");
    check(&arp(ONE.0, TWO.0, false, (ONE.0, "10.0.0.3"), "10.0.0.2"), "spoofed-arp");
    check(&arp(ONE.0, TWO.0, false, ONE, "10.0.0.2"), "2");
    check(&arp(ONE.0, BROADCAST, true, (ONE.0, "0.0.0.0"), "10.0.0.1"), "2 3 uplink");
    check(&arp(ONE.0, BROADCAST, true, (ONE.0, "0.0.0.0"), "10.0.0.2"), "spoofed-arp");
    check(&arp(ONE.0, BROADCAST, false, (ONE.0, "0.0.0.0"), "10.0.0.1"), "spoofed-arp");
}

#[test]
fn neighbour_discovery_says_nothing_of_others() {
    let from = (ONE.0, "2001:db8::1");
    let (own, other) = (Some((2, ONE.0)), Some((2, TWO.0)));
    check(&neighbour(from, ALL_NODES, 136, "2001:db8::1", own), "2 3 uplink");
    check(&neighbour(from, ALL_NODES, 136, "2001:db8::1", other), "spoofed-neighbour");
    check(&neighbour(from, ALL_NODES, 136, "2001:db8::2", own), "spoofed-neighbour");
    check(&neighbour(from, ALL_NODES, 135, "2001:db8::2", Some((1, ONE.0))), "2");
    check(&neighbour(from, ALL_NODES, 135, "2001:db8::2", Some((1, TWO.0))), "spoofed-neighbour");
    check(
        &neighbour((ONE.0, "2001:db8::2"), ALL_NODES, 135, "2001:db8::3", None),
        "spoofed-address",
    );
    // Looking for duplicates of its own address, and of another's.
    check(&neighbour((ONE.0, "::"), ALL_NODES, 135, "2001:db8::1", None), "2 3 uplink");
    check(&neighbour((ONE.0, "::"), ALL_NODES, 135, "2001:db8::2", None), "spoofed-neighbour");
    check(&neighbour((ONE.0, "::"), ALL_ROUTERS, 133, "::", None), "2 3 uplink");
    check(&neighbour((ONE.0, "::"), ALL_ROUTERS, 133, "::", Some((1, ONE.0))), "spoofed-address");
}

#[test]
fn routers_and_servers_of_addresses_are_not_guests() {
    check(&neighbour((ONE.0, "2001:db8::1"), ALL_NODES, 134, "::", None), "rogue-service");
    check(&neighbour((ONE.0, "2001:db8::1"), ALL_NODES, 137, "::", None), "rogue-service");
    check(&udp(ONE, (BROADCAST, "255.255.255.255"), (67, 68)), "rogue-service");
    check(&udp((ONE.0, "2001:db8::1"), (TWO.0, "2001:db8::2"), (547, 546)), "rogue-service");
    // TCP's port 67 is nothing special.
    check(&tcp(ONE, TWO, (67, 68), 2), "2");
}

#[test]
fn who_has_no_address_yet_may_ask_for_one() {
    let nobody = (ONE.0, "0.0.0.0");
    let all = (BROADCAST, "255.255.255.255");
    check(&udp(nobody, all, (68, 67)), "2 3 uplink");
    check(&udp(nobody, all, (68, 53)), "spoofed-address");
    check(&udp(nobody, TWO, (68, 67)), "spoofed-address");
    check(&packet(nobody, all, 1, &[8, 0, 0, 0]), "spoofed-address");
    let report = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &[143, 0, 0, 0, 0, 0, 0, 0]].concat();
    check(&packet((ONE.0, "::"), ALL_NODES, 0, &report), "2 3 uplink");
    check(&packet((ONE.0, "::"), ALL_NODES, 17, &udp_payload(1, 2, 0)), "spoofed-address");
}

#[test]
fn a_vif_without_ipv6_has_no_link_local_address() {
    let mut router = network();
    router.remove(PortId::Vif(1)).expect("it is there");
    let addresses = vec![crate::frames::ip("10.0.0.1")];
    router.add(PortId::Vif(1), Interface { addresses, ..vif(1) }, NOW).expect("it is free");
    let bytes = udp((ONE.0, "fe80::16:3eff:fe00:1"), (TWO.0, "2001:db8::2"), (9, 9));
    assert_eq!(send(&mut router, PortId::Vif(1), &bytes), "spoofed-address");
}

#[test]
fn the_world_is_none_of_ours() {
    let check = |bytes: &[u8], expected: &str| {
        assert_eq!(send(&mut network(), PortId::Uplink, bytes), expected);
    };
    check(&udp(GATEWAY, ONE, (53, 1000)), "1");
    check(&udp((GATEWAY.0, TWO.1), ONE, (53, 1000)), "spoofed-address");
    check(&udp((TWO.0, "8.8.8.8"), ONE, (53, 1000)), "spoofed-mac");
    check(&arp(GATEWAY.0, BROADCAST, true, (GATEWAY.0, TWO.1), ONE.1), "spoofed-arp");
    check(&arp(GATEWAY.0, BROADCAST, true, GATEWAY, ONE.1), "1");
    let outside = (GATEWAY.0, "fe80::1");
    let claim = neighbour(outside, ALL_NODES, 136, "2001:db8::2", None);
    check(&claim, "spoofed-neighbour");
    check(&neighbour(outside, ALL_NODES, 134, "::", None), "1 2 3");
}

#[test]
fn a_trusted_vif_speaks_for_whom_it_likes() {
    let mut router = network();
    router.remove(PortId::Vif(1)).expect("it is there");
    router.add(PortId::Vif(1), Interface { is_trusted: true, ..vif(1) }, NOW).expect("it is free");
    let bytes = udp((ONE.0, "192.168.7.7"), TWO, (9, 9));
    assert_eq!(send(&mut router, PortId::Vif(1), &bytes), "2");
    // And gets what is not for itself.
    let bytes = udp(TWO, (ONE.0, "192.168.7.7"), (9, 9));
    assert_eq!(send(&mut router, PortId::Vif(2), &bytes), "1");
}
