//! Random scripts under Debian's Xen and under our own, side by side: both answer the same, and leave the same in
//! memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, process};

use whole_machine::{bivouac, kernels, text};

use crate::generator::{Operation, script};
use crate::{PATIENCE_SECONDS, XEN_OPTIONS};

/// Scripts of the default run.
const DEFAULT_SCRIPTS: u64 = 1000;

/// Xen says nothing of what it refuses.
const WITHOUT_MESSAGES: &str = "loglvl=none guest_loglvl=none";

/// Lines that are shown before a difference.
const CONTEXT: usize = 8;

/// Scripts of one machine.
const BATCH: u64 = 2500;

/// Who carries scripts out, and under which number it knows the domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Host {
    Xen,
    Bivouac,
}

impl Host {
    fn domain(self) -> u64 {
        match self {
            Host::Xen => 0,
            Host::Bivouac => 1,
        }
    }
}

/// A directory that goes away again.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The file of scripts, of which one is said in detail.
fn encode(scripts: &[Vec<Operation>], domain: u64, detailed: Option<usize>) -> Vec<u8> {
    let mut words = vec![scripts.len() as u64, domain];
    for (index, script) in scripts.iter().enumerate() {
        words.extend([script.len() as u64, u64::from(detailed == Some(index))]);
        words.extend(script.iter().flatten());
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What a host says of scripts: the lines of the kernel without the `xs: ` before each.
fn said(
    host: Host,
    place: &Path,
    scripts: &[Vec<Operation>],
    detailed: Option<usize>,
) -> Vec<String> {
    let kernel = place.join("kernel");
    let file = place.join(format!("scripts-{host:?}"));
    fs::write(&kernel, paravirtual::SCRIPT).expect("there is room");
    fs::write(&file, encode(scripts, host.domain(), detailed)).expect("there is room");
    let mut command = Command::new("timeout");
    command.arg(PATIENCE_SECONDS).arg(bivouac()).args(["run", "--mem", "512M", "--no-reboot"]);
    match host {
        Host::Xen => {
            let modules = format!("{},{}", kernel.display(), file.display());
            let options = format!("{XEN_OPTIONS} {WITHOUT_MESSAGES}");
            command.args(["--append", &options, "--initrd", &modules, "--kernel"]);
            command.arg(kernels::xen().expect("it was there a moment ago"));
        }
        Host::Bivouac => {
            command.args(["--xen", "--kernel"]).arg(&kernel).arg("--initrd").arg(&file);
        }
    }
    let output = command.stdin(Stdio::null()).output().expect("the command can be started");
    let said = text(&output.stdout);
    let lines = said.lines().filter_map(|line| line.trim_end().strip_prefix("xs: "));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    let is_complete = lines.last().is_some_and(|line| line.starts_with("end "));
    let end = said.lines().rev().take(30).collect::<Vec<_>>();
    assert!(is_complete, "{host:?} did not get to the end: {end:#?}{}", text(&output.stderr));
    lines
}

/// The sums by script.
fn sums(lines: &[String]) -> BTreeMap<u64, String> {
    let sum = |line: &String| {
        let (number, sum) = line.strip_prefix("script ")?.split_once(' ')?;
        Some((u64::from_str_radix(number, 16).ok()?, sum.to_owned()))
    };
    lines.iter().filter_map(sum).collect()
}

/// How two hosts differ about a script, a few lines before the first difference and after it.
fn difference(place: &Path, scripts: &[Vec<Operation>], number: usize) -> String {
    let [xen, ours] = [Host::Xen, Host::Bivouac].map(|host| {
        let lines = said(host, place, scripts, Some(number));
        let is_other = |line: &&String| line.starts_with("script ");
        lines.split(|line| is_other(&line)).nth(number).unwrap_or_default().to_vec()
    });
    let first = xen.iter().zip(&ours).take_while(|(xen, ours)| xen == ours).count();
    let mut shown = format!("script {number} of its batch: {:x?}\n", scripts[number]);
    for index in first.saturating_sub(CONTEXT)..first + 4 {
        let [xen, ours] = [&xen, &ours].map(|lines| lines.get(index).map_or("", String::as_str));
        shown += &format!("{xen:<60}{ours}\n");
    }
    shown
}

/// The scripts of these numbers on both; how many of them differ, and how.
fn compare(place: &Path, numbers: std::ops::Range<u64>) -> Vec<String> {
    let scripts: Vec<Vec<Operation>> = numbers.map(script).collect();
    let [xen, ours] = [Host::Xen, Host::Bivouac].map(|host| {
        let start = Instant::now();
        let lines = said(host, place, &scripts, None);
        println!("{} scripts under {host:?} took {:?}", scripts.len(), start.elapsed());
        assert!(!lines.iter().any(|line| line.starts_with("not reset")), "{host:?}: {lines:?}");
        sums(&lines)
    });
    assert_eq!(xen.len(), scripts.len());
    let differing: Vec<u64> = xen.keys().copied().filter(|it| xen[it] != ours[it]).collect();
    println!("{} differ: {differing:?}", differing.len());
    let shown = differing.iter().take(3);
    shown.map(|number| difference(place, &scripts, *number as usize)).collect()
}

#[test]
fn scripts_come_to_the_same() {
    if let Err(reason) = kernels::xen() {
        return println!("there is no Xen to ask here: {reason}");
    }
    // It may have to be built, which is nobody's time.
    bivouac();
    let place = Place(env::temp_dir().join(format!("biv-oracle-scripts-{}", process::id())));
    fs::create_dir_all(&place.0).expect("there is room");
    let number = |name| env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("BIVOUAC_FIRST_SCRIPT").unwrap_or(0);
    let count: u64 = number("BIVOUAC_SCRIPTS").unwrap_or(DEFAULT_SCRIPTS);
    let mut at = first;
    while at < first + count {
        let end = (at + BATCH).min(first + count);
        let differences = compare(&place.0, at..end);
        assert!(differences.is_empty(), "from script {at} on:\n{}", differences.join("\n"));
        at = end;
    }
}
