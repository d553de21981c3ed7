//! Section 4.3, figure 6: how much 1 to 128 computing domains do together, as a part of what two do; and what it takes
//! to start so many and to have them idle.

use std::time::{Duration, Instant};

use bench::bars::Group;
use bench::domains::{Domains, available_kib, others, settle, watch};
use bench::experiment::{Experiment, Report};
use bench::markdown::amount;

use crate::Options;
use crate::work;

/// See the head of this file.
pub const EXPERIMENT: Experiment<Options> =
    Experiment { name: "scale", title: "Figure 6: computing domains, what all do together", run };

/// Memory of each; what one may need of the host.
const MEMORY: &str = "96M";
const ROOM_KIB: u64 = 180 << 10;

/// Domains, doubled from one measurement to the next.
fn counts(most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1), |count| Some(count * 2)).take_while(move |&count| count <= most)
}

fn run(options: &Options) -> Result<Report, String> {
    let available = available_kib().ok_or("/proc/meminfo does not say what is available")?;
    let room = available / ROOM_KIB;
    let most = options.domains.min(room);
    let head =
        ["domains", "pieces/s together", "of two domains'", "slowest / fastest", "started in s"];
    let mut report = Report::new(&head);
    report.series = vec!["together, of two domains'".into()];
    let mut of_two = None;
    for count in counts(most) {
        let (rates, started) = together(options, count)?;
        let sum: f64 = rates.iter().sum();
        if count == 2 {
            of_two = Some(sum);
        }
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let part = of_two.map(|two| sum / two);
        report.rows.push(vec![
            count.to_string(),
            amount(sum),
            part.map_or("-".into(), amount),
            amount(slowest / fastest),
            amount(started.as_secs_f64()),
        ]);
        report.groups.push(Group { label: format!("{count} domains"), bars: vec![part] });
    }
    if most < options.domains {
        report.remarks.push(format!("This host has room for {room} domains only."));
    }
    report.remarks.push(idle(options, most.min(100))?);
    Ok(report)
}

fn start(domains: &mut Domains, name: &str, life: u64, script: &str) -> Result<(), String> {
    let given = ["--xen", "--busybox", "--mem", MEMORY, "--net", "none"];
    domains.start(name, life, &given, &["sh", "-c", script])
}

/// Each domain's rate, and how long all took to start.
fn together(options: &Options, count: u64) -> Result<(Vec<f64>, Duration), String> {
    let mut domains = Domains::new("scale")?;
    let life = count * 10 + options.seconds * 4 + 300;
    let (begun, script) = (Instant::now(), work::computing(options.seconds));
    let names: Vec<String> = (0..count).map(|number| format!("scale-{number}")).collect();
    for name in &names {
        start(&mut domains, name, life, &script)?;
    }
    let started = begun.elapsed();
    let begin = work::begin(&domains, &names)?;
    work::sleep_until(begin + options.seconds + 1);
    let rates: Result<Vec<f64>, String> =
        names.iter().map(|name| work::rate(&domains, name)).collect();
    Ok((rates?, started))
}

/// What idle domains cost.
fn idle(options: &Options, count: u64) -> Result<String, String> {
    let mut domains = Domains::new("idle")?;
    let begun = Instant::now();
    for number in 0..count {
        start(&mut domains, &format!("idle-{number}"), count * 5 + 600, "exec sleep 1000000")?;
    }
    let started = begun.elapsed().as_secs_f64();
    settle();
    let used = watch(&others(), Duration::from_secs(options.seconds));
    Ok(format!(
        "{count} idle domains: started in {started:.0} s, together {:.2}% of one core",
        100.0 * used.seconds / options.seconds as f64
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_double() {
        assert_eq!(super::counts(20).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
    }
}
