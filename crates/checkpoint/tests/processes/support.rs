//! Programs that check themselves, and PID namespaces in which they live.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use checkpoint::state::inet::{Connection, InetRole};
use checkpoint::state::sockets::Protocol;
use checkpoint::state::{OpenFile, Owner, State};
use checkpoint::{Compression, Frozen, Given, Image, Slots, Writer, freeze, restart};

/// How long a program may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one may take to fall asleep that has said its last word.
const REST_PATIENCE: Duration = Duration::from_secs(2);

/// A directory that is removed with what is in it.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let name = format!("bivouac-checkpoint-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("there is a directory for temporary files");
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compile a program of `tests/programs`; none where there is no compiler, which is said.
pub fn compile(directory: &Directory, name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = directory.path(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-Wall", "-Wno-unused-result", "-pthread", "-o"]);
    match compiler.arg(&program).arg(source).status() {
        Ok(status) => assert!(status.success(), "{name}.c is not compiled"),
        Err(error) => {
            println!("skipped: there is no C compiler: {error}");
            return None;
        }
    }
    Some(program)
}

/// Which network a namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// That of the tests.
    Ours,
    /// One with a loopback interface only.
    Own,
    /// That of the process with this number, and its user namespace.
    Of(u32),
}

/// A PID namespace, in a user namespace of its own, with terminals of its own where the host allows them.
pub struct Namespace {
    outer: Child,
    /// Its first process, by our number.
    pub init: u32,
}

impl Namespace {
    /// One in which `program` runs beside the first process; none where that is forbidden, which is said.
    pub fn new(program: &[&str]) -> Option<Self> {
        Self::make(program, Network::Ours)
    }

    /// The same with a network of its own, or ours.
    pub fn make(program: &[&str], network: Network) -> Option<Self> {
        let mut unshare = match network {
            Network::Of(holder) => entering(holder, &["unshare"]),
            Network::Ours | Network::Own => {
                let mut unshare = Command::new("unshare");
                unshare.args(["--user", "--map-root-user"]);
                unshare
            }
        };
        unshare.args(["--ipc", "--pid", "--fork", "--mount-proc"]);
        if network == Network::Own {
            unshare.arg("--net");
        }
        unshare.args(["--kill-child=KILL", "sh", "-c"]);
        let up = if network == Network::Own { "ip link set lo up || exit; " } else { "" };
        let own = "mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts && \
                   mount --bind /dev/pts/ptmx /dev/ptmx; \
                   mount -t mqueue mqueue /srv; ";
        let run = if program.is_empty() { "exec sleep 600" } else { "\"$@\" & exec sleep 600" };
        unshare.arg(format!("{up}{own}{run}"));
        unshare.arg("sh").args(program).stdin(Stdio::null());
        unshare.stdout(Stdio::null()).stderr(Stdio::null());
        let mut outer = match unshare.spawn() {
            Ok(outer) => outer,
            Err(error) => {
                println!("skipped: unshare(1) cannot be started: {error}");
                return None;
            }
        };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = outer.try_wait().expect("it is our child") {
                println!("skipped: user and PID namespaces are forbidden here: {status}");
                return None;
            }
            let children = children(outer.id());
            let is_ready = |init: &u32| name(*init) == "sleep";
            if let Some(&init) = children.first().filter(|init| is_ready(init)) {
                return Some(Self { outer, init });
            }
            thread::sleep(Duration::from_millis(2));
        }
        let _ = outer.kill();
        panic!("a namespace takes too long to begin");
    }

    /// Whether it has terminals of its own; that it has none is said.
    pub fn has_terminals(&self) -> bool {
        let entries = fs::read_dir(format!("/proc/{}/root/dev/pts", self.init));
        let is_new = entries.is_ok_and(|entries| entries.count() == 1);
        let device = |path: &str| fs::metadata(path).map(|metadata| metadata.dev());
        let other = device(&format!("/proc/{}/root/dev/pts", self.init));
        let has_own = is_new && other.ok() != device("/dev/pts").ok();
        if !has_own {
            println!("skipped: devpts cannot be mounted here");
        }
        has_own
    }

    /// The processes beside the first that are its children, by our numbers.
    pub fn processes(&self) -> Vec<u32> {
        children(self.init)
    }
}

/// A command in the network and the user namespace of a process.
pub fn entering(holder: u32, command: &[&str]) -> Command {
    let mut enter = Command::new("nsenter");
    enter.args([format!("--user=/proc/{holder}/ns/user"), format!("--net=/proc/{holder}/ns/net")]);
    enter.args(["--preserve-credentials", "--"]).args(command);
    enter
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

pub fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Wait until a file has so many lines; the last.
pub fn wait_for_lines(path: &Path, count: usize) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        if lines.len() >= count && text.ends_with('\n') {
            return lines[count - 1].to_owned();
        }
        assert!(Instant::now() < deadline, "line {count} does not come; there is {text:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("numbers are positive");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// Write frozen processes to an image, and read it again.
pub fn image(frozen: &mut Frozen) -> Image {
    image_with(frozen, |_| {})
}

/// The same with something changed.
pub fn image_with(frozen: &mut Frozen, change: impl FnOnce(&mut State)) -> Image {
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    let file = fs::File::from(file.expect("there is memory"));
    let mut writer = Writer::new(file, Compression::Fast);
    let state = frozen.dump(&mut writer, &Slots::new());
    let mut state = state.unwrap_or_else(|error| panic!("{error}"));
    change(&mut state);
    let file = writer.finish(state).expect("there is memory");
    let there = Image::open_by(crate::reader::reader(), &file, &mut ());
    let here = Image::open(file).unwrap_or_else(|error| panic!("{error}"));
    let there = there.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(here.state(), there.state(), "who reads it says the same");
    there
}

/// The pages of an image, as their digests, without what the kernel writes there about processors (rseq(2)).
pub fn pages(image: &Image) -> Vec<(Owner, u64, blake3::Hash)> {
    let threads = |process: &checkpoint::state::Process| {
        let owner = Owner::Process(process.pid);
        process.threads.iter().map(move |thread| (owner, thread.sequences.0)).collect::<Vec<_>>()
    };
    let sequences: Vec<_> = image.state().processes.iter().flat_map(threads).collect();
    let mut pages = Vec::new();
    for run in image.pages() {
        let (run, mut bytes) = run.unwrap_or_else(|error| panic!("{error}"));
        for (owner, address) in &sequences {
            let offset = address.wrapping_sub(run.address) as usize;
            if *owner == run.owner && offset < bytes.len() {
                bytes[offset..offset + 32].fill(0);
            }
        }
        for (index, page) in bytes.chunks(4096).enumerate() {
            pages.push((run.owner, run.address + index as u64 * 4096, blake3::hash(page)));
        }
    }
    pages
}

/// A program that says "ready" to a file, and "ok" each time that it gets SIGUSR1.
pub struct Subject {
    pub namespace: Namespace,
    pub output: PathBuf,
    pub lines: usize,
    /// By our number.
    pub pid: u32,
    network: Network,
}

impl Subject {
    pub fn start(directory: &Directory, program: &Path) -> Option<Self> {
        Self::start_in(Network::Ours, directory, program)
    }

    pub fn start_in(network: Network, directory: &Directory, program: &Path) -> Option<Self> {
        let (output, place) = (directory.path("output"), directory.path("place"));
        let texts = [program, &output, &place].map(|path| path.to_str().expect("it is UTF-8"));
        let namespace = Namespace::make(&texts, network)?;
        assert_eq!(wait_for_lines(&output, 1), "ready");
        let pid = *namespace.processes().first().expect("it says that it is ready");
        Some(Self { namespace, output, lines: 1, pid, network })
    }

    /// Have it check itself.
    pub fn check(&mut self) {
        kill(self.pid, rustix::process::Signal::USR1);
        self.lines += 1;
        assert_eq!(wait_for_lines(&self.output, self.lines), "ok");
    }

    pub fn freeze(&self) -> Frozen {
        freeze(self.pid).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until it sleeps in a call: on its way there from its last word it is where no other dump has it. One that
    /// computes does not sleep, and is left to it.
    fn wait_until_it_rests(&self) {
        let deadline = Instant::now() + REST_PATIENCE;
        let sleeps = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("it is there");
            stat.contains(") S ")
        };
        while !sleeps() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Have it check itself after dumps, after each of which it goes on.
    pub fn check_dumps(&mut self, count: usize) {
        for _ in 0..count {
            let mut frozen = self.freeze();
            image(&mut frozen);
            frozen.thaw();
            self.check();
        }
    }

    /// Move it to a new namespace; the image that was made.
    pub fn transplant(&mut self) -> Image {
        self.transplant_with(|_| {})
    }

    /// The same with an image in which something is changed.
    pub fn transplant_with(&mut self, change: impl FnOnce(&mut State)) -> Image {
        let mut frozen = self.freeze();
        let image = image_with(&mut frozen, change);
        frozen.kill();
        self.namespace = Namespace::make(&[], self.network).expect("the first one could be made");
        let restarted = restart(self.namespace.init, &image, &Given::new());
        let restarted = restarted.unwrap_or_else(|error| panic!("{error}"));
        let own = image.state().processes[0].pid;
        self.pid = restarted.numbers()[&own];
        restarted.go().unwrap_or_else(|error| panic!("{error}"));
        let _ = std::io::stdout().flush();
        image
    }

    /// Move it to a new namespace, and compare what is dumped there with what was dumped before; both.
    pub fn check_transplant(&mut self) -> [Image; 2] {
        self.wait_until_it_rests();
        let before = self.transplant();
        let after = image(&mut self.freeze());
        check_same(&before, &after);
        [before, after]
    }
}

/// Compare two dumps of the same processes, but for what time changes: what remains of timers, and the flags and
/// registers of a task that ran a moment in between.
fn check_same(before: &Image, after: &Image) {
    let [before_state, after_state] = [before, after].map(|image| {
        let mut state = image.state().clone();
        for process in &mut state.processes {
            process.intervals.iter_mut().for_each(|interval| interval[1] = 0);
            process.timers.iter_mut().for_each(|timer| timer.nanoseconds[1] = 0);
            for thread in &mut process.threads {
                // It may be in a call that is to be repeated, or about to make it.
                if (-514..=-512).contains(&thread.registers[10].cast_signed()) {
                    thread.registers[10] = thread.registers[15];
                }
                // A loop that waits is a few instructions: where in it the task is may differ.
                for (index, register) in thread.registers.iter_mut().enumerate() {
                    if [15, 16, 18].contains(&index) {
                        *register = 0;
                    }
                }
            }
        }
        deliver(&mut state);
        for description in &mut state.descriptions {
            if let OpenFile::Timer { nanoseconds, .. } = &mut description.file {
                nanoseconds[1] = 0;
            }
        }
        state
    });
    for (one, other) in before_state.processes.iter().zip(&after_state.processes) {
        assert_eq!(one.memory, other.memory);
        for (one, other) in one.threads.iter().zip(&other.threads) {
            assert_eq!(one, other);
        }
        assert_eq!(one, other);
    }
    assert_eq!(before_state.descriptions, after_state.descriptions);
    assert_eq!(before_state.named_pipes, after_state.named_pipes);
    assert_eq!(before_state.locks, after_state.locks);
    assert_eq!(before_state.ipc, after_state.ipc);
    assert_eq!(before_state.terminals, after_state.terminals);
    for (one, other) in before_state.sockets.iter().zip(&after_state.sockets) {
        assert_eq!(one.protocol, other.protocol);
        assert_eq!(one, other);
    }
    assert_eq!(before_state, after_state);
    let (one, other) = (pages(before), pages(after));
    for page in &one {
        assert!(other.contains(page), "page {:#x} of {:?} differs", page.1, page.0);
    }
    assert_eq!(one, other);
}

/// Forget what is about a connection in a network that goes on: the clock, windows, and whether what was written has
/// arrived, if the other end is there too.
fn deliver(state: &mut State) {
    let mut connections: Vec<(Option<SocketAddr>, &mut Connection)> = Vec::new();
    for socket in &mut state.sockets {
        if let Protocol::Inet(inet) = &mut socket.protocol
            && let InetRole::Connected(connection) = &mut inet.role
        {
            connection.timestamp = connection.timestamp.map(|_| 0);
            connection.window = [0; 5];
            connections.push((inet.name, &mut **connection));
        }
    }
    for from in 0..connections.len() {
        let (name, peer) = (connections[from].0, connections[from].1.peer);
        let is_other = |(other, connection): &(Option<SocketAddr>, &mut Connection)| {
            *other == Some(peer) && Some(connection.peer) == name
        };
        let Some(to) = connections.iter().position(is_other) else { continue };
        let written = std::mem::take(&mut connections[from].1.written);
        connections[from].1.unsent = 0;
        let next = connections[from].1.write_next;
        let receiver = &mut connections[to].1;
        let missing = next.wrapping_sub(receiver.receive_next) as usize;
        receiver.received.0.extend(&written[written.len() - missing..]);
        receiver.receive_next = next;
    }
}

/// Who wants no pages.
pub struct NoPages;

impl checkpoint::Pages for NoPages {
    fn put(&mut self, _: Owner, _: u64, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn forget(&mut self, _: Owner, _: std::ops::Range<u64>) -> std::io::Result<()> {
        Ok(())
    }

    fn inherit(&mut self, _: Owner, _: std::ops::Range<u64>) {}
}
