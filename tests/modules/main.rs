//! Modules that guests load: those of their kernels' packages, and a user's own.

#![forbid(unsafe_code)]

mod nine;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use whole_machine::user::User;
use whole_machine::{biv, kernels, text};

/// What the kernel is to load by itself: a file system and a loop device, by a mount; a kind of interface; a protocol.
const BY_ITSELF: &str = "truncate -s 8M /tmp/disk && mkdosfs /tmp/disk && mkdir /tmp/there
    mount -o loop -t vfat /tmp/disk /tmp/there && echo hello >/tmp/there/file && umount /tmp/there
    mount -o loop -t vfat /tmp/disk /tmp/there && cat /tmp/there/file
    ip link add one type veth peer name two && ip link add br0 type bridge
    brctl addif br0 one && ls /sys/class/net/br0/brif";

/// What somebody loads by name, and what its patterns are for.
const BY_NAME: &str =
    "nft_chain_nat bridge veth loop xfs vfat squashfs wireguard fs-btrfs net-pf-28";

/// Loads [`BY_NAME`] with the `modprobe` in `$1`, and says which are not there then.
const LOAD: &str = "for name in $2; do $1 $name || echo $name fails; done
    for name in nft_chain_nat nf_conntrack bridge veth loop xfs vfat squashfs wireguard btrfs; do
        [ -d /sys/module/$name ] || echo $name is not there
    done";

/// A directory of this test's.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("biv-loading-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The default kernel and an older one, as options.
fn both_kernels() -> Vec<Vec<String>> {
    let older = kernels::pulled("bookworm", "6.1").map(|release| vec!["--kernel".into(), release]);
    let older = older.inspect_err(|reason| println!("skipped: no Linux 6.1: {reason}"));
    [Vec::new()].into_iter().chain(older).collect()
}

/// Where the cache has the modules of a kernel, if it has some.
fn modules_of(kernel: &str) -> Option<PathBuf> {
    let cache = provision::cache_directory().expect("there is a cache");
    let mut found = fs::read_dir(cache.join(kernel).join("modules")).ok()?;
    Some(found.next()?.expect("it can be read").path())
}

/// What a shell script says in a machine; it must succeed.
#[track_caller]
fn says(options: &[String], script: &str) -> String {
    let mut command = biv(&["run", "--net", "none"]);
    let output = command.args(options).args(["--", "sh", "-c", script]).output();
    let output = output.expect("biv can be started");
    assert!(output.status.success(), "{options:?}: {output:?}");
    text(&output.stdout)
}

fn busybox(kernel: &[String]) -> Vec<String> {
    [&["--busybox".to_owned()], kernel].concat()
}

#[test]
fn a_kernel_loads_what_it_lacks_by_itself() {
    for kernel in both_kernels() {
        let script = format!("{{ {BY_ITSELF}; }} 2>&1 || exit 1");
        let said = says(&busybox(&kernel), &script);
        assert!(said.ends_with("hello\none\n"), "{kernel:?}: {said}");
    }
}

/// Busybox has a modprobe, and ours is init under that name.
#[test]
fn modules_are_loaded_by_name() {
    for kernel in both_kernels() {
        for link in ["true", "ln -s /proc/1/exe /tmp/modprobe"] {
            let program = if link == "true" { "modprobe" } else { "/tmp/modprobe" };
            let script = format!("{link}; set -- {program} '{BY_NAME}'; {LOAD}");
            assert_eq!(says(&busybox(&kernel), &script), "", "{kernel:?} {program}");
        }
    }
}

/// The root is the host's, which may have no modprobe and other kernels' modules.
#[test]
fn a_machine_that_looks_like_the_host_has_its_own_modules() {
    let place = Place::new();
    for kernel in both_kernels() {
        let user = User::new(&[], &place.0).at("/");
        let run = ["run", "-d", "--name", "m", "--net", "none"];
        let options: Vec<_> = kernel.iter().map(String::as_str).collect();
        user.says(&[&run[..], &options, &["--", "sleep", "1000"]].concat());
        let script = format!("PATH=$PATH:/sbin:/usr/sbin; set -- modprobe '{BY_NAME}'; {LOAD}");
        let exec = ["exec", "--user", "0:0", "m", "sh", "-c"];
        assert_eq!(user.says(&[&exec[..], &[&script]].concat()), "", "{kernel:?}");
        let listed = user.says(&["exec", "m", "sh", "-c", "ls /lib/modules; uname -r"]);
        let lines: Vec<_> = listed.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1], "{listed}");
        // Nobody writes there, and nobody else is spoken of.
        let script = "touch /lib/modules/x 2>&1; stat -c %u:%g /lib/modules/*/modules.dep";
        let said = user.says(&[&exec[..], &[script]].concat());
        assert!(said.contains("Read-only") && said.ends_with("\n0:0\n"), "{said}");
        user.says(&["rm", "--force", "m"]);
    }
}

#[test]
fn a_machine_has_its_modules_again_when_it_is_restored() {
    let place = Place::new();
    let user = User::new(&[], &place.0).at("/");
    user.says(&["run", "-d", "--name", "m", "--net", "none", "--busybox", "--", "sleep", "1000"]);
    let file = place.0.join("snapshot");
    let file = file.to_str().expect("UTF-8");
    // It knows some of them when the snapshot is taken.
    user.says(&["exec", "m", "modprobe", "veth"]);
    user.says(&["snapshot", "m", file]);
    user.says(&["rm", "--force", "m"]);
    user.says(&["restore", "-d", "--name", "n", file]);
    let said =
        user.says(&["exec", "n", "sh", "-c", "modprobe wireguard && cd /sys/module && echo wire*"]);
    assert_eq!(said, "wireguard\n");
    user.says(&["rm", "--force", "n"]);
}

/// A kernel of the user's own, whose modules are somewhere.
#[test]
fn own_modules_are_for_own_kernels() {
    let place = Place::new();
    says(&[], "true");
    let cache = provision::cache_directory().expect("there is a cache");
    let modules = modules_of("kernel").expect("the default kernel has modules");
    let kernel = place.0.join("vmlinuz");
    fs::copy(cache.join("kernel/vmlinuz"), &kernel).expect("there is room for tests");
    // Any name will do for the directory.
    let renamed = place.0.join("mine");
    symlink(&modules, &renamed).expect("a link");
    for directory in [modules.as_path(), modules.parent().expect("there is one"), &renamed] {
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let words = ["--kernel".to_owned(), path(&kernel), "--modules".into(), path(directory)];
        let script = format!("set -- modprobe '{BY_NAME}'; {LOAD}; ls /lib/modules; uname -r");
        let said = says(&busybox(&words), &script);
        let lines: Vec<_> = said.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1], "{directory:?}: {said}");
    }
}

/// A kernel of the user's own shows what is the user's, if it can mount that.
#[test]
fn an_own_kernel_has_the_users_files() {
    let place = Place::new();
    says(&[], "true");
    let cache = provision::cache_directory().expect("there is a cache");
    let modules = modules_of("kernel").expect("the default kernel has modules");
    let kernel = place.0.join("vmlinuz");
    fs::copy(cache.join("kernel/vmlinuz"), &kernel).expect("there is room for tests");
    fs::write(place.0.join("mine"), "my file\n").expect("there is room for tests");
    let run = |options: &[&str], script: &str| {
        let mut command = biv(&["run", "--net", "none", "--mem", "512M", "--kernel"]);
        command.arg(&kernel).args(options).args(["--", "sh", "-c", script]);
        command.current_dir(&place.0).output().expect("biv can be started")
    };
    let modules = modules.to_str().expect("UTF-8");
    let script = "cat mine /proc/sys/kernel/panic_on_oops && echo written >new \
        && touch /etc/unwritten && pwd";
    let output = run(&["--modules", modules], script);
    let here = place.0.canonicalize().expect("it is there");
    assert_eq!(text(&output.stdout), format!("my file\n1\n{}\n", here.display()), "{output:?}");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(fs::read_to_string(place.0.join("new")).expect("it is written"), "written\n");
    assert!(!Path::new("/etc/unwritten").exists());
    // Debian has overlayfs as a module.
    let output = run(&[], "pwd; ls /bin/busybox");
    assert_eq!(text(&output.stdout), "/\n/bin/busybox\n", "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("busybox instead") && said.contains("CONFIG_OVERLAY_FS"), "{said}");
    // Who asks for it is told nothing.
    let output = run(&["--busybox"], "pwd");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_directory_without_modules_is_refused() {
    let place = Place::new();
    let check = |words: &[&str], expected: &str| {
        let output = biv(&["run", "--net", "none", "--busybox"]).args(words).output();
        let output = output.expect("biv can be started");
        let complaint = text(&output.stderr);
        assert!(!output.status.success() && complaint.contains(expected), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    };
    let empty = place.0.to_str().expect("UTF-8");
    check(&["--modules", empty, "--", "true"], "no modules.dep");
    check(&["--modules", "/nowhere", "--", "true"], "/nowhere");
    for release in ["1", "2"] {
        fs::create_dir(place.0.join(release)).expect("a directory");
        fs::write(place.0.join(release).join("modules.dep"), "").expect("a file");
    }
    check(&["--modules", empty, "--", "true"], "several kernels (1, 2)");
}

/// kmod reads the indexes in their binary form, and must find what we find.
#[test]
fn kmod_finds_the_same() {
    let Some(modules) = modules_of("kernel") else { return println!("skipped: no modules yet") };
    let place = Place::new();
    fs::create_dir(place.0.join("lib")).expect("a directory");
    symlink(modules.parent().expect("there is one"), place.0.join("lib/modules")).expect("a link");
    let release = modules.file_name().expect("a name").to_str().expect("UTF-8");
    let kmod = ["/sbin/modprobe", "/usr/sbin/modprobe"]
        .into_iter()
        .find(|path| fs::canonicalize(path).is_ok_and(|path| path.ends_with("kmod")));
    let Some(kmod) = kmod else { return println!("skipped: this host has no kmod") };
    let check = |wanted: &str, expected: &[&str]| {
        let mut command = Command::new(kmod);
        command.arg("-d").arg(&place.0).args(["-S", release, "-C", "/nowhere", "--show-depends"]);
        let output = command.arg(wanted).output().expect("kmod can be started");
        let said = text(&output.stdout);
        assert!(output.status.success(), "{wanted}: {output:?}");
        let mut lines = said.lines();
        let is_next = |name: &&str| lines.any(|line| line.contains(*name));
        assert!(expected.iter().all(is_next), "{wanted}: {said}");
        assert_eq!(lines.next(), None, "{wanted}: {said}");
    };
    check("veth", &["/veth.ko"]);
    check("nft_chain_nat", &["/nf_conntrack.ko", "/nf_nat.ko", "/nft_chain_nat.ko"]);
    check("fs-xfs", &["/xfs.ko"]);
    check("rtnl-link-wireguard", &["/udp_tunnel.ko", "/wireguard.ko"]);
    check("symbol:nf_nat_setup_info", &["/nf_conntrack.ko", "/nf_nat.ko"]);
    check("virtio_pci", &["builtin virtio_pci"]);
}
