//! A domain's messages to the store, and anything that it writes to the ring that they are in.

#![no_main]

use fuzz::ring::{consume, send, set};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use xen_fronts::store::StorePage;
use xen_store::ring;
use xen_store::{Permission, Store};

const DOMAIN: u16 = 7;

#[derive(Debug, Arbitrary)]
enum Step {
    /// A message that has a form.
    Message {
        kind: u8,
        transaction: u8,
        parts: Vec<Part>,
        ends: bool,
    },
    Bytes(Vec<u8>),
    Word {
        place: u16,
        value: u32,
    },
    Consume,
    Host {
        part: Part,
        value: u8,
    },
    Reconnect,
}

#[derive(Debug, Arbitrary)]
enum Part {
    Known(u8),
    Deep(u8),
    Any(Vec<u8>),
}

impl Part {
    fn bytes(&self) -> Vec<u8> {
        const KNOWN: [&str; 16] = [
            "/",
            "a",
            "b",
            "a/b",
            "/local/domain/7",
            "/local/domain/7/a",
            "@releaseDomain",
            "token",
            "b7",
            "r0",
            "n1",
            "T",
            "F",
            "7",
            "/local/domain/0",
            "",
        ];
        match self {
            Self::Known(which) => KNOWN[usize::from(*which) % KNOWN.len()].into(),
            Self::Deep(depth) => vec!["d"; usize::from(*depth)].join("/").into_bytes(),
            Self::Any(bytes) => bytes.clone(),
        }
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut store = Store::new();
    store.write("/local/domain/7", b"").expect("the host may");
    store.set_permissions("/local/domain/7", &[Permission::owner(DOMAIN)]).expect("it is there");
    let mut client = store.connect(DOMAIN);
    let mut page = StorePage::default();
    ring::prepare(&mut page);
    for step in steps {
        match step {
            Step::Message { kind, transaction, parts, ends } => {
                let mut payload = Vec::new();
                for part in parts.iter().take(16) {
                    payload.extend(part.bytes());
                    payload.push(0);
                }
                if !ends {
                    payload.pop();
                }
                payload.truncate(4096);
                send(&mut page, u32::from(kind % 26), u32::from(transaction % 12), &payload);
            }
            Step::Bytes(bytes) => page.put_all(&bytes),
            Step::Word { place, value } => set(&mut page, usize::from(place), value),
            Step::Consume => consume(&mut page),
            Step::Host { part, value } => {
                let path = String::from_utf8_lossy(&part.bytes()).into_owned();
                let _ = store.write(&path, &[value]);
            }
            Step::Reconnect => {
                store.disconnect(client);
                client = store.connect(DOMAIN);
            }
        }
        let _ = ring::exchange(&mut page, &mut store, client);
    }
});
