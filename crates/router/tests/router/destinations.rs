//! Who gets a frame.

use router::{ConfigurationError, Interface, Mac, PortId, Reason};

use crate::frames::{ACK, BROADCAST, SYN, arp, ethernet, ip, mac, packet, tcp, udp, udp_payload};
use crate::network::{NOW, dropped, network, send, set_rules, vif};

const ONE: (Mac, &str) = (Mac([2, 0x16, 0x3e, 0, 0, 1]), "10.0.0.1");
const TWO: (Mac, &str) = (Mac([2, 0x16, 0x3e, 0, 0, 2]), "10.0.0.2");
const GATEWAY: Mac = Mac([2, 0x16, 0x3e, 0, 0, 0]);
const WORLD: (Mac, &str) = (GATEWAY, "8.8.8.8");

/// Where a frame of a port goes, with these rules of VIF 2.
#[track_caller]
fn check(rules: &str, from: PortId, bytes: &[u8], expected: &str) {
    let mut router = network();
    set_rules(&mut router, PortId::Vif(2), rules);
    assert_eq!(send(&mut router, from, bytes), expected, "{rules}");
}

#[test]
fn addresses_lead_to_their_ports() {
    let one = PortId::Vif(1);
    check("", one, &udp(ONE, TWO, (1, 2)), "2");
    check("", one, &udp(ONE, WORLD, (1, 2)), "uplink");
    check("", one, &udp(ONE, (TWO.0, "10.0.0.3"), (1, 2)), "not-its-address");
    check("", one, &udp(ONE, (TWO.0, "8.8.8.8"), (1, 2)), "not-its-address");
    check("", one, &udp(ONE, ONE, (1, 2)), "no-destination");
    check("", PortId::Uplink, &udp(WORLD, TWO, (1, 2)), "2");
    check("", PortId::Uplink, &udp(WORLD, (mac(9), "10.0.0.9"), (1, 2)), "no-destination");
    // What outside has for one address of Ethernet and several of IP.
    check("", PortId::Uplink, &udp(WORLD, (mac(9), "10.0.0.3"), (1, 2)), "3=..03");
}

#[test]
fn broadcasts_go_to_those_whom_they_concern() {
    let one = PortId::Vif(1);
    let all = (BROADCAST, "255.255.255.255");
    check("", one, &udp(ONE, all, (1, 2)), "2 3 uplink");
    check("", one, &udp(ONE, (BROADCAST, "10.0.0.255"), (1, 2)), "2 3 uplink");
    check("", one, &udp(ONE, (BROADCAST, "10.0.0.3"), (1, 2)), "3");
    check("", one, &udp(ONE, (Mac([1, 0, 0x5e, 0, 0, 251]), "224.0.0.251"), (1, 2)), "2 3 uplink");
    check("", one, &arp(ONE.0, BROADCAST, true, ONE, "10.0.0.2"), "2");
    check("", one, &arp(ONE.0, BROADCAST, true, ONE, "10.0.0.254"), "uplink");
    check("", one, &arp(ONE.0, BROADCAST, true, ONE, "10.0.0.1"), "2 3 uplink");
    check("rx drop udp", one, &udp(ONE, all, (1, 2)), "3 uplink");
    check(
        "",
        PortId::Uplink,
        &arp(GATEWAY, BROADCAST, true, (GATEWAY, "10.0.0.254"), "10.0.0.99"),
        "no-destination",
    );
}

#[test]
fn rules_decide_in_their_order() {
    let two = PortId::Vif(2);
    let (web, other) = (tcp(ONE, TWO, (999, 80), SYN), tcp(ONE, TWO, (999, 81), SYN));
    for (rules, web_goes, other_goes) in [
        ("rx accept tcp dst-port 80\nrx drop", "2", "rule"),
        ("rx drop\nrx accept tcp dst-port 80", "rule", "rule"),
        ("rx drop tcp syn dst-port 80-80 src 10.0.0.0/24", "rule", "2"),
        ("rx drop tcp syn dst-port 80 src 10.0.1.0/24", "2", "2"),
        ("rx drop src-mac 02:16:3e:00:00:01 dst-mac 02:16:3e:00:00:02", "rule", "rule"),
        ("rx drop udp\nrx drop ipv6\nrx drop icmp\nrx drop arp", "2", "2"),
        ("rx drop tcp src-port 1-998", "2", "2"),
        ("rx to vif 3 tcp dst-port 81", "2", "3=..03"),
        ("rx to uplink", "uplink", "uplink"),
        ("rx to vif 2 tcp", "2", "2"),
        ("rx to vif 77", "no-destination", "no-destination"),
        ("rx to vif 1", "no-destination", "no-destination"),
    ] {
        check(rules, PortId::Vif(1), &web, web_goes);
        check(rules, PortId::Vif(1), &other, other_goes);
    }
    check("rx drop tcp syn", PortId::Vif(1), &tcp(ONE, TWO, (9, 80), SYN | ACK), "2");
    check("tx drop icmp", two, &packet(TWO, ONE, 1, &[8, 0, 0, 0]), "rule");
    check("tx drop icmp", two, &packet(TWO, ONE, 58, &[8, 0, 0, 0]), "1");
    check("tx to vif 3 udp dst-port 53", two, &udp(TWO, WORLD, (9, 53)), "3=..03");
    check("tx to vif 3 udp dst-port 53", two, &udp(TWO, WORLD, (9, 54)), "uplink");
    check("tx drop arp dst 10.0.0.1", two, &arp(TWO.0, BROADCAST, true, TWO, ONE.1), "rule");
    check("tx drop arp src 10.0.0.1", two, &arp(TWO.0, BROADCAST, true, TWO, ONE.1), "1");
}

#[test]
fn what_is_no_ip_needs_a_rule() {
    let bytes = ethernet(TWO.0, ONE.0, 0x88b5, &[0; 50]);
    check("", PortId::Vif(2), &bytes, "other-protocol");
    check("tx accept ethertype 0x88b5", PortId::Vif(2), &bytes, "1");
    check("tx accept ethertype 0x88b6", PortId::Vif(2), &bytes, "other-protocol");
    // A length (IEEE 802.3) is no kind.
    check(
        "tx accept ipv4",
        PortId::Vif(2),
        &ethernet(TWO.0, ONE.0, 50, &[0; 50]),
        "other-protocol",
    );
    check("tx accept", PortId::Vif(2), &ethernet(TWO.0, ONE.0, 0x8100, &[0; 50]), "tagged");
}

#[test]
fn later_fragments_have_no_ports() {
    let fragment = |offset: u16, protocol| {
        let mut bytes = packet(ONE, TWO, protocol, &[0; 24]);
        bytes[20..22].copy_from_slice(&(offset / 8).to_be_bytes());
        bytes
    };
    let one = PortId::Vif(1);
    check("rx drop udp dst-port 0", one, &fragment(1480, 17), "2");
    check("rx drop udp", one, &fragment(1480, 17), "rule");
    check("rx drop fragment", one, &fragment(1480, 17), "rule");
    check("rx drop fragment", one, &udp(ONE, TWO, (1, 2)), "2");
    check("rx accept udp dst-port 0\nrx drop", one, &fragment(1480, 17), "rule");
    // It would overwrite what was looked at.
    check("", one, &fragment(8, 6), "malformed");
    check("", one, &fragment(16, 6), "2");
    // Put together, it would be longer than a packet can be.
    check("", one, &fragment(65528, 17), "malformed");
}

#[test]
fn rules_in_a_circle_come_to_an_end() {
    let mut router = network();
    set_rules(&mut router, PortId::Vif(2), "rx to vif 3");
    set_rules(&mut router, PortId::Vif(3), "rx to vif 2");
    assert_eq!(send(&mut router, PortId::Vif(1), &udp(ONE, TWO, (1, 2))), "loop");
    set_rules(&mut router, PortId::Vif(3), "");
    // Both copies of a broadcast end at the same port, which gets one.
    let all = (BROADCAST, "255.255.255.255");
    assert_eq!(send(&mut router, PortId::Vif(1), &udp(ONE, all, (1, 2))), "3 uplink");
}

#[test]
fn the_world_is_told_apart_by_port() {
    let mut router = network();
    set_rules(&mut router, PortId::Uplink, "tx to vif 3 tcp dst-port 8080 dst 10.0.0.99\n");
    let to = (mac(99), "10.0.0.99");
    assert_eq!(send(&mut router, PortId::Uplink, &tcp(WORLD, to, (1, 8080), SYN)), "3=..03");
    assert_eq!(send(&mut router, PortId::Uplink, &tcp(WORLD, to, (1, 80), SYN)), "no-destination");
}

#[test]
fn everything_is_counted() {
    let mut router = network();
    let bytes = udp(ONE, TWO, (1, 2));
    let length = bytes.len() as u64;
    set_rules(&mut router, PortId::Vif(2), "rx accept udp src-port 1\nrx drop");
    assert_eq!(send(&mut router, PortId::Vif(1), &bytes), "2");
    assert_eq!(send(&mut router, PortId::Vif(1), &tcp(ONE, TWO, (1, 2), 0)), "rule");
    let counted = |router: &router::Router, number| {
        let counters = router.counters(PortId::Vif(number)).expect("it is there").clone();
        (counters.transmitted, counters.received)
    };
    assert_eq!(counted(&router, 1).0.packets, 2);
    let received = counted(&router, 2).1;
    assert_eq!((received.packets, received.bytes), (1, length));
    assert_eq!(dropped(&router, PortId::Vif(2), Reason::Rule), 1);
    assert_eq!(dropped(&router, PortId::Vif(1), Reason::Rule), 0);
    router.undelivered(PortId::Vif(2), bytes.len() as u32);
    assert_eq!(counted(&router, 2).1.packets, 0);
    assert_eq!(dropped(&router, PortId::Vif(2), Reason::NoBuffer), 1);
    let tallies = |router: &router::Router| {
        router.rules(PortId::Vif(2)).iter().map(|rule| rule.2.packets).collect::<Vec<_>>()
    };
    assert_eq!(tallies(&router), [1, 1]);
    // A rule that stays goes on with what it has counted.
    set_rules(&mut router, PortId::Vif(2), "rx drop icmp\nrx accept udp src-port 1");
    assert_eq!(tallies(&router), [0, 1]);
}

#[test]
fn addresses_are_given_once() {
    let mut router = network();
    let mut add = |number, interface| {
        let refused = router.add(PortId::Vif(number), interface, NOW);
        refused.expect_err("it is refused").to_string()
    };
    assert!(add(1, vif(9)).contains("vif 1 already"));
    assert!(add(9, Interface { mac: Some(mac(1)), ..vif(9) }).contains("vif 1 has the address"));
    let addresses = vec![ip("10.0.0.2")];
    assert!(add(9, Interface { addresses, ..vif(9) }).contains("vif 2 has the address 10.0.0.2"));
    assert!(add(9, Interface { mac: None, ..vif(9) }).contains("needs an address of Ethernet"));
    assert!(add(9, Interface { mac: Some(BROADCAST), ..vif(9) }).contains("of its own"));
    let addresses = vec![ip("224.0.0.1")];
    assert!(add(9, Interface { addresses, ..vif(9) }).contains("cannot be a port's"));
    let rules = "rx drop\n".parse().expect("they are rules");
    let refused = router.set_rules(PortId::Vif(9), &rules, NOW);
    assert_eq!(refused, Err(ConfigurationError::NoPort(PortId::Vif(9))));
    router.remove(PortId::Vif(2)).expect("it is there");
    router.add(PortId::Vif(9), Interface { mac: Some(mac(2)), ..vif(2) }, NOW).expect("it is free");
    let bytes = packet(ONE, TWO, 17, &udp_payload(1, 2, 3));
    assert_eq!(send(&mut router, PortId::Vif(1), &bytes), "9");
}
