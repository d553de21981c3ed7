//! Builds the kernels with the machine's C compiler: freestanding, at fixed addresses in the upper half.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{env, io};

/// Each kernel and the sources that it has beside the entry.
const KERNELS: [(&str, &[&str]); 4] = [
    ("kernel", &["main.c"]),
    ("script", &["script.c", "pages.c", "events.c", "grants.c"]),
    ("users", &["users.c", "users.S"]),
    ("hostile", &["hostile.c", "rings.c", "hostile.S"]),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernel");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    if let Err(error) = KERNELS.iter().try_for_each(|(name, sources)| build(&out, name, sources)) {
        eprintln!("cannot build the kernels: {error}");
        std::process::exit(1);
    }
}

fn build(out: &Path, name: &str, sources: &[&str]) -> io::Result<()> {
    let mut objects = Vec::new();
    for &source in [&["start.S"], sources].concat().iter() {
        let object = out.join(format!("{source}.o"));
        let mut command = freestanding::compiler();
        command.args(["-mcmodel=kernel", "-c"]).arg(Path::new("kernel").join(source));
        command.arg("-o").arg(&object);
        freestanding::execute(command)?;
        objects.push(object);
    }
    let mut command = freestanding::linker();
    command.arg("-Wl,-T,kernel/link.ld").arg("-o").arg(out.join(name)).args(objects);
    freestanding::execute(command)
}
