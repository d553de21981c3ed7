//! Figure 6: what calls about names cost in a pod, beside the host.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Command, Stdio};

use bench::bars::Group;
use bench::experiment::{Experiment, Report};
use bench::pods::{Place, beside};
use bench::{Spread, run};

use crate::{Options, shown};

/// See the head of this file.
pub const EXPERIMENT: Experiment<Options> =
    Experiment { name: "calls", title: "Figure 6: calls about names, in ns", run: measure };

/// In the paper's order.
const CALLS: [&str; 7] = ["getpid", "getsid", "getpgid", "fork", "execve", "shmget", "shmat"];

/// The pod's name in its registry.
const NAME: &str = "measured";

/// Where the program that measures is in the pod.
const IN_POD: &str = "/tmp/pod-probe";

/// Nanoseconds of each call, round by round.
type Samples = BTreeMap<String, Vec<f64>>;

/// Starts the pod, with the program that measures in it.
fn start(place: &Place) -> Result<(), String> {
    place.pod(&["run", "-d", "--name", NAME, "--", "sleep", "1000000"])?;
    let probe = beside("pod-probe")?;
    let program = File::open(&probe).map_err(|error| format!("{}: {error}", probe.display()))?;
    let put = format!("cat >{IN_POD} && chmod 755 {IN_POD}");
    let mut command = place.command(&["exec", "-i", NAME, "sh", "-c", &put]);
    let status = command.stdin(Stdio::from(program)).status();
    match status.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err("the program that measures cannot be copied into the pod".to_owned()),
    }
}

fn measure(options: &Options) -> Result<Report, String> {
    let place = Place::new("pods")?;
    start(&place)?;
    let probe = beside("pod-probe")?;
    let (mut host, mut pod) = (Samples::new(), Samples::new());
    for round in 0..options.rounds {
        // What disturbs the host whenever a round begins does not meet the same one each time.
        for turn in [round, round + 1] {
            match turn % 2 {
                0 => note(&mut host, &run(Command::new(&probe).arg("measure"))?),
                _ => note(&mut pod, &place.pod(&["exec", NAME, IN_POD, "measure"])?),
            }
        }
    }
    let mut report = Report::new(&["call", "host (min, max)", "pod (min, max)", "pod / host"]);
    report.series = vec!["pod".into()];
    for call in CALLS {
        let of = |samples: &Samples| samples.get(call).cloned().and_then(Spread::of);
        let (Some(host), Some(pod)) = (of(&host), of(&pod)) else {
            return Err(format!("{call} was not measured"));
        };
        let ratio = pod.median / host.median;
        report.rows.push(vec![call.into(), shown(&host), shown(&pod), format!("{ratio:.3}")]);
        report.groups.push(Group { label: call.into(), bars: vec![Some(ratio)] });
    }
    Ok(report)
}

fn note(samples: &mut Samples, said: &str) {
    for line in said.lines() {
        if let Some((call, Ok(nanoseconds))) =
            line.split_once(' ').map(|(call, number)| (call, number.parse()))
        {
            samples.entry(call.to_owned()).or_default().push(nanoseconds);
        }
    }
}
