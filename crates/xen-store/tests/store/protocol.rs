//! Requests and their answers, as a domain's kernel has them.

use xen_fronts::store::StorePage;
use xen_store::ring::{self, Exchanged, Page, RingError};
use xen_store::{Broken, CONTROL_DOMAIN, ClientId, Permission, Store};

use crate::support::{Message, ask, drain, parse};

const DIRECTORY: u32 = 1;
const READ: u32 = 2;
const GET_PERMISSIONS: u32 = 3;
const WATCH: u32 = 4;
const UNWATCH: u32 = 5;
const START: u32 = 6;
const END: u32 = 7;
const DOMAIN_PATH: u32 = 10;
const WRITE: u32 = 11;
const MAKE: u32 = 12;
const REMOVE: u32 = 13;
const SET_PERMISSIONS: u32 = 14;
const EVENT: u32 = 15;
const ERROR: u32 = 16;
const RESET_WATCHES: u32 = 21;
const DIRECTORY_PART: u32 = 22;

/// A store with a directory of domain 5, which is connected.
fn store() -> (Store, ClientId) {
    let mut store = Store::new();
    store.write("/local/domain/5", b"").expect("the host may");
    let own = [Permission::owner(5)];
    store.set_permissions("/local/domain/5", &own).expect("the host may");
    store.write("/local/domain/5/name", b"guest").expect("the host may");
    let client = store.connect(5);
    (store, client)
}

/// The request has this answer, and nothing else comes.
fn check(store: &mut Store, client: ClientId, kind: u32, payload: &str, expected: &str) {
    check_in(store, client, 0, kind, payload, expected);
}

fn check_in(
    store: &mut Store,
    client: ClientId,
    transaction: u32,
    kind: u32,
    payload: &str,
    expected: &str,
) {
    let answers = ask(store, client, kind, transaction, payload.as_bytes());
    let is_error = expected.starts_with('E') && expected.ends_with('\0');
    let kind = if is_error { ERROR } else { kind };
    let payload = expected.as_bytes().to_vec();
    assert_eq!(answers, [Message { kind, request: 77, transaction, payload }]);
}

fn event(path: &str, token: &str) -> Message {
    let payload = format!("{path}\0{token}\0").into_bytes();
    Message { kind: EVENT, request: 0, transaction: 0, payload }
}

/// Messages that are events, and how many are not.
fn events(messages: Vec<Message>) -> (Vec<Message>, usize) {
    let count = messages.len();
    let events: Vec<_> = messages.into_iter().filter(|message| message.kind == EVENT).collect();
    let others = count - events.len();
    (events, others)
}

#[test]
fn nodes_are_written_read_listed_and_removed() {
    let (mut store, client) = store();
    check(&mut store, client, READ, "name\0", "guest");
    check(&mut store, client, READ, "/local/domain/5/name\0", "guest");
    check(&mut store, client, WRITE, "device/vbd/51712/state\x001", "OK\0");
    check(&mut store, client, READ, "device/vbd\0", "");
    check(&mut store, client, DIRECTORY, "device/vbd/51712\0", "state\0");
    check(&mut store, client, MAKE, "device/vif\0", "OK\0");
    check(&mut store, client, DIRECTORY, "device\0", "vbd\0vif\0");
    check(&mut store, client, MAKE, "device/vbd\0", "OK\0");
    check(&mut store, client, REMOVE, "device/vbd\0", "OK\0");
    check(&mut store, client, READ, "device/vbd/51712/state\0", "ENOENT\0");
    check(&mut store, client, REMOVE, "device/vbd\0", "OK\0");
    check(&mut store, client, REMOVE, "device/vbd/51712\0", "ENOENT\0");
    check(&mut store, client, DOMAIN_PATH, "5\0", "/local/domain/5\0");
    assert_eq!(store.owned_nodes(5), 4, "the directory, its name, device and device/vif");
    assert_eq!(store.read("/local/domain/5/name"), Ok(b"guest".to_vec()));
}

#[test]
fn what_is_malformed_is_refused() {
    let (mut store, client) = store();
    for name in ["", "a//b", "a/", "a b", "ä", &"x/".repeat(1100), &"y".repeat(3200)] {
        check(&mut store, client, READ, &format!("{name}\0"), "EINVAL\0");
    }
    check(&mut store, client, READ, "name", "EINVAL\0");
    check(&mut store, client, READ, "name\0name\0", "EINVAL\0");
    check(&mut store, client, WRITE, "no end", "EINVAL\0");
    check(&mut store, client, SET_PERMISSIONS, "name\0", "EINVAL\0");
    check(&mut store, client, SET_PERMISSIONS, "name\0q5\0", "EINVAL\0");
    check(&mut store, client, END, "X\0", "EINVAL\0");
    check(&mut store, client, 23, "\0", "ENOSYS\0");
    check(&mut store, client, 20, "\0", "ENOSYS\0");
    check(&mut store, client, 8, "1\x001\x001\0", "EACCES\0");
    check(&mut store, client, EVENT, "\0", "ENOSYS\0");
    check_in(&mut store, client, 9, READ, "name\0", "ENOENT\0");
    check(&mut store, client, REMOVE, "/\0", "EACCES\0");
    assert_eq!(store.remove("/").map_err(|error| error.to_string()), Err("EINVAL".to_owned()));
}

#[test]
fn permissions_are_kept() {
    let (mut store, client) = store();
    let other = store.connect(6);
    store.write("/tool/secret", b"x").expect("the host may");
    store.set_permissions("/tool", &[Permission::owner(CONTROL_DOMAIN)]).expect("it is there");
    check(&mut store, client, READ, "/tool/secret\0", "x");
    let hidden = [Permission::owner(CONTROL_DOMAIN)];
    store.set_permissions("/tool/secret", &hidden).expect("it is there");
    check(&mut store, client, READ, "/tool/secret\0", "EACCES\0");
    check(&mut store, client, READ, "/tool/other\0", "EACCES\0");
    check(&mut store, client, WRITE, "/tool/other\0x", "EACCES\0");
    check(&mut store, client, REMOVE, "/tool/secret\0", "EACCES\0");
    check(&mut store, client, READ, "/nothing\0", "ENOENT\0");

    check(&mut store, other, READ, "/local/domain/5/name\0", "EACCES\0");
    check(&mut store, client, SET_PERMISSIONS, "name\0n5\0r6\0", "OK\0");
    check(&mut store, client, GET_PERMISSIONS, "name\0", "n5\0r6\0");
    check(&mut store, other, READ, "/local/domain/5/name\0", "guest");
    check(&mut store, other, WRITE, "/local/domain/5/name\0x", "EACCES\0");
    check(&mut store, other, SET_PERMISSIONS, "/local/domain/5/name\0n6\0", "EACCES\0");
    check(&mut store, client, SET_PERMISSIONS, "name\0n6\0", "EPERM\0");
    let many = format!("name\0{}", "n5\0".repeat(6));
    check(&mut store, client, SET_PERMISSIONS, &many, "ENOSPC\0");
}

#[test]
fn a_watch_fires_at_once_and_then_for_changes() {
    let (mut store, client) = store();
    let ok = |kind| Message { kind, request: 77, transaction: 0, payload: b"OK\0".to_vec() };
    let answers = ask(&mut store, client, WATCH, 0, b"memory/target\0token\0");
    assert_eq!(answers, [ok(WATCH), event("memory/target", "token")]);
    let answers = ask(&mut store, client, WATCH, 0, b"/local/domain/5/memory\0other\0");
    assert_eq!(answers, [ok(WATCH), event("/local/domain/5/memory", "other")]);
    check(&mut store, client, WATCH, "memory/target\0token\0", "EEXIST\0");

    store.write("/local/domain/5/memory/target", b"65536").expect("the host may");
    let changed = "/local/domain/5/memory/target";
    let expected = [event("memory/target", "token"), event(changed, "other")];
    assert_eq!(drain(&mut store, client), expected);

    let answers = ask(&mut store, client, WRITE, 0, b"memory/target\x001");
    assert_eq!(events(answers), (expected.to_vec(), 1), "its own changes, too");
    store.write("/local/domain/5/memory-not", b"").expect("the host may");
    assert_eq!(drain(&mut store, client), []);

    store.remove("/local/domain/5/memory").expect("the host may");
    let removed = [event("/local/domain/5/memory", "other"), event("memory/target", "token")];
    assert_eq!(drain(&mut store, client), removed, "below a removed node, its own name");

    check(&mut store, client, UNWATCH, "memory/target\0wrong\0", "ENOENT\0");
    check(&mut store, client, UNWATCH, "memory/target\0token\0", "OK\0");
    check(&mut store, client, RESET_WATCHES, "\0", "OK\0");
    check(&mut store, client, WRITE, "memory/target\x002", "OK\0");
}

#[test]
fn the_host_watches_and_is_told() {
    let (mut store, client) = store();
    let host = store.connect(CONTROL_DOMAIN);
    store.watch(host, "/local/domain/5/device", "d").expect("it is a name");
    store.watch(host, "@releaseDomain", "r").expect("it is special");
    store.watch(client, "@releaseDomain", "r").expect("whoever likes");
    for _ in 0..2 {
        assert!(store.take_event(host).is_some());
    }
    assert_eq!(drain(&mut store, client).len(), 1);
    ask(&mut store, client, WRITE, 0, b"device/vbd/state\x003");
    let event = ("/local/domain/5/device/vbd/state".to_owned(), "d".to_owned());
    assert_eq!(store.take_event(host), Some(event));
    assert_eq!(store.take_event(host), None);
    store.announce("@releaseDomain");
    assert_eq!(store.take_event(host).map(|event| event.1), Some("r".to_owned()));
    assert!(store.is_idle(client), "domains are not told");
}

#[test]
fn only_those_that_may_read_are_told() {
    let (mut store, _) = store();
    let other = store.connect(6);
    store.watch(other, "/local", "t").expect("it is a name");
    drain(&mut store, other);
    store.write("/local/domain/5/name", b"new").expect("the host may");
    assert!(store.is_idle(other));
    let readable = [Permission { domain: 5, reads: true, writes: false }];
    store.set_permissions("/local/domain/5/name", &readable).expect("it is there");
    store.remove("/local/domain/5/name").expect("the host may");
    assert_eq!(drain(&mut store, other), vec![event("/local/domain/5/name", "t"); 2]);
}

#[test]
fn a_transaction_is_seen_at_its_end() {
    let (mut store, client) = store();
    let host = store.connect(CONTROL_DOMAIN);
    store.watch(host, "/local/domain/5", "w").expect("it is a name");
    store.take_event(host).expect("the first");
    check(&mut store, client, START, "\0", "1\0");
    check(&mut store, client, START, "\0", "2\0");
    check_in(&mut store, client, 1, START, "\0", "EBUSY\0");
    check_in(&mut store, client, 1, WRITE, "a/b\0one", "OK\0");
    check_in(&mut store, client, 1, READ, "a/b\0", "one");
    check_in(&mut store, client, 2, READ, "a/b\0", "ENOENT\0");
    check(&mut store, client, READ, "a/b\0", "ENOENT\0");
    assert_eq!(store.take_event(host), None);
    check_in(&mut store, client, 2, WRITE, "c\0two", "OK\0");
    check_in(&mut store, client, 1, END, "T\0", "OK\0");
    assert!(store.take_event(host).is_some_and(|event| event.0.ends_with("/a/b")));
    check_in(&mut store, client, 2, END, "T\0", "EAGAIN\0");
    check(&mut store, client, READ, "c\0", "ENOENT\0");
    check_in(&mut store, client, 2, END, "T\0", "ENOENT\0");
    check(&mut store, client, START, "\0", "3\0");
    check_in(&mut store, client, 3, REMOVE, "a\0", "OK\0");
    check_in(&mut store, client, 3, END, "F\0", "OK\0");
    check(&mut store, client, READ, "a/b\0", "one");
}

#[test]
fn transactions_that_do_not_meet_all_happen() {
    let (mut store, client) = store();
    store.write("/local/domain/5/a", b"").expect("the host may");
    store.write("/local/domain/5/b", b"").expect("the host may");
    check(&mut store, client, START, "\0", "1\0");
    check(&mut store, client, START, "\0", "2\0");
    check_in(&mut store, client, 1, WRITE, "a\x001", "OK\0");
    check_in(&mut store, client, 2, WRITE, "b\x002", "OK\0");
    check_in(&mut store, client, 1, END, "T\0", "OK\0");
    check_in(&mut store, client, 2, END, "T\0", "OK\0");
    check(&mut store, client, READ, "b\0", "2");
}

#[test]
fn a_removal_meets_changes_of_what_it_removes() {
    let (mut store, client) = store();
    store.write("/local/domain/5/a/b/c", b"1").expect("the host may");
    let own = [Permission::owner(5)];
    store.set_permissions("/local/domain/5/a", &own).expect("it is there");
    check(&mut store, client, START, "\0", "1\0");
    check_in(&mut store, client, 1, REMOVE, "a\0", "OK\0");
    store.write("/local/domain/5/a/b/c", b"2").expect("the host may");
    check_in(&mut store, client, 1, END, "T\0", "EAGAIN\0");
    check(&mut store, client, READ, "a/b/c\0", "2");
}

#[test]
fn events_that_are_too_many_become_one_for_the_watched_node() {
    let (mut store, client) = store();
    store.watch(client, "many", "t").expect("it is a name");
    for number in 0..300 {
        store.write(&format!("/local/domain/5/many/{number}"), b"").expect("the host may");
    }
    let told = drain(&mut store, client);
    assert_eq!(told.len(), 256, "the first of them for the watch itself, which stands for all");
    assert_eq!((&told[0], &told[255]), (&event("many", "t"), &event("many/254", "t")));
    // What is left out has to be found by a look at the node, so its event comes after the change.
    store.write("/local/domain/5/many/0", b"").expect("the host may");
    assert_eq!(drain(&mut store, client), [event("many/0", "t")]);
}

#[test]
fn quotas_are_kept() {
    let (mut store, client) = store();
    for number in 0..12 {
        for other in 0..100 {
            ask(&mut store, client, WRITE, 0, format!("{number}/{other}\0x").as_bytes());
        }
    }
    assert_eq!(store.owned_nodes(5), 1000);
    check(&mut store, client, MAKE, "one-more\0", "ENOSPC\0");
    check(&mut store, client, WRITE, &format!("name\0{}", "x".repeat(2048)), "ENOSPC\0");
    check(&mut store, client, WRITE, &format!("name\0{}", "x".repeat(1900)), "OK\0");
    for number in 0..10 {
        check(&mut store, client, START, "\0", &format!("{}\0", number + 1));
    }
    check(&mut store, client, START, "\0", "ENOSPC\0");
    check_in(&mut store, client, 1, MAKE, "one-more\0", "ENOSPC\0");
    check_in(&mut store, client, 1, REMOVE, "0\0", "OK\0");
    check_in(&mut store, client, 1, MAKE, "one-more\0", "OK\0");
    for number in 0..128 {
        store.watch(client, "name", &number.to_string()).expect("there is room");
    }
    check_watches_are_full(&mut store, client);
}

fn check_watches_are_full(store: &mut Store, client: ClientId) {
    drain(store, client);
    check(store, client, WATCH, "name\0x\0", "E2BIG\0");
    for number in 0..1000 {
        store.write("/local/domain/5/name", &[number as u8]).expect("the host may");
    }
    let told = drain(store, client);
    assert!(told.len() >= 128 && told.len() <= 256 + 128, "{} events", told.len());
}

#[test]
fn a_transaction_that_breaks_the_quota_at_its_end_fails() {
    let (mut store, client) = store();
    for number in 0..900 {
        let name = format!("/local/domain/5/x{}/{number}", number % 9);
        store.write(&name, b"").expect("the host may");
    }
    assert_eq!(store.owned_nodes(5), 911, "a node is its directory's owner's");
    check(&mut store, client, MAKE, "a\0", "OK\0");
    check(&mut store, client, MAKE, "b\0", "OK\0");
    check(&mut store, client, START, "\0", "1\0");
    for number in 0..60 {
        check_in(&mut store, client, 1, MAKE, &format!("a/{number}\0"), "OK\0");
        check(&mut store, client, MAKE, &format!("b/{}\0", number % 50), "OK\0");
    }
    check_in(&mut store, client, 1, END, "T\0", "ENOSPC\0");
    assert_eq!(store.owned_nodes(5), 963);
}

#[test]
fn long_directories_come_in_parts() {
    let (mut store, client) = store();
    for number in 0..600 {
        store.write(&format!("/local/domain/5/many/{number:020}"), b"").expect("the host may");
    }
    check(&mut store, client, DIRECTORY, "many\0", "E2BIG\0");
    let (mut names, mut offset) = (Vec::new(), 0);
    for _ in 0..10 {
        let payload = format!("many\0{offset}\0");
        let answer = ask(&mut store, client, DIRECTORY_PART, 0, payload.as_bytes()).remove(0);
        let end = answer.payload.iter().position(|byte| *byte == 0).expect("a generation");
        let part = &answer.payload[end + 1..];
        offset += part.len();
        names.extend_from_slice(part);
        if part.ends_with(&[0, 0]) {
            break;
        }
    }
    assert_eq!(names.iter().filter(|byte| **byte == 0).count(), 600 + 1);
    check_part_behind_the_end(&mut store, client);
}

fn check_part_behind_the_end(store: &mut Store, client: ClientId) {
    let answer = ask(store, client, DIRECTORY_PART, 0, b"many\x0099999\0").remove(0);
    assert!(answer.payload.ends_with(&[0, 0]), "{answer:?}");
}

#[test]
fn messages_cross_the_ring_in_pieces() {
    let (mut store, client) = store();
    let mut page = StorePage::default();
    ring::prepare(&mut page);
    assert_eq!(page.load(2064), 2);
    // The indices have gone round.
    for offset in [2048, 2052, 2056, 2060] {
        page.store(offset, u32::MAX - 300);
    }
    let value = "v".repeat(1900);
    let write = [b"big\0", value.as_bytes()].concat();
    let message = |kind, payload| Message { kind, request: 1, transaction: 0, payload };
    let requests = [message(WRITE, write), message(READ, b"big\0".to_vec())];
    let bytes: Vec<u8> = requests.iter().flat_map(Message::bytes).collect();
    let (mut sent, mut received) = (0, Vec::new());
    for _ in 0..20 {
        sent += page.put(&bytes[sent..]);
        ring::exchange(&mut page, &mut store, client).expect("nothing is wrong");
        received.extend(page.take());
    }
    let expected = [message(WRITE, b"OK\0".to_vec()), message(READ, value.into_bytes())];
    assert_eq!((sent, parse(&received)), (bytes.len(), expected.to_vec()));
    let idle = ring::exchange(&mut page, &mut store, client);
    assert_eq!(idle, Ok(Exchanged { notifies: false, is_unfinished: false }));
}

#[test]
fn wrong_indices_and_lengths_end_the_connection() {
    let (mut store, client) = store();
    for (offset, value) in [(2048, 5), (2052, 1025), (2056, 1), (2060, u32::MAX)] {
        let mut page = StorePage::default();
        page.store(offset, value);
        let result = ring::exchange(&mut page, &mut store, client);
        assert_eq!((result, page.load(2072)), (Err(RingError::Index), 2), "{offset}");
    }
    let mut page = StorePage::default();
    page.store(12, 4097);
    page.store(2052, 16);
    let result = ring::exchange(&mut page, &mut store, client);
    assert_eq!((result, page.load(2072)), (Err(RingError::Protocol), 3));
    assert_eq!(store.receive(client, b""), Err(Broken));
}

#[test]
fn requests_wait_for_a_client_that_does_not_read() {
    let (mut store, client) = store();
    let bytes = Message { kind: READ, request: 0, transaction: 0, payload: b"name\0".to_vec() };
    let many = bytes.bytes().repeat(5000);
    let taken = store.receive(client, &many).expect("nothing is wrong");
    assert!(taken > 0 && taken < many.len());
    assert!(store.held_bytes(client) < 20_000);
    let answers = drain(&mut store, client).len();
    assert_eq!(answers * bytes.bytes().len(), taken / 21 * 21);
    assert_ne!(store.receive(client, &many[taken..]), Ok(0));
}
