//! Programs that live on networks: iperf3, nginx and wrk, each way between the host and a guest, through the
//! user's network and an interface of the host's; and apt.

use std::process::{Command, Stdio};
use std::{env, fs};

use whole_machine::complaints::complaint;
use whole_machine::modes::{Mode, UserExecution};
use whole_machine::{bivouac, kernels, text};

/// What each side needs to serve and to ask; `$1` of `serve` is a directory, of which the host and the guest
/// have one each.
///
/// A busy host must not decide what comes of it: iperf3's server takes one client at a time and says so by
/// hanging up, also on one that comes before the last test has been cleared away, so a client tries again
/// (20 times at most, each for 60 seconds at most); nginx has its number in a file when it listens; and a request may
/// take a minute.
const SERVE: &str = r#"
serve() {
    mkdir -p "$1"; seq 2000 >"$1/page"
    cat >"$1/nginx.conf" <<END
user root; worker_processes 1; daemon off; error_log $1/errors; pid $1/pid;
events { worker_connections 256; }
http { access_log off; client_body_temp_path $1/body; proxy_temp_path $1/proxy;
    fastcgi_temp_path $1/fastcgi; uwsgi_temp_path $1/uwsgi; scgi_temp_path $1/scgi;
    server { listen 8080; root $1; } }
END
    nginx -p "$1" -e "$1/errors" -c "$1/nginx.conf" & serving=$!
    iperf3 -s -p 5201 >/dev/null & serving="$serving $!"
    tries=0; until [ -s "$1/pid" ] || [ $tries -gt 600 ]; do tries=$((tries+1)); sleep 0.1; done
}
rate() {
    name=$1; shift; tries=0
    until report=$(timeout 60 iperf3 -t 2 -f m "$@" 2>&1) || [ $tries -ge 20 ]; do
        tries=$((tries+1)); sleep 0.5
    done
    echo "$report" | awk -v name="$name" '/receiver/ { for (n = 2; n <= NF; n++)
        if ($n == "Mbits/sec") last = $(n - 1) } /error/ { said = $0 }
        END { print name, last ? last : said }'
}
requests() {
    wrk -t 1 -c 16 -d 2s --timeout 60s "$2" | awk -v name="$1" '/^Requests.sec/ { print name, $2 }
        /Socket errors|Non-2xx/ { print "trouble", $0 }'
}
ask() {
    rate "$1-sends" -c "$2" -p "$3"
    rate "$1-receives" -c "$2" -p "$3" -R
    rate "$1-sends-on-several" -c "$2" -p "$3" -P 4
    requests "$1-asks" "http://$2:$4/page"
}
"#;

/// In the guest; HOST is the host's address.
const GUEST: &str = r#"
n=0; until ip route | grep -q default || [ $n -gt 200 ]; do n=$((n+1)); sleep 0.1; done
ask guest HOST 5201 8080
rate guest-sends-datagrams -c HOST -p 5201 -u -b 20M
serve /tmp/guest
echo up $(ip -4 -o addr show eth0 | sed 's/.*inet \([0-9.]*\).*/\1/')
n=0; until [ -e go ] || [ $n -gt 600 ]; do n=$((n+1)); sleep 0.1; done
"#;

/// On the host, in a network of its own; `$1` is `biv`, `$2` a directory, `$3` how the guest is connected, `$4`
/// the host's address in the guest.
const HOST: &str = r#"
set -e; biv=$1; cd "$2"; net=$3
ip link set lo up
case $net in *tap:*)
    ip tuntap add tap0 mode tap multi_queue
    ip addr add 192.168.77.1/24 dev tap0; ip link set tap0 up
    printf 'start 192.168.77.10\nend 192.168.77.20\ninterface tap0\n' >dhcp
    printf 'lease_file leases\npidfile pid\n' >>dhcp
    printf 'option subnet 255.255.255.0\noption router 192.168.77.1\n' >>dhcp
    : >leases; busybox udhcpd -f dhcp 2>/dev/null & serving=$!; more=$serving ;;
esac
serve "$PWD/host"
trap 'kill $serving $more 2>/dev/null' EXIT
timeout 900 "$biv" run --mem 512M --cpus 2 $net -- sh -c "$5" >said & guest=$!
n=0; until grep -q '^up' said || [ $n -gt 1500 ]; do n=$((n+1)); sleep 0.1; done
case $net in
*tap:*) ask host "$(sed -n 's/^up //p' said)" 5201 8080 ;;
*) ask host 127.0.0.1 5301 8180 ;;
esac
touch go; wait $guest; cat said
"#;

const PROGRAMS: [&str; 3] = ["iperf3", "nginx", "wrk"];

fn check(net: &str, host: &str) {
    let has = |name: &&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        found.is_ok_and(|output| output.status.success())
    };
    if !PROGRAMS.iter().all(has) {
        return println!("left out: {PROGRAMS:?} are not all installed");
    }
    if !super::tap::is_possible() {
        return;
    }
    let name = format!("biv-programs-{}-{}", std::process::id(), host.replace('.', "-"));
    let place = env::temp_dir().join(name);
    fs::create_dir_all(&place).expect("there is a place for temporary files");
    let guest = format!("{SERVE}{}", GUEST.replace("HOST", host));
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", &format!("{SERVE}{HOST}"), "sh"])
        .arg(bivouac())
        .arg(&place)
        .args([net, host, &guest])
        .output()
        .expect("`unshare` can be started");
    let _ = fs::remove_dir_all(&place);
    let said = text(&output.stdout);
    println!("{net}:\n{said}");
    for side in ["guest", "host"] {
        for what in ["sends", "receives", "sends-on-several", "asks"] {
            let name = format!("{side}-{what} ");
            let rate = said.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok());
            assert!(rate.is_some_and(|rate| rate > 1.0), "{name}: {said}{}", text(&output.stderr));
        }
    }
    assert!(said.contains("guest-sends-datagrams ") && !said.contains("trouble"), "{said}");
}

#[test]
fn iperf3_nginx_and_wrk_work_each_way_through_the_users_network() {
    check(
        "--net user,host --publish 127.0.0.1:5301:5201 --publish 127.0.0.1:8180:8080",
        "10.0.2.2",
    );
}

#[test]
fn iperf3_nginx_and_wrk_work_each_way_through_an_interface() {
    check("--net tap:tap0", "192.168.77.1");
}

/// Installs a package that is small.
const INSTALL: &str = "export DEBIAN_FRONTEND=noninteractive; (apt-get -q update && \
    apt-get -q install -y --reinstall --no-install-recommends hello) >/tmp/log 2>&1 || cat \
    /tmp/log; \
    hello; dpkg -s hello | grep Status; dmesg >&2";

fn check_installed(mode: Mode, machine: &[&str]) {
    let options = [machine, &["--timeout", "600", "--", "sh", "-c", INSTALL]].concat();
    let mut machine = mode.run(&options);
    machine.env("BIVOUAC_AUDIT", "1");
    let output = machine.stdin(Stdio::null()).output().expect("biv can be started");
    let expected = "Hello, world!\nStatus: install ok installed\n";
    let log = text(&output.stderr);
    assert_eq!(text(&output.stdout), expected, "{log}");
    assert!(output.status.success() && complaint(&log).is_none(), "{log}");
}

/// With `BIVOUAC_APT=1` only: it takes Debian's archive, and a minute.
#[test]
fn a_guest_installs_a_package() {
    if env::var_os("BIVOUAC_APT").is_none() {
        return;
    }
    let mode = Mode { execution: UserExecution::Auto, processors: 1 };
    check_installed(mode, &["--mem", "2G"]);
}

/// Likewise, as root, with mmdebstrap and some minutes: through the user's network, and through a VIF and its router.
#[test]
fn a_paravirtual_guest_installs_a_package() {
    if env::var_os("BIVOUAC_APT").is_none() {
        return;
    }
    let place = kernels::cache_directory().join(format!("apt-{}", std::process::id()));
    fs::create_dir_all(&place).expect("the target directory can be written");
    let make = "cd \"$0\" && mmdebstrap -q --variant=apt bookworm root $1 && \
                truncate -s 700M disk && mke2fs -q -F -t ext4 -d root disk && rm -r root";
    let made = Command::new("sh").args(["-c", make]).arg(&place).arg(kernels::site()).output();
    let made = made.expect("`sh` can be started");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let disk = format!("{},snapshot", place.join("disk").display());
    for (processors, net) in [(1, ["--net", "user"]), (4, ["--vif", "ip=10.77.0.9"])] {
        let mode = Mode { execution: UserExecution::Auto, processors };
        let machine = ["--xen", "--mem", "512M", "--root-disk", &disk];
        check_installed(mode, &[&machine[..], &net].concat());
    }
    let _ = fs::remove_dir_all(&place);
}
