//! Every example of the documents is typed as it stands there, by whoever runs the tests and, if that is root, by
//! an ordinary user as well.
//!
//! A block of shell commands in a document is an example. Its entry in [`examples`] says what must be there before
//! (files, an image, a domain), and what its lines do that is not simply to end with status 0: lines that a reader
//! ends by a key, lines with another status, lines that no test can run, with the reason. A block without an entry
//! fails the test, so that nobody adds an example that is not tried.
//!
//! The lines are typed at an interactive shell on a pseudo-terminal, one after the other, each when the prompt is
//! back. Each block has a home directory, a runtime directory and a working directory of its own; a reader's blocks
//! share the cache, as a reader's commands do.
//!
//! All readers type at the same time. Where an example uses what there is once on a host, a port or a place that it
//! names, one types after the other.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use locks::Unpoisoned;
use whole_machine::bivouac;
use whole_machine::pseudo_terminal::AtTerminal;

mod examples;

use examples::{EXAMPLES, Example, Line};

/// Those whose examples a reader is to try.
const DOCUMENTS: [&str; 10] = [
    "README.md",
    "docs/guide.md",
    "docs/domains.md",
    "docs/serve.md",
    "docs/pods.md",
    "docs/snapshots.md",
    "docs/spec.md",
    "docs/debugging.md",
    "docs/measuring.md",
    "docs/xen.md",
];

/// How long a line may take on a busy host, downloads included.
const LINE_PATIENCE: Duration = Duration::from_secs(600);

/// How long a program is left alone before a key is pressed, and between two of them.
const KEY_INTERVAL: Duration = Duration::from_secs(4);

/// What the prompt has before and behind the status of the last command.
const PROMPT: (&str, &str) = ("<status ", "> ");

/// The shell that readers type at; a program that can be interrupted takes a terminal of its own session, and
/// signals that whoever runs the tests does not ignore.
const SHELL: [&str; 10] = [
    "env",
    "--default-signal",
    "setsid",
    "--wait",
    "--ctty",
    "bash",
    "--noprofile",
    "--norc",
    "--noediting",
    "-i",
];

/// What an example names that there is once on a host: ports, places outside of a reader's home, the project.
const SHARED: [&str; 6] = ["publish", "-p ", "127.0.0.1", "10.0.2.2", "/tmp/", "cargo"];

/// Who has what there is once on a host.
static ALONE: Mutex<()> = Mutex::new(());

/// The ordinary user: `nobody`, who has no rights and no home.
const ORDINARY: &str = "65534";

/// A block of commands in a document.
struct Block {
    document: &'static str,
    /// The line of the document at which it begins, counted from 1.
    line: usize,
    commands: Vec<String>,
}

/// Who reads the document and types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// Whoever runs the tests.
    Caller,
    /// An ordinary user.
    Ordinary,
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the project").to_owned()
}

/// The blocks of a document that are marked as shell.
fn blocks(document: &'static str) -> Vec<Block> {
    let text = fs::read_to_string(project().join(document)).expect("the document is there");
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (number, line) in text.lines().enumerate() {
        match line {
            "```sh" => {
                is_inside = true;
                blocks.push(Block { document, line: number + 2, commands: Vec::new() });
            }
            "```" => is_inside = false,
            _ if is_inside => blocks.last_mut().expect("it has begun").add(line),
            _ => {}
        }
    }
    blocks
}

impl Block {
    /// One more line, which may go on the one before.
    fn add(&mut self, line: &str) {
        match self.commands.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push_str(line.trim_start());
            }
            _ if line.trim().is_empty() => {}
            _ => self.commands.push(line.to_owned()),
        }
    }

    fn example(&self) -> Option<&'static Example> {
        let first = self.commands.first()?;
        EXAMPLES.iter().find(|it| it.document == self.document && first.starts_with(it.begins))
    }

    /// It uses what there is once on a host.
    fn is_exclusive(&self, example: &Example) -> bool {
        let mut lines = self.commands.iter().map(String::as_str).chain([example.surroundings]);
        example.is_in_project || lines.any(|line| SHARED.iter().any(|word| line.contains(word)))
    }

    fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }
}

impl Drop for Desk {
    /// The reader's domains end, also those of an example that has failed.
    fn drop(&mut self) {
        let domains = "for domain in \"$XDG_RUNTIME_DIR\"/bivouac/*/; do biv rm \
                       -f \"$(basename \"$domain\")\"; done";
        let _ = self.command(&self.home, &["sh", "-c", domains]).output();
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// What all of this test's files are below; the one test of a process removes it.
fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("biv-documents-{}", std::process::id()))
}

/// Make everything below `directory` the ordinary user's.
fn give_away(directory: &Path) {
    let given = Command::new("chown").args(["-R", ORDINARY]).arg(directory).status();
    assert!(given.expect("chown can be started").success());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn readers() -> Vec<Reader> {
    if is_root() { vec![Reader::Caller, Reader::Ordinary] } else { vec![Reader::Caller] }
}

/// A reader's home, and what else belongs to one block.
struct Desk {
    reader: Reader,
    /// Everything below belongs to the reader.
    home: PathBuf,
}

impl Desk {
    /// An empty one, with `biv` in its search path.
    fn new(reader: Reader, block: &Block) -> Desk {
        let name = block.place().replace(['/', ':', '.'], "-");
        let home = scratch().join(format!("{name}-{reader:?}"));
        for below in ["bin", "project", "run", "tmp"] {
            fs::create_dir_all(home.join(below)).expect("there is a place for temporary files");
        }
        fs::copy(bivouac(), home.join("bin/biv")).expect("biv has been built");
        let desk = Desk { reader, home };
        desk.provide_cache();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(desk.home.join("run"), private).expect("it is there");
        if reader == Reader::Ordinary {
            give_away(&desk.home);
        }
        desk
    }

    /// The cache of all blocks of a reader, in which the default guest is already.
    fn provide_cache(&self) {
        let cache = self.cache_home().join("bivouac");
        if cache.exists() {
            return;
        }
        let fetched = Command::new(bivouac()).args(["run", "--cold", "--", "true"]).status();
        assert!(fetched.expect("biv can be started").success(), "there is no default guest");
        fs::create_dir_all(&cache).expect("there is a place for temporary files");
        let own = provision::cache_directory().expect("there is a cache");
        for part in ["kernel", "busybox"].map(|part| own.join(part)).iter().filter(|it| it.exists())
        {
            let copied = Command::new("cp").arg("-r").args([part, &cache]).status();
            assert!(copied.expect("cp can be started").success());
        }
        if self.reader == Reader::Ordinary {
            give_away(&self.cache_home());
        }
    }

    fn cache_home(&self) -> PathBuf {
        scratch().join(format!("cache-{:?}", self.reader))
    }

    /// A program run by the reader at this desk.
    fn command(&self, directory: &Path, program: &[&str]) -> Command {
        let mut words = match self.reader {
            Reader::Caller => vec![],
            Reader::Ordinary => {
                vec!["setpriv", "--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups"]
            }
        };
        words.extend(program);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/sbin:/sbin:{path}", self.home.join("bin").display()))
            .env("HOME", &self.home)
            .env("PROJECT", project())
            .env("TMPDIR", self.home.join("tmp"))
            .env("XDG_RUNTIME_DIR", self.home.join("run"))
            .env("XDG_CACHE_HOME", self.cache_home())
            .env("TERM", "dumb")
            .env("LANG", "C.UTF-8")
            .current_dir(directory);
        for kept in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        command
    }
}

/// A reader's shell.
struct Shell {
    terminal: AtTerminal,
    /// How much of what the terminal has shown has been looked at.
    seen: usize,
}

impl Shell {
    fn start(desk: &Desk, directory: &Path) -> Shell {
        let (before, behind) = PROMPT;
        let mut command = desk.command(directory, &SHELL);
        command.env("PS1", format!("{before}$?{behind}")).env_remove("HISTFILE");
        let mut shell = Shell { terminal: AtTerminal::start(&mut command), seen: 0 };
        shell.until_prompt("the first prompt", None);
        shell
    }

    /// What has come since the last prompt, and the status that the next one shows; `key` is pressed until then.
    fn until_prompt(&mut self, line: &str, key: Option<&str>) -> (i32, String) {
        let start = Instant::now();
        let mut pressed = Instant::now();
        loop {
            let shown = self.terminal.shown();
            if let Some((said, status)) = at_prompt(shown.get(self.seen..).unwrap_or_default()) {
                self.seen = shown.len();
                return (status, said);
            }
            assert!(start.elapsed() < LINE_PATIENCE, "{line:?} does not end: {shown}");
            if let Some(key) = key.filter(|_| pressed.elapsed() > KEY_INTERVAL) {
                self.terminal.press(key);
                pressed = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types a line; its status and what was shown.
    fn run(&mut self, line: &str, key: Option<&str>) -> (i32, String) {
        // Keys that came when the program before had ended are no part of this line, nor is what they show.
        std::thread::sleep(Duration::from_millis(100));
        self.terminal.press("\x15");
        self.seen = self.terminal.shown().len();
        self.terminal.press(line);
        self.terminal.press("\r");
        self.until_prompt(line, key)
    }
}

/// What was said before the first prompt in this text, and the status in the prompt. Who runs in the background
/// may have said something after it.
fn at_prompt(shown: &str) -> Option<(String, i32)> {
    let (said, rest) = shown.split_once(PROMPT.0)?;
    let (status, _) = rest.split_once(PROMPT.1)?;
    Some((said.to_owned(), status.parse().ok()?))
}

/// Whether all these programs are installed; says so if not.
fn has_programs(block: &Block, example: &Example) -> bool {
    let has = |name: &&&str| {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        path.split(':').any(|directory| Path::new(directory).join(name).exists())
    };
    let missing: Vec<_> = example.needs.iter().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        println!("{} left out: {missing:?} are not installed", block.place());
    }
    missing.is_empty()
}

/// Types a block as one reader.
fn type_block(block: &Block, example: &Example, reader: Reader) {
    let _alone = block.is_exclusive(example).then(|| ALONE.lock().unpoisoned());
    let desk = Desk::new(reader, block);
    let directory = if example.is_in_project { project() } else { desk.home.join("project") };
    if !example.surroundings.is_empty() {
        let script = format!("set -e\n{}", example.surroundings);
        let output =
            desk.command(&directory, &["sh", "-c", &script]).output().expect("sh can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "surroundings of {}: {said}", block.place());
    }
    let mut shell = Shell::start(&desk, &directory);
    for command in &block.commands {
        let line = example.lines.iter().find(|(words, _)| command.contains(words));
        let place = format!("{} as {reader:?}: {command}", block.place());
        let key = match line {
            Some((_, Line::LeftOut(reason))) => {
                println!("{place}\n    left out: {reason}");
                continue;
            }
            Some((_, Line::CallersOnly(reason))) if reader == Reader::Ordinary => {
                println!("{place}\n    left out for an ordinary user: {reason}");
                continue;
            }
            Some((_, Line::Ended(key))) => Some(*key),
            _ => None,
        };
        let start = Instant::now();
        let (status, said) = shell.run(command, key);
        println!("{place}\n    status {status} in {:.1} s", start.elapsed().as_secs_f64());
        match line {
            Some((_, Line::Status(expected))) => assert_eq!(status, *expected, "{place}\n{said}"),
            Some((_, Line::Shows(words))) => {
                assert!(status == 0 && said.contains(words), "{place}\n{status}: {said}");
            }
            Some((_, Line::Ended(_))) => {}
            _ => assert_eq!(status, 0, "{place}\n{said}"),
        }
    }
    shell.run("kill $(jobs -p); wait", None);
}

/// All blocks of a document, as this reader.
fn check(document: &'static str, reader: Reader) {
    for block in blocks(document) {
        let example = block.example().unwrap_or_else(|| {
            panic!("{} is not in tests/documents/examples.rs: {:?}", block.place(), block.commands)
        });
        if has_programs(&block, example) {
            type_block(&block, example, reader);
        }
    }
}

/// `BIVOUAC_DOCUMENT` chooses one document.
#[test]
fn every_example_of_the_documents_does_what_it_says() {
    let chosen: Vec<_> = std::env::var("BIVOUAC_DOCUMENT").into_iter().collect();
    let is_wanted = |document: &&str| chosen.iter().all(|it| it == document);
    std::thread::scope(|scope| {
        for reader in readers() {
            let documents = DOCUMENTS.into_iter().filter(is_wanted);
            scope.spawn(move || documents.for_each(|document| check(document, reader)));
        }
    });
    let _ = fs::remove_dir_all(scratch());
}
