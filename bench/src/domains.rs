//! Many domains of one experiment, in a registry of their own: what starts them, what watches them, and their end.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::processes::{Computed, computed, end, tree};
use crate::run;

/// Domains are quiet when they compute more than this part of what they did in the span before.
const QUIET: f64 = 0.9;

/// The span, and how many of them to wait at most.
pub const SPAN: Duration = Duration::from_secs(5);
const MOST_SPANS: u32 = 24;

/// Domains, all of which vanish with this.
#[derive(Debug)]
pub struct Domains {
    biv: PathBuf,
    registry: PathBuf,
    names: Vec<String>,
}

impl Domains {
    /// None yet. Domains go on without whoever has started them, and are not to get out of sight: this process adopts
    /// orphans from now on.
    ///
    /// # Errors
    ///
    /// When there is no place for their registry.
    pub fn new(label: &str) -> Result<Domains, String> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| error.to_string())?;
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let registry = std::env::temp_dir().join(format!("bivouac-{label}-{}", std::process::id()));
        fs::create_dir(&registry).map_err(|error| format!("{}: {error}", registry.display()))?;
        Ok(Domains { biv: own.with_file_name("biv"), registry, names: Vec::new() })
    }

    /// `biv` in this registry; it does not outlive its patience, in seconds.
    pub fn biv(&self, patience: u64) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &patience.to_string()]).arg(&self.biv);
        command.env("XDG_RUNTIME_DIR", &self.registry);
        command
    }

    /// Start one in the background: options of `biv run`, and its command. It ends by itself after so many seconds.
    ///
    /// # Errors
    ///
    /// What `biv` complains about.
    pub fn start(
        &mut self,
        name: &str,
        life: u64,
        options: &[&str],
        command: &[&str],
    ) -> Result<(), String> {
        let mut biv = self.biv(START_SECONDS);
        biv.args(["run", "-d", "--name", name, "--timeout", &life.to_string()]);
        biv.args(["--cpus=1", "--mem=1G"]);
        run(biv.args(options).arg("--").args(command))?;
        self.names.push(name.to_owned());
        Ok(())
    }

    /// What its command has written to standard output so far.
    ///
    /// # Errors
    ///
    /// What `biv` complains about.
    pub fn output(&self, name: &str) -> Result<String, String> {
        run(self.biv(30).args(["logs", name]))
    }

    /// The domain's own process.
    pub fn process(&self, name: &str) -> Option<u32> {
        let text = run(self.biv(30).args(["inspect", name])).ok()?;
        let (_, rest) = text.split_once("\"pid\":")?;
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    /// End all of them.
    pub fn clear(&mut self) {
        if !self.names.is_empty() {
            let patience = 30 + self.names.len() as u64;
            let removed = run(self.biv(patience).args(["rm", "--force"]).args(&self.names));
            if let Err(error) = removed {
                eprintln!("{error}");
            }
        }
        self.names.clear();
        others().into_iter().for_each(end);
    }
}

/// The longest that one may need to start, in seconds.
pub const START_SECONDS: u64 = 60;

impl Drop for Domains {
    fn drop(&mut self) {
        self.clear();
        let _ = fs::remove_dir_all(&self.registry);
    }
}

/// All that descends from this process, without it.
pub fn others() -> Vec<u32> {
    tree(std::process::id()).split_off(1)
}

/// Wait until all that descends from this process computes hardly less than in the span before; how many spans that
/// took.
pub fn settle() -> u32 {
    let mut last = f64::INFINITY;
    for span in 1..=MOST_SPANS {
        let now = watch(&others(), SPAN).seconds;
        if now > QUIET * last {
            return span;
        }
        last = now;
    }
    MOST_SPANS
}

/// What processes compute in a time.
pub fn watch(processes: &[u32], time: Duration) -> Computed {
    let (start, before) = (Instant::now(), computed(processes));
    std::thread::sleep(time);
    let after = computed(processes);
    // A busy host may be late.
    let late = time.as_secs_f64() / start.elapsed().as_secs_f64();
    let times = (after.times.saturating_sub(before.times) as f64 * late) as u64;
    Computed { seconds: (after.seconds - before.seconds) * late, times }
}

/// Memory that the host can give, in KiB.
pub fn available_kib() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The host's load, as /proc/loadavg has it.
pub fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}
