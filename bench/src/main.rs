//! The project's measuring instrument: the same kernel, initramfs and programs under `biv` and
//! under QEMU's TCG, and the same programs on the host, interleaved, with medians and ratios.
//!
//! ```text
//! cargo run --release -p bench [-- --quick] [--rounds N] [--out DIRECTORY]
//! ```

#![forbid(unsafe_code)]

mod report;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use run::{Guest, Round, System};

/// What the user asked for.
struct Options {
    rounds: usize,
    scale: u32,
    out: PathBuf,
}

fn options() -> Result<Options, String> {
    let mut options = Options { rounds: 5, scale: 4, out: PathBuf::from("target/bench") };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => (options.rounds, options.scale) = (1, 1),
            "--rounds" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                options.rounds = number.filter(|&n| n > 0).ok_or("--rounds takes a number")?;
            }
            "--out" => options.out = arguments.next().ok_or("--out takes a directory")?.into(),
            other => return Err(format!("unknown option {other}; see the head of src/main.rs")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let options = options()?;
    let guest = Guest::prepare(options.scale)?;
    let systems: Vec<System> = System::all().into_iter().filter(System::is_installed).collect();
    let mut rounds: Vec<(System, Round)> = Vec::new();
    for number in 1..=options.rounds {
        for &system in &systems {
            eprintln!("round {number} of {}: {}", options.rounds, system.name());
            match guest.run(system) {
                Ok(round) => rounds.push((system, round)),
                // TCG of QEMU 7.2 sometimes breaks its guest; the round is left out.
                Err(error) => eprintln!("  left out: {error}"),
            }
        }
    }
    report::write(&rounds, &options.out)
}
