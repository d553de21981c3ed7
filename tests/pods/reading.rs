//! Who reads images: a process that can do nothing else, whose end is the end of a pod that is not there yet.

use std::fs::{self, File};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use whole_machine::processes::{descendants_of, stat, survivors, unconfined};
use whole_machine::waiting::wait_for;
use whole_machine::{bivouac, text};

use crate::place::{COUNTS, LARGE, Place, end_of, start};

fn path(place: &Place, name: &str) -> String {
    place.path.join(name).display().to_string()
}

/// A reader that nobody has given an image yet, and the line by which it gets one. `before` is what a shell does first.
fn reader(before: &str) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
    let script = format!("{before} exec \"$0\" --bivouac-process=read-image null");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(bivouac()).stdin(OwnedFd::from(theirs));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).env_clear().spawn();
    (child.expect("it can be started"), ours)
}

/// Gives it one.
fn give(line: &UnixStream, image: &Path) {
    let image = File::open(image).expect("it is there");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [image.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(line, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL).expect("it hears");
}

#[test]
fn who_reads_an_image_can_do_nothing_else() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "web.pod");
    place.detach("web", COUNTS);
    place.says(&["checkpoint", "--stop", "-o", &image, "web"]);
    let (mut child, line) = reader("");
    let of = |what: &str| fs::read_to_string(format!("/proc/{}/{what}", child.id()));
    wait_for("it is confined", || {
        stat(child.id()).is_some_and(|it| it.name == "biv reader")
            && unconfined(&[child.id()]).is_empty()
    });
    let status = of("status").expect("it lives");
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Threads:\t1"] {
        // Who is nobody cannot give up what only others could get.
        let may_be_more = line.starts_with("CapBnd") && !rustix::process::geteuid().is_root();
        assert!(may_be_more || status.contains(line), "{line}: {status}");
    }
    let limits = of("limits").expect("it lives");
    for limit in ["Max address space", "Max open files", "Max file size", "Max core file size"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).expect("it is listed");
        assert!(!line.contains("unlimited"), "{line}");
    }
    assert_eq!(of("oom_score_adj").expect("it lives").trim(), "1000");
    // The kernel says that to root alone, as others cannot look into it.
    match fs::read_dir(format!("/proc/{}/fd", child.id())) {
        Ok(entries) => assert_eq!(entries.count(), 3, "it has its lines, and nothing else"),
        Err(error) => println!("not looked at: its descriptors: {error}"),
    }
    give(&line, Path::new(&image));
    let mut head = [0; 5];
    let answers = child.stdout.as_mut().expect("it has them");
    answers.read_exact(&mut head).expect("it says something");
    assert_eq!(head[0], 2, "it describes the image");
    drop(line);
    drop(child.stdout.take());
    assert!(end_of(child).status.signal().is_none(), "it ends by itself");
}

/// An image whose description is a list of words that have nothing in them.
fn bomb(path: &Path, words: usize) {
    let mut description = vec![0xa1, 0x65];
    description.extend(b"state");
    description.extend([0xa1, 0x69]);
    description.extend(b"processor");
    description.push(0x9a);
    description.extend(u32::try_from(words).expect("it is short").to_be_bytes());
    description.resize(description.len() + words, 0x60);
    let mut numbers = 4096_u64.to_le_bytes().to_vec();
    numbers.extend((description.len() as u64).to_le_bytes());
    numbers.extend(crc32fast::hash(&description).to_le_bytes());
    numbers.extend([0; 12]);
    let mut image = b"BIVPOD\n\x01\0\0\0\0".to_vec();
    image.extend(crc32fast::hash(&numbers).to_le_bytes());
    image.extend(numbers);
    image.resize(4096, 0);
    image.extend(description);
    fs::write(path, image).expect("there is room");
}

#[test]
fn what_an_image_takes_is_limited() {
    let Some(place) = Place::new() else { return };
    let image = place.path.join("bomb.pod");
    bomb(&image, 20_000_000);
    // It says so itself if it has the memory.
    let complaint = place.complains(&["restart", &image.display().to_string()]);
    assert!(complaint.contains("the image cannot be used"), "{complaint}");
    let (mut child, line) = reader("ulimit -v 400000;");
    give(&line, &image);
    let mut said = Vec::new();
    child.stdout.take().expect("it has one").read_to_end(&mut said).expect("it ends");
    assert_eq!(said, b"", "it has not got so far");
    assert_eq!(end_of(child).status.signal(), Some(6), "it has no memory");
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn what_is_no_file_is_no_image() {
    let Some(place) = Place::new() else { return };
    let pipe = place.path.join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("there is room");
    for other in [pipe.as_path(), &place.path, Path::new("/dev/zero")] {
        let complaint = place.complains(&["restart", &other.display().to_string()]);
        assert!(complaint.contains("it is no file"), "{complaint}");
    }
}

/// The process that reads for a command, if there is one now.
fn reader_of(command: &Child) -> Option<Pid> {
    let all = descendants_of(command.id());
    let number = all.into_iter().find(|it| stat(*it).is_some_and(|it| it.name == "biv reader"))?;
    Pid::from_raw(number.cast_signed())
}

#[test]
fn a_reader_that_is_killed_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "large.pod");
    place.detach("large", &format!("{LARGE}; {COUNTS}"));
    wait_for("it counts", || place.counts("large").len() > 2);
    place.says(&["checkpoint", "--stop", "--compress", "-o", &image, "large"]);
    place.says(&["rm", "-f", "large"]);
    let (mut killed, mut late) = (0, 0);
    for turn in 0..24_u64 {
        let mut child = start(place.command(&["restart", "-d", "--name", "again", &image]));
        let mut everybody = Vec::new();
        let found = loop {
            everybody.extend(descendants_of(child.id()));
            let has_ended = child.try_wait().expect("it is ours").is_some();
            match reader_of(&child) {
                Some(found) => break Some(found),
                None if has_ended => break None,
                None => {}
            }
        };
        std::thread::sleep(Duration::from_millis(turn * 8));
        let was_there = found.is_some_and(|found| kill_process(found, Signal::KILL).is_ok());
        let output = end_of(child);
        let said = text(&output.stderr);
        if output.status.success() {
            // It was not needed any more.
            late += 1;
            place.wait_for_more("again");
            place.says(&["rm", "-f", "again"]);
        } else {
            killed += 1;
            assert!(was_there, "{said}");
            let why = "the process that reads the image has ended";
            assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        }
        assert_eq!(place.left(), Vec::<String>::new());
        everybody.sort_unstable();
        everybody.dedup();
        assert_eq!(survivors(&everybody, Duration::from_secs(20)), Vec::<u32>::new());
    }
    println!("{killed} were killed before they were done, {late} after");
    // The file is as it was.
    place.says(&["restart", "-d", "--name", "again", &image]);
    place.wait_for_more("again");
    assert!(reader_of_pod(&place).is_none(), "it has nothing more to read");
}

/// The process that reads for the pod `again`.
fn reader_of_pod(place: &Place) -> Option<u32> {
    let all = descendants_of(place.pid("again"));
    all.into_iter().find(|it| stat(*it).is_some_and(|it| it.name == "biv reader"))
}
