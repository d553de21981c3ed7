//! Helpers where processes like ours live: unprivileged, in namespaces, under the filters of
//! containers, confined by ourselves. Where something is missing, that is an error and nothing else.
//!
//! Each test runs this program again, to carry out [`scene`] there.

mod guest;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use direct::{Helpers, Stop, TimeStamp};
use guest::*;
use host::GuestMemory;

/// What a scene is to do, as a variable of its environment.
const SCENE: &str = "BIVOUAC_TEST_SCENE";

fn again(scene: &str) -> Command {
    prefixed(&[], scene)
}

/// This program in another scene, run by way of another.
fn prefixed(prefix: &[&str], scene: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut words: Vec<_> = prefix.iter().map(std::ffi::OsString::from).collect();
    words.push(program.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["--exact", "scene", "--nocapture", "--test-threads=1"]);
    command.env(SCENE, scene);
    command
}

fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn check_works(command: Command) {
    let said = output(command);
    assert!(said.contains("helpers work"), "{said}");
}

fn check_refuses(command: Command) {
    let said = output(command);
    assert!(said.contains("no helpers: ") && said.contains("direct execution"), "{said}");
}

/// Not a test of its own: what the others run.
#[test]
fn scene() {
    let Ok(scene) = std::env::var(SCENE) else { return };
    let memory = GuestMemory::new(&[(0, MEMORY_BYTES)]).unwrap();
    let before = descriptors();
    let helpers = match Helpers::start(&memory) {
        Ok(helpers) => helpers,
        Err(error) => {
            println!("no helpers: {error}");
            return;
        }
    };
    let guest = Guest { memory, helpers };
    match scene.as_str() {
        "linger" => linger(&guest),
        "confined" => {
            host::confine::confine().unwrap();
            exercise(&guest);
            println!("helpers work");
            std::process::exit(0);
        }
        "deadly calls" => deadly_calls(&guest),
        "few descriptors" => few_descriptors(&guest),
        _ => exercise(&guest),
    }
    drop(guest);
    assert_eq!(descriptors(), before - 1, "the memory's is closed, and all of ours");
    println!("helpers work");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Everything once.
fn exercise(guest: &Guest) {
    // inc rax; syscall; jmp back
    guest.write(CODE_OFFSET, &[0x48, 0xff, 0xc0, 0x0f, 0x05, 0xeb, 0xf9]);
    let mut threads: Vec<_> = (0..5).map(|_| guest.thread()).collect();
    for round in 1..=100 {
        for thread in &mut threads {
            assert_eq!(thread.run(), Stop::SystemCall);
            assert_eq!(thread.registers.general[0], round);
        }
    }
    guest.write(CODE_OFFSET + 0x100, &[0xeb, 0xfe]);
    for thread in &mut threads {
        thread.registers.rip = NOTHING;
        assert_eq!(thread.run(), page_fault(0x14, NOTHING));
        thread.space.map(NOTHING, 4096, CODE_OFFSET, EXECUTE, true).unwrap();
        assert_eq!(thread.run(), Stop::SystemCall);
        thread.space.protect(NOTHING, 4096, READ).unwrap();
        thread.space.unmap_all().unwrap();
        assert_eq!(thread.run(), page_fault(0x14, NOTHING + 5));
        thread.space.map(CODE, CODE_BYTES, CODE_OFFSET, EXECUTE, false).unwrap();
        thread.registers.rip = CODE + 0x100;
        let kick = std::sync::Arc::clone(&thread.kick);
        let kicker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            kick.kick();
        });
        assert_eq!(thread.run(), Stop::Kicked);
        kicker.join().unwrap();
    }
    threads.clear();
    assert_eq!(guest.helpers.space(TimeStamp::Faults).unwrap().processes().len(), 2);
}

/// Run a program for ever, and tell who runs it.
fn linger(guest: &Guest) {
    guest.write(CODE_OFFSET, &[0xeb, 0xfe]);
    let mut threads: Vec<_> = (0..3).map(|_| guest.thread()).collect();
    let mut processes = vec![guest.helpers.zygote()];
    processes.extend(threads.iter().flat_map(|thread| thread.space.processes()));
    println!("\nprocesses {processes:?}");
    loop {
        threads[0].run();
    }
}

const DEADLY: &[i64] = &[libc::SYS_ptrace, libc::SYS_reboot, libc::SYS_kexec_load];

fn deadly_calls(guest: &Guest) {
    guest.write(CODE_OFFSET, &[0x0f, 0x05]);
    let mut thread = guest.thread();
    for &call in DEADLY {
        thread.registers.general[0] = call.cast_unsigned();
        assert_eq!(thread.restart(), Stop::SystemCall);
    }
}

fn few_descriptors(guest: &Guest) {
    let limit = libc::rlimit { rlim_cur: descriptors() as u64 + 10, rlim_max: 4096 };
    // SAFETY: reads a structure of ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let mut spaces = Vec::new();
    let error = loop {
        match guest.helpers.space(TimeStamp::Native) {
            Ok(space) => spaces.push(space),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("ulimit -n"), "{error}");
    // Not for ever, and half a helper's descriptors are closed.
    assert!(guest.helpers.space(TimeStamp::Native).is_err());
    spaces.truncate(1);
    exercise_one(guest);
}

fn exercise_one(guest: &Guest) {
    guest.write(CODE_OFFSET, &[0x0f, 0x05]);
    assert_eq!(guest.thread().run(), Stop::SystemCall);
}

#[test]
fn plainly() {
    check_works(again("plain"));
}

#[test]
fn as_a_user_without_privilege() {
    // SAFETY: asks for a number.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = again("plain");
    if root {
        // The program may be where only root gets; it is passed by descriptor.
        command.uid(65534).gid(65534);
    }
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("helpers work"), "{said}");
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
            check_works(prefixed(&["setpriv", "--bounding-set=-all", "--inh-caps=-all"], "plain"));
        }
    }
}

#[test]
fn inside_bubblewrap() {
    let all =
        ["bwrap", "--unshare-all", "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc"];
    check_works(prefixed(&all, "plain"));
}

#[test]
fn in_a_process_that_confines_itself_later() {
    check_works(again("confined"));
}

#[test]
fn with_few_descriptors() {
    check_works(again("few descriptors"));
}

/// A filter that refuses some calls, in the command's process.
fn without(mut command: Command, calls: &'static [i64], verdict: u32) -> Command {
    let mut program = vec![libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 }];
    for &call in calls {
        program.push(libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: call as u32 });
        program.push(libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: verdict });
    }
    let allow = libc::SECCOMP_RET_ALLOW;
    program.push(libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: allow });
    let install = move || {
        let description =
            libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        // SAFETY: the program outlives the calls.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const description)
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: system calls only.
    unsafe { command.pre_exec(install) };
    command
}

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

#[test]
fn under_the_filter_of_a_container() {
    // What Docker's default profile keeps from a process without capabilities.
    const REFUSED: &[i64] = &[
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_kcmp,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_personality,
    ];
    check_works(without(again("plain"), REFUSED, REFUSE));
    // Older ones do not know Landlock and close_range either.
    const OLDER: &[i64] = &[libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self];
    check_works(without(again("plain"), OLDER, REFUSE));
}

#[test]
fn under_a_filter_that_ends_processes() {
    // The program's own calls of these kinds never reach the filter.
    check_works(without(again("deadly calls"), DEADLY, libc::SECCOMP_RET_KILL_PROCESS));
}

#[test]
fn where_something_is_missing_user_code_is_translated() {
    check_refuses(without(again("plain"), &[libc::SYS_seccomp], REFUSE));
    check_refuses(without(again("plain"), &[libc::SYS_sigaltstack], REFUSE));
    check_refuses(without(again("plain"), &[libc::SYS_close_range], REFUSE));
    check_refuses(without(again("plain"), &[libc::SYS_socketpair], REFUSE));
    check_refuses(without(again("plain"), &[libc::SYS_clone], REFUSE));
}

#[test]
fn where_somebody_listens_already_user_code_is_translated() {
    let mut command = again("plain");
    let listen = || {
        let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
        let description = libc::sock_fprog { len: 1, filter: (&raw const allow).cast_mut() };
        let (set, flag) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        // SAFETY: the program outlives the call; the descriptor stays open in the new program.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let listener = libc::syscall(libc::SYS_seccomp, set, flag, &raw const description);
            libc::fcntl(listener as i32, libc::F_SETFD, 0)
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: system calls only.
    unsafe { command.pre_exec(listen) };
    let said = output(command);
    assert!(said.contains("no helpers: ") && said.contains("no other listener"), "{said}");
}

#[test]
fn helpers_end_with_the_process_that_made_them() {
    let mut child = again("linger").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.starts_with("processes ")).unwrap();
    let numbers = line.split(|character: char| !character.is_ascii_digit());
    let processes: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    assert_eq!(processes.len(), 7);
    assert!(processes.iter().all(|&process| lives(process)));
    child.kill().unwrap();
    child.wait().unwrap();
    let since = Instant::now();
    while processes.iter().any(|&process| lives(process)) {
        assert!(since.elapsed() < Duration::from_secs(60), "{processes:?} stay");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lives(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
