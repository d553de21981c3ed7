//! Images as the roots of paravirtual domains (`--xen`): their disks are virtual block devices.

use std::fs;

use whole_machine::text;

use crate::place::Place;
use crate::{MANY, THING, load_many, loaded, start_asleep};

/// What the entry point of [`THING`] says.
const SAID: &str = "/entry default 1000:1001:1001 77 /srv hello /srv\n";

/// What a shell prints as root in a domain of [`THING`].
#[track_caller]
fn shell(place: &Place, options: &[&str], script: &str) -> String {
    let words = ["run", "--xen", "--image", THING, "--user", "root", "--entrypoint", "/bin/sh"];
    place.says(&[&words[..], options, &["--", "-c", script]].concat())
}

#[test]
fn an_image_runs_as_it_says() {
    let place = loaded();
    let run = |options: &[&str], command: &[&str]| {
        place.says(&[&["run", "--xen", "--image", THING], options, command].concat())
    };
    // The first boots, the second goes on from what that has left.
    for _ in 0..2 {
        assert_eq!(run(&[], &[]), SAID);
    }
    for options in [&["--cold"][..], &["--cpus", "4"], &["--net", "none"]] {
        assert_eq!(run(options, &[]), SAID, "{options:?}");
    }
    let options = ["--user", "root", "--workdir", "/", "-e", "GREETING=bye", "-e", "HOME=/x"];
    assert_eq!(run(&options, &["a", "b"]), "/entry a b 0:0:0 / bye /x\n");
    assert_eq!(run(&["--entrypoint", "/bin/echo"], &["a", "b"]), "a b\n");
    let words = ["run", "--xen", "--image", THING, "--entrypoint", "/bin/sh", "--", "-c", "exit 7"];
    assert_eq!(place.output(&words).status.code(), Some(7));
}

#[test]
fn layers_lie_over_each_other_and_what_is_written_over_them() {
    let place = loaded();
    let script = "cd /; ls etc/gone 2>/dev/null; ls hidden
        stat -c %u:%g:%a hidden srv/own etc; cat srv/own";
    let expected = "new\n3:4:711\n1000:1001:640\n0:0:755\nmine";
    assert_eq!(shell(&place, &[], script), expected);
    let written = "echo changed >/srv/own; touch /etc/gone /hidden/below; cat /srv/own";
    assert_eq!(shell(&place, &[], written), "changed\n");
    assert_eq!(shell(&place, &[], script), expected);
    let disk = "cat /sys/hypervisor/type /sys/block/xvda/ro; cd /sys/block/xvda; echo xvda?*
        echo x >/dev/xvda1; echo $?";
    assert_eq!(shell(&place, &[], disk), "xen\n1\nxvda1 xvda2 xvda3\n1\n");
}

/// They are named first.
#[test]
fn disks_of_the_users_are_before_the_image() {
    let place = loaded();
    let (first, second) = (place.path.join("first.img"), place.path.join("second.img"));
    for disk in [&first, &second] {
        fs::write(disk, vec![0; 1 << 20]).expect("room");
    }
    let extent = format!("{},extent=64K+512K", second.display());
    let options = ["--disk", first.to_str().expect("text"), "--vbd", &extent];
    let script = "cd /sys/block; cat xvda/size xvdb/size; echo xvdc/xvdc*
        echo x >/dev/xvda; /entry";
    let said = shell(&place, &options, script);
    let expected = "2048\n1024\nxvdc/xvdc1 xvdc/xvdc2 xvdc/xvdc3\n\
                    /entry  0:0:0 /sys/block hello /root\n";
    assert_eq!(said, expected);
    assert!(fs::read(&first).expect("it is there").starts_with(b"x\n"));
}

#[test]
fn as_many_layers_as_an_image_may_have() {
    let place = Place::new();
    load_many(&place, &place.path.join("many.tar"));
    assert_eq!(place.says(&[&["run", "--xen", "--image"], MANY].concat()), "6126\n");
}

/// One of `biv image build` is a disk as well, and copied only where the kernel cannot mount that.
#[test]
fn a_built_image_is_a_disk_too() {
    let place = Place::new();
    let written = "grep -c erofs /proc/filesystems; echo x >/tree/new && cat /tree/new";
    for _ in 0..2 {
        assert_eq!(place.shell(&["--xen"], written), "1\nx\n");
    }
    fs::remove_file(place.cache().join("kernel/drivers/erofs.ko")).expect("the kernel has it");
    assert_eq!(place.shell(&["--xen"], written), "0\nx\n");
}

/// They share the image, and nothing that is written; one of them is saved and goes on twice.
#[test]
fn two_domains_have_one_image_at_the_same_time() {
    let place = loaded();
    start_asleep(&place, "one", &["--xen", "--user", "root"]);
    start_asleep(&place, "two", &["--xen", "--user", "root"]);
    let exec = |name: &str, script: &str| place.says(&["exec", name, "/bin/sh", "-c", script]);
    for name in ["one", "two"] {
        exec(name, &format!("echo {name} >/hidden/new; echo {name} >/tmp/{name}"));
    }
    for name in ["one", "two"] {
        assert_eq!(exec(name, "cat /hidden/new; ls /tmp"), format!("{name}\n{name}\n"));
    }
    let file = place.path.join("snapshot");
    let file = file.to_str().expect("text");
    place.says(&["snapshot", "one", file]);
    // Its layers are not in any cache of the guest's.
    for name in ["three", "four"] {
        place.says(&["restore", "-d", "--name", name, file]);
        let script = "echo 3 >/proc/sys/vm/drop_caches; cat /hidden/new /srv/own; id -u";
        assert_eq!(exec(name, script), "one\nmine0\n");
    }
    for name in ["one", "two", "three", "four"] {
        let audit = place.output(&["xen", "audit", name]);
        assert!(audit.status.success(), "{}", text(&audit.stderr));
        place.says(&["stop", "--time", "60", name]);
    }
}

/// A kernel of the user's own has its drivers from its modules, though it does not see them.
#[test]
fn an_own_kernel_runs_an_image() {
    let place = loaded();
    place.says(&["run", "--xen", "--image", THING]);
    let cache = provision::cache_directory().expect("there is a cache").join("kernel");
    let path = |name: &str| cache.join(name).display().to_string();
    let (kernel, modules) = (path("vmlinuz"), path("modules"));
    let words = ["run", "--xen", "--image", THING, "--kernel", &kernel];
    assert_eq!(place.says(&[&words[..], &["--modules", &modules]].concat()), SAID);
    let complaint = place.complains(&words);
    for word in ["xen-blkfront (CONFIG_XEN_BLKDEV_FRONTEND)", "erofs", "CONFIG_OVERLAY_FS"] {
        assert!(complaint.contains(word), "{word}: {complaint}");
    }
    assert!(!complaint.contains("virtio"), "{complaint}");
}

#[test]
fn what_cannot_be_is_refused() {
    let place = loaded();
    let check = |options: &[&str], why: &str| {
        let complaint = place.complains(&[&["run", "--xen", "--image", THING], options].concat());
        assert!(complaint.contains(why) && !complaint.contains("panicked"), "{why}: {complaint}");
    };
    check(&["--volume", "/tmp:/mnt"], "--volume");
    check(&["--init", "/bin/sh"], "--init");
    check(&["--user", "nobody-of-that-name"], "nobody-of-that-name");
    check(&["--entrypoint", "/nothing"], "/nothing");
}
