//! The handshake of a disk, over a store.

use xen_abi::bus::state;
use xen_io::block::{DiskSettings, Extent, Vbd, description, offers};
use xen_io::bus::{Change, Handshake, Tree, Unwritable};
use xen_store::Store;

const BACK: &str = "/local/domain/0/backend/vbd/1/51712";
const FRONT: &str = "/local/domain/1/device/vbd/51712";

struct Keys(Store);

impl Tree for Keys {
    fn read(&mut self, path: &str) -> Option<String> {
        String::from_utf8(self.0.read(path).ok()?).ok()
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), Unwritable> {
        self.0.write(path, value.as_bytes()).map_err(|_| Unwritable)
    }
}

struct Bench {
    keys: Keys,
    handshake: Handshake,
}

impl Bench {
    fn new() -> Self {
        let mut keys = Keys(Store::new());
        let handshake = Handshake::begin(&mut keys, BACK, FRONT, &offers(true));
        let handshake = handshake.expect("it is the host's");
        Self { keys, handshake }
    }

    /// The front-end writes keys and then its state.
    fn front(&mut self, keys: &[(&str, &str)], state: u32) -> Change<DiskSettings> {
        for (key, value) in keys {
            self.keys.write(&format!("{FRONT}/{key}"), value).expect("it is a key");
        }
        self.keys.write(&format!("{FRONT}/state"), &state.to_string()).expect("it is a key");
        self.handshake.look(&mut self.keys).expect("it is the host's")
    }

    fn back(&mut self, key: &str) -> Option<String> {
        self.keys.read(&format!("{BACK}/{key}"))
    }

    fn connect(&mut self) {
        let keys = [("ring-ref", "8"), ("event-channel", "5"), ("protocol", "x86_64-abi")];
        let expected = DiskSettings { ring: vec![8], port: 5 };
        assert_eq!(self.front(&keys, state::INITIALISED), Change::Connect(expected));
        let extent = Extent { image: 0, start: 0, sectors: 77, is_writable: false };
        let vbd = Vbd::new(&[extent]).expect("it is a device");
        let said = self.handshake.connected(&mut self.keys, &description(&vbd));
        said.expect("it is the host's");
        assert_eq!(self.back("state").as_deref(), Some("4"));
        assert_eq!(self.front(&[], state::CONNECTED), Change::None);
    }
}

#[test]
fn a_disk_connects_closes_and_connects_again() {
    let mut bench = Bench::new();
    assert_eq!(bench.back("state").as_deref(), Some("2"));
    assert_eq!(bench.back("feature-max-indirect-segments").as_deref(), Some("256"));
    assert_eq!(bench.front(&[], state::INITIALISING), Change::None);
    bench.connect();
    assert_eq!(bench.back("sectors").as_deref(), Some("77"));
    assert_eq!(
        (bench.back("sector-size").as_deref(), bench.back("info").as_deref()),
        (Some("512"), Some("4"))
    );
    assert_eq!(bench.front(&[], state::CLOSING), Change::Disconnect);
    assert_eq!(bench.back("state").as_deref(), Some("5"));
    assert_eq!(bench.front(&[], state::CLOSED), Change::Disconnect);
    assert_eq!(bench.front(&[], state::CLOSED), Change::None);
    assert_eq!(bench.front(&[], state::INITIALISING), Change::None);
    assert_eq!(bench.handshake.state(), state::INIT_WAIT);
    bench.connect();
    bench.keys.write(&format!("{BACK}/online"), "0").expect("it is a key");
    assert_eq!(bench.front(&[], state::CLOSED), Change::Leave);
}

#[test]
fn rings_of_several_pages_have_a_key_for_each() {
    let mut bench = Bench::new();
    let keys =
        [("ring-page-order", "1"), ("ring-ref0", "8"), ("ring-ref1", "9"), ("event-channel", "5")];
    let expected = DiskSettings { ring: vec![8, 9], port: 5 };
    assert_eq!(bench.front(&keys, state::INITIALISED), Change::Connect(expected));
}

#[test]
fn wrong_keys_end_the_attempt_with_a_reason() {
    let check = |keys: &[(&str, &str)], reason: &str| {
        let mut bench = Bench::new();
        assert_eq!(bench.front(keys, state::INITIALISED), Change::None);
        assert!(bench.back("error").is_some_and(|text| text.contains(reason)), "{keys:?}");
        assert_eq!(bench.handshake.state(), state::CLOSING);
    };
    check(&[], "event-channel");
    check(&[("event-channel", "5")], "ring-ref");
    check(&[("event-channel", "five"), ("ring-ref", "8")], "event-channel");
    check(&[("event-channel", "5"), ("ring-ref", "-1")], "ring-ref");
    check(&[("event-channel", "5"), ("ring-page-order", "5")], "order");
    check(&[("event-channel", "5"), ("ring-page-order", "1"), ("ring-ref0", "8")], "ring-ref1");
    let other = [("event-channel", "5"), ("ring-ref", "8"), ("protocol", "x86_32-abi")];
    check(&other, "x86_64-abi");
}
