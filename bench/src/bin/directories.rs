//! Directories of the host's, through virtio-fs: what is done with a tree of sources in a guest, against
//! the same on the host, interleaved; and how long `biv run -- true` takes.
//!
//! ```text
//! cargo run --release -p bench --bin directories -- [--rounds N] [--tree DIR]
//! ```
//!
//! DIR, whose files are packed at first, is /usr/include if none is named. tar and git have to be
//! installed on the host, whose programs the guest sees. It works below the current directory.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use bench::{Spread, run};

/// What is timed, in microseconds, by the clock of who does it.
const CLOCK: &str = r#"
now() { date +%s%N; }
took() { echo "$1 $(( ($3 - $2) / 1000 ))"; }
"#;

/// What is done in a new directory.
const WORK: &str = r#"
mkdir $tree
a=$(now); tar xf tree.tar -C $tree; b=$(now); took unpack $a $b
cd $tree; git init -q . 2>/dev/null
git -c user.name=a -c user.email=a@b add -A >/dev/null 2>&1
a=$(now); git status >/dev/null; b=$(now); took status $a $b
a=$(now); find . -name '*.h' -newer /etc/hostname | wc -l >/dev/null; b=$(now); took find $a $b
a=$(now); tar cf - --exclude=.git . | wc -c >/dev/null; b=$(now); took pack $a $b
a=$(now); i=0; while [ $i -lt 2000 ]; do [ -e nothing$i ]; i=$((i+1)); done; b=$(now)
took absent $a $b
"#;

/// What is done at last, of all rounds: ext4 takes its time to make files where many were removed within the last
/// minutes (`recently_deleted` of Linux, fs/ext4/ialloc.c), whoever comes then.
const REMOVE: &str = r#"
a=$(now); rm -rf $tree; b=$(now); took remove $a $b
"#;

/// The work's parts, and what they are.
const PARTS: [(&str, &str); 5] = [
    ("unpack", "`tar x` of the tree"),
    ("status", "`git status` in it"),
    ("find", "`find` through it, and git's objects"),
    ("pack", "`tar c` of it"),
    ("absent", "2,000 tests for files that are not there"),
];

/// The last one.
const REMOVAL: [(&str, &str); 1] = [("remove", "`rm -r` of it")];

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("directories: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let (mut rounds, mut tree) = (3_usize, PathBuf::from("/usr/include"));
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--rounds" => rounds = value.parse().map_err(|_| format!("{value} is no number"))?,
            "--tree" => tree = value.into(),
            other => return Err(format!("unknown option {other}")),
        }
    }
    let place = PathBuf::from(format!("directories-{}", std::process::id()));
    fs::create_dir(&place).map_err(|error| error.to_string())?;
    let result = measure_in(&place, rounds.max(1), &tree);
    let _ = fs::remove_dir_all(&place);
    result
}

fn measure_in(place: &Path, rounds: usize, tree: &Path) -> Result<(), String> {
    let biv = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("biv");
    run(Command::new("tar").args(["cf"]).arg(place.join("tree.tar")).arg("-C").arg(tree).arg("."))?;
    let mut starts = Vec::new();
    println!("| work | unit | host | guest (min..max) | guest/host |");
    println!("| --- | --- | ---: | ---: | ---: |");
    for (script, parts) in [(WORK, &PARTS[..]), (REMOVE, &REMOVAL)] {
        let (mut host, mut guest) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let script = |who: &str| format!("tree={who}-{round}\n{CLOCK}{script}");
            host.push(times(Command::new("sh").args(["-c", &script("host")]), place, parts)?);
            let mut machine = Command::new(&biv);
            machine.args(["run", "--cpus=1", "--mem=2G", "--timeout=600", "--", "sh", "-c"]);
            guest.push(times(machine.arg(script("guest")), place, parts)?);
            let start = Instant::now();
            let small = ["run", "--cpus=1", "--mem=1G", "--", "true"];
            run(Command::new(&biv).args(small).current_dir(place))?;
            starts.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        for (at, (_, title)) in parts.iter().enumerate() {
            let of = |all: &[Vec<f64>]| all.iter().map(|times| times[at] / 1000.0).collect();
            say(title, of(&host), of(&guest))?;
        }
    }
    let Spread { median, min, max } = Spread::of(starts).ok_or(NO_ROUNDS)?;
    println!("| `biv run -- true` | ms | - | {median:.0} ({min:.0}..{max:.0}) | - |");
    Ok(())
}

const NO_ROUNDS: &str = "there were no rounds";

/// A line of the table, of times in milliseconds.
fn say(title: &str, host: Vec<f64>, guest: Vec<f64>) -> Result<(), String> {
    let spread = |values| Spread::of(values).ok_or(NO_ROUNDS);
    let ratios = guest.iter().zip(&host).map(|(guest, host)| guest / host).collect();
    let (host, ratio) = (spread(host)?.median, spread(ratios)?.median);
    let Spread { median, min, max } = spread(guest)?;
    println!("| {title} | ms | {host:.0} | {median:.0} ({min:.0}..{max:.0}) | {ratio:.2} |");
    Ok(())
}

/// What the work's parts took, in microseconds.
fn times(command: &mut Command, place: &Path, parts: &[(&str, &str)]) -> Result<Vec<f64>, String> {
    let said = run(command.current_dir(place))?;
    let time = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|text| text.parse().ok()).ok_or(format!("{name} was not timed: {said}"))
    };
    parts.iter().map(|(name, _)| time(name)).collect()
}
