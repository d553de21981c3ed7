//! A build by several compilers at once, which is interrupted: what it makes is what is made elsewhere.

use std::fs;
use std::path::Path;
use std::process::Command;

use whole_machine::text;

use super::{Application, has};
use crate::neighbours::place_with;

/// Programs of the benchmarks, which are C.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/guest");

/// How often each is compiled, with other names inside.
const COPIES: u32 = 6;

/// How often the build is interrupted.
const INTERRUPTIONS: u32 = 3;

/// Objects of all sources, and a list of what they are.
fn makefile(sources: &[String]) -> String {
    let objects = |copy: u32| sources.iter().map(move |name| format!("{name}-{copy}.o"));
    let all: Vec<String> = (0..COPIES).flat_map(objects).collect();
    let mut rules = format!("sums: {}\n\tsha256sum $^ >$@\n", all.join(" "));
    for (copy, name) in (0..COPIES).flat_map(|copy| sources.iter().map(move |name| (copy, name))) {
        let level = copy % 4;
        rules += &format!(
            "{name}-{copy}.o: {name}\n\tcc -O{level} -pipe -Dmain=main_{copy} -c -o $@ $<\n"
        );
    }
    rules
}

#[test]
fn a_parallel_build_goes_on() {
    let Some(place) = place_with("one") else { return };
    if !["make", "cc"].iter().all(|program| has(&place, program)) {
        return;
    }
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(SOURCES)
        .expect("it is part of the repository")
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .map(|(name, path)| (name, fs::read(path).expect("a file")))
        .collect();
    files.sort();
    let sources: Vec<String> =
        files.iter().map(|(name, _)| name.clone()).filter(|name| name.ends_with(".c")).collect();
    files.push(("Makefile".to_owned(), makefile(&sources).into_bytes()));
    let expected = built_outside(&place.path.join("build"), &files);

    let script = "make -j4 >log 2>&1; echo $? >status; sleep 1000";
    let given: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let mut build = Application::start(&place, script, &given);
    let objects = sources.len() as u32 * COPIES;
    for interruption in 1..=INTERRUPTIONS {
        let enough = objects * interruption / (INTERRUPTIONS + 1);
        build.wait_until(&format!("[ $(ls | grep -c '[.]o$') -ge {enough} ]"));
        if interruption == 2 { build.move_on() } else { build.restart() }
    }
    let done = build.exec("ls | grep -c '[.]o$'");
    println!("{} of {objects} were made when it was interrupted last", done.trim_end());
    build.wait_until("[ -s status ]");
    assert_eq!(build.exec("cat status; grep -v -e '^cc ' -e ^sha256sum log || true"), "0\n");
    assert_eq!(build.exec("cat sums"), expected);
}

/// The list of objects that a build on the host makes.
fn built_outside(directory: &Path, files: &[(String, Vec<u8>)]) -> String {
    fs::create_dir(directory).expect("there is room");
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).expect("there is room");
    }
    let output = Command::new("make").args(["-s", "-j2"]).current_dir(directory).output();
    let output = output.expect("pods have it, and so has the host");
    assert!(output.status.success(), "{output:?}");
    text(&fs::read(directory.join("sums")).expect("it is built"))
}
