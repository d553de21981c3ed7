use std::fs::File;
use std::sync::atomic::AtomicU64 as Number;
use std::thread;

use super::*;

/// Gates as a domain and its keeper have them.
fn gates(vcpus: usize) -> (Gates, Gates) {
    static NUMBER: Number = Number::new(0);
    let number = NUMBER.fetch_add(1, ORDER);
    let name = format!("biv-gates-{}-{number}", std::process::id());
    let name = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(&name).expect("a file");
    let domain = Gates::create(&file, vcpus).expect("there is room");
    let keeper = Gates::open(&file).expect("they have been made");
    std::fs::remove_file(&name).expect("it is there");
    (domain, keeper)
}

#[test]
fn gates_are_open_until_somebody_shuts_them() {
    let (domain, keeper) = gates(2);
    assert!(domain.is_open(1) && domain.look(1) == Gate::Open);
    keeper.shut(1);
    assert_eq!((domain.look(0), domain.look(1)), (Gate::Open, Gate::Shut(None)));
    let (now, later) = (now(), now() + 60_000_000_000);
    keeper.permit(1, Some((now, later)));
    assert_eq!(domain.look(1), Gate::Until(later));
    keeper.permit(1, Some((later, later + 1)));
    assert_eq!(domain.look(1), Gate::Shut(Some(later)));
    keeper.permit(1, None);
    assert!(domain.is_open(1));
}

#[test]
fn without_a_keeper_a_gate_opens_again() {
    let (domain, keeper) = gates(1);
    keeper.beat(now());
    keeper.shut(0);
    assert!(domain.is_kept(0));
    keeper.beat(now() - nanoseconds(KEEPER_TIMEOUT));
    assert!(!domain.is_kept(0) && domain.is_open(0));
}

#[test]
fn what_is_attended_is_told() {
    let (domain, keeper) = gates(1);
    let news = || keeper.news().load(ORDER);
    domain.say(0, true);
    assert!(keeper.wants(0) && news() == 0);
    keeper.attend(true);
    domain.say(0, false);
    assert!(!keeper.wants(0) && news() == 1);
}

#[test]
fn who_waits_is_let_go() {
    let (domain, keeper) = gates(1);
    keeper.shut(0);
    let waiter = domain.clone();
    let thread = thread::spawn(move || {
        let own = AtomicU32::new(1);
        loop {
            let go = waiter.go(0);
            let seen = go.load(ORDER);
            if waiter.look(0) == Gate::Open {
                return;
            }
            let own = Word { word: &own, value: 1, is_shared: false };
            let go = Word { word: go, value: seen, is_shared: true };
            wait_for_any(&[own, go], Some(now() + 60_000_000_000));
        }
    });
    thread::sleep(Duration::from_millis(20));
    keeper.permit(0, None);
    keeper.let_go(0);
    thread.join().expect("it was let go");
}

#[test]
fn nonsense_is_not_opened() {
    let (domain, _) = gates(3);
    let check = |at, value, is_good| {
        domain.page.word(at).store(value, ORDER);
        let copy = Gates { page: Arc::clone(&domain.page), vcpus: 3 };
        let vcpus = copy.page.word(at::VCPUS).load(ORDER) as usize;
        let magic = copy.page.word(at::MAGIC).load(ORDER);
        assert_eq!(magic == MAGIC && (1..=VCPUS_MAX).contains(&vcpus), is_good);
    };
    check(at::VCPUS, 17, false);
    check(at::VCPUS, 0, false);
    check(at::VCPUS, 16, true);
    check(at::MAGIC, 0, false);
}
