//! `biv` as a user meets it: what it prints, where, and with which status.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A run of `biv` with an empty environment, so that no cache of the user's is used.
fn biv(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biv"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

#[track_caller]
fn output(command: &mut Command) -> Output {
    command.output().expect("biv can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// It fails with `status` and one line that contains `words`.
#[track_caller]
fn check_failure(command: &mut Command, status: i32, words: &[&str]) {
    let output = output(command);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    assert!(output.stdout.is_empty(), "nothing on standard output");
    assert_eq!(message.lines().count(), 1, "one line: {message:?}");
    assert!(message.starts_with("biv: "), "{message:?}");
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}

#[test]
fn what_can_never_be_is_a_fault_of_the_command_line() {
    let check = |arguments: &[&str], words: &[&str]| {
        let output = output(&mut biv(arguments));
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        words.iter().for_each(|word| assert!(message.contains(word), "{message:?}: no {word:?}"));
    };
    check(&["run", "--net", "none", "-p", "80:80", "--", "true"], &["--publish", "--net user"]);
    let twice = ["run", "-p", "127.0.0.1:8080:80", "-p", "8080:81", "--", "true"];
    check(&twice, &["127.0.0.1:8080:80", "8080:81", "same port"]);
    check(&["restore", "-p", "80:80", "-p", "80:80", "file"], &["same port"]);
}

#[test]
fn a_file_has_options_of_every_machine() {
    let home = std::env::temp_dir().join(format!("biv-configuration-{}", std::process::id()));
    let place = home.join(".config/bivouac");
    fs::create_dir_all(&place).expect("a directory");
    let (usual, other) = (place.join("run.conf"), home.join("other"));
    let write = |file: &Path, text: &str| fs::write(file, text).expect("it can be written");
    write(&usual, "# mine\n--mem 2G\n--env A=two words\n");
    write(&other, "--memory=3G\n");
    let run = |named: Option<&Path>, options: &[&str]| {
        let mut command = biv(&[&["run", "--print-spec"], options, &["--", "true"]].concat());
        command.env("HOME", &home);
        if let Some(path) = named {
            command.env("BIV_CONFIG", path);
        }
        output(&mut command)
    };
    // Bytes of memory, and variables.
    let check = |named: Option<&Path>, options: &[&str], memory: u64, variables: &[&str]| {
        let output = run(named, options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let spec = spec::Spec::decode(&output.stdout).expect("a description");
        assert_eq!(spec.machine.memory, memory, "{options:?}");
        assert_eq!(spec.process.env, variables, "{options:?}");
    };
    let variables = ["A=two words", "B=1"];
    check(None, &["--env", "B=1"], 2 << 30, &variables);
    check(None, &["--memory", "512M"], 512 << 20, &variables[..1]);
    check(Some(&other), &[], 3 << 30, &[]);
    check(Some(Path::new("")), &["--mem=512M", "--mem=256M"], 256 << 20, &[]);
    let check_refused = |named: Option<&Path>, options: &[&str], words: &[&str]| {
        let output = run(named, options);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{said:?}: no {word:?}"));
    };
    check_refused(None, &["--nothing"], &["--nothing", "run.conf come before"]);
    check_refused(Some(Path::new("/nowhere/x")), &[], &["/nowhere/x", "BIV_CONFIG"]);
    check_refused(Some(&home), &[], &["a directory"]);
    write(&other, "memory 2G\n");
    check_refused(Some(&other), &[], &["line 1 is no option"]);
    // What describes a machine as a whole takes nothing of it.
    let mut command = biv(&["run", "--spec", "/nowhere/spec"]);
    check_failure(command.env("BIV_CONFIG", &other), 125, &["/nowhere/spec"]);
    let _ = fs::remove_dir_all(home);
}

#[test]
fn what_biv_starts_itself_with_is_refused_to_others() {
    let check = |arguments: &[&str], words: &[&str]| {
        check_failure(&mut biv(arguments), 2, words);
    };
    check(&["--bivouac-process="], &["no such process"]);
    check(&["--bivouac-process=run", "{}"], &["=run", "no such process"]);
    check(&["--bivouac-process=unpack"], &["its order"]);
    check(&["--bivouac-process=unpack", "\u{1b}[2J"], &["its order"]);
    check(&["--bivouac-process=network", r#"{"cable":"3"}"#], &["its order", "invalid type"]);
    let launch = r#"{"descriptor":77,"detached":false}"#;
    check_failure(&mut biv(&["--bivouac-process=launch", launch]), 125, &["cannot start"]);
    // What was a verb is none.
    for word in ["launch", "serve-files", "sockets", "seal", "unpack"] {
        let output = output(&mut biv(&[word]));
        assert_eq!(output.status.code(), Some(2), "{word}");
        assert!(text(&output.stderr).contains("unrecognized subcommand"), "{word}");
    }
}

#[test]
fn a_kernel_is_a_file_or_a_version() {
    let run = |kernel: &str| biv(&["run", "--kernel", kernel, "--", "true"]);
    check_failure(&mut run("./vmlinuz"), 125, &["cannot open ./vmlinuz", "No such file"]);
    check_failure(&mut run("vmlinuz"), 125, &["no file vmlinuz", "biv kernel ls"]);
    let home = std::env::temp_dir().join("biv-no-kernels");
    check_failure(run("5.5").env("HOME", &home), 125, &["biv kernel pull 5.5"]);
}

#[test]
fn the_help_says_no_default_that_is_empty() {
    let help = text(&output(&mut biv(&["exec", "--help"])).stdout);
    assert!(help.contains("--user") && !help.contains("[default: \"\"]"), "{help}");
}

#[test]
fn version_and_help() {
    let version = output(&mut biv(&["--version"]));
    assert_eq!(text(&version.stdout), format!("biv {}\n", env!("CARGO_PKG_VERSION")));
    let help = text(&output(&mut biv(&["run", "--help"])).stdout);
    let options = [
        "--kernel",
        "--initrd",
        "--append",
        "--mem",
        "--root",
        "--timeout",
        "--console",
        "--no-reboot",
        "--debug-exit",
        "--debug-console",
        "--tty",
        "--verbose",
        "--perf-map",
        "--symbols",
        "--history",
        "--trace-blocks",
        "Ctrl-]",
        "Exit status:",
        "The machine looks like the host",
    ];
    for option in options {
        assert!(help.contains(option), "the help does not say {option}");
    }
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    for arguments in [&[][..], &["walk"], &["run", "--mem", "x"], &["run", "--timeout", "0"]] {
        let output = output(&mut biv(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty());
    }
}

#[test]
fn files_that_are_not_there_are_named() {
    check_failure(&mut biv(&["run", "--kernel", "/no/kernel"]), 125, &["/no/kernel", "No such"]);
    check_failure(&mut biv(&["run", "--kernel", "/"]), 125, &["/: ", "directory"]);
    let own = env!("CARGO_BIN_EXE_biv");
    check_failure(
        &mut biv(&["run", "--kernel", own, "--initrd", "/no/initrd"]),
        125,
        &["/no/initrd"],
    );
    check_failure(&mut biv(&["run", "--kernel", own, "--root", "/no/root"]), 125, &["/no/root"]);
}

#[test]
fn a_host_without_apt_or_cache_names_the_way_round() {
    let options = ["--kernel", "--initrd", "--root"];
    check_failure(&mut biv(&["run"]), 125, &options);
    check_failure(biv(&["run"]).env("HOME", "/proc/nowhere"), 125, &options);
    let home = std::env::temp_dir().join(format!("biv-no-apt-{}", std::process::id()));
    fs::create_dir_all(&home).unwrap();
    let mut without_apt = biv(&["run", "--", "true"]);
    without_apt.env("HOME", &home).env("PATH", "/nonexistent");
    // Nobody is there, wherever this test is run.
    without_apt.env("BIVOUAC_DEBIAN_MIRROR", "http://127.0.0.1:1/debian");
    check_failure(&mut without_apt, 125, &options);
    fs::remove_dir_all(&home).unwrap();
}

/// A manual page is complete: it has the sections that such pages have, each option has a description, and
/// groff has nothing to complain about.
fn check_page(path: &Path, page: &str) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let wanted: &[&str] = match name {
        "biv.1" => &["EXIT STATUS", "EXAMPLES", "FILES", "ENVIRONMENT", "SEE ALSO", "SUBCOMMANDS"],
        "biv-run.1" => &["EXIT STATUS", "SEE ALSO", "OPTIONS"],
        _ => &["SEE ALSO"],
    };
    for section in [&["NAME", "SYNOPSIS", "DESCRIPTION", "VERSION"], wanted].concat() {
        let has_it =
            page.lines().any(|line| line.trim_start_matches(".SH ").trim_matches('"') == section);
        assert!(has_it, "{name} has no section {section}");
    }
    assert!(!page.contains(".SH EXTRA"), "{name}");
    // Of each item the line after its head is its description.
    let lines: Vec<&str> = page.lines().collect();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == ".TP") {
        let described =
            lines.get(at + 2).is_some_and(|line| !line.is_empty() && !line.starts_with('.'));
        assert!(described, "{name}: nothing is said of {:?}", lines.get(at + 1));
    }
    let checked = Command::new("groff").args(["-ww", "-man", "-Tutf8", "-z"]).arg(path).output();
    match checked {
        Ok(said) => assert!(said.stderr.is_empty(), "{name}: {}", text(&said.stderr)),
        Err(_) => eprintln!("groff is not installed: {name} is not formatted"),
    }
}

#[test]
fn man_pages_and_completions() {
    let page = text(&output(&mut biv(&["man"])).stdout);
    assert!(page.contains(".TH biv 1"), "{page}");
    let directory = std::env::temp_dir().join(format!("biv-man-{}", std::process::id()));
    let written = output(&mut biv(&["man", directory.to_str().unwrap()]));
    assert!(written.status.success());
    for name in ["biv.1", "biv-run.1", "biv-doctor.1"] {
        assert!(directory.join(name).is_file(), "no {name}");
    }
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        check_page(&path, &fs::read_to_string(&path).unwrap());
    }
    fs::remove_dir_all(&directory).unwrap();
    let place = "/dev/null/pages";
    check_failure(&mut biv(&["man", place]), 125, &["pages", place]);
    for (shell, word) in [
        ("bash", "-F _clap_complete_biv biv"),
        ("zsh", "#compdef biv"),
        ("fish", "--command biv"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = text(&output(&mut biv(&["completions", shell])).stdout);
        assert!(script.contains(word) && script.contains("BIVOUAC_COMPLETE"), "{shell}");
        let mut asked = biv(&["--", "biv", "doc"]);
        asked.env("BIVOUAC_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "1");
        // Shells of which the script hands over what stands before the cursor only.
        asked.env("_CLAP_IFS", "\n");
        let completed = text(&output(&mut asked).stdout);
        assert!(completed.contains("doctor") && !completed.contains("restore"), "{shell}");
    }
}

#[test]
fn the_doctor_reports_to_people_and_to_programs() {
    let report = output(&mut biv(&["doctor"]));
    let people = text(&report.stdout);
    for word in
        ["BMI2", "FSGSBASE", "vm.max_map_count", "ASLR", "huge pages", "seccomp", "/dev/kvm"]
    {
        assert!(people.contains(word), "{people}");
    }
    let programs = output(&mut biv(&["doctor", "--format", "json"]));
    let value: serde_json::Value = serde_json::from_slice(&programs.stdout).expect("JSON");
    assert_eq!(value["fit"], report.status.success());
    let findings = value["findings"].as_array().expect("findings");
    let kvm = findings.iter().find(|finding| finding["name"] == "/dev/kvm").expect("/dev/kvm");
    let is_there = Path::new("/dev/kvm").exists();
    assert_eq!(kvm["found"].as_str().unwrap().starts_with("there"), is_there);
}

/// Runs `biv ARGUMENTS` in a shell that closes or breaks some of its streams.
fn with_streams(arguments: &str, redirections: &str) -> Output {
    let script = format!("exec {} {arguments} {redirections}", env!("CARGO_BIN_EXE_biv"));
    Command::new("/bin/sh").args(["-c", &script]).output().expect("a shell")
}

#[test]
fn closed_streams_do_no_harm() {
    assert!(with_streams("doctor", "<&- >&- 2>&-").status.code().is_some_and(|code| code < 2));
    let failed = with_streams("run --kernel /no/kernel", "<&- >&- 2>&-");
    assert_eq!(failed.status.code(), Some(125));
    let full = with_streams("man", ">/dev/full");
    assert_eq!(full.status.code(), Some(125));
    assert!(text(&full.stderr).contains("No space left"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let script = format!("{} completions bash | true; echo $?", env!("CARGO_BIN_EXE_biv"));
    let output = Command::new("/bin/sh").args(["-c", &script]).output().expect("a shell");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn nothing_is_written_without_a_cause() {
    let home = std::env::temp_dir().join(format!("biv-home-{}", std::process::id()));
    fs::create_dir_all(&home).unwrap();
    output(biv(&["doctor"]).env("HOME", &home));
    output(biv(&["run", "--kernel", "/no/kernel"]).env("HOME", &home));
    let left: Vec<PathBuf> =
        fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().path()).collect();
    fs::remove_dir_all(&home).unwrap();
    assert_eq!(left, Vec::<PathBuf>::new());
}
