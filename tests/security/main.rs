//! Machines run for anybody, and what is wrong is said in one line.

#![forbid(unsafe_code)]

use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use provision::{self, Guest, Part};
use vmm::{Configuration, Contents};
use whole_machine::modes::Mode;
use whole_machine::waiting::wait_for;
use whole_machine::{biv, bivouac, in_each_mode, in_process, text};

/// A failure: a status that is neither success nor a panic's nor a time-out's, and one line.
fn check_refusal(arguments: &[&str], words: &[&str]) {
    let output = biv(arguments).output().expect("`timeout` can be started");
    let said = text(&output.stderr);
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| ![0, 101, 124, 134].contains(&code)),
        "{arguments:?}: {code:?} {said}"
    );
    assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: {said} does not say {word:?}");
    }
}

fn scratch(name: &str, bytes: &[u8]) -> String {
    let path = std::env::temp_dir().join(format!("whole-machine-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).expect("the temporary directory can be written");
    path.to_str().expect("a plain name").to_owned()
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let text_file = scratch("not-a-kernel", b"This is not a kernel.\n");
    let empty = scratch("empty", b"");
    check_refusal(&["run", "--kernel", "/nowhere/kernel"], &["/nowhere/kernel"]);
    check_refusal(&["run", "--kernel", &text_file], &[&text_file, "not a kernel"]);
    check_refusal(&["run", "--kernel", &empty], &[&empty]);
    check_refusal(&["run", "--kernel", "/dev/null"], &["/dev/null"]);
    check_refusal(&["run", "--kernel", "/"], &["/:", "a directory"]);
    check_refusal(&["run", "--initrd", "/dev/zero", "--", "true"], &["/dev/zero", "a device"]);
    check_refusal(&["run", "--mem", "1", "--", "true"], &["mem"]);
    check_refusal(&["run", "--mem", "1M", "--", "true"], &["mem"]);
    check_refusal(&["run", "--mem", "16M", "--", "true"], &["memory"]);
    check_refusal(&["run", "--mem", "900G", "--", "true"], &["memory"]);
    check_refusal(&["run", "--root", "/nowhere", "--", "true"], &["/nowhere"]);
    for path in [text_file, empty] {
        let _ = std::fs::remove_file(path);
    }
}

/// Nobody writes to it: who opens it waits for ever, and `--timeout` has not begun.
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let pipe = scratch("pipe", b"");
    let made = Command::new("sh").args(["-c", "rm \"$1\" && mkfifo \"$1\"", "sh", &pipe]).status();
    assert!(made.is_ok_and(|status| status.success()), "cannot make a pipe");
    let kernel = whole_machine::kernels::debian("bookworm", "linux-image-cloud-amd64");
    let kernel = kernel.to_str().expect("the target directory has a plain name");
    let said = [pipe.as_str(), "it is a pipe, not a regular file"];
    let timeout = ["run", "--timeout", "5"];
    for words in [
        &["--kernel", &pipe][..],
        &["--kernel", kernel, "--initrd", &pipe],
        &["--initrd", &pipe, "--", "true"],
        &["--kernel", kernel, "--initrd", &pipe, "--", "true"],
        &["--kernel", kernel, "--history", "9", "--symbols", &pipe, "--", "true"],
    ] {
        check_refusal(&[&timeout, words].concat(), &said);
    }
    let _ = std::fs::remove_file(pipe);
}

#[test]
fn a_truncated_kernel_is_refused() {
    let kernel = whole_machine::kernels::debian("bookworm", "linux-image-cloud-amd64");
    let whole = std::fs::read(kernel).expect("the kernel can be read");
    for length in [4096, (whole.len() / 2) & !4095, whole.len() - 4096] {
        let part = scratch(&format!("truncated-{length}"), &whole[..length]);
        check_refusal(&["run", "--kernel", &part], &[]);
        let _ = std::fs::remove_file(part);
    }
}

/// Between the places where a kernel is cut and damaged, unless `BIVOUAC_KERNEL_STEP` says
/// otherwise.
const KERNEL_STEP: usize = 16 << 12;

/// A distribution's kernel, cut or damaged at many places: one clear error, and no machine.
#[test]
fn a_real_kernel_is_refused_wherever_it_is_cut_or_damaged() {
    let kernel = whole_machine::kernels::debian("bookworm", "linux-image-cloud-amd64");
    let mut whole = std::fs::read(kernel).expect("the kernel can be read");
    let step = std::env::var("BIVOUAC_KERNEL_STEP").ok().and_then(|step| step.parse().ok());
    for at in (0..whole.len()).step_by(step.unwrap_or(KERNEL_STEP)) {
        check_kernel_refused(&whole[..at], &format!("cut at {at}"));
        whole[at] ^= 0x10;
        check_kernel_refused(&whole, &format!("damaged at {at}"));
        whole[at] ^= 0x10;
    }
}

fn check_kernel_refused(kernel: &[u8], what: &str) {
    let (configuration, ends) = in_process::tiny(tiny_kernels::RESET);
    let configuration = Configuration { kernel: Contents::new(kernel.to_vec()), ..configuration };
    let error = in_process::run(configuration, ends).expect_err(what).to_string();
    assert!(error.contains("kernel") && !error.contains('\n'), "{what}: {error}");
}

/// Success, and the output of `echo`.
fn check_ran(output: &Output, how: &str) {
    assert_eq!(text(&output.stdout), "here\n", "{how}: {}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{how}");
}

fn an_ordinary_user_without_capabilities_can_run_a_machine(mode: Mode) {
    let name = format!("whole-machine-home-{}-{}", std::process::id(), mode.options().concat());
    let home = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).expect("the temporary directory can be written");
    let binary = home.join("biv");
    std::fs::copy(bivouac(), &binary).expect("the command can be copied");
    let mut command = Command::new("timeout");
    command.arg("120");
    if is_root() {
        let status = Command::new("chown").args(["-R", "65534:65534"]).arg(&home).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot give the directory away");
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
    }
    command.arg(&binary).arg("run").args(mode.options()).args(["--", "echo", "here"]);
    command.env("HOME", &home).env("XDG_CACHE_HOME", home.join("cache")).current_dir("/");
    let output = command.output().expect("`timeout` can be started");
    let _ = std::fs::remove_dir_all(&home);
    check_ran(&output, "as nobody");
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("`id` can be started");
    text(&output.stdout).trim() == "0"
}

fn a_machine_runs_inside_a_user_namespace(mode: Mode) {
    // The default guest is in the cache after this, which the sandbox can read but not fetch.
    check_ran(&mode.in_machine(&[], &["echo", "here"]), "outside");
    let mut command = Command::new("timeout");
    command.args(["120", "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--tmpfs", "/tmp"]);
    command.args(["--proc", "/proc", "--dev", "/dev", "--die-with-parent", "--new-session"]);
    let binary = bivouac();
    // The new /tmp must not hide the command or the cache.
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    for hidden in home.iter().chain([&binary]).filter(|path| path.starts_with("/tmp")) {
        command.arg("--ro-bind").arg(hidden).arg(hidden);
    }
    command.arg(&binary).arg("run").args(mode.options()).args(["--", "echo", "here"]);
    check_ran(&command.output().expect("`timeout` can be started"), "in bubblewrap");
}

/// System calls that the default profiles of container engines refuse (moby's
/// profiles/seccomp/default.json: what is not on its list without capabilities), by number.
const REFUSED_CALLS: [(&str, u32); 40] = [
    ("acct", 163),
    ("add_key", 248),
    ("bpf", 321),
    ("clock_adjtime", 305),
    ("clock_settime", 227),
    ("delete_module", 176),
    ("fanotify_init", 300),
    ("finit_module", 313),
    ("fsconfig", 431),
    ("fsmount", 432),
    ("fsopen", 430),
    ("get_mempolicy", 239),
    ("init_module", 175),
    ("io_uring_enter", 426),
    ("io_uring_register", 427),
    ("io_uring_setup", 425),
    ("ioperm", 173),
    ("iopl", 172),
    ("kcmp", 312),
    ("kexec_load", 246),
    ("keyctl", 250),
    ("lookup_dcookie", 212),
    ("mbind", 237),
    ("mount", 165),
    ("mount_setattr", 442),
    ("move_mount", 429),
    ("move_pages", 279),
    ("open_by_handle_at", 304),
    ("perf_event_open", 298),
    ("personality", 135),
    ("pivot_root", 155),
    ("quotactl", 179),
    ("reboot", 169),
    ("request_key", 249),
    ("set_mempolicy", 238),
    ("setns", 308),
    ("swapon", 167),
    ("umount2", 166),
    ("unshare", 272),
    ("userfaultfd", 323),
];

/// A classic BPF program that refuses these calls with EPERM (seccomp(2)).
fn filter_refusing(calls: &[u32]) -> Vec<u8> {
    const LOAD_NUMBER: (u16, u8, u8, u32) = (0x20, 0, 0, 0);
    const ALLOW: (u16, u8, u8, u32) = (0x06, 0, 0, 0x7fff_0000);
    const REFUSE: (u16, u8, u8, u32) = (0x06, 0, 0, 0x0005_0001);
    let left = |index: usize| (calls.len() - index) as u8;
    let tests = calls.iter().enumerate();
    let tests = tests.map(|(index, &number)| (0x15, left(index), 0, number));
    [LOAD_NUMBER]
        .into_iter()
        .chain(tests)
        .chain([ALLOW, REFUSE])
        .flat_map(|(code, yes, no, value): (u16, u8, u8, u32)| {
            let code = code.to_le_bytes();
            let value = value.to_le_bytes();
            [code[0], code[1], yes, no, value[0], value[1], value[2], value[3]]
        })
        .collect()
}

/// Run a command line under the filter that is in a file.
fn under_filter(filter: &str, line: &str) -> Output {
    let bwrap = "bwrap --bind / / --dev-bind /dev /dev --seccomp 9";
    let line = format!("exec timeout 120 {bwrap} {line} 9<{filter}");
    Command::new("sh").args(["-c", &line]).output().expect("`sh` can be started")
}

fn a_machine_runs_under_the_filter_of_a_container_engine(mode: Mode) {
    check_ran(&mode.in_machine(&[], &["echo", "here"]), "outside");
    let filter = scratch(
        &mode.options().concat(),
        &filter_refusing(&REFUSED_CALLS.map(|(_, number)| number)),
    );
    let run = |script: &str| under_filter(&filter, script);
    // The filter is in force: a new user namespace is refused.
    assert_ne!(run("unshare --user true").status.code(), Some(0), "the filter does nothing");
    let binary = bivouac();
    let line = format!("{} run {} -- echo here", binary.display(), mode.options().join(" "));
    check_ran(&run(&line), "under the filter");
    let _ = std::fs::remove_file(filter);
}

/// A home for one run of `biv`, with the default guest in its cache, and what is there.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let home =
            std::env::temp_dir().join(format!("whole-machine-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        for directory in ["cache/bivouac", "temporary", "runtime"] {
            std::fs::create_dir_all(home.join(directory)).expect("a writable directory");
        }
        Guest::provide(&[Part::Kernel, Part::Busybox]).expect("the default guest");
        let cache = provision::cache_directory().expect("a cache");
        for part in ["kernel", "busybox"] {
            let link = home.join("cache/bivouac").join(part);
            std::os::unix::fs::symlink(cache.join(part), link).expect("a writable directory");
        }
        Home(home)
    }

    fn run(&self) -> Command {
        // A session of its own, by which its processes are found.
        let mut command = Command::new("setsid");
        // Who runs the tests by nohup(1) ignores a signal that `biv` would ignore then, too.
        command.args(["env", "--default-signal=HUP"]).arg(bivouac());
        command.args(["run", "--", "sleep", "60"]).env("HOME", &self.0);
        command.env("XDG_CACHE_HOME", self.0.join("cache"));
        command.env("TMPDIR", self.0.join("temporary"));
        command.env("XDG_RUNTIME_DIR", self.0.join("runtime"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// All files but those of the default guest, of a kernel that was unpacked to its end, of a warm start, and
    /// the user's keys.
    fn files(&self) -> Vec<PathBuf> {
        let find = Command::new("find").arg(&self.0).args(["-type", "f", "-print"]).output();
        let found = text(&find.expect("`find` can be started").stdout);
        let files = found.lines().map(PathBuf::from);
        let is_kept = |file: &PathBuf| {
            let kind = file.extension().and_then(|kind| kind.to_str());
            matches!(kind, Some("kernel" | "snapshot" | "key" | "pub"))
        };
        files.filter(|file| !is_kept(file)).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Processes of the session that this one leads: all that a machine has, helpers included.
fn processes(session: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
    let is_left = |path: &PathBuf| {
        let line = text(&std::fs::read(path.join("stat")).unwrap_or_default());
        // The name, in parentheses, may hold anything; state, parent, group and session follow.
        let mut words = line.rsplit(") ").next().unwrap_or("").split(' ');
        words.nth(3).and_then(|number| number.parse().ok()) == Some(session)
    };
    let left = entries.map(|entry| entry.path()).filter(is_left);
    left.map(|path| path.display().to_string()).collect()
}

/// At any moment of a boot: while the kernel is unpacked, while it starts, while a command runs.
#[test]
fn a_killed_machine_leaves_nothing_behind() {
    let cases = [("KILL", 20), ("KILL", 60), ("KILL", 150), ("KILL", 400), ("KILL", 3000)];
    for (signal, milliseconds) in cases.into_iter().chain([("TERM", 100), ("HUP", 3000)]) {
        let home = Home::new(&format!("{signal}-{milliseconds}"));
        let mut child = home.run().spawn().expect("biv can be started");
        std::thread::sleep(Duration::from_millis(milliseconds));
        assert!(!processes(child.id()).is_empty(), "the machine does not run, or is not seen");
        let id = child.id();
        let status = Command::new("kill").args(["-s", signal, &id.to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
        let ended = (0..400).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            child.try_wait().is_ok_and(|status| status.is_some())
        });
        if !ended {
            let _ = child.kill();
            let _ = child.wait();
        }
        let case = format!("SIG{signal} after {milliseconds} ms");
        assert!(ended, "{case} did not end the machine");
        // Those that it had started are ended by the host's kernel, each in its own time.
        wait_for(&format!("{case}, and nobody is left"), || processes(id).is_empty());
        assert_eq!(home.files(), Vec::<PathBuf>::new(), "{case}");
    }
}

/// The rights and the name of each mapping of a process; none if it has ended.
fn mappings(process: u32) -> Vec<(String, String)> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let words = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        (words.next().unwrap_or("").to_owned(), words.nth(3).unwrap_or("").to_owned())
    };
    maps.lines().map(words).collect()
}

#[test]
fn no_memory_of_a_running_machine_is_writable_and_executable() {
    let mut command = Command::new(bivouac());
    command.args(["run", "--", "sh", "-c", "echo here; sleep 60"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let output = child.stdout.take().expect("it is a pipe");
    std::io::BufReader::new(output).read_line(&mut line).expect("it can be read");
    let all = [vec![child.id()], whole_machine::processes::descendants_of(child.id())].concat();
    let found: Vec<_> = all.into_iter().map(mappings).collect();
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(line, "here\n");
    let is_code = |(_, name): &&(String, String)| name.starts_with("/memfd:bivouac-code");
    let machine = found.iter().find(|mappings| mappings.iter().any(|it| is_code(&it)));
    let machine = machine.expect("some process has translated code");
    let rights: Vec<_> = machine.iter().filter(is_code).map(|(rights, _)| rights).collect();
    assert!(rights.iter().any(|it| it.contains('x')) && rights.iter().any(|it| it.contains('w')));
    for (rights, name) in machine {
        assert!(!(rights.contains('w') && rights.contains('x')), "{rights} {name}");
    }
}

#[test]
fn where_direct_execution_is_impossible_that_is_said_or_made_up_for() {
    const SECCOMP: u32 = 317;
    Guest::provide(&[Part::Kernel, Part::Busybox]).expect("the default guest");
    let filter = scratch("no-seccomp", &filter_refusing(&[SECCOMP]));
    let run = |how: &str, more: &str| {
        let binary = bivouac();
        let line = format!("{} run --no-seccomp {how} {more} -- echo here", binary.display());
        under_filter(&filter, &line)
    };
    let auto = run("--user-exec auto", "-v");
    check_ran(&auto, "translated");
    let said = text(&auto.stderr);
    assert!(said.contains("all user code is translated: "), "{said}");
    let direct = run("--user-exec direct", "");
    let said = text(&direct.stderr);
    assert_eq!((direct.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("cannot run user code directly: ") && said.contains("auto"), "{said}");
    let doctor = under_filter(&filter, &format!("{} doctor", bivouac().display()));
    let said = text(&doctor.stdout);
    assert!(said.contains("- direct execution") && said.contains("not possible"), "{said}");
    let _ = std::fs::remove_file(filter);
}

in_each_mode!(
    an_ordinary_user_without_capabilities_can_run_a_machine,
    a_machine_runs_inside_a_user_namespace,
    a_machine_runs_under_the_filter_of_a_container_engine,
);
