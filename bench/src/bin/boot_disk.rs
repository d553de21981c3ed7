//! A disk's own kernel: how long it takes from the start of `biv run` to a text on the console, such as the question
//! who logs in, with the kernel that `biv` finds on the disk and with the same kernel in a file.
//!
//! ```text
//! cargo run --release -p bench --bin boot_disk -- --disk IMAGE --kernel FILE --initrd FILE --append PARAMETERS \
//!     [--starts N] [--until TEXT]
//! ```
//!
//! Both are started in turn, N times each. The disk is opened with `,snapshot`, so that each start finds the same.
//! Whoever starts this has copied kernel and initial RAM disk out of the image, and has its parameters from its boot
//! loader's configuration.

#![forbid(unsafe_code)]

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use bench::Spread;

/// A start that takes longer has failed.
const LIMIT_SECONDS: &str = "300";

struct Options {
    disk: String,
    kernel: String,
    initrd: String,
    append: String,
    starts: usize,
    until: String,
}

fn main() -> ExitCode {
    match parse().and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("boot_disk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Options, String> {
    let [disk, kernel, initrd, append] = [const { String::new() }; 4];
    let until = "login:".to_owned();
    let mut options = Options { disk, kernel, initrd, append, starts: 10, until };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--disk" => options.disk = value,
            "--kernel" => options.kernel = value,
            "--initrd" => options.initrd = value,
            "--append" => options.append = value,
            "--until" => options.until = value,
            "--starts" => {
                options.starts = value.parse().map_err(|_| format!("{value} is no number"))?;
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    let Options { disk, kernel, initrd, until, .. } = &options;
    match [disk, kernel, initrd, until].iter().any(|it| it.is_empty()) {
        true => Err("--disk, --kernel and --initrd are needed".to_owned()),
        false => Ok(options),
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let biv = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("biv");
    let Options { kernel, initrd, append, .. } = options;
    let disk = format!("{},snapshot", options.disk);
    let found = ["--boot-disk", &disk];
    let given = ["--kernel", kernel, "--initrd", initrd, "--append", append, "--disk", &disk];
    let (mut own, mut files) = (Vec::new(), Vec::new());
    for _ in 0..options.starts {
        own.push(seconds(&biv, &found, &options.until)?);
        files.push(seconds(&biv, &given, &options.until)?);
    }
    let of = |values| Spread::of(values).ok_or("there were no starts");
    let (own, files) = (of(own)?, of(files)?);
    for (name, Spread { median, min, max }) in [("--boot-disk", own), ("--kernel", files)] {
        println!("{name}: {median:.2} s ({min:.2}..{max:.2})");
    }
    println!("ratio: {:.2}", own.median / files.median);
    Ok(())
}

/// How long a machine takes until it has said that.
fn seconds(biv: &Path, options: &[&str], until: &str) -> Result<f64, String> {
    let begun = Instant::now();
    let mut command = Command::new(biv);
    command.args(["run", "--cpus=1", "--mem=1G", "--timeout", LIMIT_SECONDS]).args(options);
    // An input that stays open.
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", biv.display()))?;
    let heard = child.stdout.take().map(|output| hear(output, until.as_bytes()));
    let took = begun.elapsed().as_secs_f64();
    // It may have ended.
    let _ = child.kill();
    child.wait().map_err(|error| error.to_string())?;
    match heard {
        Some(Ok(None)) => Ok(took),
        Some(Ok(Some(said))) => Err(format!("it ended without {until:?}: {said}")),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it has no output".to_owned()),
    }
}

/// Reads until there is such a text; all that was said if there is none.
fn hear(mut output: impl Read, until: &[u8]) -> io::Result<Option<String>> {
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = output.read(&mut piece)?;
        said.extend(&piece[..count]);
        if said.windows(until.len()).any(|bytes| bytes == until) {
            return Ok(None);
        }
        if count == 0 {
            return Ok(Some(String::from_utf8_lossy(&said).into_owned()));
        }
    }
}
