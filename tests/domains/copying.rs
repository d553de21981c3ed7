//! `biv cp`: files into a domain and out of it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::place::{Place, end_of, signal, start};
use whole_machine::text;

impl Place {
    /// A path beside the registry, for files to be copied.
    fn file(&self, name: &str) -> PathBuf {
        self.path.join("files").join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Copies; it must succeed, and has nothing to say.
    #[track_caller]
    fn copy(&self, from: &str, to: &str) {
        assert_eq!(self.says(&["cp", from, to]), "");
    }

    /// What a script says in the domain.
    #[track_caller]
    fn guest(&self, script: &str) -> String {
        let output = self.exec("web", script);
        assert!(output.status.success(), "{script}: {output:?}");
        text(&output.stdout)
    }
}

fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.file("")).expect("there is room for tests");
    place.detach("web", "sleep 1000");
    place
}

#[test]
fn files_go_in_and_out() {
    let place = place();
    let data: Vec<u8> = (0..200_000_u32).map(|n| ((n * n) >> 5) as u8).collect();
    fs::write(place.file("data"), &data).unwrap();
    place.copy(&place.shown("data"), "web:/tmp/copy");
    place.copy("web:tmp/copy", &place.shown("back"));
    assert!(fs::read(place.file("back")).unwrap() == data, "it comes back as it went");

    let tree = place.file("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/program"), "#!/bin/sh\necho works\n").unwrap();
    fs::set_permissions(tree.join("sub/program"), fs::Permissions::from_mode(0o750)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
    fs::File::open(tree.join("sub/program")).unwrap().set_modified(time).unwrap();
    symlink("sub/program", tree.join("link")).unwrap();
    place.copy(&place.shown("tree"), "web:/root/new");
    place.copy(&place.shown("tree"), "web:/root/new");
    let said = place.guest(
        "cd /root/new/tree; ./link; stat -c '%a %Y %u:%g' sub/program; \
                            readlink link; test -d ../sub; mkfifo pipe; mknod null c 1 3; \
                            chmod 4755 sub/program",
    );
    assert_eq!(said, "works\n750 1234567890 0:0\nsub/program\n");
    let output = place.output(&["cp", "web:/root/new/.", &place.shown("out")]);
    assert!(output.status.success() && text(&output.stderr).contains("devices were left out"));
    let program = fs::metadata(place.file("out/tree/link")).unwrap();
    let own = rustix::process::getuid().as_raw();
    assert_eq!((program.mode() & 0o7777, program.uid()), (0o755, own));
    assert_eq!(program.mtime(), 1_234_567_890);
    assert!(!place.file("out/tree/null").exists() && place.file("out/sub").is_dir());

    // Owners are kept if that is asked for, which takes privileges here.
    place.says(&["cp", "--archive", &place.shown("data"), "web:/tmp/owned"]);
    assert_eq!(place.guest("stat -c %u /tmp/owned"), format!("{own}\n"));
    if own == 0 {
        place.guest("chown 4711:12 /tmp/owned; chmod 4755 /tmp/owned");
        place.says(&["cp", "-a", "web:/tmp/owned", &place.shown("owned")]);
        let found = fs::metadata(place.file("owned")).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (4711, 12, 0o4755));
    }
    // What a kernel makes up has no size, and contents.
    place.copy("web:/proc/version", &place.shown("version"));
    assert!(fs::read_to_string(place.file("version")).unwrap().starts_with("Linux version"));
}

#[test]
fn archives_go_in_and_out() {
    let place = place();
    fs::create_dir(place.file("tree")).unwrap();
    fs::write(place.file("tree/file"), "contents").unwrap();
    let tar = Command::new("tar").arg("-C").arg(place.file("")).args(["-c", "tree"]).output();
    let archive = tar.expect("there is a tar on the host").stdout;
    let mut giving = start(place.command(&["cp", "-", "web:/tmp"]));
    giving.stdin.take().expect("piped").write_all(&archive).unwrap();
    let output = end_of(giving);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.guest("cat /tmp/tree/file"), "contents");
    let taken = place.output(&["cp", "web:/tmp/tree", "-"]);
    assert!(taken.status.success());
    let mut tar = Command::new("tar");
    tar.args(["-x", "-O", "tree/file"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tar = tar.spawn().expect("there is a tar on the host");
    tar.stdin.take().expect("piped").write_all(&taken.stdout).unwrap();
    assert_eq!(end_of(tar).stdout, b"contents");
    // A reader that has seen enough ends it.
    place.guest("dd if=/dev/zero of=/tmp/much bs=1M count=30 2>/dev/null");
    let mut taking = start(place.command(&["cp", "web:/tmp/much", "-"]));
    drop(taking.stdout.take());
    assert_eq!(end_of(taking).status.code(), Some(141));
}

#[test]
fn what_cannot_be_copied_is_said() {
    let place = place();
    fs::write(place.file("file"), "1").unwrap();
    fs::create_dir(place.file("directory")).unwrap();
    let file = place.shown("file");
    let check = |from: &str, to: &str, words: &str| {
        let complaint = place.complains(&["cp", from, to]);
        assert!(complaint.contains(words), "{from} to {to}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    };
    check(&file, "nobody:/tmp", "no domain nobody");
    check(&file, &file, "NAME:PATH");
    check("web:/tmp", "web:/tmp", "NAME:PATH");
    check(&place.shown("nothing"), "web:/tmp", "nothing: No such file or directory");
    check("web:/nothing", &file, "domain web: /nothing: No such file or directory");
    check(&file, "web:/no/where", "domain web: /no: No such file or directory");
    check(&file, "web:/tmp/new/", "domain web: /tmp/new/ is no directory");
    check("web:/etc", &file, "file is no directory");
    check("web:/etc/.", &place.shown("no/where"), "No such file or directory");
    check("web:/dev/null", &place.shown("new"), "devices are not copied");
    check("-", "web:/nothing", "domain web: /nothing: No such file or directory");
    place.guest("mkdir -p /tmp/directory/file");
    check(&file, "web:/tmp/directory", "/tmp/directory/file is there already, and is a directory");
    // The disk of the guest is full, or of the host.
    place.guest("mkdir /tmp/small; mount -t tmpfs -o size=64k none /tmp/small");
    fs::write(place.file("large"), vec![1; 300_000]).unwrap();
    check(&place.shown("large"), "web:/tmp/small", "/tmp/small/large: No space left on device");
    assert_eq!(place.guest("ls /tmp/small"), "", "a part is no copy");
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
}

#[test]
fn a_hostile_guest_writes_nothing_but_what_was_asked_for() {
    let place = place();
    fs::create_dir(place.file("outside")).unwrap();
    fs::write(place.file("outside/secret"), "secret").unwrap();
    // Instead of init's own program the guest has one that sends what it likes: an archive with a way out.
    let header = |name: &str, kind: u8, link: &str, size: usize| {
        let mut block = [0_u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..107].copy_from_slice(b"0000644");
        block[108..115].copy_from_slice(b"0000000");
        block[116..123].copy_from_slice(b"0000000");
        block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        block[136..147].copy_from_slice(b"00000000000");
        block[148..156].copy_from_slice(b"        ");
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    };
    let mut contents = [0_u8; 512];
    contents[..7].copy_from_slice(b"hostile");
    let archives = [
        [header("x/../../outside/secret", b'0', "", 7), contents].concat(),
        [header("x/l", b'2', "../../outside", 0), header("x/l/secret", b'0', "", 7), contents]
            .concat(),
    ];
    for archive in archives {
        let directory = header("x/", b'5', "", 0);
        fs::write(place.file("archive"), [&directory[..], &archive].concat()).unwrap();
        place.copy(&place.shown("archive"), "web:/tmp/archive");
        place.guest(
            "printf '#!/bin/sh\\nexec /bin/busybox cat /tmp/archive\\n' > /tmp/liar; \
                     chmod +x /tmp/liar",
        );
        // Init starts itself by this name, which the guest's superuser can have lead elsewhere.
        place.guest("mount -t tmpfs none /proc; mkdir /proc/self; ln -s /tmp/liar /proc/self/exe");
        let complaint = place.complains(&["cp", "web:/etc/hostname", &place.shown("here")]);
        assert!(
            complaint.contains("leads out") || complaint.contains("no directory"),
            "{complaint}"
        );
        assert_eq!(fs::read_to_string(place.file("outside/secret")).unwrap(), "secret");
        place.guest("/bin/busybox umount /proc");
        fs::remove_dir_all(place.file("here")).unwrap();
    }
}

/// Much goes in and out of one domain at once, by several ways, and one of them is not read at all.
#[test]
fn much_goes_both_ways_at_once() {
    let place = place();
    let data: Vec<u8> = (0..2_000_000_u32).flat_map(|n| (n ^ (n << 7)).to_le_bytes()).collect();
    fs::write(place.file("bulk"), &data).unwrap();
    let unread = start(place.command(&["exec", "web", "yes"]));
    let mut through = start(place.command(&["exec", "-i", "web", "cat"]));
    let mut input = through.stdin.take().expect("it is piped");
    let sent = data.clone();
    let feeder = std::thread::spawn(move || input.write_all(&sent));
    let copy = start(place.command(&["cp", &place.shown("bulk"), "web:/tmp/bulk"]));
    assert!(end_of(through).stdout == data, "what came back is not what was sent");
    feeder.join().expect("no panic").expect("all is taken");
    let copied = end_of(copy);
    assert!(copied.status.success(), "{copied:?}");
    place.copy("web:/tmp/bulk", &place.shown("again"));
    assert!(fs::read(place.file("again")).unwrap() == data, "the copy is another");
    signal(unread.id(), "TERM");
    end_of(unread);
}
