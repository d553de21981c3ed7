//! Transactions of several clients at once: each that is committed has seen what it would have seen had it been alone
//! at its end, in a model that is a list of names.

use std::collections::BTreeMap;

use fastrand::Rng;
use xen_store::{CONTROL_DOMAIN, ClientId, Store};

use crate::support::ask;

const NAMES: [&str; 9] =
    ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f", "/e/f/g/h", "/a/d/i", "/e/k"];

const STEPS: usize = 4000;

/// Requests of a transaction with what they came to.
type Log = Vec<(u32, Vec<u8>, (u32, Vec<u8>))>;

/// Names and values, sequentially.
#[derive(Clone, Default)]
struct Model(BTreeMap<String, Vec<u8>>);

impl Model {
    /// What a request comes to: type and payload of the answer.
    fn carry_out(&mut self, kind: u32, payload: &[u8]) -> (u32, Vec<u8>) {
        let end = payload.iter().position(|byte| *byte == 0).expect("a name");
        let name = str::from_utf8(&payload[..end]).expect("a name").to_owned();
        let value = &payload[end + 1..];
        let missing = (16, b"ENOENT\0".to_vec());
        let below = format!("{name}/");
        match kind {
            1 if self.0.contains_key(&name) => {
                let names = self.0.keys().filter_map(|other| other.strip_prefix(&below));
                let own = names.filter(|rest| !rest.contains('/'));
                (1, own.flat_map(|rest| rest.bytes().chain([0])).collect())
            }
            2 if self.0.contains_key(&name) => (2, self.0[&name].clone()),
            11 | 12 => {
                self.make(&name);
                if kind == 11 {
                    self.0.insert(name, value.to_vec());
                }
                (kind, b"OK\0".to_vec())
            }
            13 => {
                let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
                if !parent.is_empty() && !self.0.contains_key(parent) {
                    return missing;
                }
                self.0.retain(|other, _| *other != name && !other.starts_with(&below));
                (13, b"OK\0".to_vec())
            }
            _ => missing,
        }
    }

    fn make(&mut self, name: &str) {
        let ends = name.match_indices('/').map(|(end, _)| end).skip(1).chain([name.len()]);
        for end in ends {
            self.0.entry(name[..end].to_owned()).or_default();
        }
    }
}

/// A client, and its transaction.
struct Player {
    client: ClientId,
    transaction: u32,
    log: Log,
    /// Changes of others since the transaction began.
    others: usize,
}

fn any_request(random: &mut Rng) -> (u32, Vec<u8>) {
    let kind = [1, 2, 2, 11, 11, 11, 12, 13][random.u64(..8) as usize];
    let name = NAMES[random.u64(..NAMES.len() as u64) as usize];
    let mut payload = format!("{name}\0").into_bytes();
    if kind == 11 {
        payload.extend_from_slice(random.u64(..1000).to_string().as_bytes());
    }
    (kind, payload)
}

/// Send a request; the answer's type and payload.
fn request(
    store: &mut Store,
    player: &Player,
    transaction: u32,
    (kind, payload): (u32, &[u8]),
) -> (u32, Vec<u8>) {
    let mut answers = ask(store, player.client, kind, transaction, payload);
    assert_eq!(answers.len(), 1);
    let answer = answers.remove(0);
    (answer.kind, answer.payload)
}

/// End the transaction: whether it was committed.
fn end(store: &mut Store, player: &mut Player, model: &mut Model) -> bool {
    let (_, answer) = request(store, player, player.transaction, (7, b"T\0"));
    player.transaction = 0;
    let log = std::mem::take(&mut player.log);
    if answer == b"EAGAIN\0" {
        assert!(player.others > 0, "nobody else has changed anything");
        return false;
    }
    assert_eq!(answer, b"OK\0");
    for (kind, payload, seen) in log {
        let expected = model.carry_out(kind, &payload);
        assert_eq!(seen, expected, "{kind} {}", String::from_utf8_lossy(&payload));
    }
    true
}

fn run(seed: u64) -> (usize, usize) {
    let mut random = Rng::with_seed(seed);
    let mut store = Store::new();
    let mut model = Model::default();
    let mut players: Vec<_> = (0..3)
        .map(|_| Player {
            client: store.connect(CONTROL_DOMAIN),
            transaction: 0,
            log: Vec::new(),
            others: 0,
        })
        .collect();
    let (mut committed, mut refused) = (0, 0);
    for _ in 0..STEPS {
        let turn = random.u64(..3) as usize;
        let player = &mut players[turn];
        let has_changed = match (player.transaction, random.u64(..6)) {
            (0, 0..=2) => {
                let (_, answer) = request(&mut store, player, 0, (6, b"\0"));
                let id = str::from_utf8(&answer).expect("a number").trim_end_matches('\0');
                player.transaction = id.parse().expect("a number");
                player.others = 0;
                false
            }
            (0, _) => {
                let (kind, payload) = any_request(&mut random);
                let answer = request(&mut store, player, 0, (kind, &payload));
                assert_eq!(answer, model.carry_out(kind, &payload));
                kind > 2
            }
            (_, 0) => {
                let is_committed = end(&mut store, player, &mut model);
                committed += usize::from(is_committed);
                refused += usize::from(!is_committed);
                is_committed
            }
            (id, _) => {
                let (kind, payload) = any_request(&mut random);
                let answer = request(&mut store, player, id, (kind, &payload));
                player.log.push((kind, payload, answer));
                false
            }
        };
        for (other, player) in players.iter_mut().enumerate() {
            player.others += usize::from(has_changed && other != turn);
        }
        for (name, value) in &model.0 {
            assert_eq!(store.read(name).as_ref(), Ok(value), "{name}");
        }
    }
    (committed, refused)
}

#[test]
fn committed_transactions_are_as_good_as_one_after_the_other() {
    for seed in 1..=5 {
        let (committed, refused) = run(seed * 7919);
        println!("{committed} committed, {refused} refused");
        assert!(committed > 50 && refused > 50, "{committed} committed, {refused} refused");
    }
}
