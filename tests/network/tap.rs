//! A guest on an interface of the host's, in a network of the test's own: a namespace with one interface, a
//! DHCP server, which has one address to give, and a web server.

use std::process::Command;
use std::{env, fs};

use whole_machine::{bivouac, text};

/// Runs in the namespace; `$1` is `biv`, `$2` a directory, `$3` the processors, `$4` more about the interface.
const SCRIPT: &str = r#"
set -e
ip link set lo up
ip tuntap add tap0 mode tap $4
ip addr add 192.168.77.1/24 dev tap0
ip link set tap0 up
cat >"$2/udhcpd.conf" <<END
start 192.168.77.10
end 192.168.77.10
interface tap0
lease_file $2/leases
pidfile $2/pid
option subnet 255.255.255.0
option router 192.168.77.1
option dns 192.168.77.1
END
: >"$2/leases"
busybox udhcpd -f "$2/udhcpd.conf" 2>/dev/null & dhcp=$!
busybox httpd -f -p 192.168.77.1:8080 -h "$2" & http=$!
trap 'kill $dhcp $http' EXIT
timeout 300 "$1" run --busybox --cpus $3 --net tap:tap0 -- sh -c '
    n=0; until ip route | grep -q default || [ $n -gt 200 ]; do n=$((n+1)); sleep 0.1; done
    ip addr show eth0 | grep -c "inet 192.168.77.10/24 "; cat /etc/resolv.conf
    wget -qO- http://192.168.77.1:8080/page | sha256sum
    ls -d /sys/class/net/eth0/queues/tx-* | wc -l
    ping -c 1 192.168.77.1 | grep -c "1 packets received"
'
"#;

/// Whether somebody here can make a network of his own, with an interface and a DHCP server in it.
pub fn is_possible() -> bool {
    let try_it = "ip tuntap add tap0 mode tap && busybox --list | grep -q udhcpd";
    let tried =
        Command::new("unshare").args(["--map-root-user", "--net", "sh", "-c", try_it]).output();
    let is_possible = tried.is_ok_and(|output| output.status.success());
    if !is_possible {
        println!("left out: this host lets nobody make a network with an interface in it");
    }
    is_possible
}

fn check(processors: &str, more: &str, queues: &str) {
    if !is_possible() {
        return;
    }
    let place = env::temp_dir().join(format!("biv-tap-{}-{processors}", std::process::id()));
    fs::create_dir_all(&place).expect("there is a place for temporary files");
    let page = super::servers::bytes(5_000_000);
    fs::write(place.join("page"), &page).expect("it can be written");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", SCRIPT, "sh"])
        .arg(bivouac())
        .arg(&place)
        .args([processors, more])
        .output()
        .expect("`unshare` can be started");
    let _ = fs::remove_dir_all(&place);
    let digest = super::through(&["sha256sum"], page);
    let said = text(&output.stdout);
    let expected = ["1", "nameserver 192.168.77.1", &digest, queues, "1"];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{}", text(&output.stderr));
}

#[test]
fn a_guest_gets_an_address_and_reaches_the_network_of_an_interface() {
    check("1", "", "1");
}

#[test]
fn several_processors_have_queues_of_their_own() {
    check("2", "multi_queue", "2");
}

/// Runs in the namespace; `$1` is `biv`. The host hears that the guest is up, removes the interface, and says so.
const REMOVED: &str = r#"
ip link set lo up; ip tuntap add tap0 mode tap
    ip addr add 192.168.77.1/24 dev tap0; ip link set tap0 up
mkfifo "$2/down"; exec 8<>"$2/down"
timeout 300 "$1" run --busybox --net tap:tap0 -- sh -c '
    ip addr add 192.168.77.9/24 dev eth0; ip link set eth0 up
    ping -c 1 192.168.77.1 | grep -c "1 packets rec"
    echo up; read line; n=0
    while [ $(cat /sys/class/net/eth0/carrier) = 1 ] && [ $n -lt 500 ]; do
        n=$((n+1)); sleep 0.02; done
    cat /sys/class/net/eth0/carrier
    ping -c 1 -W 1 192.168.77.1 | grep -c " 0 packets rec"; echo goes on
' <&8 | while read -r line; do
    echo "$line"
    if [ "$line" = up ]; then ip link del tap0; echo removed >&8; fi
done
"#;

#[test]
fn the_machine_goes_on_when_its_interface_is_removed() {
    if !is_possible() {
        return;
    }
    let place = env::temp_dir().join(format!("biv-removed-{}", std::process::id()));
    fs::create_dir_all(&place).expect("there is a place for temporary files");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", REMOVED, "sh"])
        .arg(bivouac())
        .arg(&place)
        .output()
        .expect("`unshare` can be started");
    let _ = fs::remove_dir_all(&place);
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "1\nup\n0\n1\ngoes on\n", "{said}");
    assert!(said.contains("the guest's network is down"), "{said}");
}
