//! Standard input, output and error of commands in guests: much of them, both ways and several at once, and
//! what happens at their ends.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use whole_machine::biv;
use whole_machine::text;
use whole_machine::waiting::wait_for;

/// What is sent through a guest and back.
const BULK_BYTES: usize = 64 << 20;

/// Bytes that do not repeat where frames, pages or pipes end.
fn bulk(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state.to_le_bytes()
    });
    words.take(bytes).collect()
}

/// A shell script in a busybox guest, with its streams in our hands.
fn guest(script: &str) -> Command {
    let mut command = biv(&["run", "--busybox", "--mem", "256M", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(script: &str) -> Child {
    guest(script).spawn().expect("biv can be started")
}

/// Sends all of it, from a thread of its own, and the end of input.
fn feed(child: &mut Child, bytes: Vec<u8>) -> std::thread::JoinHandle<std::io::Result<()>> {
    let mut stdin = child.stdin.take().expect("it is piped");
    std::thread::spawn(move || stdin.write_all(&bytes))
}

/// What a script says; it must succeed.
#[track_caller]
fn said(script: &str) -> String {
    let output = guest(script).stdin(Stdio::null()).output().expect("biv can be started");
    assert!(output.status.success(), "{script}: {output:?}");
    text(&output.stdout)
}

#[test]
fn much_goes_through_a_guest_as_it_is() {
    let mut child = start("cat");
    let sent = bulk(BULK_BYTES);
    let feeder = feed(&mut child, sent.clone());
    let output = child.wait_with_output().expect("it ends");
    feeder.join().expect("no panic").expect("all is taken");
    assert!(output.status.success(), "{:?}", text(&output.stderr));
    assert_eq!(output.stdout.len(), sent.len());
    assert!(output.stdout == sent, "what came back is not what was sent");
}

/// The channel's fast way is what these guests have, and not the serial line.
#[test]
fn streams_go_over_a_virtio_port() {
    let used = "cat /proc/cmdline /sys/class/virtio-ports/*/name; ls -l /proc/1/fd | grep -o \
                '/dev/vport.*'";
    let said = said(used);
    assert!(said.contains("bivouac.channel") && said.contains("/dev/vport"), "{said}");
}

/// A kernel that lacks the driver, or refuses it as this one is told to, still has its streams. It is a module of
/// some, and a part of others (Debian's 6.12).
#[test]
fn a_serial_line_does_where_there_is_no_port() {
    let mut command = biv(&[
        "run",
        "--busybox",
        "--mem",
        "256M",
        "--append",
        "module_blacklist=virtio_console initcall_blacklist=virtio_console_init",
        "--",
        "sh",
        "-c",
        "ls -l /proc/1/fd | grep -o '/dev/ttyS1' | sort -u; wc -c; echo oops >&2; exit 7",
    ]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("biv can be started");
    let feeder = feed(&mut child, bulk(300_000));
    let output = child.wait_with_output().expect("it ends");
    feeder.join().expect("no panic").expect("all is taken");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((out.as_str(), output.status.code()), ("/dev/ttyS1\n300000\n", Some(7)), "{err}");
    assert!(err.contains("oops\n"), "{err}");
}

/// Small pieces are gathered, and none is late: the command waits for each answer.
#[test]
fn questions_and_answers_take_turns() {
    let mut child = start("while read line; do echo \"<$line>\"; done");
    let (mut to, mut from) =
        (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    for number in 0..200 {
        writeln!(to, "{number}").expect("it listens");
        let wanted = format!("<{number}>\n");
        let mut answer = vec![0; wanted.len()];
        from.read_exact(&mut answer).expect("it answers");
        assert_eq!(text(&answer), wanted);
    }
    drop(to);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_slow_reader_gets_everything() {
    let mut child = start("head -c 8388608 /dev/zero | tr '\\0' x; echo end >&2");
    let mut stdout = child.stdout.take().expect("piped");
    let (mut all, mut piece) = (0, vec![0; 64 << 10]);
    let mut reads = 0;
    loop {
        let count = stdout.read(&mut piece).expect("a pipe can be read");
        if count == 0 {
            break;
        }
        assert!(piece[..count].iter().all(|&byte| byte == b'x'));
        all += count;
        reads += 1;
        if reads % 16 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(all, 8 << 20);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_reader_that_goes_away_ends_its_command() {
    let mut child = start("yes; echo $? >&2");
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0; 100_000]).expect("there is much");
    drop(stdout);
    let output = ended(child);
    // The shell of the guest goes with it, which is in the same process group.
    assert_eq!(output.status.code(), Some(128 + 13), "{output:?}");
}

#[test]
fn who_closes_its_input_does_not_stop_who_writes() {
    let mut child = start("exec <&-; sleep 1; echo done");
    let feeder = feed(&mut child, bulk(4 << 20));
    let output = ended(child);
    assert_eq!(text(&output.stdout), "done\n");
    // What nobody reads is taken, as a pipe's buffer takes it, or refused when biv ends.
    let _ = feeder.join().expect("no panic");
}

#[test]
fn a_signal_is_not_held_up_by_what_waits() {
    let mut child =
        start("trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done");
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0; 6]).expect("it is ready");
    // Nobody reads this: it fills every window and pipe on the way.
    let feeder = feed(&mut child, bulk(8 << 20));
    std::thread::sleep(Duration::from_millis(500));
    let pid = child.id().to_string();
    assert!(Command::new("pkill").args(["-INT", "-P", &pid]).status().expect("pkill").success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "caught\n");
    assert_eq!(ended(child).status.code(), Some(3));
    let _ = feeder.join().expect("no panic");
}

/// Where output and errors are one file, they are one pipe for the command.
#[test]
fn one_file_for_both_outputs_keeps_their_order() {
    let script = "for n in 1 2 3 4 5 6 7 8 9; do echo out$n; echo err$n >&2; done";
    let path = std::env::temp_dir().join(format!("biv-streams-{}", std::process::id()));
    let file = File::create(&path).expect("there is room");
    let mut command = guest(script);
    command.stdout(file.try_clone().expect("a descriptor")).stderr(file).stdin(Stdio::null());
    assert!(command.status().expect("biv can be started").success());
    let found = std::fs::read_to_string(&path).expect("it was written");
    let _ = std::fs::remove_file(&path);
    let wanted: String = (1..10).map(|n| format!("out{n}\nerr{n}\n")).collect();
    assert_eq!(found, wanted);
    // One pipe is one file.
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = guest(script);
    command.stdout(writer.try_clone().expect("a descriptor")).stderr(writer).stdin(Stdio::null());
    assert!(command.status().expect("biv can be started").success());
    // What it keeps of the pipe would keep the reader waiting.
    drop(command);
    let mut found = String::new();
    reader.read_to_string(&mut found).expect("text");
    assert_eq!(found, wanted);
    // Two files stay two.
    let output = guest(script).stdin(Stdio::null()).output().expect("biv can be started");
    assert!(text(&output.stdout).starts_with("out1\nout2\n"), "{output:?}");
    assert!(text(&output.stderr).starts_with("err1\nerr2\n"), "{output:?}");
}

/// Waits for its end with patience.
#[track_caller]
fn ended(child: Child) -> Output {
    let waiter = std::thread::spawn(move || child.wait_with_output());
    wait_for("a command ends", || waiter.is_finished());
    waiter.join().expect("no panic").expect("it has ended")
}
