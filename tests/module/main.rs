//! A Linux kernel module that means harm (`source/`): it scribbles over every address of the kernel's
//! half, over page tables, registers and ports, over what the process around its machine has, and jumps
//! anywhere. The machine may go on, or end with a status that says how; the process, of which it may
//! become the owner, may die; the host must not notice: no process, file or socket is left behind, and
//! a file and a process that have nothing to do with it are as they were.
//!
//! The module is built with the kernel's headers, which apt gets (25 MB with the kernel); if that or the
//! build is impossible, the test says so and is left out. In the environment, `BIVOUAC_MODULE_SEEDS=N`
//! makes each attack with N seeds instead of one, and `BIVOUAC_MODULE_ROUNDS=N` has each so many rounds.

#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use provision::{Guest, Part};
use whole_machine::census::Census;
use whole_machine::endings::is_an_end_of_the_guests;
use whole_machine::modes::{Mode, UserExecution};
use whole_machine::processes::{adopt_orphans, descendants, survivors, unconfined};
use whole_machine::{bivouac, kernels, text};

/// Attacks that a machine survives: all of them are made in one.
const SURVIVED: [&str; 12] = [
    "holes",
    "probes",
    "wrap",
    "addresses",
    "direct_map",
    "entries",
    "aliases",
    "roots",
    "bases",
    "registers",
    "frames",
    "rewriting",
];

/// Attacks that may take the machine with them, and how many rounds they have.
const LETHAL: [(&str, u64); 7] = [
    ("ports", 10_000),
    ("oopses", 30),
    ("jumps", 1000),
    ("registers", 2000),
    ("roots", 2000),
    ("direct_map", 2000),
    ("everything", 1000),
];

/// Attacks on the process itself, after which anything may have become of it.
const PROCESS: [(&str, u64); 2] = [("process", 40_000), ("wrap", 2000)];

/// Attacks that jump anywhere in the kernel, also to where the module says what it has reached: of them
/// only what the host sees is evidence.
const WILD: [&str; 2] = ["jumps", "everything"];

/// Rounds of each attack that is survived.
const ROUNDS: u64 = 1000;

/// After which `--timeout` ends a machine that stands still, and that which should not.
const LETHAL_SECONDS: u64 = 4;
const MACHINE_SECONDS: u64 = 90;

/// How long `biv` may take for that on a busy host, before it hangs.
const PATIENCE_SECONDS: u64 = 120;

/// What is there to be harmed.
const CANARY: &str = "I have nothing to do with it.\n";

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// A directory of this test's, with the guest's files, the canary, and what `biv` is told to use.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let place = env::temp_dir().join(format!("whole-machine-module-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        for below in ["root/bin", "source", "cache", "temporary", "runtime"] {
            fs::create_dir_all(place.join(below)).expect("the temporary directory can be written");
        }
        fs::write(place.join("canary"), CANARY).expect("the temporary directory can be written");
        Place(place)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What somebody has left in it.
    fn left(&self) -> Vec<String> {
        let find = Command::new("find")
            .args([self.at("temporary"), self.at("runtime")])
            .args(["-mindepth", "1"])
            .output();
        let found = text(&find.expect("`find` can be started").stdout);
        found.lines().map(str::to_owned).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Build the module into the guest's root; returns the kernel that it is for.
fn build_module(place: &Place) -> Result<PathBuf, String> {
    let kernel = kernels::debian_with_headers("bookworm", "linux-image-cloud-amd64")?;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = vec![tests.join("../guest/privileged/harness/odd.h")];
    for entry in fs::read_dir(tests.join("module/source")).map_err(|error| error.to_string())? {
        sources.push(entry.map_err(|error| error.to_string())?.path());
    }
    for source in sources {
        let name = source.file_name().unwrap_or_default();
        fs::copy(&source, place.at("source").join(name)).map_err(|error| error.to_string())?;
    }
    let make = Command::new("make")
        .arg("-C")
        .arg(kernel.join("headers"))
        .arg(format!("M={}", place.at("source").display()))
        .arg("modules")
        .env_remove("MAKEFLAGS")
        .output()
        .map_err(|error| format!("make: {error}"))?;
    let module = place.at("source").join("hostile.ko");
    if !make.status.success() || !module.exists() {
        return Err(format!("it does not build:\n{}{}", text(&make.stdout), text(&make.stderr)));
    }
    fs::copy(module, place.at("root/hostile.ko")).map_err(|error| error.to_string())?;
    Ok(kernel.join("vmlinuz"))
}

/// A process that answers.
struct Canary(Child);

impl Canary {
    fn new() -> Canary {
        let cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Canary(cat.expect("`cat` can be started"))
    }

    fn sings(&mut self) -> bool {
        let written = self.0.stdin.as_mut().map(|input| input.write_all(CANARY.as_bytes()));
        let mut line = String::new();
        let read = self.0.stdout.as_mut().map(|output| BufReader::new(output).read_line(&mut line));
        matches!((written, read), (Some(Ok(())), Some(Ok(_)))) && line == CANARY
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an attack needs, and what it is compared with.
struct Scene {
    place: Place,
    kernel: PathBuf,
    canary: Canary,
    before: Vec<u32>,
    shared: Census,
}

impl Scene {
    /// Run a shell script in a machine with the module.
    fn run(&self, mode: Mode, seconds: u64, script: &str) -> (Output, String) {
        let console = self.place.at("console");
        let _ = fs::remove_file(&console);
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &PATIENCE_SECONDS.to_string()]).arg(bivouac()).arg("run");
        command.arg("--kernel").arg(&self.kernel).arg("--root").arg(self.place.at("root"));
        command.args(["--mem", "256M", "--no-reboot", "--timeout", &seconds.to_string()]);
        command.arg("--console").arg(&console).args(mode.options());
        command.args(["--", "/bin/busybox", "sh", "-c", script]);
        command.env("XDG_CACHE_HOME", self.place.at("cache"));
        command.env("TMPDIR", self.place.at("temporary"));
        command.env("XDG_RUNTIME_DIR", self.place.at("runtime"));
        let output = command.stdin(Stdio::null()).output().expect("`timeout` can be started");
        (output, text(&fs::read(&console).unwrap_or_default()))
    }

    /// That the host has not noticed.
    fn check_host(&mut self, what: &str) {
        let mut left = survivors(&descendants(), Duration::from_secs(0));
        if left != self.before {
            left.retain(|process| !self.before.contains(process));
            left = survivors(&left, Duration::from_secs(5));
            assert!(left.is_empty(), "{what} leaves processes behind: {left:?}");
        }
        assert_eq!(self.place.left(), Vec::<String>::new(), "{what} leaves files behind");
        let now = Census::take();
        assert_eq!(now.shared, self.shared.shared, "{what} leaves shared memory behind");
        assert_eq!(now.descriptors, self.shared.descriptors, "{what} has been at this process");
        let canary = fs::read_to_string(self.place.at("canary")).unwrap_or_default();
        assert_eq!(canary, CANARY, "{what} has changed a file");
        assert!(self.canary.sings(), "{what} has ended another process");
        assert!(!unconfined(&[std::process::id()]).is_empty(), "{what} has confined this process");
    }

    /// Attacks that come to their end, all of them in one machine.
    fn check_survived(&mut self, mode: Mode, seed: u64, rounds: u64) {
        let script = format!(
            "for attack in {}; do
                /bin/busybox insmod /hostile.ko attack=$attack seed={seed} rounds={rounds} &&
                /bin/busybox rmmod hostile || exit
             done 2>&1; echo through",
            SURVIVED.join(" ")
        );
        let (output, console) = self.run(mode, MACHINE_SECONDS, &script);
        let what = format!("seed {seed}, {mode:?}: {}", output.status);
        let complaint = text(&output.stderr);
        let said = format!("{what}\n{}{complaint}\n{console}", text(&output.stdout));
        assert!(is_an_end_of_the_guests(output.status.code(), &complaint), "{said}");
        assert!(!console.contains("REACHED"), "{said}");
        let survived = |attack: &str| console.contains(&format!("rounds of {attack},"));
        let count = SURVIVED.iter().filter(|attack| survived(attack)).count();
        println!("{what}, survived {count} of {} attacks", SURVIVED.len());
        assert!(console.contains("hostile: begin holes"), "{said}");
        self.check_host(&what);
    }

    /// An attack that nobody needs to survive; whether its machine has ended as it should.
    fn check_lethal(&mut self, mode: Mode, (attack, rounds): (&str, u64), seed: u64) -> bool {
        let script = format!(
            "/bin/busybox insmod /hostile.ko attack={attack} seed={seed} rounds={rounds} lethal=1 \
             2>&1"
        );
        let begins = |(_, console): &(Output, String)| console.contains("hostile: begin");
        // On a busy host, that may not be enough to boot.
        let seconds = [LETHAL_SECONDS, MACHINE_SECONDS];
        let mut runs = seconds.into_iter().map(|seconds| self.run(mode, seconds, &script));
        let (output, console) = runs.find(begins).expect("the machine boots, and has the module");
        let what = format!("{attack}, seed {seed}, {mode:?}: {}", output.status);
        let complaint = text(&output.stderr);
        println!("{what} {}", complaint.trim_end());
        let reached = console.contains("REACHED") && !WILD.contains(&attack);
        assert!(!reached, "{what}\n{complaint}\n{console}");
        self.check_host(&what);
        is_an_end_of_the_guests(output.status.code(), &complaint)
    }
}

#[test]
fn a_hostile_module_harms_nothing_but_its_machine() {
    bivouac();
    adopt_orphans();
    let guest = Guest::provide(&[Part::Busybox]).expect("the default guest");
    let place = Place::new();
    let busybox = guest.busybox().expect("its busybox").program;
    fs::copy(busybox, place.at("root/bin/busybox")).expect("it can be copied");
    let kernel = match build_module(&place) {
        Ok(kernel) => kernel,
        Err(reason) => {
            println!("left out: there is no module: {reason}");
            return;
        }
    };
    let canary = Canary::new();
    let (before, shared) = (descendants(), Census::take());
    let mut scene = Scene { place, kernel, canary, before, shared };
    let rounds = number("BIVOUAC_MODULE_ROUNDS", ROUNDS);
    let auto = Mode { execution: UserExecution::Auto, processors: 1 };
    for seed in 1..=number("BIVOUAC_MODULE_SEEDS", 1) {
        for processors in [1, 4] {
            scene.check_survived(Mode { processors, ..auto }, seed, rounds);
        }
        for (number, attack) in LETHAL.into_iter().enumerate() {
            let mode = Mode::ALL[(number + seed as usize) % Mode::ALL.len()];
            assert!(scene.check_lethal(mode, attack, seed), "{attack:?}, {mode:?}");
        }
        // What the process has become says what it likes.
        for attack in PROCESS {
            scene.check_lethal(auto, attack, seed);
        }
    }
}
