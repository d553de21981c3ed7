//! Figure 8: 1 to 128 web servers, each in a pod of its own, beside as many on the host.
//!
//! The paper had Apache and httperf on another machine; here each nginx has a wrk beside it, in the same pod: what is
//! compared is many pods against many processes, and no network between them. All begin at one moment of the host's
//! clock. One that is not ready then makes the experiment fail.

use std::time::Instant;

use bench::bars::Group;
use bench::experiment::{Experiment, Report};
use bench::numbers::nginx;
use bench::pods::Place;
use bench::processes::{held_kib, tree};
use bench::{Spread, moment, root};

use crate::{Options, programs, shown};

/// See the head of this file.
pub const EXPERIMENT: Experiment<Options> = Experiment {
    name: "servers",
    title: "Figure 8: web servers, requests/s together",
    run: measure,
};

/// What one needs to be ready, on a core that it has for itself, and what all have besides.
const READY_MILLISECONDS: u64 = 250;
const READY_SECONDS: u64 = 3;

/// The port of each on the host, where they cannot all have the same.
const PORT: &str = "8080";
const FIRST_PORT: usize = 18_000;

fn measure(options: &Options) -> Result<Report, String> {
    let root = root::provide().map_err(|error| error.to_string())?.directory;
    let head = ["servers", "host (min, max)", "pods (min, max)", "pods / host"];
    let mut report = Report::new(&head);
    report.series = vec!["pods".into()];
    let place = Place::new("pods")?;
    let counts = std::iter::successors(Some(1_usize), |count| Some(count * 2));
    for count in counts.take_while(|&count| count <= options.pods) {
        let scripts = || -> Result<Vec<String>, String> {
            let seconds = READY_SECONDS + count as u64 * READY_MILLISECONDS / 1000;
            let begin = moment(seconds);
            (0..count).map(|server| script(begin, FIRST_PORT + server)).collect()
        };
        let (mut host, mut pods) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            for turn in [round, round + 1] {
                let scripts = scripts()?.into_iter();
                match turn % 2 {
                    0 => {
                        let all = scripts.map(|script| programs::on_host(&root, &script));
                        host.push(programs::together(all)?);
                    }
                    _ => {
                        let all = scripts.map(|script| programs::in_pod(&place, &root, &script));
                        pods.push(programs::together(all)?);
                    }
                }
            }
        }
        let (Some(host), Some(pods)) = (Spread::of(host), Spread::of(pods)) else {
            return Err("nothing was measured".into());
        };
        let ratio = pods.median / host.median;
        let row = [count.to_string(), shown(&host), shown(&pods), format!("{ratio:.3}")];
        report.rows.push(row.into());
        report.groups.push(Group { label: format!("{count} servers"), bars: vec![Some(ratio)] });
    }
    report.remarks.push(many(&place, options)?);
    Ok(report)
}

fn script(begin: u64, port: usize) -> Result<String, String> {
    let wait = format!(
        "[ $(date +%s) -lt {begin} ] || {{ echo late >&2; exit 1; }}\n\
         while [ $(date +%s) -lt {begin} ]; do sleep 0.05; done"
    );
    Ok(programs::script(&nginx::NUMBER, &wait)?.replace(PORT, &port.to_string()))
}

/// What it takes to have many.
fn many(place: &Place, options: &Options) -> Result<String, String> {
    let begun = Instant::now();
    for number in 0..options.pods {
        let name = format!("pod-{number}");
        place.pod(&["run", "-d", "--name", &name, "--", "sleep", "1000000"])?;
    }
    let started = begun.elapsed().as_secs_f64();
    let processes = place.pods()?.into_iter().flat_map(|(_, keeper)| tree(keeper));
    let kib: u64 = processes.map(held_kib).sum();
    let begun = Instant::now();
    place.remove_all()?;
    let ended = begun.elapsed().as_secs_f64();
    Ok(format!(
        "{} pods with `sleep` and a network each, one after another: started in {started:.1} s, \
         {:.1} MiB each (proportional set size, all their processes), removed together in \
         {ended:.1} s",
        options.pods,
        kib as f64 / 1024.0 / options.pods as f64,
    ))
}
