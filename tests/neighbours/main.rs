//! Networks that machines share with each other and with pods: who reaches whom, by which names, and what is left of
//! it. Nothing of it leaves this host.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use whole_machine::processes::stat;
use whole_machine::text;
use whole_machine::user::User;
use whole_machine::waiting::wait_for;

/// What a machine of these tests serves: pages, one of them long, and datagrams that come back.
const SERVES: &str = "mkdir /tmp/w; hostname >/tmp/w/name; seq 300000 >/tmp/w/long
    httpd -p 80 -h /tmp/w; exec /t/datagram echo 7777";

/// How long a socket waits before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A registry that disappears, with all that is in it.
struct Place {
    path: PathBuf,
    user: User,
}

impl Place {
    /// One with the network `backend`.
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("biv-neighbours-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory");
        let place = Place { user: User::new(&[], &path), path };
        assert_eq!(place.says(&["network", "create", "backend"]), "backend\n");
        place
    }

    /// The arguments that run a machine in the network.
    fn run<'a>(name: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
        let programs = concat!(env!("NETWORK_ROOT"), ":/t:ro");
        let run = ["run", "-d", "--name", name, "--hostname", name, "--network", "backend"];
        let kind = ["--busybox", "--mem", "128M", "--volume", programs];
        [&run, &kind[..], options, &["--", "sh", "-c", script]].concat()
    }

    /// Starts a machine that serves.
    #[track_caller]
    fn machine(&self, name: &str, options: &[&str]) {
        assert_eq!(self.says(&Self::run(name, options, SERVES)), format!("{name}\n"));
    }

    /// Runs a script in a machine.
    fn exec(&self, name: &str, script: &str) -> Output {
        self.output(&["exec", name, "sh", "-c", script])
    }

    /// What a script says in a machine, without the end of its line.
    fn answer(&self, name: &str, script: &str) -> String {
        text(&self.exec(name, script).stdout).trim_end().to_owned()
    }

    /// Waits until a machine, or a pod, gets the page of another by its name.
    #[track_caller]
    fn wait_until_reached(&self, from: &str, to: &str) {
        let script = format!("timeout 10 wget -qO- http://{to}/name");
        wait_for(&format!("{from} reaches {to}"), || self.answer(from, &script) == to);
    }

    /// What `biv network inspect` says of the network.
    fn inspect(&self) -> Value {
        let said = self.says(&["network", "inspect", "backend"]);
        serde_json::from_str::<Value>(&said).expect("JSON")[0].take()
    }

    /// The address of a machine.
    fn address(&self, name: &str) -> String {
        let machines = self.inspect()["machines"].take();
        let is_it = |it: &&Value| it["name"] == name;
        let it = machines.as_array().and_then(|all| all.iter().find(is_it));
        it.and_then(|it| it["address"].as_str()).expect("it is in the network").to_owned()
    }

    /// The switch of the network.
    fn switch(&self) -> Option<Pid> {
        let path = self.path.display().to_string();
        let all = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_one = |number: &u32| {
            stat(*number).is_some_and(|it| it.name == "biv switch")
                && fs::read_link(format!("/proc/{number}/fd/2"))
                    .is_ok_and(|to| to.to_string_lossy().contains(&path))
        };
        let numbers: Vec<u32> = numbers.filter(is_one).collect();
        assert!(numbers.len() < 2, "{numbers:?}");
        numbers.first().and_then(|number| Pid::from_raw(number.cast_signed()))
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
        self.user.remove_domains(&self.path.join("bivouac"));
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A port of this host's that nobody has.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is one");
    listener.local_addr().expect("it is bound").port()
}

/// The page at a port of this host's.
fn page(port: u16, name: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it is published");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    write!(stream, "GET /{name} HTTP/1.0\r\n\r\n").expect("it listens");
    let mut said = String::new();
    // A connection that is refused beyond the port is reset.
    let _ = stream.read_to_string(&mut said);
    said
}

#[test]
fn machines_find_each_other_by_name() {
    let (place, port) = (Place::new(), free_port());
    place.machine("db", &[]);
    place.machine("web", &["-p", &format!("{port}:80")]);
    place.wait_until_reached("web", "db");
    place.wait_until_reached("db", "web");
    // A stream, and datagrams of which one is long.
    let long = "timeout 60 wget -qO- http://db/long | md5sum";
    assert_eq!(place.answer("web", long), place.answer("db", "md5sum </tmp/w/long"));
    let (db, web) = (place.address("db"), place.address("web"));
    for (from, to) in [("web", &db), ("db", &web)] {
        let script = format!("timeout 20 /t/datagram ask {to} 7777 word");
        assert_eq!(place.answer(from, &script), "word", "{from}");
    }
    assert!(page(port, "name").ends_with("web\n"));
    // The gateway answers, and names that are nobody's are not theirs.
    assert!(place.exec("web", "ping -c 1 -W 5 10.89.1.1").status.success());
    assert!(!place.exec("web", "timeout 10 wget -qO- http://nobody/name").status.success());
    // Who says that he is somebody else is not heard.
    assert!(place.exec("web", "ping -c 1 -W 5 db").status.success());
    let other = "ip addr add 10.89.1.250/24 dev eth0; ping -c 2 -W 1 -I 10.89.1.250 db";
    assert!(!place.exec("web", other).status.success());
    assert!(place.exec("web", "ping -c 1 -W 5 db").status.success());
    let list = place.says(&["network", "ls"]);
    assert!(list.lines().any(|line| line.ends_with("db,web")), "{list}");
    assert!(place.complains(&["network", "rm", "backend"]).contains("is used by db, web"));
    assert!(place.complains(&["rename", "db", "base"]).contains("cannot be renamed"));
    place.says(&["rm", "--force", "db", "web"]);
    wait_for("the switch ends", || place.switch().is_none());
    place.says(&["network", "rm", "backend"]);
    let left = fs::read_dir(place.path.join("bivouac/.pods/.networks")).expect("it is there");
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn a_place_that_cannot_be_had_is_refused() {
    let place = Place::new();
    place.says(&["network", "create", "small", "--subnet", "10.90.0.0/29"]);
    place.machine("db", &["--ip", "10.89.1.5"]);
    assert_eq!(place.address("db"), "10.89.1.5");
    let refused = |options: &[&str]| {
        let complaint = place.complains(&[&["run"], options, &["--busybox", "true"]].concat());
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        complaint
    };
    assert!(refused(&["--network", "other"]).contains("no network other; make it with"));
    let taken = refused(&["--network", "backend", "--ip", "10.89.1.5"]);
    assert!(taken.contains("is the address of machine db"), "{taken}");
    let foreign = refused(&["--network", "backend", "--ip", "10.90.0.2"]);
    assert!(foreign.contains("is no address for a pod or machine"), "{foreign}");
    let with =
        |options: &[&str]| place.complains(&[&["run"], options, &["--busybox", "true"]].concat());
    assert!(with(&["--network", "backend", "--net", "none"]).contains("goes with --net user"));
    assert!(with(&["--ip", "10.89.1.5"]).contains("--network"));
    // The address is free when its machine has gone, and its own when it starts again.
    place.says(&["stop", "db"]);
    place.says(&["start", "db"]);
    assert_eq!(place.address("db"), "10.89.1.5");
    let snapshot = place.path.join("snapshot");
    let snapshot = snapshot.to_str().expect("text");
    assert!(place.complains(&["snapshot", "db", snapshot]).contains("a snapshot cannot contain"));
    place.says(&["rm", "--force", "db"]);
    place.says(&["network", "rm", "small", "backend"]);
}

#[test]
fn a_switch_that_is_killed_is_replaced() {
    let place = Place::new();
    place.machine("db", &[]);
    place.machine("web", &[]);
    place.wait_until_reached("web", "db");
    for _ in 0..3 {
        let switch = place.switch().expect("there is one");
        kill_process(switch, Signal::KILL).expect("it is ours");
        wait_for("it ends", || place.switch() != Some(switch));
        // Whoever looks has another started, and the machines attached to it.
        place.says(&["network", "ls"]);
        place.wait_until_reached("web", "db");
        place.wait_until_reached("db", "web");
    }
}

#[test]
fn pods_and_machines_reach_each_other() {
    let place = Place::new();
    let pods = User::new(&["pod"], &place.path).at("/");
    let probed = pods.output(&["run", "--", "true"]);
    if !probed.status.success() {
        return println!("skipped: this host has no pods: {}", text(&probed.stderr));
    }
    let served = place.path.join("served");
    fs::create_dir(&served).expect("a directory");
    let script = "mkdir /tmp/w; cd /tmp/w; echo pod >name; seq 300000 >long; \
                  exec busybox httpd -f -p 80";
    pods.says(&["run", "-d", "--name", "pod", "--network", "backend", "--", "sh", "-c", script]);
    place.machine("db", &[]);
    place.wait_until_reached("db", "pod");
    let in_pod = |script: &str| {
        text(&pods.output(&["exec", "pod", "sh", "-c", script]).stdout).trim_end().to_owned()
    };
    wait_for("the pod reaches the machine", || {
        in_pod("timeout 10 busybox wget -qO- http://db/name") == "db"
    });
    let sum = place.answer("db", "md5sum </tmp/w/long");
    assert_eq!(in_pod("timeout 60 busybox wget -qO- http://db/long | md5sum"), sum);
    assert_eq!(place.answer("db", "timeout 60 wget -qO- http://pod/long | md5sum"), sum);
    // The datagram of a machine has a checksum that the pod's kernel believes.
    let ask = "(echo question; sleep 1) | busybox nc -u -w 5 db 7777 2>/dev/null";
    let datagrams = in_pod("busybox --list | grep -qx nc && echo yes");
    if datagrams == "yes" && in_pod("busybox nc -h 2>&1 | grep -c -- -u") != "0" {
        assert_eq!(in_pod(ask), "question");
    }
    let named = place.complains(&Place::run("pod", &[], "true"));
    assert!(named.contains("has a pod pod already"), "{named}");
    let inspected = place.inspect();
    assert_eq!(
        (&inspected["pods"][0]["name"], &inspected["machines"][0]["name"]),
        (&Value::from("pod"), &Value::from("db"))
    );
    pods.says(&["rm", "--force", "pod"]);
}
