//! What somebody who owns one of a machine's processes finds in it: nothing of the user's that the guest
//! was not given.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use locks::Unpoisoned;
use tiny_kernels::Kernel;
use whole_machine::processes::{adopt_orphans, descendants_of, survivors};
use whole_machine::waiting::wait_for;
use whole_machine::{bivouac, text};

/// The last part of what is secret: it is put together by those who look for it, so that nobody has it who
/// just reads this program.
const MARK: &str = "-of-the-user";

/// Memory that is read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Held by a test: all processes that descend from this one are its.
static ALONE: Mutex<()> = Mutex::new(());

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A machine with every process that it can have, a key in its environment and a file open that is none of its
/// business.
fn start(scratch: &Path, key: &str) -> Child {
    let script = "exec 9<\"$1\"; shift; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(scratch.join("secret")).arg(bivouac());
    command.args(["run", "--mem", "256M", "--user-exec", "direct", "--net", "user", "--vsock"]);
    command.arg(scratch.join("sockets")).args(["--root", "/"]);
    command.args(["--", "sh", "-c", "echo up; sleep 1000"]);
    command.env("AWS_SECRET_ACCESS_KEY", key);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("`sh` can be started")
}

/// Whether it is in the memory of a process; the guest's own, which is not the process's, is left out.
fn has_in_memory(process: u32, wanted: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("we are root");
    let Ok(memory) = File::open(format!("/proc/{process}/mem")) else { return false };
    let mut piece = vec![0; PIECE_BYTES + wanted.len()];
    for line in maps.lines().filter(|line| !line.contains("bivouac-guest")) {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let Some((start, end)) = range.split_once('-').filter(|_| rights.starts_with('r')) else {
            continue;
        };
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        for at in (number(start)..number(end)).step_by(PIECE_BYTES) {
            let length = piece.len().min((number(end) - at) as usize);
            let count = memory.read_at(&mut piece[..length], at).unwrap_or(0);
            if piece[..count].windows(wanted.len()).any(|bytes| bytes == wanted) {
                println!("{process}: {line}");
                return true;
            }
        }
    }
    false
}

fn open_files(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).expect("we are root");
    entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect()
}

fn field(process: u32, thread: &str, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status"));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn check(process: u32, key: &[u8], secret: &Path) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).expect("it runs");
    let line = text(&line).replace('\0', " ");
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let variables: Vec<_> =
        environment.split(|&byte| byte == 0).filter(|it| !it.is_empty()).collect();
    assert!(variables.is_empty(), "{line}: its environment has {:?}", text(&environment));
    assert!(!has_in_memory(process, key), "{line}: its memory has the key");
    let open = open_files(process);
    assert!(!open.iter().any(|path| path == secret), "{line}: {open:?}");
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("it runs");
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let core: Vec<_> = core.unwrap_or("").split_ascii_whitespace().skip(4).take(2).collect();
    assert_eq!(core, ["0", "0"], "{line}: {limits}");
    // CHOWN, DAC_OVERRIDE, FOWNER and FSETID (linux/capability.h) are the file server's.
    let allowed = if line.contains("serve-files") { 0b11011 } else { 0 };
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    for thread in threads.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let effective = field(process, &thread, "CapEff");
        let bits = u64::from_str_radix(&effective, 16).unwrap_or(0);
        assert_eq!(bits & !allowed, 0, "{line}: thread {thread} has {effective}");
    }
    line
}

#[test]
fn the_processes_of_a_machine_have_nothing_of_the_users() {
    if !is_root() {
        println!("left out: only root can read the memory of these processes");
        return;
    }
    let _alone = ALONE.lock().unpoisoned();
    adopt_orphans();
    let scratch = std::env::temp_dir().join(format!("whole-machine-found-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("a directory");
    fs::write(scratch.join("secret"), "secret").expect("a file");
    let key = format!("key-{}{MARK}", std::process::id());
    let mut machine = start(&scratch, &key);
    let stdout = machine.stdout.take().expect("a pipe");
    let said = BufReader::new(stdout).lines().next();
    assert_eq!(said.and_then(Result::ok).as_deref(), Some("up"));
    // Its helpers' parent has ended, and they are ours; the others are the machine's.
    let own = std::process::id();
    let all = [vec![machine.id()], descendants_of(machine.id()), descendants_of(own)].concat();
    let all: BTreeSet<u32> = all.into_iter().collect();
    let secret = scratch.join("secret");
    let lines: Vec<_> = all.iter().map(|&one| check(one, key.as_bytes(), &secret)).collect();
    for kind in ["serve-files", "network", "sockets"] {
        let part = format!("biv --bivouac-process={kind} ");
        let is_there = lines.iter().any(|line| line.contains(&part));
        assert!(is_there, "{part}: {lines:?}");
    }
    assert!(lines.len() >= 7, "a zygote and two helpers, too: {lines:?}");
    machine.kill().and_then(|()| machine.wait()).expect("it can be ended");
    let all: Vec<u32> = all.into_iter().collect();
    assert_eq!(survivors(&all, Duration::from_secs(10)), Vec::<u32>::new());
    let _ = fs::remove_dir_all(&scratch);
}

/// `biv`, as nobody, in a home of nobody's.
fn as_nobody(home: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new("timeout");
    command.args(["60", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
    command.arg(home.join("biv")).args(arguments).stdin(Stdio::null()).current_dir("/");
    command.env("HOME", home).env("XDG_CACHE_HOME", home.join("cache"));
    command.env("XDG_RUNTIME_DIR", home).output().expect("`timeout` can be started")
}

/// The processes are root's to `/proc`, and yet their user is told what they use.
#[test]
fn other_processes_of_the_user_do_not_read_a_machines_memory() {
    if !is_root() {
        println!("left out: only root can become somebody else");
        return;
    }
    let _alone = ALONE.lock().unpoisoned();
    let home = std::env::temp_dir().join(format!("whole-machine-nobody-{}", std::process::id()));
    fs::create_dir_all(&home).expect("a directory");
    fs::copy(bivouac(), home.join("biv")).expect("the command can be copied");
    let kernel = Kernel::new("nobodys", tiny_kernels::ECHO);
    fs::copy(&kernel.0, home.join("kernel")).expect("it can be copied");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let given = Command::new("chown").args(["-R", "65534:65534"]).arg(&home).status();
    assert!(given.is_ok_and(|status| status.success()), "cannot give the directory away");
    let file = home.join("kernel");
    let file = file.to_str().expect("a plain name");
    let started = as_nobody(&home, &["run", "-d", "--name", "one", "--kernel", file]);
    assert!(started.status.success(), "{started:?}");
    let said = as_nobody(&home, &["ps", "--format", "json"]);
    let listed: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let process = listed[0]["pid"].as_u64().unwrap_or_else(|| panic!("{listed}"));
    let memory = format!("/proc/{process}/mem");
    let owner = || fs::metadata(&memory).map(|found| found.uid()).ok();
    wait_for("the machine is confined", || owner() == Some(0));
    let said = as_nobody(&home, &["stats", "--format", "json"]);
    let stats: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert!(stats[0]["memory_host"].as_u64() > Some(1 << 20), "{stats}");
    assert!(stats[0]["processes"].as_u64() >= Some(1), "{stats}");
    let ended = as_nobody(&home, &["kill", "one"]);
    assert!(ended.status.success(), "{ended:?}");
    let _ = fs::remove_dir_all(&home);
}
