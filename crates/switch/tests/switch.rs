//! A switch without pods: its ports are pairs of sockets, whose other ends are here.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::poll::{PollFlags, wait_for};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use switch::{Attach, Client, Error, Server, card_of, listen_at, pods_of};

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 89, 1, 1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes before a frame: a header of virtio's.
const HEADER: [u8; 10] = [0; 10];

/// A switch on a thread of its own.
struct Network {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    fn new() -> Network {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("switch-{}-{number}", std::process::id()));
        let mut server = Server::new(listen_at(&path).unwrap(), GATEWAY, 24).unwrap();
        let thread = std::thread::spawn(move || server.run().unwrap());
        Network { path, thread: Some(thread) }
    }

    /// A pod whose address ends so.
    fn attach(&self, last: u8, lease: &str) -> Result<Pod, Error> {
        let (frames, theirs) = pair();
        let (names, others) = pair();
        let client = Client::connect(&self.path).unwrap();
        let address = Ipv4Addr::new(10, 89, 1, last);
        let pod = Attach { name: format!("pod{last}"), address, lease: lease.to_owned() };
        client.attach(&pod, &theirs, &others)?;
        Ok(Pod { address, client, frames, names })
    }

    /// Joined to another, by the other end of `frames`; with the socket over which it tells who is here.
    fn join(&self, frames: &OwnedFd) -> Result<(Client, OwnedFd), Error> {
        let (names, others) = pair();
        let client = Client::connect(&self.path).unwrap();
        client.join(frames, &others)?;
        Ok((client, names))
    }

    /// That it ends when nobody is attached.
    fn ends(mut self) {
        self.thread.take().unwrap().join().unwrap();
        assert!(Client::connect(&self.path).is_err());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap()
}

/// A pod's end of everything.
struct Pod {
    address: Ipv4Addr,
    client: Client,
    frames: OwnedFd,
    names: OwnedFd,
}

impl Pod {
    /// A datagram to this address, as somebody's.
    fn frame(&self, to: Ipv4Addr, source: Ipv4Addr, word: &str) -> Vec<u8> {
        let mut frame = HEADER.to_vec();
        frame.extend(card_of(to));
        frame.extend(card_of(source));
        frame.extend([8, 0, 0x45, 0]);
        let length = 28 + word.len() as u16;
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(source.octets());
        frame.extend(to.octets());
        frame.extend([0, 9, 0, 9]);
        frame.extend((length - 20).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(word.bytes());
        frame
    }

    fn say(&self, to: &Pod, word: &str) {
        self.send(&self.frame(to.address, self.address, word));
    }

    fn send(&self, frame: &[u8]) {
        send(&self.frames, frame, SendFlags::empty()).unwrap();
    }

    /// The next datagram's word; what is said by ARP is passed over.
    fn hears(&self) -> String {
        loop {
            let heard = next(&self.frames).expect("a frame");
            if heard[22..24] == [8, 0] {
                return String::from_utf8(heard[52..].to_vec()).unwrap();
            }
        }
    }

    /// Whether there is nothing but ARP now.
    fn hears_nothing(&self) -> bool {
        let mut room = [0; 2048];
        while let Ok((count, _)) = recv(&self.frames, &mut room[..], RecvFlags::DONTWAIT) {
            match room[..count].get(22..24) {
                Some([8, 0]) => return false,
                Some(_) => {}
                // The switch has closed it.
                None => return true,
            }
        }
        true
    }

    /// Waits until these are the names that it is told.
    fn is_told(&self, names: &str) {
        let begun = Instant::now();
        while next(&self.names).is_none_or(|told| told != names.as_bytes()) {
            assert!(begun.elapsed() < PATIENCE, "{names}");
        }
    }
}

/// What comes next, in time.
fn next(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut room = vec![0; 1 << 17];
    wait_for(socket, PollFlags::IN, Instant::now().checked_add(PATIENCE)).unwrap();
    let (count, _) = recv(socket, &mut room[..], RecvFlags::DONTWAIT).ok()?;
    room.truncate(count);
    Some(room)
}

#[test]
fn frames_go_to_whom_they_are_for() {
    let network = Network::new();
    let [one, two, three] = [2, 3, 4].map(|last| network.attach(last, "a").unwrap());
    three.is_told("10.89.1.2 pod2\n10.89.1.3 pod3\n10.89.1.4 pod4\n");
    for word in ["hello", &"x".repeat(60_000)] {
        one.say(&two, word);
        assert_eq!(two.hears(), word);
        two.say(&one, word);
        assert_eq!(one.hears(), word);
    }
    assert!(three.hears_nothing());
    drop(two);
    three.is_told("10.89.1.2 pod2\n10.89.1.4 pod4\n");
    drop((one, three));
    network.ends();
}

#[test]
fn nobody_speaks_for_another() {
    let network = Network::new();
    let [one, two] = [2, 3].map(|last| network.attach(last, "a").unwrap());
    let foreign = Ipv4Addr::new(10, 89, 1, 9);
    one.send(&one.frame(two.address, foreign, "spoofed"));
    let mut card = one.frame(two.address, one.address, "spoofed");
    card[16..22].copy_from_slice(&card_of(foreign));
    one.send(&card);
    let mut address = one.frame(two.address, one.address, "spoofed");
    address[36..40].copy_from_slice(&foreign.octets());
    one.send(&address);
    // No frames at all.
    one.send(&[1, 2, 3]);
    one.send(&HEADER);
    one.say(&two, "own");
    assert_eq!(two.hears(), "own");
    for (last, why) in [(1, "no address of a pod"), (255, "no address"), (0, "no address")] {
        let refused = network.attach(last, "a").err().unwrap().to_string();
        assert!(refused.contains(why), "{last}: {refused}");
    }
    let refused = network.attach(3, "another").err().unwrap().to_string();
    assert!(refused.contains("10.89.1.3 is that of the pod pod3"), "{refused}");
    // It is there, and does not give way to itself either.
    assert!(network.attach(3, "a").is_err());
}

#[test]
fn what_is_for_who_is_away_is_held() {
    let network = Network::new();
    let [one, two, three] = [2, 3, 4].map(|last| network.attach(last, "a").unwrap());
    two.client.hold().unwrap();
    two.say(&one, "from who is away");
    one.say(&two, "first");
    one.say(&two, "second");
    // Those that come after them have been passed on.
    one.say(&three, "now");
    assert_eq!(three.hears(), "now");
    assert!(two.hears_nothing() && one.hears_nothing());
    two.client.release().unwrap();
    assert_eq!([two.hears(), two.hears()], ["first", "second"]);
    assert_eq!(one.hears(), "from who is away");
    // There is an end to it.
    two.client.hold().unwrap();
    let large = "x".repeat(60_000);
    for _ in 0..30 {
        one.say(&two, &large);
        one.say(&three, "now");
        assert_eq!(three.hears(), "now");
    }
    two.client.release().unwrap();
    one.say(&three, "now");
    assert_eq!(three.hears(), "now");
    // That was said over another connection than the release, which may come after it.
    assert_eq!(two.hears(), large);
    let count = 1 + (0..40).filter(|_| !two.hears_nothing()).count();
    assert!((1..30).contains(&count), "{count}");
}

#[test]
fn who_moves_goes_on_where_it_was() {
    let network = Network::new();
    let [one, two] = [2, 3].map(|last| network.attach(last, "a").unwrap());
    two.client.hold().unwrap();
    two.say(&one, "sent before");
    one.say(&two, "held");
    let again = network.attach(3, "a").unwrap();
    assert_eq!(one.hears(), "sent before");
    assert_eq!(again.hears(), "held");
    again.say(&one, "here");
    assert_eq!(one.hears(), "here");
    // The one that was is not there any more, and has no way back.
    assert!(two.client.hold().is_err());
    assert!(two.hears_nothing());
    assert!(network.attach(3, "a").is_err());
    drop(again);
    one.is_told("10.89.1.2 pod2\n");
    assert!(network.attach(3, "b").is_ok());
}

/// Two that are joined, with those who carry what they say of their pods.
struct Joined {
    networks: [Network; 2],
    carriers: [(Client, OwnedFd); 2],
}

impl Joined {
    fn new() -> Joined {
        let networks = [Network::new(), Network::new()];
        let (one, other) = pair();
        let carriers = [networks[0].join(&one).unwrap(), networks[1].join(&other).unwrap()];
        Joined { networks, carriers }
    }

    /// Carries what is told of the pods of one to the other, until these are their addresses' last numbers.
    fn carry(&self, from: usize, expected: &[u8]) {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "{expected:?}");
            let told = pods_of(&next(&self.carriers[from].1).expect("a list")).unwrap();
            self.carriers[1 - from].0.tell_beyond(&told).unwrap();
            let last = |pod: &Attach| pod.address.octets()[3];
            if told.iter().map(last).collect::<Vec<_>>() == expected {
                return;
            }
        }
    }
}

#[test]
fn switches_are_joined() {
    let joined = Joined::new();
    let [here, there] = &joined.networks;
    let [one, two] = [2, 3].map(|last| here.attach(last, "a").unwrap());
    let three = there.attach(4, "b").unwrap();
    joined.carry(0, &[2, 3]);
    joined.carry(1, &[4]);
    let all = "10.89.1.2 pod2\n10.89.1.3 pod3\n10.89.1.4 pod4\n";
    one.is_told(all);
    three.is_told("10.89.1.4 pod4\n10.89.1.2 pod2\n10.89.1.3 pod3\n");
    one.say(&three, "over there");
    assert_eq!(three.hears(), "over there");
    three.say(&two, "back");
    assert_eq!(two.hears(), "back");
    assert!(one.hears_nothing());
    // Nobody there is somebody here.
    three.send(&three.frame(two.address, one.address, "spoofed"));
    // Addresses are one pod's on both hosts.
    let refused = there.attach(2, "b").err().unwrap().to_string();
    assert!(refused.contains("10.89.1.2 is that of the pod pod2 on the other host"), "{refused}");
    let taken = Attach { name: "x".into(), address: two.address, lease: "c".into() };
    let refused = joined.carriers[0].0.tell_beyond(&[taken]).unwrap_err().to_string();
    assert!(refused.contains("pod x there and of pod3 here"), "{refused}");
    assert!(here.join(&pair().0).is_err_and(|error| error.to_string().contains("joined")));
    let Joined { networks, carriers } = joined;
    drop(carriers);
    one.is_told("10.89.1.2 pod2\n10.89.1.3 pod3\n");
    drop((one, two, three));
    networks.into_iter().for_each(Network::ends);
}

#[test]
fn who_moves_to_the_other_switch_goes_on_there() {
    let joined = Joined::new();
    let [here, there] = &joined.networks;
    let [one, two] = [2, 3].map(|last| here.attach(last, "a").unwrap());
    joined.carry(0, &[2, 3]);
    two.client.hold().unwrap();
    one.say(&two, "held");
    let again = there.attach(3, "a").unwrap();
    joined.carry(1, &[3]);
    assert_eq!(again.hears(), "held");
    again.say(&one, "from there");
    assert_eq!(one.hears(), "from there");
    one.say(&again, "to there");
    assert_eq!(again.hears(), "to there");
    assert!(two.client.hold().is_err());
    joined.carry(0, &[2]);
    one.is_told("10.89.1.2 pod2\n10.89.1.3 pod3\n");
}
