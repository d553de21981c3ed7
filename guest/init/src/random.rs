//! Adds a seed of the host's to the kernel's random number generator. Several machines may go on
//! from the same state, and would all draw the same numbers.

use std::fs::File;
use std::io::Write;

use rustix::ioctl::{NoArg, ioctl, opcode};

/// `RNDRESEEDCRNG` (linux/random.h).
const RESEED: rustix::ioctl::Opcode = opcode::none(b'R', 7);

/// Have the kernel's random numbers depend on these bytes from here on.
pub fn add(bytes: &[u8]) {
    let mix = || {
        let mut device = File::options().write(true).open("/dev/urandom")?;
        device.write_all(bytes)?;
        reseed(&device)
    };
    if let Err(error) = mix() {
        eprintln!("init: cannot seed the random numbers: {error}");
    }
}

#[allow(unsafe_code)]
fn reseed(device: &File) -> std::io::Result<()> {
    // SAFETY: the request has no argument, and changes nothing of this process.
    Ok(unsafe { ioctl(device, NoArg::<RESEED>::new()) }?)
}
