//! Machines run for anybody, and what is wrong is said in one line.

#![forbid(unsafe_code)]

use std::process::{Command, Output};

use whole_machine::{biv, bivouac, in_machine, text};

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
    check_refusal(&["run", "--kernel", &text_file], &["kernel"]);
    check_refusal(&["run", "--kernel", &empty], &["kernel"]);
    check_refusal(&["run", "--kernel", "/dev/null"], &[]);
    check_refusal(&["run", "--mem", "1", "--", "true"], &["mem"]);
    check_refusal(&["run", "--mem", "1M", "--", "true"], &["mem"]);
    check_refusal(&["run", "--mem", "16M", "--", "true"], &["memory"]);
    check_refusal(&["run", "--mem", "900G", "--", "true"], &["memory"]);
    check_refusal(&["run", "--root", "/nowhere", "--", "true"], &["/nowhere"]);
    for path in [text_file, empty] {
        let _ = std::fs::remove_file(path);
    }
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

/// Success, and the output of `echo`.
fn check_ran(output: &Output, how: &str) {
    assert_eq!(text(&output.stdout), "here\n", "{how}: {}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{how}");
}

#[test]
fn an_ordinary_user_without_capabilities_can_run_a_machine() {
    let home = std::env::temp_dir().join(format!("whole-machine-home-{}", std::process::id()));
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
    command.arg(&binary).args(["run", "--", "echo", "here"]);
    command.env("HOME", &home).env("XDG_CACHE_HOME", home.join("cache")).current_dir("/");
    let output = command.output().expect("`timeout` can be started");
    let _ = std::fs::remove_dir_all(&home);
    check_ran(&output, "as nobody");
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("`id` can be started");
    text(&output.stdout).trim() == "0"
}

#[test]
fn a_machine_runs_inside_a_user_namespace() {
    // The default guest is in the cache after this, which the sandbox can read but not fetch.
    check_ran(&in_machine(&[], &["echo", "here"]), "outside");
    let mut command = Command::new("timeout");
    command.args(["120", "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--tmpfs", "/tmp"]);
    command.args(["--proc", "/proc", "--dev", "/dev", "--die-with-parent", "--new-session"]);
    let binary = bivouac();
    // The new /tmp must not hide the command or the cache.
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    for hidden in home.iter().chain([&binary]).filter(|path| path.starts_with("/tmp")) {
        command.arg("--ro-bind").arg(hidden).arg(hidden);
    }
    command.arg(&binary).args(["run", "--", "echo", "here"]);
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
fn refusing_filter() -> Vec<u8> {
    const LOAD_NUMBER: (u16, u8, u8, u32) = (0x20, 0, 0, 0);
    const ALLOW: (u16, u8, u8, u32) = (0x06, 0, 0, 0x7fff_0000);
    const REFUSE: (u16, u8, u8, u32) = (0x06, 0, 0, 0x0005_0001);
    let left = |index: usize| (REFUSED_CALLS.len() - index) as u8;
    let tests = REFUSED_CALLS.iter().enumerate();
    let tests = tests.map(|(index, &(_, number))| (0x15, left(index), 0, number));
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

#[test]
fn a_machine_runs_under_the_filter_of_a_container_engine() {
    check_ran(&in_machine(&[], &["echo", "here"]), "outside");
    let filter = scratch("filter", &refusing_filter());
    let run = |script: &str| {
        let line = format!(
            "exec timeout 120 bwrap --bind / / --dev-bind /dev /dev --seccomp 9 {script} 9<{filter}"
        );
        Command::new("sh").args(["-c", &line]).output().expect("`sh` can be started")
    };
    // The filter is in force: a new user namespace is refused.
    assert_ne!(run("unshare --user true").status.code(), Some(0), "the filter does nothing");
    let binary = bivouac();
    check_ran(&run(&format!("{} run -- echo here", binary.display())), "under the filter");
    let _ = std::fs::remove_file(filter);
}

#[test]
fn a_killed_machine_leaves_no_process_behind() {
    for signal in ["TERM", "HUP", "KILL"] {
        let mut child = Command::new(bivouac())
            .args(["run", "--", "sleep", "60"])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("biv can be started");
        std::thread::sleep(std::time::Duration::from_secs(3));
        let id = child.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
        let ended = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            child.try_wait().is_ok_and(|status| status.is_some())
        });
        if !ended {
            let _ = child.kill();
            let _ = child.wait();
        }
        assert!(ended, "SIG{signal} did not end the machine");
        let children = Command::new("pgrep").args(["-P", &id]).output().expect("`pgrep` is there");
        assert_eq!(text(&children.stdout), "", "SIG{signal} left processes behind");
    }
}
