//! A network for tests: VIFs 1 to 3 with addresses 10.0.0.N and 2001:db8::N, and the uplink, behind which
//! 10.0.0.254 is.

use router::{Decision, Frame, Interface, Next, PortId, Reason, Router, Time, Turn};

use crate::frames::{ip, mac};

pub const NOW: Time = Time(1_000_000_000);

pub fn vif(number: u8) -> Interface {
    let addresses = vec![ip(&format!("10.0.0.{number}")), ip(&format!("2001:db8::{number}"))];
    Interface { mac: Some(mac(number)), addresses, ..Interface::default() }
}

pub fn network() -> Router {
    let mut router = Router::new();
    for number in 1..=3 {
        router.add(PortId::Vif(number.into()), vif(number), NOW).expect("it is a new one");
    }
    router.add(PortId::Uplink, Interface::default(), NOW).expect("it is the first");
    router
}

pub fn set_rules(router: &mut Router, port: PortId, text: &str) {
    let rules = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    router.set_rules(port, &rules, NOW).expect("they are fine");
}

pub fn turn(router: &mut Router, port: PortId, now: Time) -> Turn {
    router.announce(port);
    match router.next_turn(now) {
        Next::Turn(turn) if turn.port() == port => turn,
        other => panic!("{port} waits, and next is {other:?}"),
    }
}

pub fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame { head: &bytes[..bytes.len().min(128)], bytes: bytes.len() as u32 }
}

/// What becomes of a frame, in words: "1 3 uplink" or the reason why it is dropped; a new Ethernet address as "2=..03".
pub fn send(router: &mut Router, from: PortId, bytes: &[u8]) -> String {
    let mut turn = turn(router, from, NOW);
    let decision = router.submit(&mut turn, &frame(bytes), NOW);
    let said = in_words(&decision);
    router.end_turn(turn, false);
    said
}

pub fn in_words(decision: &Decision<'_>) -> String {
    if decision.destinations.is_empty() {
        return decision.dropped.expect("there is a reason").name().to_owned();
    }
    let word = |it: &router::Destination| {
        let port = match it.port {
            PortId::Vif(number) => number.to_string(),
            PortId::Uplink => "uplink".to_owned(),
        };
        it.mac.map_or(port.clone(), |mac| format!("{port}=..{:02x}", mac.0[5]))
    };
    decision.destinations.iter().map(word).collect::<Vec<_>>().join(" ")
}

pub fn dropped(router: &Router, port: PortId, reason: Reason) -> u64 {
    router.counters(port).expect("it is there").dropped(reason).packets
}
