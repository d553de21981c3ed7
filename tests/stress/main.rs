//! stress-ng in the guest, with its own verification: the guest's kernel and programs do everything
//! they know to the processor and its memory, and notice what comes out wrong.
//!
//! A selection runs by default, for about three minutes on two cores, in machines that take turns among
//! the modes of execution; what a hypervisor has to do with runs in paravirtual ones as well. In the environment:
//!
//! - `BIVOUAC_STRESS=all` runs every stressor of the classes that need no disk, of which those left
//!   out are printed with their reasons; `BIVOUAC_STRESS=NAME,NAME` runs these. Both kinds of machines run all of them.
//! - `BIVOUAC_STRESS_SECONDS=N` gives each so long.
//! - `BIVOUAC_RUN_OPTIONS="--user-exec direct --cpus 4"` has all machines run so.
//! - `BIVOUAC_ORACLE=tcg` runs them under QEMU's TCG instead, for a second opinion.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::env;
use std::process::Output;

use whole_machine::complaints::complaint;
use whole_machine::modes::{Mode, PARAVIRTUAL, UserExecution};
use whole_machine::{oracle, root, text};

mod selection;

use selection::{AS_USER, CLASSES, EXCLUDED, OF_A_HYPERVISOR, OPTIONS, SELECTED};

/// Runs in the guest.
const SCRIPT: &str = include_str!("guest.sh");

/// Stressors that share one machine; what one leaves behind another has to bear.
const PER_MACHINE: usize = 13;

/// How long a stressor may take beyond what it is given: some tidy up slowly.
const PATIENCE_SECONDS: u64 = 45;

/// stress-ng's status for "this system does not have what I need".
const NO_RESOURCE: &str = "3";

/// How one stressor ended.
struct Outcome {
    name: String,
    status: String,
    seconds: f64,
    log: Vec<String>,
}

impl Outcome {
    /// Why it did nothing, in its own words.
    fn skipped(&self) -> Option<&str> {
        let line = self.log.iter().find(|line| {
            line.contains("skipp") || line.contains("not available") || line.contains("early")
        })?;
        Some(line.rsplit("] ").next().unwrap_or(line))
    }

    fn has_failed(&self) -> bool {
        self.status != "0" && self.status != NO_RESOURCE
    }
}

/// A machine's mode, and what makes it another kind of machine than a PC.
type Kind = (Mode, &'static [&'static str]);

/// Run `names` in one machine. What the guest's kernel says goes to the second string.
fn run(names: &[String], seconds: u64, kind: Kind) -> (Output, String) {
    let limit = seconds + PATIENCE_SECONDS;
    let (each, most) = (seconds.to_string(), limit.to_string());
    let command = ["/bin/busybox", "sh", "-c", SCRIPT, "stress", &each, &most];
    let words: Vec<String> = command.iter().map(ToString::to_string).chain(how(names)).collect();
    let patience = limit * names.len() as u64 + 60;
    oracle::run_in(&root::debian(), 2048, patience, kind, &words)
}

/// The stressors as the script wants them.
fn how(names: &[String]) -> impl Iterator<Item = String> {
    names.iter().map(|name| {
        let user = if AS_USER.contains(&name.as_str()) { "@user" } else { "" };
        let options = OPTIONS.iter().filter(|(known, _)| known == name);
        let options: String = options.map(|(_, options)| format!(",{options}")).collect();
        format!("{name}{user}{options}")
    })
}

fn outcomes(said: &str) -> Vec<Outcome> {
    let mut all = Vec::new();
    let mut log = Vec::new();
    for line in said.lines() {
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("LOG"), Some(_), Some(rest)) => log.push(rest.to_owned()),
            (Some("RESULT"), Some(name), Some(rest)) => {
                let mut numbers = rest.split(' ');
                let status = numbers.next().unwrap_or_default().to_owned();
                let times: Vec<f64> = numbers.filter_map(|time| time.parse().ok()).collect();
                let seconds = times.last().unwrap_or(&0.0) - times.first().unwrap_or(&0.0);
                let log = std::mem::take(&mut log);
                all.push(Outcome { name: name.to_owned(), status, seconds, log });
            }
            _ => {}
        }
    }
    all
}

/// Run these in machines one after the other, of the kinds in turn, and say what has gone wrong.
fn failures(names: &[String], seconds: u64, kinds: impl Iterator<Item = Kind>) -> Vec<String> {
    let mut failures = Vec::new();
    for (part, kind) in names.chunks(PER_MACHINE).zip(kinds) {
        let (output, console) = run(part, seconds, kind);
        let said = text(&output.stdout);
        let outcomes = outcomes(&said);
        for outcome in &outcomes {
            let (name, status, taken) = (&outcome.name, &outcome.status, outcome.seconds);
            let skipped = outcome.skipped().map_or(String::new(), |why| format!(": {why}"));
            println!("{name:16} status {status} {taken:6.1} s{skipped}");
            if outcome.has_failed() {
                failures
                    .push(format!("{name}, {kind:?}: status {status}\n{}", outcome.log.join("\n")));
            }
        }
        if !said.ends_with("DONE\n") || !output.status.success() {
            let lost = part.get(outcomes.len()).map_or("the end", String::as_str);
            let status = output.status;
            failures.push(format!(
                "the machine ({kind:?}) was lost at {lost}: {status}\n{}\n{}",
                text(&output.stderr),
                last_lines(&console, 40)
            ));
        }
        if let Some(complaint) = complaint(&console) {
            failures.push(format!("the kernel says, in {part:?}, {kind:?}:\n{complaint}"));
        }
    }
    failures
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Every stressor of the classes, from stress-ng itself, so that none is forgotten.
fn all_stressors() -> BTreeSet<String> {
    let mut script = String::from("for c in");
    CLASSES.iter().for_each(|class| script.push_str(&format!(" {class}")));
    script.push_str("; do stress-ng --class $c? 2>&1; done");
    let words = ["/bin/busybox", "sh", "-c", &script].map(str::to_owned);
    let (output, _) = oracle::run_in(&root::debian(), 512, 120, (Mode::ALL[0], &[]), &words);
    let said = text(&output.stdout);
    let listed: BTreeSet<_> = said
        .lines()
        .filter_map(|line| line.split_once("stressors: "))
        .flat_map(|(_, names)| names.split(' ').map(str::to_owned))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(listed.len() > 200, "only {} stressors: {said}", listed.len());
    listed
}

fn check_all(wanted: &[String], seconds: u64, kinds: impl Iterator<Item = Kind>) {
    let failures = failures(wanted, seconds, kinds);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n\n"));
}

fn seconds(default: u64) -> u64 {
    env::var("BIVOUAC_STRESS_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// What the environment asks for instead of the selection.
fn asked_for() -> Option<Vec<String>> {
    let asked = env::var("BIVOUAC_STRESS").ok()?;
    if asked != "all" {
        return Some(asked.split(',').map(str::to_owned).collect());
    }
    let all = all_stressors();
    for (name, reason) in EXCLUDED {
        assert!(all.contains(name), "{name} is excluded and does not exist");
        println!("{name:16} left out: {reason}");
    }
    Some(all.into_iter().filter(|name| !EXCLUDED.iter().any(|(out, _)| out == name)).collect())
}

/// Every other of these: two tests run at once, on two cores.
fn half<T: Clone>(all: &[T], which: usize) -> Vec<T> {
    all.iter().skip(which).step_by(2).cloned().collect()
}

fn stress(which: usize) {
    let kinds = half(&Mode::ALL, which).into_iter().map(|mode| (mode, &[][..])).cycle();
    match asked_for() {
        Some(names) => check_all(&half(&names, which), seconds(2), kinds),
        None => check_all(&half(&SELECTED.map(str::to_owned), which), seconds(1), kinds),
    }
}

#[test]
fn every_other_stressor_succeeds() {
    stress(0);
}

#[test]
fn the_stressors_in_between_succeed() {
    stress(1);
}

/// On four vCPUs and on one in turn.
#[test]
fn stressors_succeed_in_paravirtual_machines() {
    if oracle::is_tcg() {
        return println!("left out: there is no Xen under QEMU");
    }
    let modes = [UserExecution::Auto, UserExecution::Translate].into_iter();
    let kinds = modes
        .zip([4, 1])
        .map(|(execution, processors)| (Mode { execution, processors }, &PARAVIRTUAL[..]));
    match asked_for() {
        Some(names) => check_all(&names, seconds(2), kinds.cycle()),
        None => check_all(&OF_A_HYPERVISOR.map(str::to_owned), seconds(1), kinds.cycle()),
    }
}

#[test]
fn what_is_selected_exists_and_is_not_excluded() {
    let all = all_stressors();
    for name in SELECTED.into_iter().chain(OF_A_HYPERVISOR) {
        assert!(all.contains(name), "stress-ng has no {name}");
        assert!(!EXCLUDED.iter().any(|(out, _)| *out == name), "{name} is excluded too");
    }
}

#[test]
fn a_failure_is_seen() {
    let said = "LOG a stress-ng: fail: [1] a: wrong\nRESULT a 2 1.00 3.50\nRESULT b 3 3.5 3.6\n";
    let outcomes = outcomes(said);
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes[0].has_failed() && !outcomes[1].has_failed());
    assert_eq!((outcomes[0].seconds, outcomes[0].log.len()), (2.5, 1));
}
