//! A confined process tries what it must not, one attempt to a process, and what it may.
//!
//! Each attempt is made by this test program, started again.

use std::ffi::CString;
use std::process::{Command, Output};
use std::sync::mpsc;

use libc::c_long;

/// Names the attempt to the program that is started again.
const ATTEMPT: &str = "CONFINED_ATTEMPT";

/// What a process that got through with its attempt says.
const THROUGH: &str = "the attempt was carried out";

/// What ends a process that tries something forbidden.
const REFUSED_STATUS: i32 = 128 + libc::SIGSYS;

/// A system call with these arguments.
fn call(number: c_long, arguments: [u64; 6]) {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: every call here has arguments that are numbers, null, or strings that live; none
    // changes memory of this program.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    println!("system call {number} returned {result}");
}

fn none() -> [u64; 6] {
    [0; 6]
}

fn with_path(number: c_long) {
    let path = CString::new("/tmp/confined-process-was-here").expect("no zero byte inside");
    let path = path.as_ptr() as u64;
    call(number, [path, path, 0o777, 0, 0, 0]);
}

/// A call through an entry of the kernel that a 64-bit process does not use: `getpid` of i386.
fn call_of_32_bits() {
    let result: u64;
    // SAFETY: getpid has no arguments; the entry preserves all other registers but R8 to R11.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") 20u64 => result,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    println!("int 0x80 returned {result}");
}

/// The numbers of the calls that are made for a machine, and of those that are said to be absent: a
/// second account of the table (`src/confine/table.rs`), which may not grow unseen.
const KNOWN: &str = "0-5 7-21 24-28 33 35 39 44-48 56 60 72 74-75 77 79 89 96 98 127-128 131 \
                     157-158 \
    186 202 204 218-219 221-224 226 228-234 257 262 267 269 271 273 281 283 285-288 290 295-296 \
    302 \
    309 318-319 324 327-328 332 334 424 435 439 449";

fn is_known(number: c_long) -> bool {
    is_in(number, KNOWN)
}

fn is_in(number: c_long, list: &str) -> bool {
    list.split_whitespace().any(|calls| {
        let (first, last) = calls.split_once('-').unwrap_or((calls, calls));
        let parse = |number: &str| number.parse::<c_long>().expect("a number");
        (parse(first)..=parse(last)).contains(&number)
    })
}

/// A name, and something that must not be possible.
type Attempt = (&'static str, Box<dyn Fn()>);

/// Everything that must not be possible.
fn forbidden() -> Vec<Attempt> {
    let by_number = [
        ("socket", libc::SYS_socket),
        ("connect", libc::SYS_connect),
        ("bind", libc::SYS_bind),
        ("unshare", libc::SYS_unshare),
        ("setns", libc::SYS_setns),
        ("mount", libc::SYS_mount),
        ("chroot", libc::SYS_chroot),
        ("bpf", libc::SYS_bpf),
        ("seccomp", libc::SYS_seccomp),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("keyctl", libc::SYS_keyctl),
        ("personality", libc::SYS_personality),
        ("setuid", libc::SYS_setuid),
        ("setrlimit", libc::SYS_setrlimit),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("shmget", libc::SYS_shmget),
        ("sched_setaffinity", libc::SYS_sched_setaffinity),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("execveat", libc::SYS_execveat),
        ("fork", libc::SYS_fork),
        ("vfork", libc::SYS_vfork),
        ("no call at all", 0xfff),
        ("a call of x32", libc::SYS_getpid | 0x4000_0000),
    ];
    let of_files = [
        ("execve", libc::SYS_execve),
        ("creat", libc::SYS_creat),
        ("unlink", libc::SYS_unlink),
        ("rename", libc::SYS_rename),
        ("mkdir", libc::SYS_mkdir),
        ("symlink", libc::SYS_symlink),
        ("chmod", libc::SYS_chmod),
        ("truncate", libc::SYS_truncate),
    ];
    let mut list: Vec<Attempt> = vec![("a call of i386", Box::new(call_of_32_bits))];
    for (name, number) in by_number {
        list.push((name, Box::new(move || call(number, none()))));
    }
    for (name, number) in of_files {
        list.push((name, Box::new(move || with_path(number))));
    }
    list.extend(with_arguments());
    list
}

/// Calls that are allowed with other arguments, or that are aimed at the process that started us.
fn with_arguments() -> Vec<Attempt> {
    let parent = u64::from(std::os::unix::process::parent_id());
    let attach = u64::from(libc::PTRACE_ATTACH);
    let user_namespace = (libc::CLONE_NEWUSER | libc::SIGCHLD) as u64;
    let (dumpable, owner) = (libc::PR_SET_DUMPABLE as u64, libc::F_SETOWN as u64);
    let refusals = libc::SIGSYS as u64;
    let (code, anonymous) =
        (libc::PROT_EXEC as u64, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64);
    let lock = (libc::FUTEX_LOCK_PI | libc::FUTEX_PRIVATE_FLAG) as u64;
    let requeue = libc::FUTEX_CMP_REQUEUE as u64;
    let list: [(_, _, [u64; 6]); 17] = [
        ("lock a futex with priority", libc::SYS_futex, [0, lock, 0, 0, 0, 0]),
        ("move who waits for a futex", libc::SYS_futex, [0, requeue, 1, 1, 0, 0]),
        ("clone as fork does", libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]),
        ("clone into a user namespace", libc::SYS_clone, [user_namespace, 0, 0, 0, 0, 0]),
        ("kill the parent", libc::SYS_kill, [parent, 0, 0, 0, 0, 0]),
        ("tgkill the parent", libc::SYS_tgkill, [parent, parent, 0, 0, 0, 0]),
        ("ptrace the parent", libc::SYS_ptrace, [attach, parent, 0, 0, 0, 0]),
        ("read the parent's memory", libc::SYS_process_vm_readv, [parent, 0, 0, 0, 0, 0]),
        ("write the parent's memory", libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0, 0]),
        ("take hold of the parent", libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0]),
        ("type into the terminal", libc::SYS_ioctl, [0, libc::TIOCSTI, 0, 0, 0, 0]),
        ("send to an address", libc::SYS_sendto, [1, 0, 0, 0, 0x1000, 16]),
        ("become dumpable", libc::SYS_prctl, [dumpable, 1, 0, 0, 0, 0]),
        ("own a descriptor's signals", libc::SYS_fcntl, [0, owner, parent, 0, 0, 0]),
        ("map memory for code", libc::SYS_mmap, [0, 4096, code, anonymous, u64::MAX, 0]),
        ("make memory executable", libc::SYS_mprotect, [0, 0, code | 1, 0, 0, 0]),
        ("hide refused calls", libc::SYS_rt_sigaction, [refusals, 0, 0, 8, 0, 0]),
    ];
    list.into_iter()
        .map(|(name, number, arguments)| -> Attempt {
            (name, Box::new(move || call(number, arguments)))
        })
        .collect()
}

/// What machines may do, and a process that decompresses may not. (Descriptor 3 stands for any that is none of
/// its streams.)
fn forbidden_to_unpackers() -> Vec<Attempt> {
    let list = [
        ("read another descriptor", libc::SYS_read, 3),
        ("write another descriptor", libc::SYS_write, 3),
        ("write its input", libc::SYS_write, 0),
        ("read its output", libc::SYS_read, 1),
        ("read anywhere in a file", libc::SYS_pread64, 0),
        ("move in a file", libc::SYS_lseek, 0),
        ("control a device", libc::SYS_ioctl, 0),
        ("copy a descriptor", libc::SYS_dup2, 1),
        ("receive a descriptor", libc::SYS_recvmsg, 0),
        ("make a file in memory", libc::SYS_memfd_create, 0),
        ("make a thread", libc::SYS_clone, libc::CLONE_VM as u64),
        ("change its limits", libc::SYS_setrlimit, 0),
    ];
    list.into_iter()
        .map(|(name, number, argument)| -> Attempt {
            (name, Box::new(move || call(number, [argument, 0, 0, 0, 0, 0])))
        })
        .collect()
}

/// What machines may do, and a process that reads images may not.
fn forbidden_to_readers() -> Vec<Attempt> {
    let list = [
        ("hear another socket", libc::SYS_recvmsg, 3),
        ("send a descriptor", libc::SYS_sendmsg, 0),
        ("write to another file", libc::SYS_write, 3),
        ("write anywhere in a file", libc::SYS_pwrite64, 3),
        ("cut a file off", libc::SYS_ftruncate, 3),
        ("make room in a file", libc::SYS_fallocate, 3),
        ("seal a file", libc::SYS_fcntl, 3),
        ("read where others are", libc::SYS_read, 3),
        ("control a device of its files", libc::SYS_ioctl, 3),
        ("have another input", libc::SYS_dup2, 3),
        ("have memory with a name", libc::SYS_memfd_create, 0),
        ("have a thread", libc::SYS_clone, libc::CLONE_VM as u64),
        ("have other limits", libc::SYS_setrlimit, 0),
    ];
    list.into_iter()
        .map(|(name, number, argument)| -> Attempt {
            (name, Box::new(move || call(number, [argument, 0, 0, 0, 0, 0])))
        })
        .collect()
}

/// What keepers of pods may not do, though they may do much else.
fn forbidden_to_keepers() -> Vec<Attempt> {
    let none = [
        ("mount", libc::SYS_mount),
        ("mount a tree", libc::SYS_move_mount),
        ("open a tree of mounts", libc::SYS_open_tree),
        ("open a file system", libc::SYS_fsopen),
        ("unmount", libc::SYS_umount2),
        ("change the root", libc::SYS_chroot),
        ("move the root", libc::SYS_pivot_root),
        ("leave namespaces", libc::SYS_unshare),
        ("load a module", libc::SYS_finit_module),
        ("load a program", libc::SYS_bpf),
        ("load a kernel", libc::SYS_kexec_load),
        ("measure", libc::SYS_perf_event_open),
        ("ask for keys", libc::SYS_keyctl),
        ("have a ring", libc::SYS_io_uring_setup),
        ("watch memory", libc::SYS_userfaultfd),
        ("watch files", libc::SYS_fanotify_init),
        ("open by handle", libc::SYS_open_by_handle_at),
        ("have a local descriptor table", libc::SYS_modify_ldt),
        ("have ports", libc::SYS_iopl),
        ("set the clock", libc::SYS_clock_settime),
        ("swap", libc::SYS_swapon),
        ("execute a descriptor", libc::SYS_execveat),
    ];
    let user_namespace = (libc::CLONE_NEWUSER | libc::SIGCHLD) as u64;
    let (packets, internet) = (libc::AF_PACKET as u64, libc::AF_INET as u64);
    let (raw, device) = (libc::SOCK_RAW as u64, u64::from(libc::S_IFCHR | 0o600));
    let path = c"/tmp/confined-process-was-here".as_ptr() as u64;
    let with: [(_, _, [u64; 6]); 8] = [
        ("clone into a namespace", libc::SYS_clone, [user_namespace, 0, 0, 0, 0, 0]),
        ("enter a network", libc::SYS_setns, [0, libc::CLONE_NEWNET as u64, 0, 0, 0, 0]),
        ("enter any namespace", libc::SYS_setns, [0; 6]),
        ("see all frames", libc::SYS_socket, [packets, raw, 0, 0, 0, 0]),
        ("make packets of one's own", libc::SYS_socket, [internet, raw, 1, 0, 0, 0]),
        ("type into the terminal", libc::SYS_ioctl, [0, libc::TIOCSTI, path, 0, 0, 0]),
        ("make a device", libc::SYS_mknodat, [0, path, device, 0x103, 0, 0]),
        ("be traced", libc::SYS_ptrace, [u64::from(libc::PTRACE_TRACEME), 0, 0, 0, 0, 0]),
    ];
    let all = none.into_iter().map(|(name, number)| (name, number, [0; 6])).chain(with);
    all.map(|(name, number, arguments)| -> Attempt {
        (name, Box::new(move || call(number, arguments)))
    })
    .collect()
}

/// All that a keeper must not do, one after the other: each fails, and it goes on.
fn what_no_keeper_does() {
    for (name, act) in forbidden_to_keepers() {
        println!("{name}:");
        act();
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{name}: {error}");
    }
    for number in others_of_keepers() {
        call(number, none());
    }
}

/// The numbers of the calls that are made for a keeper, and of those that are said to be absent: a second account of
/// the table (`src/confine/keeper.rs`), which may not grow unseen.
const KNOWN_OF_KEEPERS: &str = "\
    0-28 32-33 35 39-63 72-75 77 79-84 86-87 89-91 93 95-99 101-102 104 107-112 115-121 \
    124-128 130-131 137-138 157-158 160 186 190-191 193 196 200 202 204 217-219 221 228-234 \
    242-243 245 247 257-260 262-271 273-277 280-281 283 285-293 295-296 302 308-312 316-319 \
    324 326-328 332 334 424 434-439 441 449 452";

/// All that there are and some more.
fn others_of_keepers() -> Vec<c_long> {
    let is_other = |number: &c_long| !is_in(*number, KNOWN_OF_KEEPERS) && !EXEMPT.contains(number);
    (0..512).filter(is_other).collect()
}

/// Open a file: that is said to be absent, for libraries' sake.
fn open_a_file() {
    let refusal = std::fs::File::open("/etc/passwd").expect_err("a file could be opened");
    assert_eq!(refusal.raw_os_error(), Some(libc::ENOSYS));
}

/// What decompressing takes: memory, its input and its output.
fn what_unpackers_do() {
    let mut input = Vec::new();
    std::io::Read::read_to_end(&mut std::io::stdin(), &mut input).expect("there is an input");
    let memory = vec![1u8; 64 << 20];
    println!("{}", memory.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    open_a_file();
}

/// What reading an image takes: memory, and to read anywhere in a file.
fn what_readers_do() {
    let mut byte = [0u8];
    // SAFETY: the buffer has room for the one byte.
    let read = unsafe { libc::pread(0, byte.as_mut_ptr().cast(), 1, 0) };
    println!("{read}");
    let memory = vec![1u8; 64 << 20];
    println!("{}", memory.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    open_a_file();
}

/// What keeping a pod takes: threads, files, sockets, other processes.
fn what_keepers_do() {
    let sum = std::thread::spawn(|| vec![1u8; 8 << 20].iter().map(|&byte| u64::from(byte)).sum());
    assert_eq!(sum.join().ok(), Some(8u64 << 20));
    let directory = std::env::temp_dir().join(format!("biv-confined-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("there is room");
    let (old, new) = (directory.join("old"), directory.join("new"));
    std::fs::write(&old, "content").expect("there is room");
    std::fs::rename(&old, &new).expect("it is there");
    let listener = std::os::unix::net::UnixListener::bind(directory.join("socket"));
    listener.expect("it is free").set_nonblocking(true).expect("it is a socket");
    std::fs::remove_dir_all(&directory).expect("it is there");
    // A program in a C library's way of starting, which does what a shell does.
    let mut command = Command::new("sh");
    let status = command.args(["-c", "x=$(echo said); [ \"$x\" = said ]"]).status();
    assert!(status.expect("there is a shell").success());
    let panicked = std::thread::spawn(|| panic!("on purpose")).join();
    assert!(panicked.is_err());
}

/// Start this program again for one attempt.
fn attempt(name: &str, thread: &str) -> Output {
    let own = std::env::current_exe().expect("a test has a path");
    let arguments = ["--exact", "makes_the_attempt", "--ignored", "--nocapture"];
    let mut command = Command::new(own);
    command.args(arguments).env(ATTEMPT, name).env("CONFINED_THREAD", thread);
    command.stdin(std::process::Stdio::null()).output().expect("this program can be started")
}

#[test]
#[ignore = "is started by the others"]
fn makes_the_attempt() {
    let name = std::env::var(ATTEMPT).expect("the attempt has a name");
    let act = move || match name.as_str() {
        "what machines do" => what_machines_do(),
        "what unpackers do" => what_unpackers_do(),
        "what readers do" => what_readers_do(),
        "what keepers do" => what_keepers_do(),
        "what no keeper does" => what_no_keeper_does(),
        number if number.parse::<c_long>().is_ok() => {
            call(number.parse().expect("a number"), none());
        }
        _ => {
            let all = forbidden().into_iter().chain(forbidden_to_unpackers());
            let mut all = all.chain(forbidden_to_readers());
            let (_, act) = all.find(|(known, _)| *known == name).expect("a known attempt");
            act();
        }
    };
    if std::env::var("CONFINED_THREAD").is_ok_and(|thread| thread == "earlier") {
        // The filter must also hold for a thread that was there before.
        let (go, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            wait.recv().expect("the sender lives");
            act();
        });
        host::confine::confine().expect("this host can confine processes");
        go.send(()).expect("the receiver lives");
        thread.join().expect("no panic");
    } else {
        let confine = match std::env::var("CONFINED_THREAD").as_deref() {
            Ok("unpacker") => host::confine::confine_unpacker,
            Ok("reader") => host::confine::confine_reader,
            Ok("disk-reader") => host::confine::confine_disk_reader,
            Ok("keeper") => host::confine::confine_keeper,
            _ => host::confine::confine,
        };
        confine().expect("this host can confine processes");
        act();
    }
    println!("{THROUGH}");
}

fn check_refused(name: &str, thread: &str) {
    let output = attempt(name, thread);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains(THROUGH) && !said.contains("returned"), "{name}: {said}");
    use std::os::unix::process::ExitStatusExt;
    // The kernel itself ends a process that enters it by a foreign door.
    let by_kernel = name == "a call of i386" && output.status.signal() == Some(libc::SIGSYS);
    assert!(by_kernel || output.status.code() == Some(REFUSED_STATUS), "{name}: {complaint}");
    assert!(by_kernel || complaint.contains("biv: the machine's process tried"), "{name}");
}

/// A kind of process may not do what none may, nor these others, and may do what it is there for.
#[track_caller]
fn check_confined(who: &str, others: impl Iterator<Item = &'static str>, what: &str) {
    let all = forbidden().into_iter().map(|(name, _)| name).chain(others);
    all.for_each(|name| check_refused(name, who));
    let output = attempt(what, who);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(THROUGH), "{output:?}");
}

#[test]
fn what_is_forbidden_ends_the_process() {
    for (name, _) in forbidden() {
        check_refused(name, "own");
    }
}

#[test]
fn who_unpacks_may_do_nothing_else() {
    let others = forbidden_to_unpackers().into_iter().map(|(name, _)| name);
    check_confined("unpacker", others, "what unpackers do");
}

#[test]
fn who_reads_images_may_do_nothing_else() {
    let others = forbidden_to_readers().into_iter().map(|(name, _)| name);
    check_confined("reader", others, "what readers do");
}

#[test]
fn who_reads_disks_may_do_nothing_else() {
    let others = forbidden_to_readers().into_iter().map(|(name, _)| name);
    check_confined("disk-reader", others, "what readers do");
}

#[test]
fn who_keeps_pods_goes_on_without_what_is_forbidden() {
    let output = attempt("what keepers do", "keeper");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains(THROUGH), "{said}\n{complaint}");
    assert!(!complaint.contains("tried system call"), "{complaint}");
    let output = attempt("what no keeper does", "keeper");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains(THROUGH), "{said}\n{complaint}");
    let returned = said.lines().filter(|line| line.contains(" returned "));
    assert!(returned.clone().all(|line| line.ends_with(" returned -1")), "{said}");
    assert!(others_of_keepers().len() > 250, "{}", others_of_keepers().len());
    let tried = complaint.matches("biv: the pod's keeper tried system call").count();
    assert_eq!(tried, returned.count(), "{complaint}");
}

/// uretprobe and uprobe, which Linux exempts from filters: they work in its own trampolines only.
const EXEMPT: [c_long; 2] = [335, 336];

/// All calls that there are and some more, in eight processes at a time.
#[test]
fn no_other_call_is_made() {
    let is_other = |number: &c_long| !is_known(*number) && !EXEMPT.contains(number);
    let others: Vec<c_long> = (0..512).filter(is_other).collect();
    assert!(others.len() > 350, "{}", others.len());
    std::thread::scope(|scope| {
        for part in others.chunks(others.len().div_ceil(8)) {
            scope.spawn(|| part.iter().for_each(|n| check_refused(&n.to_string(), "own")));
        }
    });
}

#[test]
fn threads_that_were_there_before_are_confined_too() {
    for name in ["execve", "socket", "fork", "unlink"] {
        check_refused(name, "earlier");
    }
}

/// Threads, memory, time, signals to oneself, descriptors; and files are simply not there.
fn what_machines_do() {
    let sum = std::thread::spawn(|| vec![1u8; 8 << 20].iter().map(|&byte| u64::from(byte)).sum());
    assert_eq!(sum.join().ok(), Some(8u64 << 20));
    std::thread::sleep(std::time::Duration::from_millis(1));
    let memory = host::GuestMemory::new(&[(0, 4 << 20)]).map(|memory| memory.discard(0, 2 << 20));
    // How much memory there is cannot be read any more; that it is asked for must not be the end.
    println!("{}", memory.is_ok());
    // SAFETY: a signal to this very thread whose default is to be ignored.
    let sent =
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGWINCH) };
    assert_eq!(sent, 0);
    open_a_file();
    // A panic, which looks for the symbols of its backtrace.
    let panicked = std::thread::spawn(|| panic!("on purpose")).join();
    assert!(panicked.is_err());
}

#[test]
fn what_machines_do_is_allowed() {
    for backtrace in ["0", "full"] {
        let own = std::env::current_exe().expect("a test has a path");
        let output = Command::new(own)
            .args(["--exact", "makes_the_attempt", "--ignored", "--nocapture"])
            .env(ATTEMPT, "what machines do")
            .env("RUST_BACKTRACE", backtrace)
            .output()
            .expect("this program can be started");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(THROUGH), "{said}\n{complaint}");
    }
}
