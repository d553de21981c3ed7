//! Getting the default guest, with an apt that does as the test says: no network is needed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A home directory and a search path with nothing but our own tools in front of the usual ones.
struct Host {
    home: PathBuf,
}

/// Logs each call; leaves a "package" for each download.
const APT_GET: &str = r#"echo "$*" >> "$HOME/calls"
test -n "$APT_CONFIG" && cp "$APT_CONFIG" "$HOME/apt.conf"
case "$1" in
update) echo 'dlstatus:1:50.0:Retrieving' ;;
download) sleep 0.2; contents "$2" >"$2.tar"
    { printf '!<arch>\n'
    printf '%-16s%-12s%-6s%-6s%-8s%-10s`\n' data.tar 0 0 0 100644 "$(wc -c <"$2.tar")"
    cat "$2.tar"; } > "$2_1.0_amd64.deb" ;;
esac"#;

/// Prints the files of both packages, whichever is asked for.
const CONTENTS: &str = r#"cd "$HOME/files" && tar c ."#;

impl Host {
    fn new(name: &str) -> Host {
        let home = std::env::temp_dir().join(format!("biv-apt-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        let host = Host { home };
        fs::create_dir_all(host.home.join("tools")).unwrap();
        fs::create_dir_all(host.home.join("files/boot")).unwrap();
        fs::create_dir_all(host.home.join("files/bin")).unwrap();
        fs::write(host.home.join("files/boot/vmlinuz-6.12.0-1-cloud-amd64"), "a kernel").unwrap();
        host.script("files/bin/busybox", "test \"$1\" = --list-full && echo bin/ls");
        host.script("tools/apt-config", "echo 'Acquire::http::Proxy \"http://proxy\";'");
        host.offer("6.12.0-1-cloud-amd64");
        host.script("tools/apt-get", APT_GET);
        host.script("tools/contents", CONTENTS);
        host
    }

    /// The kernel package that the meta package stands for.
    fn offer(&self, release: &str) {
        let text = format!(
            "case \"$*\" in *cloud*) echo 'Package: linux-image-cloud-amd64'
            echo 'Depends: linux-image-{release} (= 1)';; esac"
        );
        self.script("tools/apt-cache", &text);
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.home.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `biv run`, which gets the guest and then finds that its kernel is none.
    fn command(&self) -> Command {
        self.command_with(&[])
    }

    fn command_with(&self, options: &[&str]) -> Command {
        self.verb(&[&["run", "--busybox"], options, &["--", "true"]].concat())
    }

    fn verb(&self, arguments: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut biv = Command::new(env!("CARGO_BIN_EXE_biv"));
        biv.args(arguments).env_clear().stdin(Stdio::null());
        biv.env("HOME", &self.home);
        biv.env("PATH", format!("{}:{path}", self.home.join("tools").display()));
        biv
    }

    fn run(&self) -> String {
        message(&self.command().output().unwrap())
    }

    fn cache(&self) -> PathBuf {
        self.home.join(".cache/bivouac")
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.home.join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// The parts that are there, complete.
    fn parts(&self) -> Vec<&'static str> {
        let files = ["kernel/vmlinuz", "busybox/busybox"];
        files.into_iter().filter(|file| self.cache().join(file).is_file()).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

#[track_caller]
fn message(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(125));
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// The guest could not be had, for a reason that says `words`; nothing half-done is left.
#[track_caller]
fn check_refusal(host: &Host, words: &[&str]) {
    let message = host.run();
    for word in words.iter().chain(&["default guest", "--kernel", "--initrd", "--root"]) {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
    assert!(!host.cache().join("work").exists(), "work is left over");
}

#[test]
fn both_parts_come_once() {
    let host = Host::new("once");
    let first = host.run();
    assert!(!first.contains("default guest"), "{first}");
    assert_eq!(host.parts(), ["kernel/vmlinuz", "busybox/busybox"]);
    let kernel = fs::read(host.cache().join("kernel/vmlinuz")).unwrap();
    assert_eq!(kernel, b"a kernel");
    let applets = fs::read_to_string(host.cache().join("busybox/applets")).unwrap();
    assert_eq!(applets, "bin/ls\n");
    assert!(!host.cache().join("work").exists());
    let calls = host.calls().len();
    host.run();
    assert_eq!(host.calls().len(), calls, "the second run needs no apt");
}

#[test]
fn a_refresh_replaces_what_is_there() {
    let host = Host::new("refresh");
    host.run();
    fs::write(host.home.join("files/boot/vmlinuz-6.12.0-1-cloud-amd64"), "a newer kernel").unwrap();
    let kernel = || fs::read(host.cache().join("kernel/vmlinuz")).unwrap();
    let refresh = || message(&host.command_with(&["--refresh"]).output().unwrap());
    let answer = refresh();
    assert!(!answer.contains("default guest"), "{answer}");
    assert_eq!(kernel(), b"a newer kernel");
    assert!(!host.cache().join("work").exists());
    // What cannot be fetched stays.
    host.script("tools/apt-get", "echo 'E: no network' >&2; exit 1");
    let answer = refresh();
    assert!(answer.contains("default guest"), "{answer}");
    assert_eq!(kernel(), b"a newer kernel");
    assert_eq!(host.parts(), ["kernel/vmlinuz", "busybox/busybox"]);
}

#[test]
fn apt_is_given_state_of_its_own() {
    let host = Host::new("state");
    host.run();
    let configuration = fs::read_to_string(host.home.join("apt.conf")).unwrap();
    assert!(configuration.starts_with("Acquire::http::Proxy \"http://proxy\";\n"));
    for setting in ["Dir::State ", "Dir::State::status ", "Dir::Cache ", "Dir::Log "] {
        let line = configuration.lines().find(|line| line.starts_with(setting)).unwrap();
        assert!(line.contains(host.cache().to_str().unwrap()), "{line}");
    }
}

#[test]
fn one_process_fetches_for_all() {
    let host = Host::new("many");
    let children: Vec<_> = (0..4)
        .map(|_| host.command().stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    for child in children {
        let message = message(&child.wait_with_output().unwrap());
        assert!(!message.contains("default guest"), "{message}");
    }
    let downloads = host.calls().iter().filter(|call| call.starts_with("download")).count();
    assert_eq!(downloads, 2, "{:?}", host.calls());
}

#[test]
fn what_an_interrupted_run_left_is_no_hindrance() {
    let host = Host::new("killed");
    let mut child = host.command().stderr(Stdio::null()).spawn().unwrap();
    while !host.cache().join("work/apt/download").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(host.parts(), [""; 0]);
    let message = host.run();
    assert!(!message.contains("default guest"), "{message}");
    assert_eq!(host.parts().len(), 2);
}

#[test]
fn a_failing_download_says_what_apt_said() {
    let host = Host::new("failing");
    let fail = "test \"$1\" = download || exit 0\necho 'E: Failed to fetch x  404' >&2; exit 100";
    host.script("tools/apt-get", fail);
    check_refusal(&host, &["Failed to fetch x  404", "busybox-static"]);
}

#[test]
fn an_older_kernel_is_taken_where_apt_has_no_other_and_biv_says_so() {
    let host = Host::new("older");
    host.offer("6.1.0-1-cloud-amd64");
    let output = host.command().output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = text_of(&output);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("linux-image-6.1.0-1-cloud-amd64") && lines[0].contains("6.12"));
    assert!(lines[1].contains("cannot boot"), "{said}");
    assert_eq!(host.parts().len(), 2);
    // From then on it is there.
    host.run();
}

#[test]
fn a_missing_network_is_not_taken_for_a_missing_package() {
    let host = Host::new("offline");
    host.script("tools/apt-cache", "true");
    check_refusal(&host, &["apt's sources", "linux-image-cloud-amd64"]);
    host.script(
        "tools/apt-get",
        "echo 'E: Failed to fetch http://x  Cannot resolve' >&2; exit 100",
    );
    check_refusal(&host, &["Cannot resolve"]);
}

#[test]
fn a_host_without_apt_asks_debians_archive() {
    let host = Host::new("without");
    fs::remove_dir_all(host.home.join("tools")).unwrap();
    let mut command = host.command();
    command.env("PATH", &host.home).env("BIVOUAC_DEBIAN_MIRROR", "http://127.0.0.1:1/debian/");
    let said = message(&command.output().unwrap());
    assert!(said.contains("http://127.0.0.1:1/debian/dists/trixie/InRelease"), "{said}");
    assert!(said.contains("default guest") && !host.cache().join("work").exists(), "{said}");
}

#[test]
fn a_full_disk_ends_apt() {
    let host = Host::new("full");
    fs::create_dir(host.home.join(".cache")).unwrap();
    // A real one says likewise how far it is, for ever.
    let fill = r#"dd if=/dev/zero of="$HOME/.cache/fill" bs=64k 2>/dev/null
        while echo dlstatus:1:50.0:Retrieving; do sleep 0.1; done"#;
    host.script("tools/apt-get", fill);
    let mount = r#"mount -t tmpfs -o size=4m none "$HOME/.cache" || exit 77; exec "$@""#;
    let arguments = ["--map-root-user", "--mount", "sh", "-c", mount, "sh"];
    let mut command = Command::new("unshare");
    command.args(arguments).arg(env!("CARGO_BIN_EXE_biv")).args(["run", "--busybox"]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env_clear().env("HOME", &host.home).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", host.home.join("tools").display()));
    let output = command.output().expect("util-linux is installed");
    if output.status.code() != Some(125) && !text_of(&output).contains("biv:") {
        return println!("left out: no file system can be mounted here: {}", text_of(&output));
    }
    let said = message(&output);
    assert!(said.contains("is full") && said.contains("XDG_CACHE_HOME"), "{said}");
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_package_without_the_file_is_refused() {
    let host = Host::new("empty");
    fs::remove_dir_all(host.home.join("files/boot")).unwrap();
    check_refusal(&host, &["boot/vmlinuz-"]);
    host.script("tools/contents", "echo garbage");
    check_refusal(&host, &["unpack"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let host = Host::new("unwritable");
    fs::write(host.home.join(".cache"), "a file in the way").unwrap();
    check_cache_message(&host.run(), &host.cache());
}

#[track_caller]
fn check_cache_message(message: &str, cache: &Path) {
    for word in [cache.to_str().unwrap(), "XDG_CACHE_HOME", "--kernel", "--root"] {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

/// What a verb says on a host; it must succeed.
#[track_caller]
fn says(host: &Host, arguments: &[&str]) -> String {
    let output = host.verb(arguments).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn kernels_come_by_version_and_go() {
    const RELEASE: &str = "6.1.0-1-cloud-amd64";
    let host = Host::new("kernels");
    host.offer(RELEASE);
    fs::create_dir_all(host.home.join("files/lib/modules/x/kernel")).unwrap();
    fs::write(host.home.join("files/lib/modules/x/kernel/virtio_blk.ko"), "a driver").unwrap();
    assert_eq!(says(&host, &["kernel", "pull", "6.1"]), format!("{RELEASE}\n"));
    let place = host.cache().join("kernels").join(RELEASE);
    assert_eq!(fs::read(place.join("vmlinuz")).unwrap(), b"a kernel");
    assert_eq!(fs::read(place.join("drivers/virtio_blk.ko")).unwrap(), b"a driver");
    assert!(says(&host, &["kernel", "ls"]).contains(RELEASE));
    let listed: serde_json::Value =
        serde_json::from_str(&says(&host, &["kernel", "ls", "--format", "json"])).unwrap();
    assert_eq!(listed[0]["release"], RELEASE);
    // It is taken by any beginning of its version, and is no kernel.
    let used = message(&host.command_with(&["--kernel", "6.1"]).output().unwrap());
    assert!(used.contains("cannot boot") && used.contains(RELEASE), "{used}");
    let unknown = message(&host.command_with(&["--kernel", "6.9"]).output().unwrap());
    assert!(unknown.contains("biv kernel pull 6.9"), "{unknown}");
    // A name of several is nobody's, and says which there are.
    let other = host.cache().join("kernels/6.1.0-2-cloud-amd64");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("package"), "").unwrap();
    let several = message(&host.verb(&["kernel", "rm", "6.1"]).output().unwrap());
    assert!(several.contains("6.1.0-2-cloud-amd64, 6.1.0-1-cloud-amd64"), "{several}");
    assert!(place.exists() && other.exists());
    assert_eq!(says(&host, &["kernel", "rm", RELEASE]), format!("{RELEASE}\n"));
    assert!(!place.exists() && other.exists());
    assert_eq!(says(&host, &["kernel", "rm", "6"]), "6.1.0-2-cloud-amd64\n");
    let gone = message(&host.verb(&["kernel", "rm", "6"]).output().unwrap());
    assert!(gone.contains("biv kernel ls"), "{gone}");
    let older =
        message(&host.verb(&["kernel", "pull", "5.10", "--suite", "x y"]).output().unwrap());
    assert!(older.contains("x y"), "{older}");
    assert!(!host.cache().join("work").exists(), "work is left over");
}

#[test]
fn a_kernel_comes_in_as_many_packages_as_it_has() {
    const RELEASE: &str = "7.2.1+deb14-cloud-amd64";
    let host = Host::new("parts");
    // As Debian has them since its release 14: the package of the kernel has none of its files.
    let shows = r#"for last; do :; done; echo "Package: $last"; case $last in
        linux-image-cloud-amd64) echo 'Depends: linux-image-7.2.1+deb14-cloud-amd64 (= 7.2.1-1)' ;;
        linux-image-*) echo 'Depends: kmod, linux-binary-7.2.1+deb14-cloud-amd64 (= 7.2.1-1), ' \
            'linux-modules-7.2.1+deb14-cloud-amd64 (= 7.2.1-1), linux-image-cloud-amd64' ;; esac"#;
    host.script("tools/apt-cache", shows);
    // The image lies beside its modules; drivers that are not modules are built in.
    let unpack = r#"mkdir -p "$HOME/out/usr/lib/modules/x"; cd "$HOME/out"
        echo a newer kernel >usr/lib/modules/x/vmlinuz
        echo a driver >usr/lib/modules/x/virtio_blk.ko
        case "$*" in *linux-binary*) tar c usr/lib/modules/x/vmlinuz ;;
        *linux-modules*) tar c usr/lib/modules/x/virtio_blk.ko ;;
        *) tar c --files-from /dev/null ;; esac"#;
    host.script("tools/contents", unpack);
    assert_eq!(says(&host, &["kernel", "pull"]), format!("{RELEASE}\n"));
    let place = host.cache().join("kernels").join(RELEASE);
    assert_eq!(fs::read(place.join("vmlinuz")).unwrap(), b"a newer kernel\n");
    assert_eq!(fs::read(place.join("drivers/virtio_blk.ko")).unwrap(), b"a driver\n");
    let package = fs::read_to_string(place.join("package")).unwrap();
    assert!(package.starts_with("linux-image-7.2.1+deb14"), "{package}");
    // The default guest's comes likewise.
    let used = message(&host.verb(&["run", "--root", "/", "--", "true"]).output().unwrap());
    assert!(used.contains("cannot boot"), "{used}");
    assert_eq!(fs::read(host.cache().join("kernel/vmlinuz")).unwrap(), b"a newer kernel\n");
    // A kernel without an image is refused.
    host.script("tools/contents", "tar c --files-from /dev/null");
    let empty = message(&host.verb(&["kernel", "pull"]).output().unwrap());
    assert!(empty.contains("boot/vmlinuz-"), "{empty}");
}

#[test]
fn images_are_made_listed_used_and_removed() {
    let host = Host::new("images");
    // What mmdebstrap would write: an archive of a root file system, after what it says.
    let make =
        r#"echo "$*" >> "$HOME/calls"; echo 'I: unpacking' >&2; cd "$HOME/files" && tar c ."#;
    host.script("tools/mmdebstrap", make);
    let build = ["image", "build", "web", "--suite", "trixie", "--include", "nginx,curl"];
    assert_eq!(says(&host, &build), "web\n");
    assert!(host.calls().iter().any(|call| call.contains("--include=nginx,curl -- trixie -")));
    let root = host.cache().join("images/web/root");
    assert!(root.join("bin/busybox").is_file() && root.join("proc").is_dir());
    // The same as a disk, which goes with it.
    let disk = host.cache().join("images/web/root-1.erofs");
    let disk_of = |file: &Path| {
        let file = fs::File::open(file).unwrap();
        erofs::Identity::read(&file).unwrap().expect("it is a file system")
    };
    let identity = disk_of(&disk);
    assert_eq!(fs::metadata(&disk).unwrap().permissions().mode() & 0o777, 0o600);
    // Whoever makes an image, its files are in it whose they are in the archive.
    let make = r#"cd "$HOME/files" && tar c --owner 12345 --group 54321 --mode 4711 ."#;
    host.script("tools/mmdebstrap", make);
    says(&host, &["image", "build", "owned"]);
    let owned = host.cache().join("images/owned/root/bin/busybox");
    let recorded = files::owner::Owner::recorded(&owned);
    assert_eq!(recorded, Some(files::owner::Owner { user: 12345, group: 54321, mode: 0o4711 }));
    assert_eq!(fs::metadata(&owned).unwrap().permissions().mode() & 0o7777, 0o711);
    assert!(says(&host, &["image", "ls"]).contains("trixie nginx,curl"));
    let unknown = host.verb(&["run", "--image", "db", "--", "true"]).output().unwrap();
    assert!(message(&unknown).contains("biv image build db"));
    host.script("tools/mmdebstrap", "echo 'E: no such suite' >&2; exit 3");
    let failed = message(&host.verb(&["image", "build", "web"]).output().unwrap());
    assert!(failed.contains("no such suite"), "{failed}");
    assert!(root.is_dir(), "what was there stays");
    assert_eq!(disk_of(&disk), identity);
    assert_ne!(disk_of(&host.cache().join("images/owned/root-1.erofs")), identity);
    says(&host, &["image", "rm", "web"]);
    assert!(!root.exists() && !disk.exists() && !host.cache().join("work").exists());
    fs::remove_file(host.home.join("tools/mmdebstrap")).unwrap();
    let name = message(&host.verb(&["image", "build", "../web"]).output().unwrap());
    assert!(name.contains("../web"), "{name}");
}
