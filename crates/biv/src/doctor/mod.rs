//! `biv doctor`: what this host offers, what Bivouac uses of it, and what is missing.
//!
//! It reads files of `/proc` and `/sys` and limits, or tries an operation in a way that leaves no
//! trace. It looks at `/dev/kvm` and never opens it: opening it proves nothing (there are hosts on
//! which it opens and makes machines without any hardware behind it), and this version has no use
//! for it.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::{Doctor, Format};
use api::status;

mod guest;
mod isolation;
mod memory;
mod processor;

/// What a finding means for running machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Works, and could be better; or nothing to judge.
    Note,
    /// No machine will run before this is changed.
    Missing,
}

/// One thing about this host.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What it belongs to.
    pub topic: &'static str,
    /// What was looked at.
    pub name: String,
    /// What was found.
    pub found: String,
    /// What that means.
    pub verdict: Verdict,
    /// In words, where there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

impl Finding {
    fn new(topic: &'static str, name: &str, found: impl Into<String>, verdict: Verdict) -> Finding {
        Finding { topic, name: name.to_owned(), found: found.into(), verdict, meaning: None }
    }

    fn good(topic: &'static str, name: &str, found: impl Into<String>) -> Finding {
        Finding::new(topic, name, found, Verdict::Good)
    }

    fn note(topic: &'static str, name: &str, found: impl Into<String>) -> Finding {
        Finding::new(topic, name, found, Verdict::Note)
    }

    fn missing(topic: &'static str, name: &str, found: impl Into<String>) -> Finding {
        Finding::new(topic, name, found, Verdict::Missing)
    }

    fn because(mut self, meaning: &str) -> Finding {
        self.meaning = Some(meaning.to_owned());
        self
    }
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    fit: bool,
    findings: Vec<Finding>,
}

/// Prints the report; the status says whether machines can run here.
pub fn doctor(arguments: &Doctor) -> io::Result<u8> {
    let findings = examine();
    let fit = findings.iter().all(|finding| finding.verdict != Verdict::Missing);
    let text = match arguments.format {
        Format::Text => describe(&findings, fit),
        Format::Json => {
            let report = Report { version: env!("CARGO_PKG_VERSION"), fit, findings };
            serde_json::to_string_pretty(&report)? + "\n"
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(if fit { status::SUCCESS } else { status::UNFIT }),
    }
}

/// Looks at everything.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let mut findings = processor::examine();
    findings.extend(memory::examine());
    findings.extend(isolation::examine());
    findings.extend(guest::examine());
    findings
}

fn describe(findings: &[Finding], fit: bool) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut topic = "";
    for finding in findings {
        if finding.topic != topic {
            topic = finding.topic;
            text.push_str(&format!("{topic}\n"));
        }
        let mark = match finding.verdict {
            Verdict::Good => '+',
            Verdict::Note => '-',
            Verdict::Missing => '!',
        };
        text.push_str(&format!("  {mark} {:width$}  {}\n", finding.name, finding.found));
        if let Some(meaning) = &finding.meaning {
            text.push_str(&format!("    {:width$}  {meaning}\n", ""));
        }
    }
    text.push_str(if fit {
        "\nMachines can run here.\n"
    } else {
        "\nMachines cannot run here: see what is marked with !.\n"
    });
    text
}

/// A one-line file, trimmed; empty if it cannot be read.
fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Bytes as people say them.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_people_say_them() {
        let check = |bytes, expected: &str| assert_eq!(human(bytes), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1536, "1.5 KiB");
        check(8 << 30, "8 GiB");
    }

    #[test]
    fn what_is_missing_makes_a_host_unfit() {
        let findings = [Finding::missing("processor", "BMI2", "no").because("needed")];
        let text = describe(&findings, false);
        assert!(text.contains("! BMI2  no\n"), "{text}");
        assert!(text.ends_with("marked with !.\n"));
    }

    #[test]
    fn every_topic_is_examined_once() {
        let findings = examine();
        let mut topics: Vec<_> = findings.iter().map(|finding| finding.topic).collect();
        topics.dedup();
        let expected = ["processor", "address space", "memory", "limits", "isolation", "guest"];
        assert_eq!(topics, expected);
    }
}
