//! Streams of a program that lead to us.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use checkpoint::{Compression, Given, Image, Slots, Writer, freeze, restart};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use rustix::time::Timespec;

use crate::support::{self, Directory, Namespace, compile};

/// A pipe: the end to read from, and the one to write to.
fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).expect("there are descriptors")
}

#[test]
fn standard_streams_lead_to_whoever_restarts() {
    let directory = Directory::new("streams");
    let Some(program) = compile(&directory, "copy") else { return };
    let (input, mut to) = pipe();
    let (from, output) = pipe();
    let mut slots = Slots::new();
    slots.add("input", &input).expect("it is a pipe");
    slots.add("output", &output).expect("it is a pipe");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
    unshare.args(["--kill-child=KILL", "sh", "-c"]);
    unshare.arg("exec 3<&0; \"$1\" <&3 3<&- & exec sleep 600 <&- >&- 3<&-").arg("sh").arg(program);
    unshare.stdin(input).stdout(output).stderr(Stdio::null());
    let Ok(mut outer) = unshare.spawn() else {
        println!("skipped: unshare(1) cannot be started");
        return;
    };
    drop(unshare);
    let mut lines = BufReader::new(File::from(from));
    let exchange = |to: &mut OwnedFd, lines: &mut BufReader<File>, text: &str| {
        rustix::io::write(&*to, text.as_bytes()).expect("it reads");
        let mut line = String::new();
        let mut polled = [PollFd::new(lines.get_ref(), PollFlags::IN)];
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "it does not answer {text:?}");
        lines.read_line(&mut line).expect("it answers");
        line
    };
    if exchange(&mut to, &mut lines, "one\n") != "one\n" {
        println!("skipped: user and PID namespaces are forbidden here: {:?}", outer.wait());
        return;
    }
    let init = support::children(outer.id())[0];
    let pid = support::children(init)[0];
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    let mut writer = Writer::new(file.expect("there is memory").into(), Compression::Fast);
    let mut frozen = freeze(pid).unwrap_or_else(|error| panic!("{error}"));
    let state = frozen.dump(&mut writer, &slots).unwrap_or_else(|error| panic!("{error}"));
    frozen.thaw();
    assert_eq!(exchange(&mut to, &mut lines, "two\n"), "two\n");
    outer.kill().expect("it is our child");
    outer.wait().expect("it is our child");
    let image = Image::open(writer.finish(state).expect("there is memory"));
    let image = image.unwrap_or_else(|error| panic!("{error}"));
    let namespace = Namespace::new(&[]).expect("the first one could be made");
    let nothing = restart(namespace.init, &image, &Given::new());
    assert!(nothing.is_err(), "{nothing:?}");
    let (input, mut to) = pipe();
    let (from, output) = pipe();
    let given = Given::from([("input", input.as_fd()), ("output", output.as_fd())]);
    let restarted = restart(namespace.init, &image, &given);
    restarted.and_then(checkpoint::Restarted::go).unwrap_or_else(|error| panic!("{error}"));
    let mut lines = BufReader::new(File::from(from));
    assert_eq!(exchange(&mut to, &mut lines, "three\n"), "three\n");
    let _ = std::io::stdout().flush();
}
