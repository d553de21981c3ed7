//! What cannot be checkpointed is refused by name, and goes on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use checkpoint::{Error, Slots, freeze};

use crate::support;

/// A shell that runs what it is told, and says when it is done.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start() -> Self {
        let shell = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = shell.expect("there is a shell");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = (input.expect("it is piped"), output.expect("it is piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}\necho done").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        assert_eq!(line, "done\n");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check(command: &str, expected: &str) {
    let mut shell = Shell::start();
    shell.tell(command);
    for _ in 0..2 {
        let pages = support::NoPages;
        let refused = freeze(shell.child.id())
            .and_then(|mut frozen| frozen.dump(&mut { pages }, &Slots::new()));
        match refused {
            Err(Error::Unsupported { what, .. }) => assert!(what.contains(expected), "{what}"),
            other => panic!("{other:?}"),
        }
        shell.tell(":");
    }
}

/// The same with a shell that waits for nothing.
fn check_held(command: &str, expected: &str) {
    match hold(command).1 {
        Err(Error::Unsupported { what, .. }) => assert!(what.contains(expected), "{what}"),
        other => panic!("{other:?}"),
    }
}

/// What such a shell says first, and what comes of a dump.
fn hold(command: &str) -> (String, Result<checkpoint::state::State, Error>) {
    let mut child = Command::new("sh");
    child.arg("-c").arg(format!("{command}; echo done; exec sleep 600"));
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().expect("there is sh");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it answers");
    let mut slots = Slots::new();
    slots.add("output", output.get_ref()).expect("it is a pipe");
    let refused =
        freeze(child.id()).and_then(|mut frozen| frozen.dump(&mut support::NoPages, &slots));
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    (line, refused)
}

#[test]
fn what_few_have_of_their_processor() {
    let directory = support::Directory::new("segments");
    let Some(program) = support::compile(&directory, "segments") else { return };
    for (kind, expected) in [("ldt", "a local descriptor table"), ("amx", "AMX")] {
        let (line, refused) = hold(&format!("exec setsid {} {kind}", program.display()));
        match refused {
            _ if line != "done\n" => println!("skipped: {kind} cannot be had here"),
            Err(Error::Unsupported { what, .. }) => assert!(what.contains(expected), "{what}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn datagrams_that_are_not_complete() {
    let directory = support::Directory::new("cork");
    let Some(program) = support::compile(&directory, "cork") else { return };
    for how in ["cork", "more"] {
        check_held(&format!("exec {} {how}", program.display()), "a datagram that is not sent yet");
    }
}

#[test]
fn pipes_that_lead_elsewhere() {
    check(":", "whose other end is not in the tree");
}

#[test]
fn files_with_another_name_than_they_were_opened_by() {
    let directory = support::Directory::new("unlinked");
    let file = directory.path("file").display().to_string();
    let command = format!("exec 5>{file}; ln {file} {file}2; rm {file}");
    check_held(&command, "no name any more");
}

#[test]
fn named_pipes_that_have_no_name() {
    let directory = support::Directory::new("fifo");
    let file = directory.path("fifo").display().to_string();
    check_held(&format!("mkfifo {file}; exec 5<>{file}; rm {file}"), "no name any more");
}

#[test]
fn named_pipes_that_lead_elsewhere() {
    let directory = support::Directory::new("fifo-elsewhere");
    let file = directory.path("fifo");
    let made = Command::new("mkfifo").arg(&file).status().expect("there is mkfifo(1)");
    assert!(made.success(), "{made}");
    let ours = std::fs::File::options().read(true).write(true).open(&file).expect("it is there");
    let name = file.display();
    for redirection in [">", "<"] {
        check_held(&format!("exec 5{redirection}{name}"), "whose other end is not in the tree");
    }
    drop(ours);
}

#[test]
fn changes_that_were_not_read() {
    let directory = support::Directory::new("changes");
    let Some(program) = support::compile(&directory, "changes") else { return };
    let program = program.display();
    // What is watched is the directory in which it makes a file itself.
    let place = directory.path(".");
    check_held(&format!("cd {}; exec {program}", place.display()), "not read yet");
}

#[test]
fn one_that_is_gone() {
    let mut child = Command::new("true").spawn().expect("there is such a program");
    child.wait().expect("it ends");
    let refused = freeze(child.id());
    assert!(matches!(refused, Err(Error::Gone(_))), "{refused:?}");
}
