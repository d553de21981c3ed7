//! Work that several domains do at the same time, and that each counts.
//!
//! A domain's command waits to be told a second of the wall clock, which guests have from the host, and for that
//! second; then it does the same piece of work again and again until its time is over. It prints
//! `work PIECES CENTISECONDS`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::domains::Domains;
use bench::moment;

/// The shell computes: a piece is 2,000 turns of a loop. The shell's own `read` tells the time without a process.
const COMPUTE: &str = "\
now() { read up rest </proc/uptime; at=$((${up%.*} * 100 + 1${up#*.} - 100)); }
piece() { i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; }";

/// Wait for the moment that [`begin`] tells.
pub const WAIT: &str = "\
until [ -s /begin ]; do sleep 0.5; done
read begin </begin
while [ $(date +%s) -lt $begin ]; do sleep 0.05; done";

/// Work and count.
const COUNT: &str = "\
now; first=$at; pieces=0
while now; [ $((at - first)) -lt $((seconds * 100)) ]; do piece; pieces=$((pieces + 1)); done
echo work $pieces $((at - first))
sleep 1000000";

/// The script of a domain that computes, once it is told to begin.
pub fn computing(seconds: u64) -> String {
    format!("seconds={seconds}\n{COMPUTE}\n{WAIT}\n{COUNT}")
}

/// Tell domains to begin, all at one moment, which is returned.
///
/// # Errors
///
/// When one does not listen.
pub fn begin(domains: &Domains, names: &[String]) -> Result<u64, String> {
    let moment = moment(3 + names.len() as u64);
    for name in names {
        let tell = format!("echo {moment} >/begin.new && mv /begin.new /begin");
        bench::run(domains.biv(60).args(["exec", name, "sh", "-c", &tell]))?;
    }
    Ok(moment)
}

/// Sleep until so long after a moment.
pub fn sleep_until(moment: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    std::thread::sleep(Duration::from_secs(moment).saturating_sub(now));
}

/// Pieces that a domain did in a second.
///
/// # Errors
///
/// When it has not said so within ten seconds.
pub fn rate(domains: &Domains, name: &str) -> Result<f64, String> {
    for _ in 0..20 {
        if let Some(rate) = rate_in(&domains.output(name)?) {
            return Ok(rate);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Err(format!("{name} does not say what it has done: {}", domains.output(name)?.trim_end()))
}

fn rate_in(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.trim_end().strip_prefix("work "))?;
    let (pieces, time) = line.split_once(' ')?;
    Some(pieces.parse::<f64>().ok()? / (time.parse::<f64>().ok()? / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_counts_what_it_does() {
        let script = computing(1).replace(WAIT, "").replace("sleep 1000000", "");
        let said = bench::run(std::process::Command::new("sh").args(["-c", &script])).unwrap();
        assert!(rate_in(&said).unwrap() > 1.0, "{said}");
        assert_eq!(rate_in("work much 3"), None);
        assert_eq!(rate_in("x\nwork 30 200\r\n"), Some(15.0));
    }
}
