//! Figure 7: whole programs. The paper's were a build of Linux, hackbench, MySQL and VolanoMark; ours are a build of
//! Lua, pipelines of short processes, PostgreSQL with pgbench, and redis with 20 connections.

use bench::bars::Group;
use bench::experiment::{Experiment, Report};
use bench::number::Number;
use bench::numbers::{build, pgbench, redis, storm};
use bench::pods::Place;
use bench::{Spread, root};

use crate::{Options, programs, shown};

/// See the head of this file.
pub const EXPERIMENT: Experiment<Options> = Experiment {
    name: "applications",
    title: "Figure 7: applications in a pod, beside the host",
    run: measure,
};

const NUMBERS: [&Number; 4] = [&build::NUMBER, &storm::NUMBER, &pgbench::NUMBER, &redis::NUMBER];

fn measure(options: &Options) -> Result<Report, String> {
    let root = root::provide().map_err(|error| error.to_string())?.directory;
    let head = ["program", "unit", "host (min, max)", "pod (min, max)", "of the host's speed"];
    let mut report = Report::new(&head);
    report.series = vec!["pod".into()];
    let place = Place::new("pods")?;
    for number in NUMBERS {
        let script = programs::script(number, "")?;
        let (mut host, mut pod) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            for turn in [round, round + 1] {
                match turn % 2 {
                    0 => host.push(programs::alone(programs::on_host(&root, &script))?),
                    _ => pod.push(programs::alone(programs::in_pod(&place, &root, &script))?),
                }
            }
        }
        let (Some(host), Some(pod)) = (Spread::of(host), Spread::of(pod)) else {
            return Err(format!("{} was not measured", number.name));
        };
        let speed = number.unit.speed(pod.median, host.median);
        let (title, unit) = (number.title.into(), number.unit.name.into());
        report.rows.push(vec![title, unit, shown(&host), shown(&pod), format!("{speed:.3}")]);
        report.groups.push(Group { label: number.title.into(), bars: vec![Some(speed)] });
    }
    Ok(report)
}
