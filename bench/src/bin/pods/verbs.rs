//! What the verbs take, with the start of a pod where there is one, and what a thousand of them leave behind.

use std::fs;
use std::time::Instant;

use bench::experiment::{Experiment, Report};
use bench::pods::Place;
use bench::processes::{held_kib, tree};
use bench::{Spread, run};

use crate::{Options, criu, shown};

/// Times of single verbs.
pub const TIMES: Experiment<Options> =
    Experiment { name: "verbs", title: "Verbs, in ms", run: times };

/// A pod that is written down, ended and made again, again and again.
pub const CYCLES: Experiment<Options> =
    Experiment { name: "cycles", title: "Cycles of checkpoint and restart", run: cycles };

const NAME: &str = "pod";

fn milliseconds(place: &Place, arguments: &[&str]) -> Result<f64, String> {
    let begun = Instant::now();
    place.pod(arguments)?;
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}

fn times(options: &Options) -> Result<Report, String> {
    let place = Place::new("pods")?;
    let image = place.file("image");
    let sleep = ["run", "-d", "--name", NAME, "--", "sleep", "1000000"];
    let steps: [(&str, &[&str]); 6] = [
        ("run -- true", &["run", "--", "true"]),
        ("run --net none -- true", &["run", "--net", "none", "--", "true"]),
        ("run -d -- sleep", &sleep),
        ("checkpoint --stop", &["checkpoint", "--stop", "-o", &image, NAME]),
        ("restart -d", &["restart", "-d", "--name", NAME, &image]),
        ("rm -f", &["rm", "-f", NAME]),
    ];
    let mut found = [const { Vec::new() }; 6];
    for _ in 0..options.rounds {
        for ((verb, arguments), found) in steps.iter().zip(&mut found) {
            found.push(milliseconds(&place, arguments)?);
            if *verb == "checkpoint --stop" {
                place.pod(&["wait", NAME]).ok();
                place.pod(&["rm", "-f", NAME]).ok();
            }
        }
        fs::remove_file(&image).map_err(|error| error.to_string())?;
    }
    let mut report = Report::new(&["biv pod", "median (min, max)"]);
    for ((verb, _), found) in steps.iter().zip(found) {
        let spread = Spread::of(found).ok_or("nothing was measured")?;
        report.rows.push(vec![(*verb).into(), shown(&spread)]);
    }
    criu::add(&mut report, place.directory(), options.rounds)?;
    Ok(report)
}

/// What there is of a pod.
struct Census {
    image_bytes: u64,
    held_kib: u64,
    processes: usize,
    files: usize,
}

fn census(place: &Place, image: &str) -> Result<Census, String> {
    let pods = place.pods()?;
    let processes = pods.into_iter().flat_map(|(_, keeper)| tree(keeper));
    let of_host = fs::read_dir("/proc").map_err(|error| error.to_string())?.flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let files = run(std::process::Command::new("find").arg(place.directory()))?;
    Ok(Census {
        image_bytes: fs::metadata(image).map_err(|error| error.to_string())?.len(),
        held_kib: processes.map(held_kib).sum(),
        processes: of_host.filter(|it| it.file_name().to_str().is_some_and(is_process)).count(),
        files: files.lines().count(),
    })
}

fn cycles(options: &Options) -> Result<Report, String> {
    let place = Place::new("pods")?;
    let image = place.file("image");
    let count = "n=0; while :; do n=$((n+1)); echo $n >/tmp/n; sleep 0.01; done";
    place.pod(&["run", "-d", "--name", NAME, "--", "sh", "-c", count])?;
    let mut report = Report::new(&[
        "cycles",
        "image, KiB",
        "its processes, KiB",
        "processes of the host",
        "files",
    ]);
    let most = options.cycles;
    let (mut frozen, begun) = (0, Instant::now());
    for cycle in 1..=most {
        place.pod(&["checkpoint", "--stop", "-o", &image, NAME])?;
        place.pod(&["rm", "-f", NAME]).ok();
        place.pod(&["restart", "-d", "--name", NAME, &image])?;
        if cycle == 1 || cycle == most || cycle % (most / 4).max(1) == 0 {
            let Census { image_bytes, held_kib, processes, files } = census(&place, &image)?;
            let numbers = [cycle as u64, image_bytes >> 10, held_kib];
            let mut row: Vec<String> = numbers.iter().map(u64::to_string).collect();
            row.extend([processes.to_string(), files.to_string()]);
            report.rows.push(row);
        }
        fs::remove_file(&image).map_err(|error| error.to_string())?;
        let said = place.pod(&["exec", NAME, "cat", "/tmp/n"])?;
        // What was being written in that moment may be empty.
        if let Ok(count) = said.trim().parse::<u64>() {
            if count < frozen {
                return Err(format!("cycle {cycle}: it went back from {frozen} to {count}"));
            }
            frozen = count;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    report.remarks.push(format!("{most} cycles took {seconds:.1} s; the pod counted to {frozen}."));
    Ok(report)
}
