//! Trees there and back, and streams of somebody who wants to get out.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tar::{EntryType, Header};

use crate::{Destination, Error, Owner, Rules, Source, pack, unpack};

/// A directory with a `destination`, and something beside it that is not to be changed.
struct Work(PathBuf);

impl Work {
    fn new() -> Work {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("biv-archive-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("destination")).unwrap();
        fs::create_dir(path.join("outside")).unwrap();
        fs::write(path.join("outside/secret"), "secret").unwrap();
        Work(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn destination(&self) -> PathBuf {
        self.at("destination")
    }

    /// Unpacks what a stranger has sent into `destination`, as `copy`.
    fn receive(&self, stream: &[u8]) -> Result<usize, Error> {
        let destination = Destination::Copy(self.destination(), Some("copy".into()));
        unpack(stream, &destination, &Rules::of_a_stranger(Owner::Ours))
    }

    /// What is outside is as it was.
    #[track_caller]
    fn check_outside(&self) {
        assert_eq!(fs::read_to_string(self.at("outside/secret")).unwrap(), "secret");
        assert_eq!(fs::metadata(self.at("outside/secret")).unwrap().nlink(), 1);
        let names = |path: &Path| fs::read_dir(path).unwrap().count();
        assert_eq!((names(&self.at("outside")), names(&self.0)), (1, 2));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn packed(path: &Path, follows_link: bool) -> Vec<u8> {
    let mut stream = Vec::new();
    pack(&Source::find(path, follows_link).unwrap(), &mut stream).unwrap();
    stream
}

/// Makes a tree with something of everything.
fn make_tree(path: &Path) {
    let long = "n".repeat(200);
    fs::create_dir_all(path.join("sub").join(&long).join(&long)).unwrap();
    fs::write(path.join("sub").join(&long).join(&long).join("deep"), vec![7; 100_000]).unwrap();
    fs::write(path.join("empty"), "").unwrap();
    fs::write(path.join("exact"), vec![1; 512]).unwrap();
    fs::write(path.join("program"), "#!/bin/sh\n").unwrap();
    fs::hard_link(path.join("program"), path.join("sub/again")).unwrap();
    fs::set_permissions(path.join("program"), fs::Permissions::from_mode(0o751)).unwrap();
    symlink("../nowhere//at/./all", path.join("link")).unwrap();
    symlink(format!("/{}", "l".repeat(300)), path.join("long-link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
    for name in ["exact", "sub"] {
        fs::File::open(path.join(name)).unwrap().set_modified(time).unwrap();
    }
    fs::set_permissions(path.join("sub"), fs::Permissions::from_mode(0o555)).unwrap();
}

#[track_caller]
fn check_tree(path: &Path) {
    let long = "n".repeat(200);
    assert_eq!(
        fs::read(path.join("sub").join(&long).join(&long).join("deep")).unwrap(),
        vec![7; 100_000]
    );
    assert_eq!(fs::read(path.join("empty")).unwrap(), b"");
    assert_eq!(fs::read(path.join("exact")).unwrap(), vec![1; 512]);
    assert_eq!(fs::read_link(path.join("link")).unwrap(), Path::new("../nowhere//at/./all"));
    assert_eq!(fs::read_link(path.join("long-link")).unwrap().as_os_str().len(), 301);
    let status = |name: &str| fs::metadata(path.join(name)).unwrap();
    assert_eq!(status("program").mode() & 0o7777, 0o751);
    assert_eq!(status("program").ino(), status("sub/again").ino());
    assert!(status("pipe").file_type().is_fifo());
    assert_eq!(status("pipe").mode() & 0o7777, 0o640);
    assert_eq!((status("exact").mtime(), status("sub").mtime()), (1_234_567_890, 1_234_567_890));
    assert_eq!(status("sub").mode() & 0o7777, 0o555);
    fs::set_permissions(path.join("sub"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_tree_survives() {
    let work = Work::new();
    make_tree(&work.at("tree"));
    let stream = packed(&work.at("tree"), false);
    for rules in [Rules::of_a_stranger(Owner::Ours), Rules::of_the_master(Owner::Kept)] {
        let destination = Destination::Copy(work.at("new"), Some("tree".into()));
        assert_eq!(unpack(&stream[..], &destination, &rules).unwrap(), 0);
        check_tree(&work.at("new"));
        fs::remove_dir_all(work.at("new")).unwrap();
    }
    // Files that are there are replaced; directories are filled, and stay as they are.
    work.receive(&stream).unwrap();
    let sub = work.at("destination/copy/sub");
    fs::set_permissions(&sub, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(work.at("destination/copy/exact"), "other").unwrap();
    work.receive(&stream).unwrap();
    assert_eq!(fs::metadata(&sub).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::read(work.at("destination/copy/exact")).unwrap().len(), 512);
    fs::set_permissions(work.at("tree/sub"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn other_programs_and_we_understand_each_other() {
    let work = Work::new();
    make_tree(&work.at("tree"));
    let mut tar = Command::new("tar");
    tar.args(["-x", "-p", "-C"]).arg(work.destination()).stdin(Stdio::piped());
    let mut tar = tar.spawn().expect("there is a tar on the host");
    tar.stdin.take().unwrap().write_all(&packed(&work.at("tree"), false)).unwrap();
    assert!(tar.wait().unwrap().success());
    check_tree(&work.at("destination/tree"));
    fs::set_permissions(work.at("tree/sub"), fs::Permissions::from_mode(0o555)).unwrap();
    for format in ["gnu", "posix"] {
        let mut tar = Command::new("tar");
        tar.arg(format!("--format={format}")).arg("-c").arg("-C").arg(&work.0).arg("./tree");
        let output = tar.output().expect("there is a tar on the host");
        assert!(output.status.success());
        let to = work.at(format);
        fs::create_dir(&to).unwrap();
        let rules = Rules::of_the_master(Owner::Ours);
        unpack(&output.stdout[..], &Destination::Directory(to.clone()), &rules).unwrap();
        check_tree(&to.join("tree"));
    }
    fs::set_permissions(work.at("tree/sub"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn it_goes_where_cp_would_put_it() {
    let work = Work::new();
    fs::create_dir_all(work.at("tree/in")).unwrap();
    fs::write(work.at("tree/in/file"), "1").unwrap();
    symlink("tree", work.at("link")).unwrap();
    fs::write(work.at("file"), "2").unwrap();
    let check = |source: &str, follows: bool, to: &str, found: Result<&str, &str>| {
        fs::create_dir_all(work.at("to/there")).unwrap();
        fs::write(work.at("to/old"), "old").unwrap();
        symlink("old", work.at("to/old-link")).unwrap();
        let path = PathBuf::from(format!("{}/{source}", work.0.display()));
        let name = Path::new(source).file_name().filter(|_| !crate::names_contents(&path));
        let to = PathBuf::from(format!("{}/to/{to}", work.0.display()));
        let destination = Destination::Copy(to, name.map(Into::into));
        let rules = Rules::of_a_stranger(Owner::Ours);
        let done = unpack(&packed(&path, follows)[..], &destination, &rules);
        match (done, found) {
            (Ok(_), Ok(found)) => assert!(
                fs::symlink_metadata(work.at("to").join(found)).is_ok(),
                "{source}: no {found}"
            ),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (done, _) => panic!("{source} to {destination:?}: {done:?}"),
        }
        if !matches!(found, Ok("old")) {
            assert_eq!(fs::read_to_string(work.at("to/old")).unwrap(), "old", "{source}");
        }
        fs::remove_dir_all(work.at("to")).unwrap();
    };
    check("file", false, "new", Ok("new"));
    check("file", false, "new/", Err("is no directory"));
    check("file", false, "there", Ok("there/file"));
    check("file", false, "there/.", Ok("there/file"));
    check("file", false, "old", Ok("old"));
    check("file", false, "old/", Err("Not a directory"));
    check("file", false, "old-link", Ok("old-link"));
    check("file", false, "no/new", Err("No such file"));
    check("tree", false, "new", Ok("new/in/file"));
    check("tree", false, "new/", Ok("new/in/file"));
    check("tree", false, "there", Ok("there/tree/in/file"));
    check("tree/", false, "there", Ok("there/tree/in/file"));
    check("tree/.", false, "there", Ok("there/in/file"));
    check("tree/.", false, "new", Ok("new/in/file"));
    check("tree", false, "old", Err("is no directory"));
    check("tree/in/..", false, "new", Ok("new/in/file"));
    check("link", false, "there", Ok("there/link"));
    check("link", true, "there", Ok("there/link/in/file"));
    check("link/", false, "there", Ok("there/link/in/file"));
    assert!(Source::find(&work.at("nothing"), false).is_err());
    let slash = PathBuf::from(format!("{}/", work.at("file").display()));
    assert!(Source::find(&slash, false).is_err());
}

/// A stream that somebody wrote by hand.
#[derive(Default)]
struct Stream(Vec<u8>);

impl Stream {
    fn add(mut self, kind: EntryType, path: &str, link: &str, data: &[u8]) -> Stream {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o6777);
        header.set_uid(4711);
        header.set_gid(4711);
        header.set_mtime(0);
        header.set_size(data.len() as u64);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.extend(header.as_bytes());
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn directory(self, path: &str) -> Stream {
        self.add(EntryType::Directory, path, "", b"")
    }

    fn file(self, path: &str) -> Stream {
        self.add(EntryType::Regular, path, "", b"hostile")
    }

    fn symlink(self, path: &str, to: &str) -> Stream {
        self.add(EntryType::Symlink, path, to, b"")
    }

    fn link(self, path: &str, to: &str) -> Stream {
        self.add(EntryType::Link, path, to, b"")
    }
}

#[test]
fn a_hostile_stream_writes_nothing_outside() {
    let tree = || Stream::default().directory("x");
    let outside = "../../outside";
    let check = |stream: Stream, words: &str| {
        let work = Work::new();
        symlink(outside, work.at("destination/planted")).unwrap();
        fs::create_dir(work.at("destination/copy")).unwrap();
        symlink(outside, work.at("destination/copy/planted")).unwrap();
        match work.receive(&stream.0) {
            Err(error) => {
                assert!(!words.is_empty() && error.to_string().contains(words), "{error}");
            }
            Ok(_) => assert!(words.is_empty(), "not refused: {words}"),
        }
        work.check_outside();
    };
    check(tree().file("x/../../outside/new"), "leads out");
    check(tree().file("x/.."), "leads out");
    check(tree().directory("x/../../outside/new"), "leads out");
    check(tree().file("../outside/new"), "");
    check(tree().file("/../outside/new"), "leads out");
    check(tree().file("x/./../../outside/new"), "leads out");
    // What was sent as a link, or was there, is none that anything is reached through.
    check(tree().symlink("x/l", outside).file("x/l/new"), "is no directory");
    check(tree().symlink("x/l", outside).directory("x/l"), "is no directory");
    check(tree().symlink("x/l", "../../outside/secret").file("x/l"), "");
    check(tree().symlink("x/l", outside).link("x/n", "x/l/secret"), "is no directory");
    check(tree().symlink("x/l", "../../outside/secret").link("x/n", "x/l").file("x/n"), "");
    check(tree().file("x/planted/new"), "is no directory");
    check(tree().file("x/planted/secret"), "is no directory");
    check(tree().directory("x/planted"), "is no directory");
    check(tree().file("x/planted"), "");
    check(tree().link("x/n", "x/planted/secret"), "is no directory");
    check(tree().link("x/n", "x/../../outside/secret"), "leads out");
    check(tree().link("x/n", "/etc/passwd"), "No such file");
    // The root of the stream is no link that the rest goes through.
    check(Stream::default().symlink("x", "../outside").file("x/new"), "is a directory");
    check(Stream::default().file("x"), "is a directory");
}

#[test]
fn the_first_name_is_the_users_and_not_the_streams() {
    let work = Work::new();
    work.receive(&Stream::default().symlink("x", "../outside").0).unwrap();
    let refused = work.receive(&Stream::default().directory("x").file("x/new").0);
    assert!(matches!(refused, Err(Error::NoDirectory(_))), "{refused:?}");
    work.receive(&Stream::default().file("../../outside").0).unwrap_err();
    work.receive(&Stream::default().file("anything").0).unwrap();
    let names: Vec<_> = fs::read_dir(work.destination()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1);
    assert_eq!(fs::read(work.at("destination/copy")).unwrap(), b"hostile");
    work.check_outside();
}

#[test]
fn a_stranger_makes_no_devices_and_no_programs_with_privileges() {
    let work = Work::new();
    let stream = Stream::default().directory("x").file("x/program");
    let stream = stream.add(EntryType::Char, "x/null", "", b"");
    let left_out = work.receive(&stream.add(EntryType::Block, "x/disk", "", b"").0).unwrap();
    assert_eq!(left_out, 2);
    let mode = |name: &str| fs::metadata(work.at(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("destination/copy/program"), 0o777);
    assert_eq!(mode("destination/copy"), 0o777);
    assert_eq!(fs::read_dir(work.at("destination/copy")).unwrap().count(), 1);
}

#[test]
fn what_is_no_archive_is_an_error() {
    let work = Work::new();
    let check = |stream: &[u8], words: &str| {
        let error = work.receive(stream).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let good = Stream::default().directory("x").file("x/file").0;
    check(b"", "ends early");
    check(&good[..700], "ends early");
    check(&good[..1030], "ends early");
    assert!(!work.at("destination/copy/file").exists(), "what is not complete is not kept");
    check(&[b'x'; 1024], "no tar archive");
    check(&Stream::default().add(EntryType::GNUSparse, "x", "", b"").0, "unknown kind");
    let mut sparse = Stream::default().add(EntryType::XHeader, "x", "", b"22 GNU.sparse.major=1\n");
    sparse = sparse.file("x");
    check(&sparse.0, "sparse");
    check(&Stream::default().add(EntryType::XHeader, "x", "", b"13 size=8000\n").0, "too large");
    check(&Stream::default().add(EntryType::GNULongName, "", "", &[b'n'; 70_000]).0, "too long");
    check(&Stream::default().add(EntryType::Char, "x", "", b"").0, "devices are not copied");
}

#[test]
fn streams_of_any_bytes_do_not_get_out_either() {
    let mut seed = 42_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let work = Work::new();
    let long = "x/".to_owned() + &"n".repeat(90);
    let good = Stream::default()
        .directory("x")
        .symlink("x/l", "../../outside")
        .file("x/file")
        .add(EntryType::GNULongName, "././@LongLink", "", b"x/l/secret")
        .file("x/l")
        .add(EntryType::XHeader, "x", "", b"20 path=x/l/secret3\n")
        .file(&long)
        .link("x/n", "x/l")
        .0;
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random(4) {
            let header = random(bytes.len() / 512) * 512;
            let (at, value) = (random(512), random(256) as u8);
            // Sums stay right, so that more than the sums is tried.
            let other = header + random(100);
            let old = bytes[header + at];
            bytes[header + at] = value;
            let difference = old.wrapping_sub(value);
            bytes[other] = bytes[other].wrapping_add(difference);
        }
        let _ = work.receive(&bytes);
        work.check_outside();
        let _ = fs::remove_dir_all(work.at("destination/copy"));
        let _ = fs::remove_file(work.at("destination/copy"));
    }
}
