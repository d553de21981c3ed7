//! What a machine cannot have is said before its command runs: what the command would write there would be lost.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use whole_machine::{bivouac, kernels, text};

use super::{Place, run};

/// It fails with these words, and the command has not run.
#[track_caller]
fn check_refused(output: &Output, words: &[&str]) {
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), said.as_str()), (Some(125), ""), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    for word in words {
        assert!(complaint.contains(word), "{complaint:?} does not say {word:?}");
    }
}

/// Debian's kernel has the drivers of virtio devices as modules, which whoever gives it as a file does not give.
#[test]
fn a_kernel_without_drivers_is_refused_what_needs_them() {
    let place = Place::new();
    let kernel = kernels::debian("bookworm", "linux-image-cloud-amd64");
    let kernel = kernel.to_str().expect("the target directory's name is text");
    let disk = place.0.join("disk");
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let (disk, volume) = (disk.to_str().expect("it is text"), place.volume(""));
    let socket = place.0.join("socket");
    let socket = socket.to_str().expect("it is text");
    for (options, words) in [
        (&["--busybox", "--volume", &volume][..], &["/mnt/share", "CONFIG_VIRTIO_FS"][..]),
        (&["--busybox", "--net", "user"], &["network card", "CONFIG_VIRTIO_NET"]),
        (&["--busybox", "--publish", "127.0.0.1:47113:80"], &["CONFIG_VIRTIO_NET"]),
        (&["--busybox", "--disk", disk], &["/dev/vda", "virtio_blk"]),
        (&["--root-disk", disk], &["virtio_blk"]),
        (&["--busybox", "--entropy"], &["CONFIG_HW_RANDOM_VIRTIO"]),
        (&["--busybox", "--vsock", socket], &["CONFIG_VIRTIO_VSOCKETS"]),
    ] {
        let options = [&["--kernel", kernel], options].concat();
        let output = run(&place.0, &options, "echo ran; echo lost >/mnt/share/file");
        check_refused(&output, words);
    }
    assert_eq!(fs::read_dir(place.share()).unwrap().count(), 0);
    // Nobody has asked for the network that a machine has by default.
    let output = run(&place.0, &["--kernel", kernel], "echo ran");
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("ran\n", Some(0)));
}

#[test]
fn a_volume_that_has_no_place_is_refused() {
    let place = Place::new();
    let share = place.share();
    let at = |guest: &str| format!("{}:{guest}", share.display());
    let (beside, again) = (at("/mnt/a"), at("/mnt/a"));
    let (file, below) = (at("/etc/passwd"), at("/proc/x"));
    for (volumes, words) in [
        (&["--volume", &file][..], &["/etc/passwd", "a file in its way"][..]),
        (&["--volume", &below], &["/proc/x", "cannot be made"]),
        (&["--volume", &beside, "--volume", &again], &["/mnt/a", "covers it"]),
    ] {
        check_refused(&run(&place.0, volumes, "echo ran"), words);
    }
    // One in another has its place, in whatever order they are named; so has one at the current directory.
    let inner = place.0.join("inner");
    fs::create_dir(&inner).unwrap();
    let (inside, here) = (format!("{}:/mnt/a/b", inner.display()), at(inner.to_str().unwrap()));
    let script = "echo inner >/mnt/a/b/file; echo outer >/mnt/a/file; echo here >here";
    let options = ["--volume", &inside, "--volume", &beside, "--volume", &here];
    let output = run(&inner, &options, script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(inner.join("file")).unwrap(), "inner\n");
    assert_eq!((place.read("file"), place.read("here")), ("outer\n".into(), "here\n".into()));
}

#[test]
fn what_would_be_written_into_a_copy_is_refused() {
    let place = Place::new();
    let kernel = kernels::debian("bookworm", "linux-image-cloud-amd64");
    let kernel = kernel.to_str().expect("the target directory's name is text");
    let share = place.share();
    let share = share.to_str().expect("it is text");
    let packed = run(&place.0, &["--kernel", kernel, "--root", share, "--root-rw"], "echo ran");
    check_refused(&packed, &["--root-rw", "copy"]);
    // A plain machine has nobody to mount it.
    let volume = place.volume("");
    let arguments = ["run", "--kernel", kernel, "--initrd", kernel, "--volume", &volume];
    let mut plain = whole_machine::biv(&arguments);
    let output = plain.current_dir(Path::new("/")).output().expect("`timeout` can be started");
    check_refused(&output, &["--volume", "init"]);
}

/// What a directory of the host's kernel is called has files of the guest's in the guest.
#[test]
fn a_current_directory_that_is_not_shared_is_said() {
    let name = format!("biv-not-shared-{}", std::process::id());
    let here = Path::new("/dev/shm").join(name);
    fs::create_dir(&here).expect("/dev/shm can be written");
    let output = run(&here, &[], "pwd");
    let volume = format!("{0}:{0}", here.display());
    let shared = run(&here, &["--volume", &volume], "pwd");
    fs::remove_dir(&here).expect("it is empty");
    let expected = format!("{}\n", here.display());
    assert_eq!((text(&shared.stdout), text(&shared.stderr)), (expected, String::new()));
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("/\n", Some(0)));
    let complaint = text(&output.stderr);
    let expected = format!("biv: {} is not shared", here.display());
    assert!(complaint.contains(&expected) && complaint.contains("--volume"), "{complaint}");
}

#[test]
fn a_closed_stream_is_closed_to_the_command() {
    let place = Place::new();
    let script = format!("{} run -- sh -c 'echo lost; echo $? >status' >&-", bivouac().display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.share()).stdin(Stdio::null());
    let output = shell.output().expect("there is a shell");
    assert_eq!(place.read("status"), "1\n", "{}", text(&output.stderr));
}
