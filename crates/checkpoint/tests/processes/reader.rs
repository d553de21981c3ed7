//! Images that are read by somebody else, who says what is in them, or something else.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use checkpoint::reader::{Ends, Reader, serve};
use checkpoint::state::{Owner, State};
use checkpoint::{Compression, Error, Image, ImageName, Pages, Parents, Writer};
use rustix::net::RecvFlags;

use crate::images::{file, waiting};

/// What answers are (`image/reader/mod.rs`).
const PARENT: u8 = 1;
const DESCRIPTION: u8 = 2;
const PAGES: u8 = 3;
const FAILED: u8 = 4;

/// A reader that is a thread of this program.
pub fn reader() -> Reader {
    let (reader, ends) = Reader::new().expect("there are descriptors");
    // It ends when nobody asks any more; that it cannot answer then is no matter.
    thread::spawn(move || serve(ends.requests, ends.answers));
    reader
}

/// An image, and one that goes on from it, with the pages of the first process that can be written to.
fn generations(state: &State) -> [File; 2] {
    let process = &state.processes[0];
    let owner = Owner::Process(process.pid);
    let is_plain = |start: u64, end: u64| end - start >= 3 * 4096;
    let mut mappings = process.memory.mappings.iter();
    let place = mappings
        .find(|it| it.source == checkpoint::state::Source::Anonymous && is_plain(it.start, it.end));
    let at = place.expect("it has a stack").start;
    let first = file(&[]);
    let mut writer = Writer::new(first.try_clone().expect("it is open"), Compression::Fast);
    writer.put(owner, at, &[1; 3 * 4096]).expect("there is memory");
    writer.finish(state.clone()).expect("there is memory");
    let second = file(&[]);
    let mut writer = Writer::new(second.try_clone().expect("it is open"), Compression::None);
    writer = writer.with_parent(ImageName::of(&first).expect("it has a header"));
    writer.inherit(owner, at..at + 3 * 4096);
    writer.put(owner, at + 4096, &[2; 4096]).expect("there is memory");
    writer.finish(state.clone()).expect("there is memory");
    [first, second]
}

/// Who has one image, and is asked for others.
struct One(File, usize);

impl Parents for One {
    fn find(&mut self, _: &ImageName) -> Option<File> {
        self.1 += 1;
        self.0.try_clone().ok()
    }
}

fn pages(image: &Image) -> Vec<(Owner, u64, Vec<u8>)> {
    let pages = image.pages().map(|pages| pages.unwrap_or_else(|error| panic!("{error}")));
    pages.map(|(run, bytes)| (run.owner, run.address, bytes)).collect()
}

#[test]
fn who_has_it_read_hears_what_the_image_says() {
    let Some(bytes) = waiting("read") else { return };
    let image = file(&bytes);
    let here = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
    let there = Image::open_by(reader(), &image, &mut ()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(here.state(), there.state());
    assert_eq!(here.runs(), there.runs());
    assert!(!here.runs().is_empty());
    // Some are packed, and some are not: as often as anybody likes.
    for _ in 0..3 {
        assert_eq!(pages(&here), pages(&there));
    }
    let owner = here.runs()[0].owner;
    assert_eq!(here.pages_of(owner).count(), there.pages_of(owner).count());
    // And by several at once, who need not hear all.
    thread::scope(|scope| {
        scope.spawn(|| drop(there.pages().next()));
        scope.spawn(|| assert_eq!(pages(&here), pages(&there)));
        assert_eq!(pages(&here), pages(&there));
    });

    let [first, second] = generations(here.state());
    let mut before = One(first.try_clone().expect("it is open"), 0);
    let here = Image::open_with(second.try_clone().expect("it is open"), &mut before);
    let here = here.unwrap_or_else(|error| panic!("{error}"));
    let there = Image::open_by(reader(), &second, &mut before);
    let there = there.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(before.1, 2);
    let found = pages(&there);
    assert_eq!(found, pages(&here));
    let digits: Vec<u8> =
        found.iter().flat_map(|(.., bytes)| bytes.chunks(4096)).map(|it| it[0]).collect();
    assert_eq!(digits, [1, 2, 1]);
    for mut wrong in [One(second.try_clone().expect("it is open"), 0), One(file(&[0; 99]), 0)] {
        let missing = Image::open_by(reader(), &second, &mut wrong).expect_err("it is another one");
        assert!(missing.to_string().contains("is missing"), "{missing}");
    }
    let missing = Image::open_by(reader(), &second, &mut ()).expect_err("there is none");
    assert!(missing.to_string().contains("is missing"), "{missing}");
}

#[test]
fn who_has_it_read_hears_what_is_wrong() {
    let Some(bytes) = waiting("read-wrong") else { return };
    let open = |bytes: &[u8]| Image::open_by(reader(), &file(bytes), &mut ());
    for (bytes, why) in [
        (&b""[..], "it is too short"),
        (&[b'x'; 99], "it is no image of a pod"),
        (&bytes[..bytes.len() / 2], "its description is not in it"),
    ] {
        let error = open(bytes).expect_err("it is none");
        assert!(matches!(&error, Error::Image(reason) if reason.contains(why)), "{error:?}");
    }
    let mut damaged = bytes.clone();
    // The first page of all.
    damaged[4096] ^= 1;
    let image = open(&damaged).unwrap_or_else(|error| panic!("{error}"));
    let error = image.pages().find_map(Result::err).expect("it is damaged");
    assert!(error.to_string().contains("pages in it are damaged"), "{error}");
}

/// One that says this, whatever it is asked, and how often it was asked; it ends when nobody listens any more.
fn liar(says: Vec<u8>) -> (Reader, JoinHandle<usize>) {
    let (reader, Ends { requests, answers }) = Reader::new().expect("there are descriptors");
    let thread = thread::spawn(move || {
        let mut asked = 0;
        let hear = |requests: &OwnedFd| {
            let heard = host::rights::receive(requests, &mut [0; 16], 1, RecvFlags::empty());
            heard.is_ok_and(|heard| heard.bytes > 0)
        };
        asked += usize::from(hear(&requests));
        let mut answers = File::from(answers);
        let _ = answers.write_all(&says);
        drop(answers);
        while hear(&requests) {
            asked += 1;
        }
        asked
    });
    (reader, thread)
}

fn said(what: u8, bytes: &[u8]) -> Vec<u8> {
    [&[what][..], &u32::try_from(bytes.len()).expect("it is short").to_le_bytes(), bytes].concat()
}

/// All that a reader says of an image before it is asked for pages.
fn description(image: &[u8]) -> Vec<u8> {
    let (reader, Ends { requests, answers }) = Reader::new().expect("there are descriptors");
    let (ours, theirs) = rustix::pipe::pipe().expect("there are descriptors");
    thread::spawn(move || serve(requests, theirs));
    // The other line is ours.
    drop(answers);
    let opening = file(image);
    let opened = thread::spawn(move || Image::open_by(reader, &opening, &mut ()).map(drop));
    assert!(matches!(opened.join().expect("it does not panic"), Err(Error::Reader(_))));
    let mut all = Vec::new();
    File::from(ours).read_to_end(&mut all).expect("it is a pipe");
    all
}

#[test]
fn a_reader_that_lies_gains_what_an_image_gains() {
    let Some(bytes) = waiting("lies") else { return };
    let image = file(&bytes);
    let open = |says: Vec<u8>, parents: &mut dyn Parents| {
        let (reader, thread) = liar(says);
        let opened = Image::open_by(reader, &image, parents);
        let error = opened.map(drop);
        (error, thread.join().expect("it does not panic"))
    };
    let check = |what: &str, says: Vec<u8>| {
        let (opened, _) = open(says, &mut ());
        assert!(matches!(opened, Err(Error::Reader(_) | Error::Image(_))), "{what}: {opened:?}");
    };
    check("nothing", Vec::new());
    check("half a head", vec![DESCRIPTION, 1, 0]);
    check("nothing of a description", said(DESCRIPTION, b""));
    check("pages that nobody wanted", said(PAGES, &[0; 4096]));
    check("what is no answer", said(9, b""));
    check("more than there is", [&[DESCRIPTION][..], &[255; 4]].concat());
    check("a name that is too short", said(PARENT, &[0; 31]));
    check("a reason that is too long", said(FAILED, &[b'x'; 4096]));
    let (opened, _) = open(said(FAILED, b"\x1b[2Jall\n\xff"), &mut ());
    let shown = opened.expect_err("it says no").to_string();
    assert!(shown.contains("[2Jall") && !shown.chars().any(char::is_control), "{shown:?}");
    // It may ask for parents, and gets no other file.
    let names = || said(PARENT, &[7; 32]).repeat(100);
    let mut one = One(image.try_clone().expect("it is open"), 0);
    let (opened, asked) = open(names(), &mut one);
    assert!(matches!(opened, Err(Error::Reader(_))), "{opened:?}");
    assert!(one.1 <= 64 && asked <= 65, "{} {asked}", one.1);

    let right = description(&bytes);
    let (opened, _) = open(right.clone(), &mut ());
    opened.unwrap_or_else(|error| panic!("{error}"));
    check("more than a description", {
        let encoded = [&right[5..], &[0]].concat();
        said(DESCRIPTION, &encoded)
    });
    let mut random = fastrand::Rng::with_seed(11);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..1000 {
        let mut other = right.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..other.len());
            other[at] = random.u8(..);
        }
        if random.u8(..4) == 0 {
            other.truncate(random.usize(..other.len()));
        }
        match open(other, &mut ()).0 {
            Ok(()) => taken += 1,
            Err(Error::Reader(_) | Error::Image(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    // Some are images.
    assert!(refused > 100 && taken > 0, "{refused} {taken}");
}

/// Bytes of the runs of pages that a reader sends when it is asked for all of them.
fn packed(image: &[u8]) -> Vec<usize> {
    let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
    let (mut answers, answering) = std::io::pipe().expect("there are descriptors");
    let reader = thread::spawn(move || serve(theirs, answering));
    let image = file(image);
    host::rights::send(&ours, &[1], &[image.as_fd()]).expect("it hears");
    let mut next = || {
        let mut head = [0; 5];
        answers.read_exact(&mut head).ok()?;
        let bytes = u32::from_le_bytes(head[1..].try_into().expect("four")) as usize;
        answers.read_exact(&mut vec![0; bytes]).expect("it is whole");
        Some((head[0], bytes))
    };
    assert!(next().is_some_and(|(what, _)| what == DESCRIPTION));
    let runs = Image::open(image.try_clone().expect("it is open")).expect("it is one").runs().len();
    let count = u32::try_from(runs).expect("they are few").to_le_bytes();
    host::rights::send(&ours, &[&[3, 0, 0, 0, 0][..], &count].concat(), &[]).expect("it hears");
    drop(ours);
    let packed: Vec<usize> = std::iter::from_fn(next).map(|(_, bytes)| bytes).collect();
    assert!(reader.join().expect("it does not panic").is_ok());
    assert!(!packed.is_empty(), "some of {runs} are packed");
    packed
}

#[test]
fn pages_are_those_that_were_asked_for() {
    let Some(bytes) = waiting("other-pages") else { return };
    let image = file(&bytes);
    let right = description(&bytes);
    // This is said of those that are packed.
    let runs = packed(&bytes);
    let plain: usize = {
        let here = Image::open(file(&bytes)).unwrap_or_else(|error| panic!("{error}"));
        here.runs().iter().map(|run| run.bytes as usize).sum::<usize>() - runs.iter().sum::<usize>()
    };
    let read = |says: &[u8]| {
        let (reader, _) = liar([&right[..], says].concat());
        let image = Image::open_by(reader, &image, &mut ());
        let image = image.unwrap_or_else(|error| panic!("{error}"));
        image.pages().try_fold(0, |sum, pages| Ok::<_, Error>(sum + pages?.1.len()))
    };
    let all: Vec<u8> = runs.iter().flat_map(|bytes| said(PAGES, &vec![7; *bytes])).collect();
    let sum = read(&all).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sum, plain + runs.iter().sum::<usize>());
    for cut in [0, 3, 5, 99, all.len() / 2, all.len() - 1] {
        let cut = read(&all[..cut]);
        assert!(matches!(cut, Err(Error::Reader("has ended"))), "{cut:?}");
    }
    for other in [said(PAGES, &vec![7; runs[0] + 1]), said(PAGES, b""), said(DESCRIPTION, b"")] {
        let other = read(&other);
        assert!(matches!(other, Err(Error::Reader(_))), "{other:?}");
    }
    let failed = read(&said(FAILED, b"it is wrong"));
    assert!(matches!(&failed, Err(Error::Image(why)) if why == "it is wrong"), "{failed:?}");
}

#[test]
fn a_reader_hears_when_nobody_asks() {
    let (reader, Ends { requests, answers }) = Reader::new().expect("there are descriptors");
    drop(reader);
    assert!(serve(requests, answers).is_ok());
    let (reader, Ends { requests, answers }) = Reader::new().expect("there are descriptors");
    let thread = thread::spawn(move || serve(requests, answers));
    let long = file(&[]);
    long.write_all_at(&[0; 64], 0).expect("there is memory");
    assert!(Image::open_by(reader, &long, &mut ()).is_err());
    assert!(thread.join().expect("it does not panic").is_ok());
}
