//! Section 4.3, figures 4 and 5: 1 to 16 servers, each in a domain of its own, against as many on one host.
//!
//! *Web servers* stand in for SPEC WEB99: nginx, with wrk as its client on the same machine. *Databases* stand in for
//! OSDB: PostgreSQL with pgbench's reads. Client and server share a machine, so that no network is measured; each pair
//! has one virtual processor.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use bench::bars::Group;
use bench::domains::Domains;
use bench::experiment::{Experiment, Report};
use bench::markdown::amount;
use bench::number::{Number, Work};
use bench::numbers::{nginx, pgbench};
use bench::root::{self, Applications};
use bench::systems::host;

use crate::Options;
use crate::work;

/// Figure 4.
pub const WEB: Experiment<Options> = Experiment {
    name: "web",
    title: "Figure 4: web servers, each in a domain, requests/s together",
    run: |options| figure(options, &nginx::NUMBER),
};

/// Figure 5.
pub const DATABASES: Experiment<Options> = Experiment {
    name: "databases",
    title: "Figure 5: databases, each in a domain, transactions/s together",
    run: |options| figure(options, &pgbench::NUMBER),
};

const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];

/// Time for one server to be prepared on the host, in seconds; the first needs the same for itself.
const PREPARE_SECONDS: u64 = 8;

/// The kinds of machines that are compared with the host.
const MACHINES: [(&str, &[&str]); 2] = [("biv xen", &["--xen"]), ("biv", &["--cold"])];

fn figure(options: &Options, number: &Number) -> Result<Report, String> {
    let applications = root::provide().map_err(|error| error.to_string())?;
    let Work::Program(program) = &number.work else { return Err("no program".into()) };
    let script = |wait: &str| {
        format!(
            "export bench_scale=100 bench_processors=1\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\n\
             mountpoint -q /tmp || mount -t tmpfs tmp /tmp\n\
             {}\n(\n{}\n) || echo failed\n\
             {wait}\n(\n{}\n) || echo failed\n",
            set_up_loopback(),
            program.preparation(),
            program.run,
        )
    };
    let mut report = Report::new(&["servers", "host", "biv xen", "of host", "biv", "of host"]);
    report.series = MACHINES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let most = options.domains.min(16) as usize;
    for count in COUNTS.into_iter().filter(|&count| count <= most) {
        let begin = bench::moment(PREPARE_SECONDS * (count as u64 + 1));
        let wait = format!("while [ $(date +%s) -lt {begin} ]; do sleep 0.05; done");
        let host = on_host(&applications, count, &script(&wait))?;
        let mut row = vec![count.to_string(), amount(host)];
        let mut bars = Vec::new();
        for (_, given) in MACHINES {
            let wait = format!("echo prepared\n{}", work::WAIT);
            let rate = in_domains(&applications.image, given, count, &script(&wait))?;
            row.extend([amount(rate), amount(rate / host)]);
            bars.push(Some(rate / host));
        }
        report.rows.push(row);
        report.groups.push(Group { label: format!("{count} servers"), bars });
    }
    Ok(report)
}

/// Namespaces and machines begin with a loopback interface that is down.
fn set_up_loopback() -> &'static str {
    "python3 -c 'import fcntl, socket, struct; \
     fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sh14x\", b\"lo\", 1))' \
     2>/dev/null || true"
}

/// The line `rate NUMBER` of a script's output.
fn rate(output: &str) -> Result<f64, String> {
    let line = output.lines().find_map(|line| line.trim_end().strip_prefix("rate "));
    line.and_then(|rate| rate.parse().ok()).ok_or(format!("no rate in: {}", output.trim_end()))
}

/// What so many do together on the host, each in namespaces of its own.
fn on_host(applications: &Applications, count: usize, script: &str) -> Result<f64, String> {
    let start = || -> Result<Child, String> {
        let mut command = host::namespaces(&applications.directory, |bwrap| Command::new(bwrap));
        command.args(["--", "/bin/sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(|error| format!("bwrap: {error}"))
    };
    let children = (0..count).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    let mut sum = 0.0;
    for child in children {
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        sum += rate(&String::from_utf8_lossy(&output.stdout))?;
    }
    Ok(sum)
}

/// The same in domains.
fn in_domains(image: &Path, options: &[&str], count: usize, script: &str) -> Result<f64, String> {
    let mut domains = Domains::new("servers")?;
    let disk = format!("{},snapshot", image.display());
    let names: Vec<String> = (0..count).map(|number| format!("server-{number}")).collect();
    for name in &names {
        let given = ["--mem", "512M", "--net", "none", "--root-disk", &disk];
        let script = format!("{script}\nsleep 1000000");
        domains.start(name, LIFE_SECONDS, &[options, &given].concat(), &["sh", "-c", &script])?;
    }
    for name in &names {
        wait_for(&domains, name, "prepared")?;
    }
    work::begin(&domains, &names)?;
    let mut sum = 0.0;
    for name in &names {
        sum += rate(&wait_for(&domains, name, "rate ")?)?;
    }
    Ok(sum)
}

/// The longest that a server needs to be prepared, and to be measured, in seconds.
const PATIENCE_SECONDS: u64 = 240;
const LIFE_SECONDS: u64 = 1200;

/// What a domain has said when a line of it begins with a word.
fn wait_for(domains: &Domains, name: &str, word: &str) -> Result<String, String> {
    for _ in 0..PATIENCE_SECONDS {
        let output = domains.output(name)?;
        if output.lines().any(|line| line.starts_with(word)) {
            return Ok(output);
        }
        if output.lines().any(|line| line.starts_with("failed")) {
            return Err(format!("{name} failed: {output}"));
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    Err(format!("{name} has not said {word:?} in {PATIENCE_SECONDS} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_found_or_its_absence_is_an_error() {
        assert_eq!(rate("x\nrate 12.5\r\n").unwrap(), 12.5);
        assert!(rate("failed\n").unwrap_err().contains("failed"));
    }
}
