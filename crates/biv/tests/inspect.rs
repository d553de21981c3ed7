//! Looking into the engine: names for perf, traces, histories, and the search for a block at fault.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use tiny_kernels::{self as kernels, Kernel};

/// Longer than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// What [`kernels::LONG_MODE`] ends with if it has computed the right thing.
const RIGHT: i32 = 1;

/// The same if not.
const WRONG: i32 = 3;

/// `biv` with a kernel; ended, by itself, before patience is.
fn biv(kernel: &Kernel, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biv"));
    command.args(["run", "--mem", "64M", "--debug-exit", "--kernel"]).arg(&kernel.0);
    if !options.contains(&"--timeout") {
        command.args(["--timeout", "50"]);
    }
    command.args(options).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file that goes away again.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("biv-inspect-{name}-{}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn with(name: &str, contents: &str) -> Scratch {
        let scratch = Scratch::new(name);
        fs::write(&scratch.0, contents).expect("the temporary directory can be written");
        scratch
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }

    #[track_caller]
    fn read(&self) -> String {
        fs::read_to_string(&self.0).expect("it has been written")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Symbols for [`kernels::LONG_MODE`].
fn symbols(name: &str) -> Scratch {
    Scratch::with(name, &format!("{:x} t mix\n", kernels::LONG_MODE_MIX))
}

#[track_caller]
fn check_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
}

#[test]
fn perf_gets_names_for_what_has_been_translated() {
    let kernel = Kernel::new("perf", kernels::LONG_MODE);
    let symbols = symbols("perf");
    let options = ["--perf-map", "--symbols", symbols.name()];
    let child = biv(&kernel, &options).stderr(Stdio::piped()).spawn().unwrap();
    let map = Scratch(PathBuf::from(format!("/tmp/perf-{}.map", child.id())));
    check_status(&child.wait_with_output().unwrap(), RIGHT);
    let said = map.read();
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for line in said.lines() {
        let words: Vec<_> = line.splitn(3, ' ').collect();
        let number = |word| u64::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{line}"));
        let (start, size) = (number(words[0]), number(words[1]));
        assert!(size > 0 && start > 0x1_0000, "{line}");
        pieces.push((start, start + size));
    }
    for name in
        ["biv:call_outs", "biv:leave_miss", "biv:second_look", " mix+0x0", " guest:0x10006b"]
    {
        assert!(said.contains(name), "{name} is missing:\n{said}");
    }
    pieces.sort_unstable();
    assert!(pieces.windows(2).all(|pair| pair[0].1 <= pair[1].0), "pieces overlap:\n{said}");
}

#[test]
fn without_the_option_there_is_no_file_for_perf() {
    let kernel = Kernel::new("no-perf", kernels::LONG_MODE);
    let mut child = biv(&kernel, &[]).spawn().unwrap();
    let map = PathBuf::from(format!("/tmp/perf-{}.map", child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(RIGHT));
    assert!(!map.exists());
}

#[test]
fn symbols_that_cannot_be_used_are_named() {
    let kernel = Kernel::new("symbols", kernels::LONG_MODE);
    let nonsense = Scratch::with("nonsense", "neither fish nor fowl\n");
    for name in ["/no/symbols", nonsense.name()] {
        let output = biv(&kernel, &["--perf-map", "--symbols", name]).output().unwrap();
        check_status(&output, 125);
        assert!(text(&output.stderr).contains(name), "{}", text(&output.stderr));
    }
}

#[test]
fn a_trace_has_every_block_in_order() {
    let kernel = Kernel::new("trace", kernels::LONG_MODE);
    let (symbols, file) = (symbols("trace"), Scratch::new("trace"));
    let options = ["--symbols", symbols.name(), "--trace-blocks", file.name()];
    check_status(&biv(&kernel, &options).output().unwrap(), RIGHT);
    let said = file.read();
    let count = |words: &str| said.lines().filter(|line| line.contains(words)).count();
    // A thousand turns: the function, and what comes after each call of it.
    assert_eq!(count("block  mix+0x0"), 1000);
    assert_eq!(count("0x0000000000100070 block"), 1000);
    assert_eq!(count("0x000000000010000c block"), 1, "32-bit code");
    assert_eq!(count("0x000000000010002a interpreted"), 1, "a control register is written");
    assert_eq!(count("out 0xf4 value 0x0"), 1);
    let numbers = said.lines().filter_map(|line| line.split('#').nth(1)?.split(' ').next());
    let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
    assert!(numbers.len() > 2000 && numbers.iter().enumerate().all(|(at, &is)| at as u64 == is));
}

#[test]
fn a_part_of_a_trace_is_that_part() {
    let kernel = Kernel::new("part", kernels::LONG_MODE);
    let (all, part) = (Scratch::new("all"), Scratch::new("part"));
    check_status(&biv(&kernel, &["--trace-blocks", all.name()]).output().unwrap(), RIGHT);
    let order = format!("{},from=500,count=20", part.name());
    check_status(&biv(&kernel, &["--trace-blocks", &order]).output().unwrap(), RIGHT);
    let steps = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.contains("#-")).map(str::to_owned).collect()
    };
    let (all, part) = (steps(&all.read()), steps(&part.read()));
    let numbers: Vec<_> = part.iter().filter_map(|line| line.split(['#', ' ']).nth(4)).collect();
    assert_eq!(numbers, (500..520).map(|number| number.to_string()).collect::<Vec<_>>());
    // A tick of the host's may have cut a block in two in one of the runs: they need not have the same numbers.
    let places = |lines: &[String]| -> Vec<String> {
        lines.iter().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
    };
    assert!(all.windows(20).any(|lines| places(lines) == places(&part)), "{part:?}");
}

#[test]
fn a_triple_fault_tells_what_came_before() {
    let kernel = Kernel::new("history", kernels::TRIPLE_FAULT);
    let output = biv(&kernel, &["--history", "8"]).output().unwrap();
    check_status(&output, 123);
    let said = text(&output.stderr);
    assert!(said.contains("biv: processor 0: rip=") && said.contains("shutdown"), "{said}");
    assert!(said.contains("exception 13 "), "{said}");
    assert!(said.lines().filter(|line| line.starts_with("  0x")).count() <= 8, "{said}");
}

#[test]
fn an_expired_time_tells_what_came_before() {
    let kernel = Kernel::new("late", kernels::HANG);
    let output = biv(&kernel, &["--history", "1000", "--timeout", "0.5"]).output().unwrap();
    check_status(&output, 124);
    let said = text(&output.stderr);
    assert!(said.contains("out 0x3f8 value 0x52"), "{said}");
}

#[test]
fn a_running_machine_tells_what_it_does_when_asked() {
    let kernel = Kernel::new("asked", kernels::HANG);
    let mut child = biv(&kernel, &["--history", "8"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    // Its first character says that it runs.
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, *b"R");
    kill_process(pid, Signal::USR1).unwrap();
    let (mut said, mut stderr) = (Vec::new(), child.stderr.take().unwrap());
    let begin = Instant::now();
    while !text(&said).contains("out 0x3f8") && begin.elapsed() < PATIENCE {
        let mut piece = [0; 4096];
        let count = stderr.read(&mut piece).unwrap();
        assert!(count > 0, "{}", text(&said));
        said.extend(&piece[..count]);
    }
    assert!(text(&said).contains("biv: processor 0: rip="), "{}", text(&said));
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

/// The names of the blocks of [`kernels::LONG_MODE`], and the lines about them.
fn blocks(kernel: &Kernel) -> Vec<(String, String)> {
    let list = Scratch::new(&format!("list-{}", kernel.0.display()).replace('/', "-"));
    check_status(&biv(kernel, &["--list-blocks", list.name()]).output().unwrap(), RIGHT);
    let said = list.read();
    let named = said.lines().filter_map(|line| Some((line.split(' ').nth(1)?, line)));
    named.map(|(name, line)| (name.to_owned(), line.to_owned())).collect()
}

#[test]
fn blocks_are_interpreted_where_that_is_wanted() {
    let kernel = Kernel::new("interpret", kernels::LONG_MODE);
    let list = Scratch::new("interpreted");
    let all = "0-ffffffffffffffff";
    let options = ["--interpret-blocks", all, "--list-blocks", list.name(), "--stats"];
    let output = biv(&kernel, &options).output().unwrap();
    check_status(&output, RIGHT);
    assert!(list.read().lines().all(|line| line.contains(" interpreted")), "{}", list.read());
    let said = text(&output.stderr);
    let counted = said.lines().find(|line| line.contains("interpreted instructions")).unwrap();
    let counted = counted.split_whitespace().last().unwrap().replace(',', "");
    // A thousand turns of ten instructions.
    assert!(counted.parse::<u64>().unwrap() > 10_000, "{said}");
}

#[test]
fn the_block_at_fault_is_found() {
    let kernel = Kernel::new("bisect", kernels::LONG_MODE);
    let blocks = blocks(&kernel);
    let mix = format!("at {:#018x}", kernels::LONG_MODE_MIX);
    let (guilty, _) = blocks.iter().find(|(_, line)| line.contains(&mix)).expect("it was executed");
    assert!(blocks.len() > 3, "{blocks:?}");
    let planted = ["--plant-fault", guilty];
    check_status(&biv(&kernel, &planted).output().unwrap(), WRONG);
    let subject = biv(&kernel, &planted);
    let mut command = Command::new(env!("CARGO_BIN_EXE_biv"));
    command.args(["debug", "bisect", "--success", &RIGHT.to_string(), "--"]);
    command.arg(subject.get_program()).args(subject.get_args()).stdin(Stdio::null());
    let output = command.output().unwrap();
    check_status(&output, 0);
    let (report, said) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains(&format!("--interpret-blocks {guilty}-{guilty}")), "{said}");
    assert_eq!(report.lines().filter(|line| line.starts_with("block ")).count(), 1, "{report}");
    for words in [guilty, "the guest's code:", "rol", "add", "the host's code:"] {
        assert!(report.contains(words), "{words} is missing:\n{report}");
    }
}

#[test]
fn a_block_that_is_excepted_is_not_looked_into() {
    let kernel = Kernel::new("except", kernels::LONG_MODE);
    let list = Scratch::new("except");
    check_status(&biv(&kernel, &["--list-blocks", list.name()]).output().unwrap(), RIGHT);
    let subject = biv(&kernel, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_biv"));
    command.args(["debug", "bisect", "--success", "0", "--except", list.name(), "--"]);
    command.arg(subject.get_program()).args(subject.get_args()).stdin(Stdio::null());
    let output = command.output().unwrap();
    check_status(&output, 125);
    let said = text(&output.stderr);
    assert!(said.contains("0 of its") && said.contains("--except"), "{said}");
}

#[test]
fn a_command_without_a_fault_is_not_searched() {
    let kernel = Kernel::new("innocent", kernels::LONG_MODE);
    let subject = biv(&kernel, &[]);
    let check = |success: &str, words: &[&str], message: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_biv"));
        command.args(["debug", "bisect", "--success", success, "--"]).args(words);
        command.stdin(Stdio::null());
        let output = command.output().unwrap();
        check_status(&output, 125);
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    };
    let words = [subject.get_program()].into_iter().chain(subject.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    check("1", &words, "no block is mistranslated");
    check("0", &words, "are interpreted, too");
    check("0", &["false"], "no block");
    check("0", &["/no/such/command"], "/no/such/command");
}
