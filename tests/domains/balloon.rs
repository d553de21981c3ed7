//! Memory that a guest does not need, which is the host's again.

use serde_json::Value;
use whole_machine::waiting::wait_for;

use super::place::Place;
use super::text;

const MIB: u64 = 1 << 20;

/// What `biv stats` says of the domain.
fn stats(place: &Place) -> Value {
    let rows: Value =
        serde_json::from_str(&place.says(&["stats", "--format", "json", "web"])).expect("JSON");
    rows[0].clone()
}

/// Bytes of the host's that the guest's memory takes.
fn used(place: &Place) -> u64 {
    stats(place)["memory_used"].as_u64().expect("a number")
}

fn start(place: &Place) {
    let machine =
        ["run", "-d", "--name", "web", "--busybox", "--mem", "768M", "--", "sleep", "1000"];
    assert_eq!(place.says(&machine), "web\n");
}

#[test]
fn what_a_guest_has_freed_goes_back_to_the_host() {
    let place = Place::new();
    start(&place);
    let before = used(&place);
    let filled = place.exec(
        "web",
        "dd if=/dev/zero bs=1M count=300 2>/dev/null | tr '\\0' x > /tmp/x && wc -c < /tmp/x",
    );
    assert_eq!(text(&filled.stdout), format!("{}\n", 300 * MIB));
    assert!(used(&place) > before + 250 * MIB, "it was not there");
    assert!(place.exec("web", "rm /tmp/x").status.success());
    wait_for("the host has it back", || used(&place) < before + 50 * MIB);
    assert!(stats(&place)["statistics"]["balloon"]["freed"].as_u64() > Some(250 * MIB));
    // The guest can have it again, and what it writes there stays.
    let again = place.exec(
        "web",
        "dd if=/dev/zero bs=1M count=300 2>/dev/null | tr '\\0' y > /tmp/y && tr -d y < /tmp/y | \
         wc -c && ls /bin | md5sum",
    );
    assert!(text(&again.stdout).starts_with("0\n"), "{again:?}");
    assert!(used(&place) > before + 250 * MIB);
}

#[test]
fn a_balloon_takes_memory_from_a_guest_and_gives_it_back() {
    let place = Place::new();
    start(&place);
    // All of it has been used, and is in no other way free than in the guest.
    place.exec("web", "dd if=/dev/zero bs=1M count=600 2>/dev/null > /dev/shm/x; rm /dev/shm/x");
    let total = || {
        let meminfo = place.exec("web", "awk '/^MemTotal/ { print $2 }' /proc/meminfo");
        text(&meminfo.stdout).trim().parse::<u64>().expect("a number") * 1024
    };
    let available = || stats(&place)["statistics"]["balloon"]["guest_available"].as_u64();
    let all = total();
    place.says(&["balloon", "web", "256M"]);
    wait_for("it has given 512 MiB", || {
        stats(&place)["statistics"]["balloon"]["given"] == 512 * MIB
    });
    wait_for("the host has them", || used(&place) < 256 * MIB);
    wait_for("its programs have the less", || available().is_some_and(|it| it < all - 512 * MIB));
    // Who needs more than that gets it: the driver takes pages back before somebody is killed.
    let much = place.exec(
        "web",
        "dd if=/dev/zero bs=1M count=290 2>/dev/null | tr '\\0' x > /tmp/x; wc -c < /tmp/x",
    );
    assert_eq!(text(&much.stdout), format!("{}\n", 290 * MIB));
    place.says(&["balloon", "web", "1G"]);
    wait_for("it has all of it", || stats(&place)["statistics"]["balloon"]["given"] == 0);
    assert!(
        place.exec("web", "dd if=/dev/zero bs=1M count=350 2>/dev/null > /tmp/x").status.success()
    );
    let complaint = place.complains(&["balloon", "web", "0"]);
    assert!(complaint.contains("bytes of memory"), "{complaint}");
}
