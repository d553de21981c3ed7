//! ```text
//! cargo run --release -p bench -- [--quick] [--against host,tcg,uml,gvisor] [--only NAME,...]
//!     [--ladder] [--rounds N] [--starts N] [--variants NAME,...|all] [--pin] [--out DIRECTORY]
//! ```
//!
//! The library says what it measures, and how.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use bench::options::{self, Options};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("bench: {error}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match bench::measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
