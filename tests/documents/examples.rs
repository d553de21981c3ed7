//! What each example of the documents needs before it can be typed, and what its lines do.

/// A block of commands in a document.
pub struct Example {
    /// The document, as a path from the project's root.
    pub document: &'static str,
    /// How the block's first line begins.
    pub begins: &'static str,
    /// It is typed in the project's own directory, not in an empty one.
    pub is_in_project: bool,
    /// Programs of the host without which it is left out.
    pub needs: &'static [&'static str],
    /// Shell commands that the reader runs before, in the directory of the example.
    pub surroundings: &'static str,
    /// Lines that contain these words, and what they do; all others end with status 0.
    pub lines: &'static [(&'static str, Line)],
}

/// What becomes of a line.
pub enum Line {
    /// It ends with this status.
    Status(i32),
    /// It ends with status 0 and shows these words.
    Shows(&'static str),
    /// It goes on until somebody presses these keys.
    Ended(&'static str),
    /// No test can run it, for this reason.
    LeftOut(&'static str),
    /// An ordinary user cannot run it, for this reason.
    CallersOnly(&'static str),
}

use Line::{CallersOnly, Ended, LeftOut, Shows, Status};

const PLAIN: Example = Example {
    document: "",
    begins: "",
    is_in_project: false,
    needs: &[],
    surroundings: "",
    lines: &[],
};

/// Ctrl-C.
const INTERRUPT: &str = "\x03";

/// Ctrl-].
const LEAVE: &str = "\x1d";

/// What `make` and `make test` build.
const A_PROGRAM: &str =
    "printf 'test: hello\\n\\t./hello\\nhello: hello.c\\n\\tcc -o hello hello.c\\n' >Makefile
printf 'int main(void) { return 0; }\\n' >hello.c\n";

const A_WEB_DOMAIN: &str = "mkdir site; touch a:b site/page
biv run -d --name web --busybox -- httpd -f -h /mnt\n";

const HOURS: Line = LeftOut("it measures for hours");
const ARCHIVE: Line =
    LeftOut("it downloads from an archive of its own choice, which not every host reaches");
const NO_DOCKER: Line = LeftOut("it takes Docker and a registry");
const NO_CARGO: Line = CallersOnly("Rust's tools belong to the other user");

/// All of them.
pub const EXAMPLES: &[Example] = &[
    Example {
        document: "README.md",
        begins: "biv run -- uname -a",
        needs: &["make", "cc"],
        surroundings: A_PROGRAM,
        lines: &[("uname", Shows("Linux")), ("a shell", Ended("exit\n"))],
        ..PLAIN
    },
    Example {
        document: "README.md",
        begins: "cargo install",
        is_in_project: true,
        needs: &["cargo"],
        lines: &[
            ("cargo install", LeftOut("it builds everything a second time")),
            ("biv doctor", Shows("/dev/kvm")),
            ("cargo run", NO_CARGO),
            ("cargo test", LeftOut("this is part of it")),
        ],
        ..PLAIN
    },
    Example {
        document: "README.md",
        begins: "biv run -- make test",
        needs: &["make", "cc"],
        surroundings: concat!(
            "mkdir -p src ~/src; echo hello >src/page; echo all: >~/src/Makefile\n",
            "printf 'test: hello\\n\\t./hello\\nhello: hello.c\\n\\tcc -o hello hello.c\\n' \
             >Makefile\n",
            "printf 'int main(void) { return 0; }\\n' >hello.c; echo 'echo suspicious' \
             >suspicious\n",
            "ln -s / ~/rootfs; ln -s / ~/debian\n",
        ),
        lines: &[
            ("--image web", LeftOut("the guide's example builds an image and runs it")),
            ("my-server", LeftOut("the guide's example has a server on such a socket")),
            ("data.qcow2", LeftOut("the guide's examples make disks and run from them")),
            ("--kernel 6.12", LeftOut("the guide's example fetches this kernel and runs it")),
            (
                "--kernel vmlinuz",
                LeftOut("tests/boot starts kernels with file systems of their own"),
            ),
            ("my-kernel.elf", LeftOut("tests/boot starts kernels of this kind")),
        ],
        ..PLAIN
    },
    Example {
        document: "README.md",
        begins: "biv run -d --name web",
        surroundings: "mkdir site",
        lines: &[
            ("logs -f", Ended(INTERRUPT)),
            ("exec -it", Ended("exit\n")),
            ("console web", Ended(LEAVE)),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/spec.md",
        begins: "echo '{\"version\"",
        lines: &[("biv run", Shows("Linux"))],
        ..PLAIN
    },
    Example {
        document: "docs/spec.md",
        begins: "biv run --print-spec",
        surroundings: "biv run -d --name web --busybox -- sleep 1000\n",
        lines: &[("inspect", Shows("busybox"))],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run -- make -j2",
        needs: &["make", "cc"],
        surroundings: A_PROGRAM,
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run --sandbox -- ./suspicious",
        needs: &["cc"],
        surroundings: "printf 'int main(void) { return 7; }\\n' | cc -static -x c -o suspicious \
                       -\n",
        lines: &[
            ("./suspicious", Status(7)),
            ("--image web", LeftOut("an image with Python takes minutes to build")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv kernel pull",
        needs: &["apt-get"],
        lines: &[("biv run --kernel 6.12", Shows("6.12."))],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run --busybox -- sh -c 'modprobe",
        lines: &[("wireguard", Shows("wg0")), ("loop", Shows("/dev/loop0"))],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run --kernel arch/x86/boot/bzImage -- ./test.sh",
        lines: &[
            ("arch/x86", LeftOut("tests/modules has a kernel and its modules")),
            ("--kernel-dir", LeftOut("it is for who builds kernels")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "make modules_install",
        lines: &[
            ("make", LeftOut("it is for who builds kernels")),
            ("biv run", LeftOut("tests/modules has a kernel and its modules")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv image build engine",
        lines: &[
            ("image build", LeftOut("tests/directories has a root with engines")),
            ("podman run", LeftOut("what it runs is pulled from the world")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv image build",
        needs: &["mmdebstrap"],
        lines: &[
            ("image build", CallersOnly("this user has no subordinate ids to build images with")),
            ("nginx -v", CallersOnly("this user has no subordinate ids to build images with")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "mmdebstrap --include=systemd-sysv",
        lines: &[
            ("mmdebstrap", ARCHIVE),
            ("biv", LeftOut("tests/systems has such a system, and does this with it")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run --image docker.io/library/alpine:3",
        lines: &[
            ("alpine", LeftOut("it is pulled from the world; tests/oci has a registry of its own")),
            ("nginx", LeftOut("likewise")),
            ("fedora", LeftOut("likewise")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "curl -LO https://cloud.debian.org",
        lines: &[
            ("curl", ARCHIVE),
            ("biv", LeftOut("tests/systems boots such a disk, which it makes itself")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "sudo apt install ovmf",
        lines: &[
            ("sudo", LeftOut("the packages of a host are its user's")),
            ("--mem 1G", LeftOut("tests/systems boots such a disk, which it makes itself")),
            ("installer.iso", LeftOut("likewise")),
            ("cp", LeftOut("the package may not be there")),
            ("vars=my.fd", LeftOut("tests/systems keeps variables")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "mmdebstrap --variant=minbase stable ~/debian",
        lines: &[("mmdebstrap", ARCHIVE), ("apt-get install", ARCHIVE)],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "mmdebstrap --variant=minbase stable ~/rootfs",
        surroundings: concat!(
            "mkdir -p ~/rootfs/etc ~/rootfs/bin; echo ID=test >~/rootfs/etc/os-release\n",
            "cp /bin/busybox ~/rootfs/bin/cat\n",
        ),
        lines: &[
            ("mmdebstrap", ARCHIVE),
            ("docker", NO_DOCKER),
            ("--root ~/rootfs", Shows("ID=test")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run --cache cargo",
        lines: &[
            ("cargo build", LeftOut("it downloads crates")),
            ("-- cat", Shows("value")),
            ("cache ls", Shows("mine")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run --busybox --publish",
        needs: &["curl"],
        lines: &[("curl", Shows("hello"))],
        ..PLAIN
    },
    Example { document: "docs/guide.md", begins: "truncate", ..PLAIN },
    Example {
        document: "docs/guide.md",
        begins: "biv run --xen",
        lines: &[("nproc", Shows("4"))],
        ..PLAIN
    },
    Example {
        document: "docs/xen.md",
        begins: "biv run --xen -d --name db",
        lines: &[
            ("ping", Shows("1 packets received")),
            ("numbered", Shows("rx drop icmp src 10.77.0.3")),
            ("dropped", Shows("10485760")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/xen.md",
        begins: "biv run --xen",
        lines: &[
            ("uname", Shows("Linux")),
            ("hypervisor", Shows("xen")),
            ("debian", LeftOut("it is pulled from the world; tests/oci has images of its own")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "qemu-img create",
        needs: &["qemu-img", "mke2fs"],
        surroundings: concat!(
            "mkdir -p root/etc root/bin; echo ID=test >root/etc/os-release; cp /bin/busybox \
             root/bin/cat\n",
            "/sbin/mke2fs -q -t ext4 -d root root.img 64M; qemu-img convert -O qcow2 root.img \
             debian.qcow2\n",
        ),
        lines: &[("--root-disk", Shows("ID=test"))],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "mmdebstrap --variant=minbase stable root",
        needs: &["mke2fs"],
        surroundings: concat!(
            "mkdir -p root/etc root/bin; echo ID=test >root/etc/os-release; cp /bin/busybox \
             root/bin/cat\n",
            "/sbin/mke2fs -q -t ext4 -d root root.img 64M\n",
        ),
        lines: &[("mmdebstrap", ARCHIVE), ("--root-disk", Shows("ID=test"))],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv run --vsock",
        lines: &[
            ("biv run", LeftOut("the server is the reader's; tests/sockets has one")),
            ("socat", LeftOut("the server is the reader's; tests/sockets has one")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "apt-get download xen",
        lines: &[
            ("apt-get", LeftOut("tests/boot/xen.rs boots this hypervisor, with a domain 0")),
            ("dpkg-deb", LeftOut("see above")),
            ("gunzip", LeftOut("see above")),
            ("biv run", LeftOut("see above")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/domains.md",
        begins: "biv run -d --name web",
        surroundings: "mkdir site",
        lines: &[
            ("biv ps", Shows("httpd -f -v -h /mnt")),
            ("logs -f", Ended(INTERRUPT)),
            ("exec -it web sh", Ended("exit\n")),
            ("console web", Ended(LEAVE)),
            ("attach web", Ended(LEAVE)),
            ("biv stats", Ended(INTERRUPT)),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/domains.md",
        begins: "biv cp site web",
        surroundings: A_WEB_DOMAIN,
        ..PLAIN
    },
    Example {
        document: "docs/domains.md",
        begins: "curl --unix-socket",
        needs: &["curl"],
        surroundings: A_WEB_DOMAIN,
        lines: &[("openapi", Shows("openapi"))],
        ..PLAIN
    },
    Example {
        document: "docs/serve.md",
        begins: "biv serve",
        needs: &["curl"],
        lines: &[
            ("ping", Shows("version")),
            ("?wait=60' --data", Shows("done")),
            ("uname", Shows("Linux")),
            ("jobs/2", Shows("done")),
            ("metrics", Shows("bivouac_domains{")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/pods.md",
        begins: "biv pod run -- sh",
        lines: &[
            ("biv pod ps", Shows("while sleep 1")),
            ("pod exec web", Shows("biv-pod-init")),
            ("pod attach web", Ended(LEAVE)),
            ("pod wait web", Shows("143")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/pods.md",
        begins: "biv pod run -d --name here",
        lines: &[("biv pod ps", Shows("there"))],
        ..PLAIN
    },
    Example { document: "docs/pods.md", begins: "biv pod run -d --name web -w", ..PLAIN },
    Example {
        document: "docs/pods.md",
        begins: "biv run -d --name m",
        lines: &[("biv pod ps", Shows("sleep 100"))],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv up --dry-run",
        surroundings: concat!(
            "printf 'name: shop\nservices:\n  web: {command: [sleep, \"1000\"], ",
            "depends_on: [db], x-biv: [--busybox]}\n  db: {command: sleep 1000, ",
            "x-biv: [--busybox]}\n' >compose.yaml\n"
        ),
        lines: &[("dry-run", Shows("--network-alias=db")), ("biv up;", Shows("shop-web"))],
        ..PLAIN
    },
    Example {
        document: "docs/guide.md",
        begins: "biv network create backend",
        lines: &[("wget -qO- http://db", Shows("data")), ("network ls", Shows("backend"))],
        ..PLAIN
    },
    Example {
        document: "docs/pods.md",
        begins: "biv pod network create backend",
        lines: &[("getent hosts db", Shows("db")), ("network ls", Shows("backend"))],
        ..PLAIN
    },
    Example {
        document: "docs/pods.md",
        begins: "biv pod run -d --name counter",
        lines: &[("pod freeze counter; biv pod ps", Shows("frozen"))],
        ..PLAIN
    },
    Example {
        document: "docs/pods.md",
        begins: "biv pod run -d --name base",
        lines: &[("pod restart -d --name base 3.pod", Shows("base"))],
        ..PLAIN
    },
    Example {
        document: "README.md",
        begins: "biv pod run -- sh",
        lines: &[("pod exec web2", Shows("sleep 100")), ("pod exec web3", Shows("sleep 100"))],
        ..PLAIN
    },
    Example {
        document: "docs/snapshots.md",
        begins: "biv run -d --name web",
        lines: &[("--no-publish web.snapshot", Ended(INTERRUPT))],
        ..PLAIN
    },
    Example {
        document: "docs/debugging.md",
        begins: "biv run --busybox --append nokaslr",
        surroundings: "printf '#!/bin/sh\\nexit 0\\n' >what-hangs; chmod +x what-hangs\n",
        ..PLAIN
    },
    Example {
        document: "docs/debugging.md",
        begins: "perf record",
        needs: &["perf"],
        surroundings: "biv run --busybox --append nokaslr -- cat /proc/kallsyms >kallsyms\n",
        lines: &[("perf report", Ended("q"))],
        ..PLAIN
    },
    Example {
        document: "docs/debugging.md",
        begins: "biv debug bisect -- biv run",
        lines: &[
            (
                "what-fails",
                LeftOut("nothing is wrong; biv's tests/inspect.rs plants a fault and finds it"),
            ),
            ("test.elf", LeftOut("see above")),
        ],
        ..PLAIN
    },
    Example {
        document: "docs/debugging.md",
        begins: "biv run --append nokaslr --user-exec",
        lines: &[("biv debug bisect", LeftOut("see above"))],
        ..PLAIN
    },
    Example {
        document: "docs/debugging.md",
        begins: "BIVOUAC_INTERPRET_BLOCKS",
        lines: &[("cargo test", LeftOut("it takes an hour"))],
        ..PLAIN
    },
    Example {
        document: "docs/debugging.md",
        begins: "cargo run --release -p biv --example lockstep",
        lines: &[("lockstep", LeftOut("tests/lockstep runs it"))],
        ..PLAIN
    },
    Example {
        document: "docs/measuring.md",
        begins: "cargo run --release -p bench",
        lines: &[("cargo run", HOURS)],
        ..PLAIN
    },
    Example {
        document: "docs/measuring.md",
        begins: "cargo build --release && cargo run --release -p bench --bin disks",
        lines: &[("cargo", HOURS)],
        ..PLAIN
    },
    Example {
        document: "docs/measuring.md",
        begins: "cargo build --release && cargo run --release -p bench --bin boot_disk",
        lines: &[("cargo", LeftOut("it wants a disk that boots"))],
        ..PLAIN
    },
    Example {
        document: "docs/measuring.md",
        begins: "cargo build --release && cargo run --release -p bench --bin idle",
        lines: &[("cargo", HOURS)],
        ..PLAIN
    },
    Example {
        document: "docs/measuring.md",
        begins: "cargo build --release && cargo run --release -p bench --bin xen",
        lines: &[("cargo", HOURS)],
        ..PLAIN
    },
    Example {
        document: "docs/measuring.md",
        begins: "cargo build --release && cargo run --release -p bench --bin pods",
        lines: &[("cargo", HOURS)],
        ..PLAIN
    },
];
