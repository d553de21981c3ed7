//! gdb debugs the guests of whole machines: its kernel and its programs, translated and run directly, on two
//! processors, and with the guest's own debuggers beside it.
//!
//! Without gdb or a C compiler, each test says so and does nothing.

#![forbid(unsafe_code)]

mod kernel;
mod programs;
mod sessions;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use whole_machine::waiting::wait_for;
use whole_machine::{biv, text};

/// How user code may be executed, each of which has its way to stop at breakpoints.
pub(crate) const EXECUTIONS: [&str; 3] = ["translate", "direct", "auto"];

/// How long gdb may take, which waits for the guest.
const GDB_SECONDS: &str = "300";

/// Whether there is what these tests need.
pub(crate) fn is_possible() -> bool {
    let has = |name: &str| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    let is_there = has("gdb") && has("cc");
    if !is_there {
        println!("left out: there is no gdb, or no C compiler");
    }
    is_there
}

/// A directory that is removed with what is in it.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("biv-debugger-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("there is room");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("it is UTF-8").to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The guest's program, in a directory of its own for as long as the tests run.
pub(crate) fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = std::env::temp_dir().join("biv-debugger-program");
        fs::create_dir_all(&directory).expect("there is room");
        let to = directory.join(format!("{}", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/debugger/program.c");
        let options =
            ["-O1", "-g", "-static", "-no-pie", "-fno-pie", "-mavx", "-mno-red-zone", "-o"];
        let compiled = Command::new("cc").args(options).arg(&to).arg(source).status();
        assert!(compiled.expect("there is a compiler").success());
        to.to_str().expect("it is UTF-8").to_owned()
    })
}

/// A machine that gdb can connect to.
pub(crate) struct Machine {
    place: Place,
    child: Child,
}

impl Machine {
    /// On two processors, with these options and this command; the program is at `/t/program`.
    pub(crate) fn start(options: &[&str], command: &[&str]) -> Self {
        let place = Place::new();
        fs::copy(program(), place.path("program")).expect("there is room");
        let (gdb, volume) =
            (format!("unix:{}", place.path("gdb")), format!("{}:/t", place.0.display()));
        let own = ["run", "--busybox", "--cpus", "2", "--volume", &volume, "--gdb", &gdb];
        let output = File::create(place.path("output")).expect("there is room");
        let errors = output.try_clone().expect("a descriptor");
        let mut biv = biv(&[&own[..], options, &["--"], command].concat());
        let child = biv.stdout(output).stderr(errors).spawn().expect("`timeout` can be started");
        let socket = place.0.join("gdb");
        wait_for("gdb's socket", || socket.exists());
        Self { place, child }
    }

    /// What it has said.
    pub(crate) fn said(&self) -> String {
        text(&fs::read(self.place.path("output")).expect("it is there"))
    }

    pub(crate) fn wait_for(&self, words: &str) {
        wait_for(words, || self.said().contains(words));
    }

    /// gdb, which runs these commands when it has connected.
    pub(crate) fn gdb(&self, commands: &[&str]) -> Command {
        let script = self.place.path("script");
        let target = format!("target remote {}", self.place.path("gdb"));
        let file = format!("file {}", self.place.path("program"));
        let tell = format!("shell touch {}", self.place.path("attached"));
        let before = ["set pagination off", "set confirm off", &file, &target, &tell];
        let lines = [&before[..], commands].concat().join("\n");
        fs::write(&script, lines).expect("there is room");
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-x", &script]).stdin(Stdio::null());
        gdb
    }

    /// What gdb says of these commands.
    #[track_caller]
    pub(crate) fn debug(&self, commands: &[&str]) -> String {
        let gdb = self.gdb(commands);
        let mut in_time = Command::new("timeout");
        in_time.arg(GDB_SECONDS).arg(gdb.get_program()).args(gdb.get_args());
        // Both in their order.
        let output = File::create(self.place.path("session")).expect("there is room");
        let errors = output.try_clone().expect("a descriptor");
        let status = in_time.stdin(Stdio::null()).stdout(output).stderr(errors).status();
        let said = text(&fs::read(self.place.path("session")).expect("it is there"));
        assert!(status.expect("there is gdb").success(), "{said}\n{}", self.said());
        said
    }

    /// The command ends with success, and all that it has said.
    #[track_caller]
    pub(crate) fn end(mut self) -> String {
        let status = self.child.wait().expect("it was started");
        let said = self.said();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// These words are in the text, in this order.
#[track_caller]
pub(crate) fn check(said: &str, words: &[&str]) {
    let mut rest = said;
    for word in words {
        let Some((_, after)) = rest.split_once(word) else { panic!("no {word:?} in {said}") };
        rest = after;
    }
}
