//! Networks between domains of Xen's interface, as somebody at a shell has them: who reaches whom, what nobody gets
//! away with, rules that change, and a router that is killed. Everything stays between these processes.

#![forbid(unsafe_code)]

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use locks::Unpoisoned;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use whole_machine::complaints::complaint;
use whole_machine::processes::{adopt_orphans, descendants, stat};
use whole_machine::text;
use whole_machine::user::User;
use whole_machine::waiting::wait_for;

fn kill(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| kill_process(process, Signal::KILL).is_ok())
}

/// A registry with domains that are in one network, which go with this. There is one at a time: a router is found by
/// its name.
struct Place {
    path: PathBuf,
    user: User,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Place {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unpoisoned();
        adopt_orphans();
        let path = std::env::temp_dir().join(format!("biv-router-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Place { user: User::new(&[], &path), path, _alone: alone }
    }

    /// A domain with this VIF, which answers at port 7.
    #[track_caller]
    fn start(&self, name: &str, vif: &str) {
        let script = "while :; do nc -l -p 7 -e cat; done";
        let words = ["run", "--xen", "-d", "--name", name, "--busybox", "--mem", "128M", "--vif"];
        let command = [vif, "--", "sh", "-c", script];
        assert_eq!(self.says(&[&words[..], &command].concat()), format!("{name}\n"));
    }

    /// Whether a script succeeds in a domain.
    fn does(&self, name: &str, script: &str) -> bool {
        self.output(&["exec", name, "sh", "-c", script]).status.success()
    }

    fn pings(&self, name: &str, address: &str) -> bool {
        // A busy host may be slow.
        self.does(name, &format!("ping -c 1 -W 5 {address}"))
    }

    /// Whether nothing comes back, soon.
    fn misses(&self, name: &str, address: &str) -> bool {
        !self.does(name, &format!("ping -c 2 -W 1 {address}"))
    }

    /// A domain's port.
    fn vif(&self, name: &str) -> Value {
        let said = self.says(&["xen", "vif", "--format", "json", name]);
        serde_json::from_str(&said).expect("JSON")
    }

    /// What was dropped at a domain's port for this reason.
    fn dropped(&self, name: &str, reason: &str) -> u64 {
        self.vif(name)["dropped"][reason]["packets"].as_u64().unwrap_or(0)
    }

    /// The router's process, if it runs; there is never more than one.
    fn router(&self) -> Option<u32> {
        let is_one = |process: &u32| stat(*process).is_some_and(|stat| stat.name == "biv router");
        let found: Vec<u32> = descendants().into_iter().filter(is_one).collect();
        assert!(found.len() < 2, "{found:?}");
        found.first().copied()
    }
}

impl Deref for Place {
    type Target = User;

    fn deref(&self) -> &User {
        &self.user
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let ps = self.output(&["ps", "-a", "--format", "json"]).stdout;
        let domains: Value = serde_json::from_slice(&ps).unwrap_or_default();
        for domain in domains.as_array().into_iter().flatten() {
            let name = domain["name"].as_str().unwrap_or_default();
            self.output(&["rm", "--force", name]);
        }
        // While its parent ends, it is nobody's child for a moment.
        let has_gone = || {
            (0..5).all(|_| {
                std::thread::sleep(Duration::from_millis(50));
                self.router().is_none()
            })
        };
        wait_for("the router ends with the last domain", has_gone);
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[test]
fn domains_reach_each_other_and_the_world() {
    let place = Place::new();
    place.start("one", "ip=10.77.0.2");
    place.start("two", "ip=10.77.0.3,mac=02:00:00:00:00:33");
    assert!(place.pings("one", "10.77.0.3"));
    assert!(place.pings("two", "10.77.0.2"));
    assert!(place.pings("one", "10.77.0.1"), "the gateway answers for itself");
    let script = "head -c 300000 /dev/urandom > sent; : > got
        (cat sent; sleep 1000) | nc 10.77.0.3 7 > got & n=0
        while [ $(wc -c < got) -lt 300000 ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done
        kill %1; cmp sent got";
    assert!(place.does("one", script), "the same bytes come back");
    let vif = place.vif("two");
    assert_eq!(
        (vif["mac"].as_str(), vif["port"].as_str()),
        (Some("02:00:00:00:00:33"), Some("vif 3"))
    );
    assert!(vif["received"]["bytes"].as_u64().expect("a number") > 300_000, "{vif}");
    let sheet = place.says(&["xen", "info", "two"]);
    assert!(sheet.contains("\nnetwork      vif,ip="), "{sheet}");
    // Addresses are given once, and of one prefix.
    let refused = |name: &str, vif: &str, why: &str| {
        let words = ["run", "--xen", "--name", name, "--busybox", "--mem", "128M", "--vif", vif];
        let said = place.complains(&[&words[..], &["--", "true"]].concat());
        assert!(said.contains(why) && !said.contains("panicked"), "{said}");
    };
    refused("three", "ip=10.77.0.3", "two");
    refused("three", "ip=10.78.0.4", "10.77.0.0/24");
    refused("three", "ip=10.77.0.4,mac=02:00:00:00:00:33", "02:00:00:00:00:33");
    assert!(place.says(&["xen", "vif", "one"]).contains("10.77.0.2"));
    // The end of one is nothing to the others.
    place.start("four", "ip=10.77.0.4");
    place.says(&["rm", "--force", "two"]);
    assert!(place.misses("one", "10.77.0.3"));
    assert!(place.pings("one", "10.77.0.4"));
    assert!(place.complains(&["xen", "vif", "two"]).contains("two"));
}

#[test]
fn nobody_speaks_for_another_whatever_its_rules_say() {
    let place = Place::new();
    place.start("one", "ip=10.77.0.2");
    place.start("two", "ip=10.77.0.3");
    place.says(&["xen", "rules", "one", "add", "tx", "accept"]);
    assert!(place.pings("one", "10.77.0.3"));
    // Another's address of IP, as whom one may not even be asked for.
    assert!(place.does("one", "ip addr add 10.77.0.9/24 dev eth0"));
    assert!(!place.does("one", "ping -c 2 -W 1 -I 10.77.0.9 10.77.0.3"));
    let spoofed = place.dropped("one", "spoofed-address") + place.dropped("one", "spoofed-arp");
    assert!(spoofed >= 2, "{}", place.vif("one"));
    // That of ARP.
    let before = place.dropped("one", "spoofed-arp");
    place.does("one", "arping -c 2 -w 2 -U -s 10.77.0.9 -I eth0 10.77.0.9");
    assert!(place.dropped("one", "spoofed-arp") > before, "{}", place.vif("one"));
    assert!(place.does("two", "! ip neigh | grep 10.77.0.9"), "nobody has heard of it");
    assert!(place.does("one", "ip addr del 10.77.0.9/24 dev eth0"));
    // And that of Ethernet.
    assert!(place.does("one", "ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99"));
    assert!(place.does("one", "ip link set eth0 up"));
    assert!(place.misses("one", "10.77.0.3"));
    assert!(place.dropped("one", "spoofed-mac") >= 2, "{}", place.vif("one"));
}

#[test]
fn rules_and_rates_change_while_domains_run() {
    let place = Place::new();
    place.start("one", "ip=10.77.0.2");
    place.start("two", "ip=10.77.0.3");
    let rules = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        place.says(&[&["xen", "rules", "two"], &words[..]].concat())
    };
    assert_eq!(rules("list"), "");
    assert!(place.pings("one", "10.77.0.3"));
    rules("add rx drop icmp src 10.77.0.2");
    assert!(place.misses("one", "10.77.0.3"));
    assert!(place.dropped("two", "rule") >= 2);
    // What is before decides.
    rules("add --before 1 rx accept icmp");
    let listed = rules("list");
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("  1 ") && lines[0].ends_with("  rx accept icmp"), "{listed}");
    assert!(lines[1].ends_with("  rx drop icmp src 10.77.0.2"), "{listed}");
    assert!(place.pings("one", "10.77.0.3"));
    rules("remove 1");
    assert!(place.misses("one", "10.77.0.3"));
    rules("remove 1");
    assert!(place.pings("one", "10.77.0.3"));
    let wrong = place.complains(&["xen", "rules", "two", "add", "rx", "dropp"]);
    assert!(wrong.contains("drop"), "{wrong}");
    assert!(place.complains(&["xen", "rules", "two", "remove", "1"]).contains("no rule 1"));
    // A megabyte at 200 kB/s takes four seconds, whatever goes at once.
    place.says(&["xen", "vif", "one", "--rate", "200000"]);
    let send =
        "start=$(cut -d. -f1 /proc/uptime); : > back; (head -c 1000000 /dev/zero; sleep 1000) |
        nc 10.77.0.3 7 > back & n=0
        while [ $(wc -c < back) -lt 1000000 ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done
        kill %1; [ $(wc -c < back) = 1000000 ] || exit 1
        [ $(($(cut -d. -f1 /proc/uptime) - start)) -ge 3 ]";
    let sent = place.output(&["exec", "one", "sh", "-c", send]);
    assert!(sent.status.success(), "{sent:?} {}", place.vif("one"));
    assert_eq!(place.vif("one")["rate"], 200_000);
    place.says(&["xen", "vif", "one", "--rate", "none"]);
    assert_eq!(place.vif("one")["rate"], Value::Null);
}

#[test]
fn domains_outlive_their_router() {
    let place = Place::new();
    place.start("one", "ip=10.77.0.2");
    place.start("two", "ip=10.77.0.3");
    place.says(&["xen", "rules", "one", "add", "tx", "drop", "udp"]);
    place.says(&["xen", "vif", "two", "--rate", "5M"]);
    for _ in 0..2 {
        assert!(place.pings("one", "10.77.0.3"));
        let router = place.router().expect("there is one");
        let status = fs::read_to_string(format!("/proc/{router}/status")).expect("it runs");
        for confined in ["Seccomp:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n"] {
            assert!(status.contains(confined), "{confined}{status}");
        }
        assert!(kill(router));
        wait_for("it is gone", || place.router() != Some(router));
        assert!(place.misses("one", "10.77.0.3"), "there is nobody between them");
        // Whoever has a word with the next has it started.
        assert!(place.says(&["xen", "rules", "one"]).ends_with("  tx drop udp\n"));
        assert!(place.pings("one", "10.77.0.3"));
        assert!(place.pings("two", "10.77.0.1"), "the way to the world is there again");
        assert_eq!(place.vif("two")["rate"], 5 << 20);
    }
    // So has a domain that is started.
    assert!(kill(place.router().expect("there is one")));
    place.start("three", "ip=10.77.0.4");
    assert!(place.pings("one", "10.77.0.4") && place.pings("two", "10.77.0.2"));
}

/// Sends to a domain that sends it back and compares, again and again; counts what came back whole.
const CARRY: &str = "cd /tmp; head -c 300000 /dev/urandom > sent; n=0
    while [ ! -e stop ]; do
        : > got
        (cat sent; sleep 1000) | nc 10.77.0.3 7 > got & t=0
        while [ $(wc -c < got) -lt 300000 ] && [ $t -lt 300 ]; do sleep 0.1; t=$((t+1)); done
        kill %1; wait; size=$(wc -c < got)
        head -c $size sent | cmp -s - got || echo wrong > wrong
        [ $size = 300000 ] && n=$((n+1)) && echo $n > count
    done";

/// With `BIVOUAC_LOAD_ROUNDS=N` so often, instead of twice.
#[test]
fn a_router_may_be_killed_while_it_carries() {
    let rounds = std::env::var("BIVOUAC_LOAD_ROUNDS").ok().and_then(|it| it.parse().ok());
    let place = Place::new();
    place.start("one", "ip=10.77.0.2");
    place.start("two", "ip=10.77.0.3");
    let carrying = place.command(&["exec", "one", "sh", "-c", CARRY]).spawn();
    let mut carrying = carrying.expect("biv can be started");
    let count = || {
        let said = place.output(&["exec", "one", "cat", "/tmp/count"]).stdout;
        text(&said).trim().parse::<u64>().unwrap_or(0)
    };
    wait_for("it carries", || count() > 0);
    for _ in 0..rounds.unwrap_or(2) {
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..500)));
        assert!(kill(place.router().expect("there is one")));
        wait_for("it is gone", || place.router().is_none());
        let before = count();
        // Who asks for it has it started.
        place.vif("one");
        wait_for("it carries again", || count() > before + 1);
    }
    assert!(place.does("one", "touch /tmp/stop; [ ! -e /tmp/wrong ]"));
    wait_for("it has ended", || carrying.try_wait().expect("it can be asked").is_some());
    for name in ["one", "two"] {
        assert_eq!(place.says(&["xen", "audit", name]), "");
        let log = text(&place.output(&["exec", name, "dmesg"]).stdout);
        assert!(!log.is_empty() && complaint(&log).is_none(), "{name}: {log}");
    }
}

#[test]
fn only_domains_of_xens_interface_have_one() {
    let place = Place::new();
    let check = |options: &[&str], why: &str| {
        let said = place.complains(&[&["run"], options, &["--", "true"]].concat());
        assert!(said.contains(why), "{options:?}: {said}");
    };
    check(&["--vif", "ip=10.77.0.2"], "Xen");
    check(&["--xen", "--vif", "ip=10.77.0.1"], "gateway");
    check(&["--xen", "--vif", "ip=10.77.0.2", "--publish", "8080:80"], "publish");
}
