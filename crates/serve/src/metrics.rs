//! `GET /metrics`: numbers for Prometheus, in its text format, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use api::client::Client;
use api::v1::Statistics;
use api::{Entry, Registry};

use crate::call::{Call, blocking};
use crate::domains::{State, ask, at_once, state_of};
use crate::error::Error;
use crate::limits::DOMAIN_TIMEOUT;
use crate::reply::{self, Reply};
use crate::shared::Shared;
use crate::verb::Usage;

/// The kind of the answer.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A domain at one time.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    state: State,
    processors: u8,
    /// If it lives and answers.
    statistics: Option<(Statistics, Usage)>,
}

/// The server's own process.
#[derive(Debug, Clone, Default, PartialEq)]
struct Own {
    version: String,
    started: f64,
    computed: f64,
    memory: u64,
    descriptors: usize,
    connections: usize,
    jobs: usize,
}

/// Metrics of all domains, and of the server, in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "Metrics", body = String, content_type = "text/plain")))]
pub async fn metrics(call: Call) -> Result<Reply, Error> {
    let shared = call.shared.clone();
    let text = blocking(move || {
        let entries = Registry::open()?.list()?;
        let samples = at_once(&entries, |entry| sample(&shared, entry));
        Ok(shown(&own(&shared), &samples))
    });
    Ok(reply::text(KIND, text.await?))
}

fn sample(shared: &Shared, entry: &Entry) -> Sample {
    let said = entry.alive.then(|| ask(entry)).flatten();
    let statistics = || {
        let client = Client::connect(entry).ok()?.within(DOMAIN_TIMEOUT).ok()?;
        let process = client.process()?;
        let statistics = client.get("/v1/domain/statistics").ok()?;
        Some((statistics, shared.program.usage(process.as_raw_pid())))
    };
    Sample {
        name: entry.name.to_string(),
        state: state_of(entry, said.as_ref()),
        processors: entry.record.as_ref().map_or(0, |record| record.processors),
        statistics: said.is_some().then(statistics).flatten(),
    }
}

fn own(shared: &Shared) -> Own {
    let computed = host::usage::process_time(std::process::id().cast_signed());
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    Own {
        version: shared.program.version(),
        started: shared.started as f64 / 1000.0,
        computed: computed.unwrap_or_default().as_secs_f64(),
        memory: resident(),
        descriptors,
        connections: shared.connected.count(),
        jobs: shared.jobs.list().len(),
    }
}

/// Memory of the host that this process has (proc(5)).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// What is printed.
#[derive(Debug, Default)]
struct Text(String);

impl Text {
    /// What follows are samples of this metric.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// A label's value as the format has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The name of a state.
fn named(state: State) -> String {
    let name = serde_json::to_value(state).ok();
    name.and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

fn shown(own: &Own, samples: &[Sample]) -> String {
    let mut text = Text::default();
    text.family("bivouac_info", "gauge", "The program, as a label.");
    text.sample("bivouac_info", &[("version", &own.version)], 1);
    states(&mut text, samples);
    numbers(&mut text, samples);
    text.single("bivouac_connections", "gauge", "Connections to the server.", own.connections);
    text.single("bivouac_jobs", "gauge", "Jobs that the server remembers.", own.jobs);
    let seconds = "Time of the host's processors that the server has had.";
    text.single("process_cpu_seconds_total", "counter", seconds, own.computed);
    let memory = "Memory of the host that the server has.";
    text.single("process_resident_memory_bytes", "gauge", memory, own.memory);
    let started = "When the server started, since 1970.";
    text.single("process_start_time_seconds", "gauge", started, own.started);
    text.single("process_open_fds", "gauge", "Descriptors of the server.", own.descriptors);
    text.0
}

fn states(text: &mut Text, samples: &[Sample]) {
    let mut counts: BTreeMap<State, usize> = State::ALL.iter().map(|state| (*state, 0)).collect();
    for sample in samples {
        *counts.entry(sample.state).or_default() += 1;
    }
    text.family("bivouac_domains", "gauge", "Domains in each state.");
    for (state, count) in counts {
        text.sample("bivouac_domains", &[("state", &named(state))], count);
    }
    text.family("bivouac_domain_state", "gauge", "1 for the state that a domain is in.");
    for Sample { name, state, .. } in samples {
        text.sample("bivouac_domain_state", &[("domain", name), ("state", &named(*state))], 1);
    }
    text.family("bivouac_domain_processors", "gauge", "Processors of a domain.");
    for Sample { name, processors, .. } in samples {
        text.sample("bivouac_domain_processors", &[("domain", name)], processors);
    }
}

/// A metric of a domain: its name, its kind, what it is, and its value.
type Metric = (&'static str, &'static str, &'static str, fn(&Statistics, &Usage) -> f64);

const METRICS: [Metric; 7] = [
    ("memory_bytes", "gauge", "Memory that a domain may have.", |said, _| said.memory as f64),
    ("memory_used_bytes", "gauge", "Memory that a domain's guest has touched.", |said, _| {
        said.memory_used as f64
    }),
    ("host_memory_bytes", "gauge", "Memory of the host that a domain has.", |_, used| {
        used.memory as f64
    }),
    ("cpu_seconds_total", "counter", "Time of the host's processors.", |_, used| {
        used.computed.as_secs_f64()
    }),
    ("sessions_total", "counter", "Commands that have been run in a domain.", |said, _| {
        said.sessions as f64
    }),
    // By the host's account, or else by the domain's, which knows of fewer processes.
    ("read_bytes_total", "counter", "Bytes read from disks of the host.", |said, used| {
        said.read_bytes.max(used.read) as f64
    }),
    ("written_bytes_total", "counter", "Bytes written to disks of the host.", |said, used| {
        said.written_bytes.max(used.written) as f64
    }),
];

fn numbers(text: &mut Text, samples: &[Sample]) {
    for (name, kind, help, value) in METRICS {
        let name = format!("bivouac_domain_{name}");
        text.family(&name, kind, help);
        for sample in samples {
            if let Some((statistics, usage)) = &sample.statistics {
                text.sample(&name, &[("domain", &sample.name)], value(statistics, usage));
            }
        }
    }
    let name = "bivouac_domain_exits_total";
    text.family(name, "counter", "Exits from guest code, by processor.");
    for sample in samples {
        let processors = sample.statistics.iter().flat_map(|(said, _)| &said.processors);
        for (number, processor) in processors.enumerate() {
            let labels = [("domain", sample.name.as_str()), ("processor", &number.to_string())];
            text.sample(name, &labels, processor.exits);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::v1::Processor;

    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut text = Text::default();
        text.sample("a", &[("b", "c\"d\\e\nf"), ("g", "h")], 1);
        assert_eq!(text.0, "a{b=\"c\\\"d\\\\e\\nf\",g=\"h\"} 1\n");
    }

    #[test]
    fn every_sample_follows_its_family() {
        let statistics = Statistics {
            memory: 1 << 30,
            read_bytes: 7,
            processors: vec![Processor::default(), Processor { exits: 3, ..Processor::default() }],
            ..Statistics::default()
        };
        let sample = Sample {
            name: "web".to_owned(),
            state: State::NotAnswering,
            processors: 2,
            statistics: Some((statistics, Usage { read: 9, ..Usage::default() })),
        };
        let text = shown(&Own::default(), &[sample]);
        for line in [
            "bivouac_domains{state=\"not-answering\"} 1",
            "bivouac_domains{state=\"running\"} 0",
            "bivouac_domain_state{domain=\"web\",state=\"not-answering\"} 1",
            "bivouac_domain_memory_bytes{domain=\"web\"} 1073741824",
            "bivouac_domain_read_bytes_total{domain=\"web\"} 9",
            "bivouac_domain_exits_total{domain=\"web\",processor=\"1\"} 3",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
        }
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(declared) => family = declared.split(' ').next().unwrap_or_default(),
                None if line.starts_with('#') => {}
                None => assert_eq!(line.split(['{', ' ']).next(), Some(family)),
            }
        }
    }
}
