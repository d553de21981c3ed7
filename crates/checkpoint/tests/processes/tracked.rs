//! Memory that is copied while processes run: an image is what it would be if they had stood still for all of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::thread;
use std::time::Duration;

use checkpoint::{
    Compression, Frozen, Given, Image, ImageName, Parents, STREAM_OFFSET, Slots, Tracker, Writer,
    freeze_children, from_stream, restart,
};

use crate::support::{Directory, Namespace, Subject, compile, image, pages};

/// Rounds of copying before a dump.
const ROUNDS: u64 = 3;

fn memory() -> File {
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    file.expect("there is memory").into()
}

fn start(directory: &Directory) -> Option<Subject> {
    Subject::start(directory, &compile(directory, "writer")?)
}

fn freeze(subject: &Subject, tracker: &Tracker) -> Frozen {
    let frozen = freeze_children(subject.namespace.init, &tracker.watched());
    frozen.unwrap_or_else(|error| panic!("{error}"))
}

/// Copy memory while the processes run; then they stand still. The bytes that were copied, round by round.
fn copy(subject: &Subject, tracker: &mut Tracker, writer: &mut Writer) -> (Frozen, Vec<u64>) {
    let mut copied = Vec::new();
    for round in 0..ROUNDS {
        let frozen = freeze(subject, tracker);
        let work = tracker.protect(&frozen, writer).unwrap_or_else(|error| panic!("{error}"));
        frozen.thaw();
        thread::sleep(Duration::from_millis(3 * round));
        copied.push(tracker.copy(work, writer).unwrap_or_else(|error| panic!("{error}")).bytes);
        thread::sleep(Duration::from_millis(2));
    }
    (freeze(subject, tracker), copied)
}

/// That an image says the same as one that is written now.
fn check(found: &Image, frozen: &mut Frozen) {
    let expected = image(frozen);
    let [all, wanted] = [found, &expected].map(|image| {
        let pages = pages(image).into_iter();
        pages.map(|(owner, address, digest)| ((owner, address), digest)).collect::<BTreeMap<_, _>>()
    });
    for (place, digest) in &wanted {
        assert_eq!(all.get(place), Some(digest), "{place:?}");
    }
    for place in all.keys() {
        assert!(wanted.contains_key(place), "{place:?} is there no more");
    }
    for (one, other) in found.state().processes.iter().zip(&expected.state().processes) {
        assert_eq!(one.memory, other.memory);
    }
}

#[test]
fn an_image_that_was_copied_while_processes_ran_is_the_same() {
    let directory = Directory::new("precopy");
    let Some(mut subject) = start(&directory) else { return };
    for (turn, compression) in
        [Compression::None, Compression::Fast].into_iter().cycle().take(4).enumerate()
    {
        let (mut tracker, mut writer) = (Tracker::new(), Writer::new(memory(), compression));
        let (mut frozen, copied) = copy(&subject, &mut tracker, &mut writer);
        println!("copied {copied:?} bytes");
        if turn % 2 == 1 {
            writer.hold_back();
        }
        let state = frozen.dump_rest(&mut writer, &Slots::new(), &mut tracker, false);
        let state = state.unwrap_or_else(|error| panic!("{error}"));
        // What was watched is watched no more.
        drop(tracker);
        let file = writer.finish(state).expect("there is memory");
        let found = Image::open(file).unwrap_or_else(|error| panic!("{error}"));
        check(&found, &mut frozen);
        if turn < 3 {
            frozen.thaw();
            subject.check();
        } else {
            // Whoever went on would write to the same files.
            frozen.kill();
            move_to(&mut subject, &found);
        }
    }
}

/// Make the processes of an image in a new namespace; they check themselves.
fn move_to(subject: &mut Subject, image: &Image) {
    subject.namespace = Namespace::new(&[]).expect("the first one could be made");
    let restarted = restart(subject.namespace.init, image, &Given::new());
    let restarted = restarted.unwrap_or_else(|error| panic!("{error}"));
    subject.pid = restarted.numbers()[&image.state().processes[0].pid];
    restarted.go().unwrap_or_else(|error| panic!("{error}"));
    subject.check();
}

/// The images that were written before.
struct Before(Vec<(ImageName, File)>);

impl Parents for Before {
    fn find(&mut self, name: &ImageName) -> Option<File> {
        let (_, file) = self.0.iter().find(|(found, _)| found == name)?;
        file.try_clone().ok()
    }
}

#[test]
fn an_increment_and_its_parents_are_one_image() {
    let directory = Directory::new("increment");
    let Some(mut subject) = start(&directory) else { return };
    let (mut tracker, mut before) = (Tracker::new(), Before(Vec::new()));
    let mut last = None;
    for generation in 0..4 {
        let file = memory();
        let mut writer = Writer::new(file.try_clone().expect("it is open"), Compression::Fast);
        if let Some((parent, _)) = before.0.last() {
            writer = writer.with_parent(parent.clone());
            tracker.hand_down(&mut writer);
        }
        let mut frozen = match generation {
            2 => copy(&subject, &mut tracker, &mut writer).0,
            _ => freeze(&subject, &tracker),
        };
        let state = frozen.dump_rest(&mut writer, &Slots::new(), &mut tracker, true);
        writer.finish(state.unwrap_or_else(|error| panic!("{error}"))).expect("there is memory");
        let bytes = file.metadata().expect("it is open").len();
        println!("generation {generation} has {bytes} bytes");
        let again = || file.try_clone().expect("it is open");
        if generation > 0 {
            let alone = Image::open(again()).map(drop).expect_err("it has a parent");
            assert!(alone.to_string().contains("is missing"), "{alone}");
        }
        let found = Image::open_with(again(), &mut before);
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        check(&found, &mut frozen);
        frozen.thaw();
        before.0.push((ImageName::of(&file).expect("it has a header"), file));
        last = Some(found);
    }
    subject.check();
    drop(tracker);
    move_to(&mut subject, &last.expect("there were some"));
    check_that_parents_count(before);
}

/// A parent that is another one now is refused.
fn check_that_parents_count(mut before: Before) {
    use std::os::unix::fs::FileExt;
    let (_, file) = before.0.pop().expect("there were some");
    let open =
        |before: &mut Before| Image::open_with(file.try_clone().expect("it is open"), before);
    assert!(open(&mut before).is_ok());
    let (name, parent) = before.0.pop().expect("it has a parent");
    let grandparent = before.0.last().expect("it has one, too").1.try_clone().expect("it is open");
    before.0.push((name.clone(), grandparent));
    assert!(open(&mut before).is_err(), "another image has the parent's name");
    before.0.pop();
    parent.write_all_at(b"x", 20).expect("there is memory");
    before.0.push((name, parent));
    let changed = open(&mut before).map(drop).expect_err("the header is another one");
    assert!(changed.to_string().contains("is missing"), "{changed}");
}

#[test]
fn an_image_comes_as_a_stream() {
    let directory = Directory::new("stream");
    let Some(mut subject) = start(&directory) else { return };
    let (from, to) = rustix::pipe::pipe().expect("there are descriptors");
    let receiver = thread::spawn(move || {
        use std::io::{Seek, SeekFrom};
        let mut file = memory();
        file.seek(SeekFrom::Start(STREAM_OFFSET)).expect("it is a file");
        std::io::copy(&mut File::from(from), &mut file).expect("there is memory");
        file
    });
    let (mut tracker, mut writer) = (Tracker::new(), Writer::stream(to.into(), Compression::Fast));
    let (mut frozen, _) = copy(&subject, &mut tracker, &mut writer);
    let state = frozen.dump_rest(&mut writer, &Slots::new(), &mut tracker, false);
    drop(writer.finish(state.unwrap_or_else(|error| panic!("{error}"))).expect("somebody reads"));
    let file = receiver.join().expect("it does not panic");
    let unfinished = Image::open(file.try_clone().expect("it is open")).map(drop);
    assert!(unfinished.is_err(), "its header is not in its place yet");
    from_stream(&file).expect("it is whole");
    let found = Image::open(file).unwrap_or_else(|error| panic!("{error}"));
    check(&found, &mut frozen);
    frozen.kill();
    move_to(&mut subject, &found);
    assert!(from_stream(&memory()).is_err(), "nothing is too short");
}
