//! The rules of the code that a machine can check.

#![forbid(unsafe_code)]

mod addresses;
mod cycles;
mod functions;
mod paths;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines that a file may have.
const MAX_FILE_LINES: usize = 700;

/// Files that are longer; the list may only shrink.
const LONGER_FILES: [&str; 0] = [];

/// Columns of a line of code, which rustfmt keeps to but for strings, and of a comment.
const MAX_CODE_COLUMNS: usize = 100;
const MAX_COMMENT_COLUMNS: usize = 120;

/// Lines that are wider; the numbers may only shrink.
const WIDER_CODE: usize = 0;
const WIDER_COMMENTS: usize = 0;

/// Which of our crates each may depend on.
const MAY_IMPORT: [(&str, &[&str]); 46] = [
    ("boot", &[]),
    ("bootdisk", &[]),
    ("xen-abi", &[]),
    ("xen", &["boot", "frames", "locks", "machine", "xen-abi", "xen-io", "xen-store"]),
    ("host", &["locks"]),
    ("locks", &[]),
    ("inject", &["host"]),
    ("checkpoint", &["host", "inject"]),
    ("direct", &["host", "locks"]),
    ("cpu", &["direct", "host", "locks", "xen-abi"]),
    ("machine", &["locks", "xen-abi", "xen-io"]),
    ("debugger", &["host"]),
    ("devices", &["locks", "machine"]),
    ("erofs", &[]),
    ("files", &["host", "locks"]),
    ("frames", &["xen-abi"]),
    ("xen-store", &["xen-abi"]),
    ("xen-io", &["frames", "locks", "xen-abi", "xen-store"]),
    ("xen-fronts", &["frames", "xen-abi", "xen-io", "xen-store"]),
    ("spec", &[]),
    ("api", &["spec"]),
    ("hub", &["api", "host", "protocol", "session", "spec"]),
    ("session", &["api", "host", "locks", "protocol", "spec"]),
    (
        "domain",
        &[
            "api",
            "bootdisk",
            "debugger",
            "erofs",
            "files",
            "gates",
            "host",
            "hub",
            "keeper",
            "locks",
            "network",
            "oci",
            "protocol",
            "provision",
            "session",
            "sockets",
            "spec",
            "switch",
            "uplink",
            "vfr",
            "vmm",
        ],
    ),
    ("oci", &["erofs", "provision"]),
    ("provision", &["boot", "erofs", "files", "host", "spec"]),
    (
        "vmm",
        &[
            "boot", "cpu", "devices", "direct", "files", "gates", "host", "locks", "machine",
            "xen", "xen-abi", "xen-io",
        ],
    ),
    (
        "biv",
        &[
            "api",
            "archive",
            "compose",
            "domain",
            "files",
            "host",
            "oci",
            "pods",
            "protocol",
            "provision",
            "serve",
            "session",
            "spec",
            "vmm",
        ],
    ),
    ("compose", &["spec"]),
    ("serve", &["api", "host", "locks", "spec"]),
    (
        "pods",
        &[
            "api",
            "checkpoint",
            "files",
            "host",
            "hub",
            "locks",
            "netlink",
            "pod-protocol",
            "protocol",
            "session",
            "spec",
            "switch",
            "uplink",
        ],
    ),
    ("pod-init", &["archive", "netlink", "pod-protocol", "protocol", "service"]),
    ("netlink", &[]),
    ("uplink", &["host", "network", "session", "spec"]),
    ("pod-protocol", &[]),
    ("service", &["archive", "locks", "protocol"]),
    ("network", &[]),
    ("router", &[]),
    ("vfr", &["host", "router"]),
    ("switch", &["api", "host", "locks", "router", "session"]),
    ("scheduler", &[]),
    ("gates", &["host"]),
    ("keeper", &["api", "gates", "host", "locks", "scheduler", "spec"]),
    ("sockets", &["host"]),
    ("protocol", &[]),
    ("archive", &[]),
];

/// Where `unsafe` may be: the processor, direct execution, what we ask of Linux, and code that runs
/// in the guest or beside a processor in tests.
const MAY_BE_UNSAFE: [&str; 4] = ["crates/cpu/", "crates/direct/", "crates/host/", "guest/"];

/// What forbids it, for the compiler to see.
const FORBIDDEN: &str = "#![forbid(unsafe_code)]";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the project").to_owned()
}

fn sources() -> Vec<(String, String)> {
    let output = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output();
    let listed = output.expect("git can be started").stdout;
    let listed = String::from_utf8(listed).expect("file names are UTF-8");
    let sources: Vec<_> = listed
        .lines()
        .filter_map(|name| Some((name.to_owned(), fs::read_to_string(root().join(name)).ok()?)))
        .collect();
    assert!(sources.len() > 50, "only {} source files", sources.len());
    sources
}

#[test]
fn files_are_read_in_one_sitting() {
    for (name, source) in sources() {
        let (lines, excused) = (source.lines().count(), LONGER_FILES.contains(&name.as_str()));
        assert!(lines <= MAX_FILE_LINES || excused, "{name} has {lines} lines");
        assert!(
            lines > MAX_FILE_LINES || !excused,
            "{name} is short enough now: take it off the list"
        );
    }
}

#[test]
fn nothing_is_left_undone() {
    // Written in pieces, so that this file does not find itself.
    let marks = [["TO", "DO"], ["FIX", "ME"], ["unimple", "mented!("], ["to", "do!("]];
    for (name, source) in sources() {
        for mark in marks.map(|pieces| pieces.concat()) {
            assert!(!source.contains(&mark), "{name} contains {mark}");
        }
    }
}

#[test]
fn unsafe_code_is_where_it_belongs() {
    let keyword = ["un", "safe "].concat();
    for (name, source) in sources() {
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let uses = code.filter(|line| line.contains(&keyword)).count();
        let allowed = MAY_BE_UNSAFE.iter().any(|place| name.starts_with(place));
        assert!(uses == 0 || allowed, "{name} has {uses} lines with `{keyword}`");
    }
}

#[test]
fn crates_without_unsafe_code_say_so_to_the_compiler() {
    let is_root = |name: &str| name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs");
    let others = |name: &str| !MAY_BE_UNSAFE.iter().any(|place| name.starts_with(place));
    for (name, source) in sources() {
        let is_silent = is_root(&name) && others(&name) && !source.contains(FORBIDDEN);
        assert!(!is_silent, "{name} lacks {FORBIDDEN}");
    }
}

#[test]
fn no_more_lines_are_wider_than_the_others() {
    let (mut code, mut comments) = (Vec::new(), Vec::new());
    for (name, source) in sources() {
        for (number, line) in source.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let (most, found) = match is_comment {
                true => (MAX_COMMENT_COLUMNS, &mut comments),
                false => (MAX_CODE_COLUMNS, &mut code),
            };
            if line.chars().count() > most {
                found.push(format!("{name}:{}", number + 1));
            }
        }
    }
    println!("wider: {} {}", code.join(" "), comments.join(" "));
    assert_eq!((code.len(), comments.len()), (WIDER_CODE, WIDER_COMMENTS));
}

/// Crates that no machine is in, for programs that only describe machines or talk to them.
const WITHOUT_MACHINES: [&str; 8] =
    ["api", "hub", "oci", "pods", "provision", "serve", "session", "spec"];

/// What these never link, through whatever they depend on.
const MACHINES: [&str; 5] = ["biv", "cpu", "direct", "domain", "vmm"];

#[test]
fn what_talks_to_machines_links_none() {
    for name in WITHOUT_MACHINES {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["tree", "--offline", "--package", name, "--edges", "normal,build"])
            .args(["--prefix", "none", "--format", "{p}"])
            .current_dir(root())
            .output()
            .expect("cargo can be started");
        let tree = String::from_utf8(output.stdout).expect("names are UTF-8");
        let linked: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(linked.first(), Some(&name), "cargo tree lists it first");
        for machine in MACHINES {
            assert!(!linked.contains(&machine), "{name} links {machine}");
        }
    }
}

#[test]
fn crates_import_only_what_they_may() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo speaks JSON");
    let packages = metadata["packages"].as_array().expect("packages are a list");
    let ours: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for (name, allowed) in MAY_IMPORT {
        let package = packages.iter().find(|package| package["name"] == name);
        let package = package.unwrap_or_else(|| panic!("there is no crate {name}"));
        let dependencies = package["dependencies"].as_array().expect("dependencies are a list");
        for dependency in dependencies.iter().filter(|dependency| dependency["kind"].is_null()) {
            let wanted = dependency["name"].as_str().unwrap_or_default();
            let fine = !ours.contains(&wanted) || allowed.contains(&wanted);
            assert!(fine, "{name} imports {wanted}");
        }
    }
}
