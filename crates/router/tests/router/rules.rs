//! Rules as texts.

use proptest::prelude::*;
use router::{Action, Direction, Mac, Pattern, PortId, PortRange, Prefix, Rate, Rule, Rules};

/// What is wrong with a text.
#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = text.parse::<Rules>().expect_err(text).to_string();
    assert!(error.contains(expected), "{text}: {error}");
}

/// How a text is printed.
#[track_caller]
fn printed(text: &str, expected: &str) {
    let rules: Rules = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(rules.to_string(), expected);
}

#[test]
fn rules_are_printed_in_one_way() {
    printed("", "");
    printed("# nothing\n\n   \n", "");
    printed("drop rx # all", "rx drop\n");
    printed("rx drop\ntx accept", "tx accept\nrx drop\n");
    printed(
        "tx dst-port 1-65535 src 10.0.0.0/8 accept udp",
        "tx accept udp src 10.0.0.0/8 dst-port 1-65535\n",
    );
    printed("tx rate 10M", "tx rate 10M burst 1M\n");
    printed("tx rate 1Ki burst 3k icmp6", "tx rate 1024 burst 3k icmp6\n");
    printed("tx rate 5 arp", "tx rate 5 burst 65536 arp\n");
    printed("rx to vif 12 protocol 6 syn", "rx to vif 12 tcp syn\n");
    printed("rx to uplink ethertype 0x800 protocol 47", "rx to uplink ipv4 protocol 47\n");
    printed(
        "rx drop dst 2001:db8::/32 src 2001:0DB8::1",
        "rx drop src 2001:db8::1 dst 2001:db8::/32\n",
    );
    printed("rx drop src-mac A:b:C:0:1:2", "rx drop src-mac 0a:0b:0c:00:01:02\n");
    printed("rx drop src 0.0.0.0/0", "rx drop src 0.0.0.0/0\n");
}

#[test]
fn errors_say_what_would_be_right() {
    refused("accept", "line 1: a rule says `tx`");
    refused("rx drop\n\ntx tcp", "line 3: a rule says what is to be done");
    refused("rx drop tcp dst-prot 80", "did you mean `dst-port`?");
    refused("rx allow", "`allow` is no word of a rule; words are tx, rx, accept");
    refused("rx drop accept", "`accept`: the rule has said this before");
    refused("rx tx drop", "`tx`: the rule has said this before");
    refused("rx drop tcp udp", "`udp`: the rule has said this before");
    refused("rx drop src 10.0.0.1/8", "write 10.0.0.0/8 for all");
    refused("rx drop src 10.0.0.0/33", "an address of this kind has 32 bits");
    refused("rx drop src ten", "`src ten`: a prefix looks like");
    refused("rx drop src", "`src` is followed by an address");
    refused("rx drop dst-port 80", "ports need `tcp` or `udp`");
    refused("rx drop icmp dst-port 80", "ports need `tcp` or `udp`");
    refused("rx drop tcp dst-port 80-79", "ends before it begins");
    refused("rx drop tcp dst-port 65536", "a port from 0 to 65535");
    refused("rx drop tcp dst-port +80", "a port from 0 to 65535");
    refused("rx drop udp syn", "`syn` needs `tcp`");
    refused("rx drop tcp syn fragment", "they are in the first");
    refused("rx drop ipv6 src 10.0.0.1", "write two rules");
    refused("rx drop src 10.0.0.1 dst ::1", "write two rules");
    refused("rx drop arp tcp", "only IPv4 and IPv6 have protocols");
    refused("rx drop ethertype 0x88b5 src 10.0.0.1", "only ARP, IPv4 and IPv6");
    refused("rx drop ethertype 0x8100", "no VLAN tag");
    refused("rx drop ethertype 100", "from 0x0600");
    refused("rx rate 0", "write `drop`");
    refused("rx rate 10m", "`rate 10m`: a number of bytes");
    refused("rx rate 99999999999T", "a number of bytes");
    refused("rx rate 2T", "from 1 byte to 1T");
    refused("rx drop burst 10", "belongs to `rate N`");
    refused("rx to 3", "`vif N` or `uplink`");
    refused("rx to vif", "`vif` is followed by the number");
    refused("rx to vif 65536", "from 0 to 65535");
    refused("rx drop src-mac 02:16:3e:00:00", "looks like 02:16:3e:00:00:01");
    refused("rx drop src-mac 02:16:3e:00:00:001", "looks like 02:16:3e:00:00:01");
}

#[test]
fn there_are_only_so_many_rules() {
    let most = "rx drop\n".repeat(router::limits::MAX_RULES);
    assert!(most.parse::<Rules>().is_ok());
    refused(&(most + "rx drop"), "line 257: more than 256 rules");
    refused(&"#".repeat(router::limits::RULES_BYTES + 1), "longer than 65536 bytes");
}

fn prefix(is_ipv4: bool) -> BoxedStrategy<Option<Prefix>> {
    let address = move |bits: u128| -> std::net::IpAddr {
        match is_ipv4 {
            true => std::net::Ipv4Addr::from_bits(bits as u32).into(),
            false => std::net::Ipv6Addr::from_bits(bits).into(),
        }
    };
    let one = any::<u128>().prop_map(move |bits| Some(Prefix::from(address(bits))));
    let some = (0..=32_u8).prop_map(move |bits| Prefix::new(address(0), bits));
    prop_oneof![Just(None), one, some].boxed()
}

fn ports() -> impl Strategy<Value = Option<PortRange>> {
    let range = |(a, b): (u16, u16)| PortRange { first: a.min(b), last: a.max(b) };
    proptest::option::of(any::<(u16, u16)>().prop_map(range))
}

fn action() -> impl Strategy<Value = Action> {
    let amount = || 1..=router::limits::RATE_BYTES;
    prop_oneof![
        Just(Action::Accept),
        Just(Action::Drop),
        Just(Action::To(PortId::Uplink)),
        any::<u16>().prop_map(|number| Action::To(PortId::Vif(number))),
        (amount(), amount()).prop_map(|(speed, burst)| Action::Rate(Rate {
            bytes_per_second: speed,
            burst_bytes: burst
        })),
    ]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let kinds = (proptest::option::of(any::<u16>()), proptest::option::of(any::<u8>()));
    let macs = proptest::option::of(any::<[u8; 6]>().prop_map(Mac));
    let with_ports = prop_oneof![Just(Some(6)), Just(Some(17))];
    let protocol = prop_oneof![3 => with_ports, 1 => kinds.1];
    let ethertype =
        prop_oneof![Just(None), Just(Some(0x800)), Just(Some(0x86dd)), Just(Some(0x806)), kinds.0];
    let prefixes = any::<bool>().prop_flat_map(|is_ipv4| (prefix(is_ipv4), prefix(is_ipv4)));
    let flags = (any::<bool>(), any::<bool>());
    (ethertype, protocol, flags, prefixes, (ports(), ports()), (macs.clone(), macs)).prop_map(
        |(ethertype, protocol, flags, prefixes, ports, macs)| Pattern {
            ethertype,
            protocol,
            later_fragment: flags.0,
            opens: flags.1,
            source: prefixes.0,
            destination: prefixes.1,
            source_ports: ports.0,
            destination_ports: ports.1,
            source_mac: macs.0,
            destination_mac: macs.1,
        },
    )
}

/// Words of rules and others, some of which make rules.
fn texts() -> impl Strategy<Value = String> {
    let words = "((tx|rx|accept|drop|to|vif|rate|burst|src|dst-port|10.0.0.0/8|80|1-|-|/|é|#|\n\
                 |[a-z0-9:./]{0,20}) ?){0,30}";
    words.prop_map(|text| text)
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(rules in proptest::collection::vec(
        (any::<bool>(), action(), pattern()), 1..20)) {
        let mut all = Rules::default();
        for (is_receive, action, pattern) in rules {
            let list = if is_receive { &mut all.receive } else { &mut all.transmit };
            let rule = Rule { action, pattern };
            let direction = if is_receive { Direction::Receive } else { Direction::Transmit };
            let text = format!("{direction} {rule}");
            match rule.check() {
                Ok(()) => list.push(rule),
                // What is refused as a value is refused as a text.
                Err(error) => {
                    let refused = text.parse::<Rules>().expect_err(&text).to_string();
                    prop_assert!(refused.contains(&error.to_string()), "{refused}");
                }
            }
        }
        prop_assert_eq!(all.to_string().parse::<Rules>(), Ok(all));
    }

    #[test]
    fn any_text_is_read_or_refused(text in texts()) {
        if let Ok(rules) = text.parse::<Rules>() {
            prop_assert_eq!(rules.to_string().parse::<Rules>(), Ok(rules));
        }
    }
}
