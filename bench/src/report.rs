//! Tables, CSV and a bar chart of what was measured.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::run::{Round, System};

/// A promise: what it is about, the most it may be of TCG's time, and its unit.
struct Promise {
    name: &'static str,
    of_tcg: Option<f64>,
    unit: (&'static str, f64),
}

const fn promise(name: &'static str, of_tcg: f64, unit: &'static str, divisor: f64) -> Promise {
    Promise { name, of_tcg: Some(of_tcg), unit: (unit, divisor) }
}

const PROMISES: [Promise; 11] = [
    promise("launch", 0.6, "ms", 1e6),
    promise("sha256", 0.5, "ms", 1e6),
    promise("nbody", 0.5, "ms", 1e6),
    promise("qsort", 0.5, "ms", 1e6),
    promise("bytecode", 0.5, "ms", 1e6),
    Promise { name: "chase", of_tcg: None, unit: ("ms", 1e6) },
    promise("null-syscall", 0.5, "ns", 1.0),
    promise("pipe-round-trip", 0.5, "us", 1e3),
    promise("fork-exec", 0.5, "us", 1e3),
    promise("page-fault", 0.5, "us", 1e3),
    Promise { name: "memory", of_tcg: None, unit: ("MiB", 1_048_576.0) },
];

/// Programs whose geometric mean is promised.
const COMPUTING: [&str; 5] = ["sha256", "nbody", "qsort", "bytecode", "chase"];

/// Median, minimum and maximum.
fn spread(rounds: &[(System, Round)], system: System, name: &str) -> Option<[f64; 3]> {
    let of_system = rounds.iter().filter(|(whose, _)| *whose == system);
    let mut values: Vec<f64> =
        of_system.filter_map(|(_, round)| round.get(name).copied()).collect();
    values.sort_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    Some([values[values.len() / 2], first, last])
}

/// The better of TCG's two configurations.
fn tcg(rounds: &[(System, Round)], name: &str) -> Option<f64> {
    let of = |system| spread(rounds, system, name).map(|[median, ..]| median);
    match (of(System::Tcg), of(System::TcgNoStrings)) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

/// Print the table, and write `bench.csv` and `bench.svg`.
pub fn write(rounds: &[(System, Round)], directory: &Path) -> Result<(), String> {
    let (mut table, mut csv) = (String::new(), String::from("name,system,unit,median,min,max\n"));
    let mut bars = Vec::new();
    let mut ratios = (Vec::new(), Vec::new());
    let _ = writeln!(
        table,
        "{:<16} {:>26} {:>12} {:>12} {:>8} {:>8}  promise",
        "", "biv (min..max)", "tcg", "host", "/tcg", "/host"
    );
    for Promise { name, of_tcg, unit: (unit, divisor) } in PROMISES {
        for system in System::all() {
            if let Some(values) = spread(rounds, system, name) {
                let [median, low, high] = values.map(|value| value / divisor);
                let _ = writeln!(csv, "{name},{},{unit},{median},{low},{high}", system.name());
            }
        }
        let Some([median, low, high]) = spread(rounds, System::Biv, name) else { continue };
        let (tcg, host) = (tcg(rounds, name), spread(rounds, System::Host, name).map(|v| v[0]));
        let (of_tcg_now, of_host) = (tcg.map(|tcg| median / tcg), host.map(|host| median / host));
        if COMPUTING.contains(&name) {
            ratios.0.extend(of_tcg_now);
            ratios.1.extend(of_host);
        }
        let number = |value: Option<f64>, scale: f64, places: usize| {
            value.map_or("-".into(), |value| format!("{:.places$}", value / scale))
        };
        let mut verdict = of_tcg.map_or(String::new(), |most| {
            let reached = of_tcg_now.is_some_and(|ratio| ratio <= most);
            format!("<= {most} of tcg: {}", if reached { "yes" } else { "no" })
        });
        if name == "memory" {
            let reached = median <= 60.0 * 1_048_576.0;
            verdict = format!("<= 60 MiB: {}", if reached { "yes" } else { "no" });
        }
        let biv =
            format!("{:.1} ({:.1}..{:.1}) {unit}", median / divisor, low / divisor, high / divisor);
        let _ = writeln!(
            table,
            "{name:<16} {biv:>26} {:>12} {:>12} {:>8} {:>8}  {verdict}",
            number(tcg, divisor, 1),
            number(host, divisor, 1),
            number(of_tcg_now, 1.0, 2),
            number(of_host, 1.0, 2),
        );
        if let Some(ratio) = of_tcg_now.filter(|_| name != "memory") {
            bars.push((name, ratio));
        }
    }
    for (what, ratios, most) in [("tcg", &ratios.0, 0.45), ("host", &ratios.1, 3.0)] {
        if let Some(mean) = mean(ratios) {
            let reached = if mean <= most { "yes" } else { "no" };
            let _ = writeln!(
                table,
                "computing, geometric mean of {what}: {mean:.2} (<= {most}: {reached})"
            );
        }
    }
    print!("{table}");
    let failed =
        |error: std::io::Error| format!("cannot write to {}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    fs::write(directory.join("bench.csv"), csv).map_err(failed)?;
    fs::write(directory.join("bench.svg"), chart(&bars)).map_err(failed)
}

/// Bars of biv's time as a fraction of TCG's; the line is TCG.
fn chart(bars: &[(&str, f64)]) -> String {
    let (row, left, width) = (24, 140, 420.0);
    let height = row * bars.len() + 40;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <text x=\"8\" y=\"18\">Time under biv, as a fraction of QEMU TCG's (shorter is better)</text>\n"
    );
    for (index, (name, ratio)) in bars.iter().enumerate() {
        let (y, length) = (30 + row * index, (ratio * width).min(width * 1.1));
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{}\">{name}</text><rect x=\"{left}\" y=\"{y}\" width=\"{length:.0}\" \
             height=\"16\" fill=\"#3b7dd8\"/><text x=\"{:.0}\" y=\"{}\">{ratio:.2}</text>",
            y + 13,
            f64::from(left) + length + 6.0,
            y + 13
        );
    }
    let one = f64::from(left) + width;
    let _ = writeln!(
        svg,
        "<line x1=\"{one}\" y1=\"26\" x2=\"{one}\" y2=\"{}\" stroke=\"#888\"/>\n</svg>",
        height - 8
    );
    svg
}
