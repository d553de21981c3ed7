//! Disks: fio in a guest against fio on the host, on the same file, interleaved round by round.
//!
//! ```text
//! cargo run --release -p bench --bin disks -- [--rounds N] [--seconds N] [--file FILE] [--qcow2] [--cpus N]
//! ```
//!
//! Both pass their own page cache by (`direct=1`), and find nothing of the file in the host's at the
//! start; the guest's disk goes through that. fio has to be installed on the host, whose programs the
//! guest sees. FILE (1 GiB) should be on a file system that is on a disk; without one it is in the current
//! directory. With `--qcow2`, the guest's disk is an image of its own beside it, made by qemu-img. With `--cpus`, the
//! guest has so many processors, and a queue of the disk for each.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bench::{Spread, run};

const MIB: u64 = 1 << 20;

/// Bytes of the file.
const FILE_BYTES: u64 = 1024 * MIB;

/// What fio does: how, in which pieces, how many at once, and whether what is measured is the time of
/// a synchronisation after each write.
struct Load {
    how: &'static str,
    piece: &'static str,
    depth: u32,
    syncs: bool,
}

const fn load(how: &'static str, piece: &'static str, depth: u32) -> Load {
    Load { how, piece, depth, syncs: false }
}

const LOADS: [Load; 17] = [
    load("read", "4k", 1),
    load("read", "4k", 32),
    load("read", "1M", 1),
    load("read", "1M", 32),
    load("randread", "4k", 1),
    load("randread", "4k", 32),
    load("randread", "1M", 1),
    load("randread", "1M", 32),
    load("write", "4k", 1),
    load("write", "4k", 32),
    load("write", "1M", 1),
    load("write", "1M", 32),
    load("randwrite", "4k", 1),
    load("randwrite", "4k", 32),
    load("randwrite", "1M", 1),
    load("randwrite", "1M", 32),
    Load { how: "randwrite", piece: "4k", depth: 1, syncs: true },
];

struct Options {
    rounds: usize,
    seconds: u32,
    file: PathBuf,
    qcow2: bool,
    cpus: usize,
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("disks: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Options, String> {
    let file = PathBuf::from(format!("disks-{}.img", std::process::id()));
    let mut options = Options { rounds: 3, seconds: 3, file, qcow2: false, cpus: 1 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match argument.as_str() {
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)? as u32,
            "--cpus" => options.cpus = number(value()?)?,
            "--file" => options.file = value()?.into(),
            "--qcow2" => options.qcow2 = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn measure() -> Result<(), String> {
    let options = parse()?;
    let biv = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("biv");
    let image = options.file.with_extension("qcow2");
    prepare(&options, &image)?;
    let disk = if options.qcow2 { &image } else { &options.file };
    let result = measure_all(&options, &biv, disk);
    let _ = fs::remove_file(&options.file);
    let _ = fs::remove_file(&image);
    result
}

/// Write the file, so that nothing is allocated later.
fn prepare(options: &Options, image: &Path) -> Result<(), String> {
    let at = |error: std::io::Error| format!("{}: {error}", options.file.display());
    let mut file = File::create(&options.file).map_err(at)?;
    let bytes: Vec<_> = (0..MIB).map(|n| ((n * 7) >> 3) as u8).collect();
    (0..FILE_BYTES / MIB).try_for_each(|_| file.write_all(&bytes)).map_err(at)?;
    file.sync_all().map_err(at)?;
    if options.qcow2 {
        run(Command::new("qemu-img")
            .args(["convert", "-O", "qcow2"])
            .args([&options.file, image]))?;
    }
    Ok(())
}

fn measure_all(options: &Options, biv: &Path, disk: &Path) -> Result<(), String> {
    println!("| load | unit | host | guest (min..max) | guest/host |");
    println!("| --- | --- | ---: | ---: | ---: |");
    for load in &LOADS {
        let (mut host, mut guest, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let arguments = arguments(load, options.seconds);
            forget(&options.file)?;
            let mut fio = Command::new("fio");
            host.push(result(
                load,
                run(fio.args(&arguments).arg(name("--filename=", &options.file)))?,
            )?);
            forget(disk)?;
            let mut machine = Command::new("timeout");
            machine.arg("120").arg(biv).args(["run", "--cpus", &options.cpus.to_string()]);
            machine.arg("--disk").arg(disk).args(["--", "fio"]);
            let said = run(machine.args(&arguments).arg("--filename=/dev/vda"))?;
            guest.push(result(load, said)?);
            ratios.push(guest[guest.len() - 1] / host[host.len() - 1]);
        }
        let of = |values| Spread::of(values).ok_or("there were no rounds");
        let (host, Spread { median, min, max }) = (of(host)?.median, of(guest)?);
        let unit = if load.syncs { "us" } else { "MiB/s" };
        let what = if load.syncs { "fdatasync after a write of" } else { load.how };
        let title = format!("{what} {}, depth {}", load.piece, load.depth);
        let ratio = of(ratios)?.median;
        println!(
            "| {title} | {unit} | {host:.1} | {median:.1} ({min:.1}..{max:.1}) | {ratio:.2} |"
        );
    }
    Ok(())
}

fn arguments(load: &Load, seconds: u32) -> Vec<String> {
    let mut words: Vec<String> =
        ["--name=load", "--minimal", "--time_based", "--randrepeat=0"].map(str::to_owned).into();
    let engine = if load.syncs { "psync" } else { "libaio" };
    words.push(format!("--ioengine={engine}"));
    words.push(format!("--direct={}", u8::from(!load.syncs)));
    words.push(format!("--size={FILE_BYTES}"));
    words.push(format!("--runtime={seconds}"));
    words.push(format!("--rw={}", load.how));
    words.push(format!("--bs={}", load.piece));
    words.push(format!("--iodepth={}", load.depth));
    if load.syncs {
        words.push("--fdatasync=1".to_owned());
    }
    words
}

/// MiB/s, or microseconds of a write with its synchronisation.
fn result(load: &Load, said: String) -> Result<f64, String> {
    // Fields of fio's terse format, version 3 (fio(1)): of reading, and of writing.
    const READ_RATE: usize = 6;
    const WRITE_RATE: usize = 47;
    const WRITES: usize = 48;
    let line = said.lines().find(|line| line.starts_with("3;")).ok_or("fio says nothing")?;
    let fields: Vec<_> = line.split(';').collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let value = match load.how {
        _ if load.syncs => field(WRITES).map(|count| 1e6 / count),
        "read" | "randread" => field(READ_RATE).map(|rate| rate / 1024.0),
        _ => field(WRITE_RATE).map(|rate| rate / 1024.0),
    };
    value.filter(|value| value.is_finite() && *value > 0.0).ok_or(format!("fio says {line}"))
}

/// Nothing of the file is to be in the host's page cache.
fn forget(file: &Path) -> Result<(), String> {
    let mut dd = Command::new("dd");
    run(dd.arg(name("if=", file)).args(["iflag=nocache", "count=0"])).map(drop)
}

fn name(option: &str, file: &Path) -> std::ffi::OsString {
    let mut word = std::ffi::OsString::from(option);
    word.push(file);
    word
}
