//! Builds the test programs with the machine's C compiler and lists them for the tests.
//!
//! `programs/long` start in 64-bit mode, `programs/protected` in 32-bit protected mode without
//! paging, and `programs/shutdown` are 64-bit programs that end in a triple fault. Every C file in
//! one of these becomes a Multiboot image; `long/boot.c` becomes PVH images as well. `programs/hostile`
//! start in 64-bit mode too; a test of their own runs them.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The word size that a program's harness is built for.
#[derive(Clone, Copy)]
enum Width {
    Bits32,
    Bits64,
}

impl Width {
    fn flag(self) -> &'static str {
        match self {
            Self::Bits32 => "-m32",
            Self::Bits64 => "-m64",
        }
    }

    fn assembly(self) -> [&'static str; 2] {
        match self {
            Self::Bits32 => ["boot32.S", "entry32.S"],
            Self::Bits64 => ["boot64.S", "entry64.S"],
        }
    }
}

fn main() {
    for watched in ["build.rs", "harness", "programs"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    if let Err(error) = build() {
        eprintln!("cannot build the test programs: {error}");
        std::process::exit(1);
    }
}

fn build() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut list = String::new();
    for (kind, width) in
        [("long", Width::Bits64), ("shutdown", Width::Bits64), ("protected", Width::Bits32)]
    {
        let folder = out.join(kind);
        fs::create_dir_all(&folder)?;
        writeln!(list, "mod {kind} {{").ok();
        let harness = build_harness(&folder, width)?;
        for source in sources(&Path::new("programs").join(kind))? {
            let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let object = folder.join(format!("{name}.o"));
            compile(width, &[], &source, &object)?;
            let image = folder.join(&name);
            link(width, &folder, "multiboot", &harness, &object, &image)?;
            writeln!(list, "program!({kind}, {name}, {:?});", image.display()).ok();
            if name == "boot" {
                for header in ["pvh", "pvh32"] {
                    let image = folder.join(format!("{name}_{header}"));
                    link(width, &folder, header, &harness, &object, &image)?;
                    let path = image.display();
                    writeln!(list, "program!({kind}, {name}_{header}, {path:?});").ok();
                }
            }
        }
        list.push_str("}\n");
    }
    fs::write(out.join("programs.rs"), list)?;
    build_hostile(&out.join("hostile"))
}

/// The programs that mean harm, by name, with the harness of the others.
fn build_hostile(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let harness = build_harness(folder, Width::Bits64)?;
    let mut list = String::from("[\n");
    for source in sources(Path::new("programs/hostile"))? {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (object, image) = (folder.join(format!("{name}.o")), folder.join(&name));
        compile(Width::Bits64, &[], &source, &object)?;
        link(Width::Bits64, folder, "multiboot", &harness, &object, &image)?;
        writeln!(list, "({name:?}, {:?}),", image.display()).ok();
    }
    list.push_str("]\n");
    fs::write(folder.join("list.rs"), list)
}

/// The C files of a folder, sorted.
fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Compile what every program of one width shares; the headers are left for `link` to choose.
fn build_harness(folder: &Path, width: Width) -> io::Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    let files = ["console.c", "machine.c", "apic.c"];
    for file in files.iter().chain(&width.assembly()) {
        let object = folder.join(format!("harness_{file}.o"));
        compile(width, &[], &Path::new("harness").join(file), &object)?;
        objects.push(object);
    }
    for (header, file, flags) in [
        ("multiboot", "multiboot.S", &[][..]),
        ("pvh", "pvh.S", &[]),
        ("pvh32", "pvh.S", &["-DPVH_32"]),
    ] {
        let object = folder.join(format!("header_{header}.o"));
        compile(width, flags, &Path::new("harness").join(file), &object)?;
    }
    Ok(objects)
}

fn compile(width: Width, flags: &[&str], source: &Path, object: &Path) -> io::Result<()> {
    let mut command = freestanding::compiler();
    command.arg("-fno-toplevel-reorder").arg("-Iharness").args(flags).arg(width.flag());
    command.arg("-c").arg(source).arg("-o").arg(object);
    freestanding::execute(command)
}

/// Link one image. Loaders want Multiboot kernels as 32-bit ELF files, whatever they contain.
fn link(
    width: Width,
    folder: &Path,
    header: &str,
    harness: &[PathBuf],
    object: &Path,
    image: &Path,
) -> io::Result<()> {
    let mut command = freestanding::linker();
    command
        .args([width.flag(), "-Wl,-T,harness/link.ld", "-o"])
        .arg(image)
        .arg(folder.join(format!("header_{header}.o")))
        .args(harness)
        .arg(object);
    freestanding::execute(command)?;
    if matches!(width, Width::Bits64) && header != "pvh" {
        let mut command = Command::new("objcopy");
        command.args(["-O", "elf32-i386"]).arg(image);
        freestanding::execute(command)?;
    }
    Ok(())
}
