//! The server as a guest's kernel sees it that speaks 9P2000.L.

use std::os::unix::fs::PermissionsExt;

use super::super::nine::{self, Message};
use super::super::share::Share;
use super::*;

/// The fid that the root is attached by.
const HERE: u32 = 0;

const NO_FID: u32 = u32::MAX;

/// A message that is being made.
#[derive(Clone, Default)]
struct Say(Vec<u8>);

impl Say {
    fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn text(self, text: &[u8]) -> Self {
        self.u16(text.len() as u16).bytes(text)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn say() -> Say {
    Say::default()
}

fn number<const COUNT: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut all = [0; 8];
    all[..COUNT].copy_from_slice(&bytes[at..at + COUNT]);
    u64::from_le_bytes(all)
}

/// A kernel that has mounted a share.
struct Client {
    share: Share,
    memory: Arc<GuestMemoryMmap>,
}

impl Client {
    fn unstarted(path: &Path, writable: bool) -> Self {
        let us = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let Kernel { mut share, memory, .. } = Kernel::unstarted(path, writable, 1000, us);
        share.fids = Some(nine::Fids::default());
        Self { share, memory }
    }

    fn new(path: &Path, writable: bool) -> Self {
        let client = Self::unstarted(path, writable);
        client.start();
        client.attach(HERE, rustix::process::getuid().as_raw()).unwrap();
        client
    }

    fn start(&self) {
        let answer = self.ask(100, say().u32(131_072).text(b"9P2000.L")).unwrap();
        assert_eq!(answer, say().u32(131_072).text(b"9P2000.L").0);
    }

    fn attach(&self, fid: u32, user: u32) -> Result<Vec<u8>, Errno> {
        self.ask(104, say().u32(fid).u32(NO_FID).text(b"me").text(b"").u32(user))
    }

    /// What is answered to these bytes, whatever they are; nothing if there is no answer.
    fn send(&self, bytes: &[u8], room: u64) -> Option<Vec<u8>> {
        self.send_at((QUESTION, ANSWER), bytes, room)
    }

    /// The same from and to other places in memory.
    fn send_at(&self, at: (u64, u64), bytes: &[u8], room: u64) -> Option<Vec<u8>> {
        let (question, answer) = at;
        self.memory.write_slice(bytes, GuestAddress(question)).unwrap();
        let (first, length) = (bytes.len().min(23) as u64, bytes.len() as u64);
        let readable = [
            Range { address: question, bytes: first },
            Range { address: question + first, bytes: length - first },
        ];
        // As Linux has it: the head of an answer, and apart from it the data.
        let writable = [
            Range { address: answer, bytes: room.min(11) },
            Range { address: answer + room.min(11), bytes: room - room.min(11) },
        ];
        let mut message = Message::new(&self.memory, &readable, &writable).ok()?;
        let fids = self.share.fids.as_ref().unwrap();
        let length = nine::carry_out(&self.share, fids, &mut message);
        let mut bytes = vec![0; length];
        self.memory.read_slice(&mut bytes, GuestAddress(answer)).unwrap();
        Some(bytes)
    }

    fn ask(&self, kind: u8, body: Say) -> Result<Vec<u8>, Errno> {
        let size = (7 + body.0.len()) as u32;
        let message = say().u32(size).u8(kind).u16(77).bytes(&body.0);
        let bytes = self.send(&message.0, ANSWER_BYTES).unwrap();
        assert_eq!((number::<4>(&bytes, 0), number::<2>(&bytes, 5)), (bytes.len() as u64, 77));
        match bytes[4] {
            7 => Err(Errno::from_raw_os_error(number::<4>(&bytes, 7) as i32)),
            other => {
                assert_eq!(other, kind + 1);
                Ok(bytes[7..].to_vec())
            }
        }
    }

    /// How many names were found.
    fn walk(&self, from: u32, to: u32, names: &[&[u8]]) -> Result<u64, Errno> {
        let body = say().u32(from).u32(to).u16(names.len() as u16);
        let body = names.iter().fold(body, |body, name| body.text(name));
        let answer = self.ask(110, body)?;
        assert_eq!(answer.len() as u64, 2 + 13 * number::<2>(&answer, 0));
        Ok(number::<2>(&answer, 0))
    }

    fn open(&self, fid: u32, flags: OFlags) -> Result<(), Errno> {
        self.ask(12, say().u32(fid).u32(flags.bits())).map(drop)
    }

    fn create(&self, fid: u32, name: &[u8], mode: u32) -> Result<(), Errno> {
        let flags = (OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).bits();
        self.ask(14, say().u32(fid).text(name).u32(flags).u32(mode).u32(0)).map(drop)
    }

    fn read(&self, fid: u32, offset: u64, count: u32) -> Result<Vec<u8>, Errno> {
        let answer = self.ask(116, say().u32(fid).u64(offset).u32(count))?;
        assert_eq!(number::<4>(&answer, 0) as usize, answer.len() - 4);
        Ok(answer[4..].to_vec())
    }

    fn write(&self, fid: u32, offset: u64, data: &[u8]) -> Result<u64, Errno> {
        let body = say().u32(fid).u64(offset).u32(data.len() as u32).bytes(data);
        self.ask(118, body).map(|answer| number::<4>(&answer, 0))
    }

    fn clunk(&self, fid: u32) -> Result<(), Errno> {
        self.ask(120, say().u32(fid)).map(drop)
    }

    fn names(&self, fid: u32) -> Vec<Vec<u8>> {
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let answer = self.ask(40, say().u32(fid).u64(offset).u32(200)).unwrap();
            assert!(answer.len() <= 204 && number::<4>(&answer, 0) as usize == answer.len() - 4);
            let mut rest = &answer[4..];
            if rest.is_empty() {
                return names;
            }
            while !rest.is_empty() {
                offset = number::<8>(rest, 13);
                let length = number::<2>(rest, 22) as usize;
                names.push(rest[24..24 + length].to_vec());
                rest = &rest[24 + length..];
            }
        }
    }

    fn fids(&self) -> usize {
        self.share.fids.as_ref().unwrap().count()
    }
}

#[test]
fn files_are_found_read_and_written() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    assert_eq!(client.walk(HERE, 1, &[b"file"]), Ok(1));
    client.open(1, OFlags::RDWR).unwrap();
    assert_eq!(client.open(1, OFlags::RDWR), Err(Errno::BADF), "it is open");
    assert_eq!(client.write(1, 3, b"CENT"), Ok(4));
    assert_eq!(client.read(1, 0, 100).unwrap(), b"conCENTs");
    assert_eq!(client.read(1, 5, 2).unwrap(), b"NT");
    assert_eq!(client.read(1, 1 << 63, 2), Err(Errno::INVAL));
    assert_eq!(fs::read(place.at("file")).unwrap(), b"conCENTs");
    client.ask(50, say().u32(1).u32(0)).unwrap();
    let attributes = client.ask(24, say().u32(1).u64(0x7ff)).unwrap();
    assert_eq!(attributes.len(), 153);
    let metadata = fs::metadata(place.at("file")).unwrap();
    assert_eq!(number::<8>(&attributes, 13), metadata.ino());
    assert_eq!(number::<4>(&attributes, 21), u64::from(metadata.mode()));
    assert_eq!(number::<8>(&attributes, 49), 8);
    client.clunk(1).unwrap();
    assert_eq!(client.read(1, 0, 100), Err(Errno::BADF));
    assert_eq!(client.fids(), 1);
}

#[test]
fn files_are_made_linked_renamed_and_removed() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    client.walk(HERE, 1, &[]).unwrap();
    client.create(1, b"new", 0o640).unwrap();
    assert_eq!(client.write(1, 0, b"what is new"), Ok(11));
    assert_eq!(fs::metadata(place.at("new")).unwrap().permissions().mode() & 0o777, 0o640);
    client.walk(HERE, 2, &[]).unwrap();
    assert_eq!(client.create(2, b"new", 0o640), Err(Errno::EXIST));
    client.ask(70, say().u32(HERE).u32(1).text(b"other")).unwrap();
    client.ask(72, say().u32(HERE).text(b"in").u32(0o755).u32(0)).unwrap();
    client.walk(HERE, 3, &[b"in"]).unwrap();
    client.ask(74, say().u32(HERE).text(b"new").u32(3).text(b"moved")).unwrap();
    client.ask(16, say().u32(3).text(b"link").text(b"moved").u32(0)).unwrap();
    assert_eq!(fs::read(place.at("in/link")).unwrap(), b"what is new");
    client.walk(HERE, 4, &[b"in", b"link"]).unwrap();
    assert_eq!(client.ask(22, say().u32(4)).unwrap(), say().text(b"moved").0);
    client.ask(76, say().u32(HERE).text(b"other").u32(0)).unwrap();
    assert_eq!(client.ask(76, say().u32(HERE).text(b"in").u32(0)), Err(Errno::ISDIR));
    assert_eq!(client.ask(76, say().u32(HERE).text(b"in").u32(0x200)), Err(Errno::NOTEMPTY));
    client.ask(76, say().u32(3).text(b"moved").u32(0)).unwrap();
    assert_eq!(client.read(1, 0, 100).unwrap(), b"what is new", "it is open, and has no name");
    assert!(!place.at("other").exists() && !place.at("in/moved").exists());
    let pipe = say().u32(HERE).text(b"pipe").u32(0o010_600).u32(0).u32(0).u32(0);
    client.ask(18, pipe).unwrap();
    let device = say().u32(HERE).text(b"null").u32(0o020_666).u32(1).u32(3).u32(0);
    assert_eq!(client.ask(18, device), Err(Errno::PERM));
}

#[test]
fn files_are_moved_and_removed_by_their_fids() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    let known = || (client.share.inodes.known_files().0.len(), client.fids());
    let remove = |fid: u32| client.ask(122, say().u32(fid)).map(drop);
    let move_to = |fid: u32, name: &[u8]| client.ask(20, say().u32(fid).u32(HERE).text(name));
    fs::create_dir_all(place.at("below/deep/deeper")).unwrap();
    fs::write(place.at("below/deep/one"), "one").unwrap();
    // The guest has only walked through what is above.
    client.walk(HERE, 1, &[b"below", b"deep", b"one"]).unwrap();
    client.open(1, OFlags::RDONLY).unwrap();
    move_to(1, b"moved").unwrap();
    assert_eq!(fs::read(place.at("moved")).unwrap(), b"one");
    move_to(1, b"again").unwrap();
    assert_eq!(move_to(1, b"a/b"), Err(Errno::INVAL));
    assert_eq!(client.read(1, 0, 10).unwrap(), b"one");
    remove(1).unwrap();
    assert!(!place.at("again").exists());
    assert_eq!((known(), client.share.handles.list().0.len()), ((1, 1), 0));
    client.walk(HERE, 1, &[b"below", b"deep"]).unwrap();
    client.walk(1, 2, &[b"deeper"]).unwrap();
    assert_eq!(remove(1), Err(Errno::NOTEMPTY));
    assert_eq!(remove(1), Err(Errno::BADF), "it is given up all the same");
    remove(2).unwrap();
    assert!(place.at("below/deep").exists() && !place.at("below/deep/deeper").exists());
    // The host puts something else in its place.
    client.walk(HERE, 1, &[b"file"]).unwrap();
    fs::rename(place.at("file"), place.at("other")).unwrap();
    assert_eq!(move_to(1, b"new"), Err(Errno::NOENT));
    fs::write(place.at("file"), "another's").unwrap();
    assert_eq!(remove(1), Err(Errno::STALE));
    assert!(place.at("file").exists() && place.at("other").exists());
    assert_eq!(move_to(HERE, b"new"), Err(Errno::BUSY));
    assert_eq!(remove(HERE), Err(Errno::BUSY));
    assert_eq!(known(), (1, 0));
}

#[test]
fn the_host_appends_for_a_guest_that_asks_for_it() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    let attach = |fid: u32, tree: &[u8]| {
        client.ask(104, say().u32(fid).u32(NO_FID).text(b"me").text(tree).u32(0)).map(drop)
    };
    let append = |fid: u32, text: &[u8]| {
        client.walk(fid, 9, &[b"file"]).unwrap();
        client.open(9, OFlags::WRONLY | OFlags::APPEND).unwrap();
        client.write(9, 0, text).unwrap();
        client.clunk(9).unwrap();
    };
    assert_eq!(attach(1, b"other"), Err(Errno::NOENT));
    attach(1, b"/").unwrap();
    append(1, b"C");
    attach(2, b"appending").unwrap();
    append(2, b" and more");
    assert_eq!(fs::read(place.at("file")).unwrap(), b"Contents and more");
    client.walk(2, 3, &[]).unwrap();
    let flags = (OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE).bits();
    client.ask(14, say().u32(3).text(b"new").u32(flags).u32(0o600).u32(0)).unwrap();
    client.write(3, 0, b"one ").unwrap();
    client.write(3, 0, b"two").unwrap();
    assert_eq!(fs::read(place.at("new")).unwrap(), b"one two");
}

#[test]
fn a_guest_that_asks_for_it_keeps_nothing_of_what_it_only_reads() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    let version = |root: u32, flags: OFlags| {
        client.walk(root, 9, &[b"file"]).unwrap();
        let qid = client.ask(12, say().u32(9).u32(flags.bits())).unwrap();
        client.clunk(9).unwrap();
        number::<4>(&qid, 1)
    };
    assert_ne!(version(HERE, OFlags::RDONLY), 0);
    let body = say().u32(1).u32(NO_FID).text(b"me").text(b"unkept").u32(0);
    client.ask(104, body).unwrap();
    assert_eq!(version(1, OFlags::RDONLY), 0);
    assert_ne!(version(1, OFlags::RDWR), 0);
    assert_ne!(version(1, OFlags::RDONLY | OFlags::TRUNC), 0);
}

#[test]
fn attributes_are_set() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    client.walk(HERE, 1, &[b"file"]).unwrap();
    let set = |valid: u32, mode: u32, size: u64, time: u64| {
        let body = say().u32(1).u32(valid).u32(mode).u32(0).u32(0).u64(size);
        client.ask(26, body.u64(time).u64(5).u64(time).u64(6))
    };
    set(1 | 8, 0o600, 3, 0).unwrap();
    assert_eq!(fs::read(place.at("file")).unwrap(), b"con");
    set(32 | 256, 0, 0, 1234).unwrap();
    let metadata = fs::metadata(place.at("file")).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.mtime()), (0o600, 1234));
    assert_eq!(metadata.mtime_nsec(), 6);
    let body = say().u32(1).u32(1).u32(0o640).u32(0).u32(0).u64(0);
    let body = body.u64(0).u64(u64::MAX).u64(0).u64(u64::MAX);
    client.ask(26, body).expect("nobody looks at times that are not to be set");
    let body = say().u32(1).u32(32 | 256).u32(0).u32(0).u32(0).u64(0);
    assert_eq!(client.ask(26, body.u64(0).u64(0).u64(0).u64(1 << 32)), Err(Errno::INVAL));
    set(32, 0, 0, 1234).unwrap();
    assert!(fs::metadata(place.at("file")).unwrap().mtime() > 1234, "it is now");
}

#[test]
fn directories_are_listed_in_parts() {
    let place = Place::new();
    for number in 0..100 {
        fs::write(place.at(&format!("below/a file of number {number}")), "").unwrap();
    }
    let client = Client::new(&place.at(""), true);
    client.walk(HERE, 1, &[b"below"]).unwrap();
    assert_eq!(client.open(1, OFlags::RDWR), Err(Errno::ISDIR));
    client.open(1, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
    let mut names = client.names(1);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 102);
}

#[test]
fn walks_are_of_sixteen_names_and_lead_nowhere_else() {
    let place = Place::new();
    let path = ["d"; 16].join("/");
    fs::create_dir_all(place.at(&path)).unwrap();
    symlink("..", place.at("up")).unwrap();
    let client = Client::new(&place.at(""), true);
    assert_eq!(client.walk(HERE, 1, &[&b"d"[..]; 16]), Ok(16));
    assert_eq!(client.walk(HERE, 2, &[&b"d"[..]; 17]), Err(Errno::INVAL));
    assert_eq!(client.walk(1, 2, &[b"d"]), Err(Errno::NOENT));
    assert_eq!(client.walk(HERE, 2, &[b"d", b"d", b"x", b"d"]), Ok(2), "it leads part of the way");
    assert_eq!(client.walk(2, 3, &[]), Err(Errno::BADF), "so there is no fid");
    for name in [&b".."[..], b".", b"", b"d/d", b"/", b"d\0"] {
        assert_eq!(client.walk(HERE, 2, &[name]), Err(Errno::INVAL), "{name:?}");
        assert_eq!(client.walk(HERE, 2, &[b"d", name]), Err(Errno::INVAL), "{name:?}");
        assert_eq!(client.create(HERE, name, 0o600), Err(Errno::INVAL), "{name:?}");
    }
    assert_eq!(client.walk(HERE, 2, &[b"up", b"secret"]), Ok(1));
    assert_eq!(client.walk(HERE, 1, &[b"file"]), Err(Errno::BADF), "the fid is another's");
    assert_eq!(client.walk(1, 1, &[]), Ok(0));
    assert_eq!(client.walk(9, 10, &[]), Err(Errno::BADF));
    // A walk from a fid to itself.
    client.walk(HERE, 5, &[]).unwrap();
    assert_eq!(client.walk(5, 5, &[b"file"]), Ok(1));
    client.open(5, OFlags::RDONLY).unwrap();
    assert_eq!(client.read(5, 0, 100).unwrap(), b"contents");
}

#[test]
fn what_fids_stand_for_is_known_as_long_as_they() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    let known = || client.share.inodes.known_files().0.len();
    for fid in 1..10 {
        client.walk(HERE, fid, &[b"below"]).unwrap();
        client.walk(fid, fid + 100, &[]).unwrap();
    }
    assert_eq!(known(), 2);
    client.walk(1, 1, &[b"missing"]).unwrap_err();
    client.walk(1, 2, &[]).unwrap_err();
    client.create(1, b"new", 0o600).unwrap();
    client.ask(72, say().u32(2).text(b"directory").u32(0o700).u32(0)).unwrap();
    assert_eq!(known(), 3);
    for fid in (1..10).chain(101..110) {
        client.clunk(fid).unwrap();
    }
    assert_eq!((known(), client.fids()), (1, 1));
    assert_eq!(client.share.handles.list().0.len(), 0);
    client.walk(HERE, 1, &[b"file"]).unwrap();
    client.start();
    assert_eq!((known(), client.fids()), (1, 0));
}

#[test]
fn extended_attributes_are_files_of_their_own() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    let set = |name: &[u8], value: &[u8], size: u64, flags: u32| {
        client.walk(HERE, 1, &[b"file"]).unwrap();
        let begun = client.ask(32, say().u32(1).text(name).u64(size).u32(flags));
        let written = begun.and_then(|_| client.write(1, 0, value));
        let clunked = client.clunk(1);
        written.and(clunked)
    };
    match set(b"user.color", b"blue", 4, 0) {
        Err(Errno::OPNOTSUPP) => return eprintln!("skipped: no extended attributes here"),
        done => done.unwrap(),
    }
    client.walk(HERE, 2, &[b"file"]).unwrap();
    let size = client.ask(30, say().u32(2).u32(3).text(b"user.color")).unwrap();
    assert_eq!(number::<8>(&size, 0), 4);
    assert_eq!(client.read(3, 0, 100).unwrap(), b"blue");
    assert_eq!(client.read(3, 2, 1).unwrap(), b"u");
    assert_eq!(client.read(3, u64::MAX, 100).unwrap(), b"");
    assert_eq!(client.write(3, 0, b"red"), Err(Errno::BADF));
    client.clunk(3).unwrap();
    client.ask(30, say().u32(2).u32(3).text(b"")).unwrap();
    let list = client.read(3, 0, 1000).unwrap();
    assert!(list.windows(11).any(|name| name == b"user.color\0"));
    client.clunk(3).unwrap();
    let missing = client.ask(30, say().u32(2).u32(3).text(b"user.taste"));
    assert_eq!(missing, Err(Errno::NODATA));
    assert_eq!(set(b"user.color", b"red", 4, 0), Err(Errno::INVAL), "it is shorter than it says");
    assert_eq!(set(b"user.color", b"green", 4, 0), Err(Errno::INVAL), "it is longer");
    assert_eq!(set(b"user.color", b"", 1 << 20, 0), Err(Errno::TOOBIG));
    assert_eq!(set(b"security.x", b"1", 1, 0), Err(Errno::OPNOTSUPP));
    set(b"user.color", b"", 0, 2).unwrap();
    let gone = client.ask(30, say().u32(2).u32(3).text(b"user.color"));
    assert_eq!(gone, Err(Errno::NODATA), "it is removed");
}

#[test]
fn a_guest_does_not_have_us_keep_many_attributes() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    let begin = |fid: u32| {
        client.walk(HERE, fid, &[b"file"]).unwrap();
        client.ask(32, say().u32(fid).text(b"user.a").u64(1).u32(0))
    };
    (1..=64).for_each(|fid| drop(begin(fid).unwrap()));
    assert_eq!(begin(65), Err(Errno::NFILE));
    let _ = client.clunk(1);
    begin(66).unwrap();
}

#[test]
fn nothing_is_changed_in_a_share_that_is_only_read() {
    let place = Place::new();
    let client = Client::new(&place.at(""), false);
    client.walk(HERE, 1, &[b"file"]).unwrap();
    assert_eq!(client.open(1, OFlags::RDWR), Err(Errno::ROFS));
    assert_eq!(client.open(1, OFlags::RDONLY | OFlags::TRUNC), Err(Errno::ROFS));
    client.open(1, OFlags::RDONLY).unwrap();
    assert_eq!(client.read(1, 0, 100).unwrap(), b"contents");
    assert_eq!(client.write(1, 0, b"x"), Err(Errno::ROFS));
    assert_eq!(client.create(HERE, b"new", 0o600), Err(Errno::ROFS));
    let link = client.ask(70, say().u32(HERE).u32(1).text(b"other"));
    assert_eq!(link, Err(Errno::ROFS));
    let attribute = client.ask(32, say().u32(1).text(b"user.a").u64(1).u32(0));
    assert_eq!(attribute, Err(Errno::ROFS));
}

#[test]
fn messages_that_make_no_sense_are_refused() {
    let place = Place::new();
    let client = Client::unstarted(&place.at(""), true);
    assert_eq!(client.attach(HERE, 0), Err(Errno::IO), "no version has been agreed on");
    let other = client.ask(100, say().u32(8192).text(b"9P2000.u")).unwrap();
    assert_eq!(other, say().u32(8192).text(b"unknown").0);
    assert_eq!(client.ask(100, say().u32(100).text(b"9P2000.L")), Err(Errno::MSGSIZE));
    client.start();
    client.attach(HERE, 0).unwrap();
    assert_eq!(client.attach(HERE, 0), Err(Errno::BADF), "the fid is used");
    // Every message that is cut off anywhere, or says too little or too much, gets an answer or none.
    client.walk(HERE, 1, &[b"file"]).unwrap();
    let body = say().u32(1).u32(2).u16(2).text(b"a").text(b"b").u64(3).u64(4).u64(5);
    for kind in 0..=255 {
        for length in 0..body.0.len() {
            for size in [0, 6, 7, 7 + length as u32, 8 + length as u32, u32::MAX] {
                let message = say().u32(size).u8(kind).u16(9).bytes(&body.0[..length]);
                for room in [0, 7, 11, 30, 4096] {
                    let answer = client.send(&message.0, room).unwrap();
                    assert!(answer.len() as u64 <= room);
                    assert!(room < 11 || answer.len() >= 7, "{kind} {length} {size} {room}");
                }
            }
        }
    }
    for length in 0..7 {
        assert_eq!(client.send(&[100; 6][..length.min(6)], 100), None);
    }
    assert_eq!(fs::read(place.at("file")).unwrap().len(), 8);
}

#[test]
fn a_write_is_not_longer_than_its_data() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    client.walk(HERE, 1, &[b"file"]).unwrap();
    client.open(1, OFlags::RDWR | OFlags::APPEND).unwrap();
    let body = say().u32(1).u64(0).u32(5).bytes(b"1234");
    assert_eq!(client.ask(118, body), Err(Errno::INVAL));
    // What is longer is cut, and a size without the data is Linux's before 5.0.
    let body = say().u32(1).u64(0).u32(2).bytes(b"1234");
    let answer = client.send(&say().u32(23).u8(118).u16(1).bytes(&body.0).0, 11).unwrap();
    assert_eq!(answer, say().u32(11).u8(119).u16(1).u32(2).0);
    assert_eq!(fs::read(place.at("file")).unwrap(), b"12ntents", "the guest says where");
}

#[test]
fn locks_are_granted_without_meaning() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    client.walk(HERE, 1, &[b"file"]).unwrap();
    let lock = say().u32(1).u8(1).u32(0).u64(0).u64(0).u32(7).text(b"me");
    assert_eq!(client.ask(52, lock.clone()), Err(Errno::BADF));
    client.open(1, OFlags::RDWR).unwrap();
    assert_eq!(client.ask(52, lock).unwrap(), [0]);
    let found = client.ask(54, say().u32(1).u8(1).u64(3).u64(4).u32(7).text(b"me")).unwrap();
    assert_eq!(found, say().u8(2).u64(3).u64(4).u32(7).text(b"me").0);
}

#[test]
fn a_request_is_called_back_when_it_is_done() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    client.ask(108, say().u16(5)).unwrap();
    let fids = client.share.fids.as_ref().unwrap();
    let (one, two) = (fids.take_off(5), fids.take_off(5));
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| fids.await_landing(5));
        drop(one);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!flush.is_finished());
        drop(two);
    });
}

/// One of a few requests with one of a few fids, at random; what kind of answer it gets.
fn ask_anything(client: &Client, thread: u64, random: u64) -> u8 {
    let ask = |kind: u8, body: Say| {
        let message = say().u32((7 + body.0.len()) as u32).u8(kind).u16(thread as u16);
        let at = (QUESTION + thread * 512, ANSWER + thread * 512);
        client.send_at(at, &message.bytes(&body.0).0, 512).unwrap()[4]
    };
    let (fid, other) = ((random >> 8) as u32 % 3 + 1, (random >> 16) as u32 % 3 + 1);
    let flags = (OFlags::RDWR | OFlags::CREATE).bits();
    match random % 11 {
        0 | 1 => ask(110, say().u32(HERE).u32(fid).u16(1).text(b"file")),
        2 => ask(110, say().u32(HERE).u32(fid).u16(0)),
        3 => ask(110, say().u32(fid).u32(other).u16(1).text(b"file")),
        4 => ask(12, say().u32(fid).u32(0)),
        5 => ask(14, say().u32(fid).text(b"new").u32(flags).u32(0o600).u32(0)),
        6 => ask(116, say().u32(fid).u64(0).u32(100)),
        7 => ask(30, say().u32(fid).u32(other).text(b"")),
        8 => ask(20, say().u32(fid).u32(HERE).text(b"file")),
        _ => ask(120, say().u32(fid)),
    }
}

/// Several threads ask anything at the same time, and perhaps one begins anew now and then.
fn ask_together(client: &Client, begins_anew: bool) {
    let ask_often = |thread: u64| {
        let mut state = thread + 1;
        let random = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        });
        let turn = |random: u64| {
            if begins_anew && thread == 0 && random >> 24 & 0x7f == 0 {
                client.start();
                client.attach(HERE, 0).unwrap();
            }
            ask_anything(client, thread, random)
        };
        random.take(4000).filter(|&random| turn(random) != 7).count()
    };
    let ask_often = &ask_often;
    let done: Vec<usize> = std::thread::scope(|scope| {
        let threads = (0..4).map(|thread| scope.spawn(move || ask_often(thread)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(done.iter().all(|&count| count > 100), "too little was done: {done:?}");
    (1..4).for_each(|fid| client.clunk(fid).unwrap_or_default());
    assert_eq!(client.share.handles.list().0.len(), 0);
}

#[test]
fn what_is_asked_at_the_same_time_leaves_nothing_behind() {
    let place = Place::new();
    let client = Client::new(&place.at(""), true);
    ask_together(&client, false);
    assert_eq!((client.share.inodes.known_files().0.len(), client.fids()), (1, 1));
    ask_together(&client, true);
    client.start();
    assert_eq!((client.share.inodes.known_files().0.len(), client.fids()), (1, 0));
}
