//! Bytes that mean nothing, and some that almost do: nothing panics, and nothing grows beyond its limit.

use fastrand::Rng;
use xen_store::ring::{self, Page};
use xen_store::{ClientId, Permission, Store, limits};

use crate::support::Message;

const DOMAIN: u16 = 7;

/// What a client's messages may make the store hold.
const MAX_HELD_BYTES: usize = limits::REPLY_BYTES
    + 2 * (limits::PAYLOAD_BYTES + 16)
    + (limits::MAX_EVENTS + limits::MAX_WATCHES) * limits::PAYLOAD_BYTES
    + 16
    + limits::PAYLOAD_BYTES;

fn store() -> (Store, ClientId) {
    let mut store = Store::new();
    store.write("/local/domain/7", b"").expect("the host may");
    store.set_permissions("/local/domain/7", &[Permission::owner(DOMAIN)]).expect("it is there");
    let client = store.connect(DOMAIN);
    (store, client)
}

fn any_name(random: &mut Rng) -> Vec<u8> {
    let parts = ["a", "b", "/", "//", "@x", "/local/domain/7", "c/d", "\u{e9}", "", "e"];
    let count = random.u64(..4);
    let joined: Vec<_> =
        (0..count).map(|_| parts[random.u64(..parts.len() as u64) as usize]).collect();
    let mut name = joined.join("/").into_bytes();
    if random.u64(..30) == 0 {
        name.extend(vec![b'z'; random.u64(..4000) as usize]);
    }
    name
}

/// A request that almost means something.
fn any_message(random: &mut Rng) -> Message {
    let mut payload = any_name(random);
    for _ in 0..random.u64(..3) {
        let part = match random.u64(..3) {
            0 => any_name(random),
            1 => format!("b{}", random.u64(..9)).into_bytes(),
            _ => vec![b'v'; random.u64(..2100) as usize],
        };
        payload.extend([0].into_iter().chain(part));
    }
    if random.u64(..4) > 0 {
        payload.push(0);
    }
    if random.u64(..4) == 0 {
        payload = [&b"T\0"[..], b"F\0", b"\0", b"7\0"][random.u64(..4) as usize].to_vec();
    }
    payload.truncate(limits::PAYLOAD_BYTES);
    Message {
        kind: random.u64(..25) as u32,
        request: random.u64(..) as u32,
        transaction: [0, 0, random.u64(..15) as u32][random.u64(..3) as usize],
        payload,
    }
}

fn check(store: &Store, client: ClientId) {
    assert!(store.owned_nodes(DOMAIN) <= limits::MAX_NODES);
    assert!(store.held_bytes(client) <= MAX_HELD_BYTES, "{}", store.held_bytes(client));
}

#[test]
fn requests_that_almost_mean_something_are_answered() {
    for seed in 1..=4_u64 {
        let mut random = Rng::with_seed(seed * 7919);
        let (mut store, client) = store();
        let mut answered = 0;
        for _ in 0..20_000 {
            let bytes = any_message(&mut random).bytes();
            let mut rest = &bytes[..];
            // One that reads now and then only.
            for _ in 0..200 {
                let taken = store.receive(client, rest).expect("the lengths are right");
                rest = &rest[taken..];
                check(&store, client);
                if rest.is_empty() {
                    break;
                }
                let mut some = vec![0; 1 + random.u64(..3000) as usize];
                answered += store.send(client, &mut some);
            }
            assert!(rest.is_empty(), "it is taken in the end");
        }
        assert!(answered > 100_000, "{answered} bytes");
    }
}

#[test]
fn random_bytes_end_the_connection_at_worst() {
    for seed in 1..=2000_u64 {
        let mut random = Rng::with_seed(seed * 104_729);
        let (mut store, client) = store();
        for _ in 0..20 {
            let mut bytes: Vec<u8> = (0..random.u64(..200)).map(|_| random.u64(..) as u8).collect();
            // Small lengths more often than bytes alone would have them.
            for byte in bytes.iter_mut().filter(|_| seed % 2 == 0) {
                *byte = if random.u64(..3) > 0 { 0 } else { *byte & 31 };
            }
            if store.receive(client, &bytes).is_err() {
                break;
            }
            check(&store, client);
        }
    }
}

/// A page that another writes to all the time.
struct Scribbled<'r>(&'r mut Rng);

impl Page for Scribbled<'_> {
    fn load(&self, offset: usize) -> u32 {
        // Mostly indices that could be.
        match offset % 8 {
            0 => 100,
            _ => 100 + (offset as u32).wrapping_mul(self.0.get_seed() as u32) % 1100,
        }
    }

    fn store(&mut self, offset: usize, _: u32) {
        assert!((2048..=2072).contains(&offset));
        self.0.u64(..);
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= 1024);
        for (index, byte) in bytes.iter_mut().enumerate() {
            // Small words, so that lengths are right now and then.
            let is_low = index % 4 == 0;
            *byte = if is_low { (self.0.get_seed() >> (index % 40)) as u8 & 31 } else { 0 };
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!((1024..=2048).contains(&offset) || bytes.is_empty());
        assert!(offset + bytes.len() <= 2048);
    }
}

#[test]
fn indices_that_change_all_the_time_lead_nowhere_else() {
    let mut random = Rng::with_seed(99);
    let mut served = 0;
    for _ in 0..3000 {
        let (mut store, client) = store();
        for _ in 0..10 {
            random.u64(..);
            let result = ring::exchange(&mut Scribbled(&mut random), &mut store, client);
            check(&store, client);
            if result.is_err() {
                break;
            }
            served += 1;
        }
    }
    assert!(served > 100, "only {served} exchanges went well");
}
