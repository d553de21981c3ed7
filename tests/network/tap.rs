//! A guest on an interface of the host's, in a network of the test's own: a namespace with one interface, a
//! DHCP server and a web server.

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
end 192.168.77.20
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
timeout 60 "$1" run --busybox --cpus $3 --net tap:tap0 -- sh -c '
    n=0; until ip route | grep -q default || [ $n -gt 200 ]; do n=$((n+1)); sleep 0.1; done
    ip addr show eth0 | grep -c "inet 192.168.77.1[0-9]*/24"; cat /etc/resolv.conf
    wget -qO- http://192.168.77.1:8080/page | sha256sum
    ls -d /sys/class/net/eth0/queues/tx-* | wc -l
    ping -c 1 192.168.77.1 | grep -c "1 packets received"
'
"#;

fn check(processors: &str, more: &str, queues: &str) {
    let try_it = "ip tuntap add tap0 mode tap && busybox --list | grep -q udhcpd";
    let tried =
        Command::new("unshare").args(["--map-root-user", "--net", "sh", "-c", try_it]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!(
            "left out: this host lets nobody make a network of his own with an interface and a DHCP server in it"
        );
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
