//! Section 4.3, "performance isolation": four equal domains, of which two compute, and two are well-behaved or harm the
//! others as they can.
//!
//! The paper had a database and a web server beside a disk hog with a fork bomb, and a memory grower with a packet
//! flood; its victims lost 4% and 2%. Here the victims count computing, which is what the scheduler divides, and each
//! kind of harm is made alone and in pairs. What is lost is relative to two neighbours that compute honestly: four
//! domains of equal weight have a quarter of the processors each, whatever the others do with theirs.

use bench::bars::Group;
use bench::domains::Domains;
use bench::experiment::{Experiment, Report};
use bench::markdown::amount;

use crate::Options;
use crate::work;

/// See the head of this file.
pub const EXPERIMENT: Experiment<Options> = Experiment {
    name: "isolation",
    title: "Section 4.3: two of four equal domains, beside two that do harm",
    run,
};

/// What a neighbour does until its domain is removed.
struct Neighbour {
    name: &'static str,
    /// With a network or a disk, where it needs that.
    needs: &'static [Need],
    script: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Disk,
    Network,
}

const HONEST: Neighbour = Neighbour {
    name: "computing",
    needs: &[],
    script: "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; done",
};

const HARM: [Neighbour; 4] = [
    Neighbour {
        name: "disk hog",
        needs: &[Need::Disk],
        script: "while :; do dd if=/dev/zero of=/dev/xvda bs=1M count=200 conv=fsync 2>/dev/null; \
                 dd if=/dev/xvda of=/dev/null bs=1M count=200 2>/dev/null; done",
    },
    Neighbour {
        name: "fork bomb",
        needs: &[],
        script: "bomb() { while :; do bomb & done; }; bomb 2>/dev/null",
    },
    Neighbour {
        name: "memory grower",
        needs: &[],
        script: "while :; do tail /dev/zero 2>/dev/null; done",
    },
    Neighbour {
        name: "packet flood",
        needs: &[Need::Network],
        script: "while :; do dd if=/dev/zero bs=1400 count=100000 2>/dev/null | \
                 nc -u -w 1 10.0.2.2 9 2>/dev/null; done",
    },
];

/// The size of a disk hog's disk.
const DISK_BYTES: u64 = 256 << 20;

fn run(options: &Options) -> Result<Report, String> {
    let mut report = Report::new(&["neighbours", "first", "second", "of beside honest ones"]);
    report.series = vec!["of what is done beside honest neighbours".into()];
    let honest = victims(options, &[&HONEST, &HONEST])?;
    let mut add = |name: &str, [first, second]: [f64; 2]| {
        let part = (first + second) / (honest[0] + honest[1]);
        report.rows.push(vec![name.into(), amount(first), amount(second), format!("{part:.3}")]);
        report.groups.push(Group { label: name.into(), bars: vec![Some(part)] });
    };
    add("two that compute", honest);
    for harm in &HARM {
        add(harm.name, victims(options, &[harm, harm])?);
    }
    let pairs = [[&HARM[0], &HARM[1]], [&HARM[2], &HARM[3]]];
    for pair in pairs {
        add(&format!("{} and {}", pair[0].name, pair[1].name), victims(options, &pair)?);
    }
    report.remarks.push("Pieces of work per second of the two domains that are looked at.".into());
    Ok(report)
}

/// A disk of its own for a neighbour, removed when dropped.
struct Disk(std::path::PathBuf);

impl Disk {
    fn new(name: &str) -> Result<Disk, String> {
        let path = std::env::temp_dir().join(format!("bivouac-{name}-{}.img", std::process::id()));
        let file = std::fs::File::create(&path).map_err(|error| error.to_string())?;
        let disk = Disk(path);
        file.set_len(DISK_BYTES).map_err(|error| error.to_string())?;
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What two domains do in a second beside two others.
fn victims(options: &Options, neighbours: &[&Neighbour; 2]) -> Result<[f64; 2], String> {
    let mut domains = Domains::new("isolation")?;
    let mut disks = Vec::new();
    let life = options.seconds * 4 + 300;
    let plain = ["--xen", "--busybox", "--mem", "128M"];
    for (index, neighbour) in neighbours.iter().enumerate() {
        let name = format!("neighbour-{index}");
        let network = if neighbour.needs.contains(&Need::Network) { "user" } else { "none" };
        let mut given: Vec<String> = plain.map(str::to_owned).to_vec();
        given.extend(["--net".into(), network.into()]);
        if neighbour.needs.contains(&Need::Disk) {
            let disk = Disk::new(&name)?;
            given.extend(["--disk".into(), disk.0.display().to_string()]);
            disks.push(disk);
        }
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        domains.start(&name, life, &given, &["sh", "-c", neighbour.script])?;
    }
    let script = work::computing(options.seconds);
    let names = ["first", "second"].map(str::to_owned);
    for name in &names {
        let given = [&plain[..], &["--net", "none"]].concat();
        domains.start(name, life, &given, &["sh", "-c", &script])?;
    }
    let begin = work::begin(&domains, &names)?;
    work::sleep_until(begin + options.seconds + 1);
    let [first, second] = names.map(|name| work::rate(&domains, &name));
    // Before their disks are.
    domains.clear();
    Ok([first?, second?])
}
