//! Programs that compute run natively, in helper processes, however their machine has started. A program of its own,
//! because it looks at all processes that descend from it.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whole_machine::biv;
use whole_machine::processes::{adopt_orphans, descendants, stat, survivors};

/// Enough of a core's time, in hundredths of a second, to be no chance: others may want the cores, too.
const ENOUGH: u64 = 50;

/// How long a machine may take to start and use that.
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine at work; with this, it and all that it has started end.
struct Machine(Child);

impl Machine {
    fn start(place: &Path, arguments: &[&str]) -> Self {
        let mut biv = biv(arguments);
        let biv = biv.env("XDG_RUNTIME_DIR", place).stdin(Stdio::null()).stdout(Stdio::null());
        Self(biv.spawn().expect("biv can be started"))
    }

    /// Whether its helpers, which do nothing but run user code, get so much of a core.
    fn computes_natively(&self) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let stats = descendants().into_iter().filter_map(stat);
            let computed = stats.filter(|it| it.name == "biv user").map(|it| it.computed());
            if computed.sum::<u64>() > ENOUGH {
                println!("native after {:?}", start.elapsed());
                return true;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let all = descendants();
        // Who keeps the time passes it on.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
        assert!(survivors(&all, Duration::from_secs(10)).is_empty(), "it leaves processes");
    }
}

#[test]
fn what_goes_on_from_a_snapshot_computes_natively_as_what_has_booted() {
    adopt_orphans();
    let place = std::env::temp_dir().join(format!("biv-native-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let kind = format!("biv.test=native-{}", std::process::id());
    let file = place.join("snapshot");
    let file = file.to_str().expect("it is UTF-8");
    let run = ["run", "--name", "one", "--mem", "192M", "--append", &kind, "--"];
    let run = [&run[..], &["sh", "-c", "while :; do :; done"]].concat();
    // The first boots and leaves a snapshot, from which the second goes on.
    for how in ["booted", "warm"] {
        let machine = Machine::start(&place, &run);
        let is_native = machine.computes_natively();
        if how == "booted" && !is_native {
            println!("left out: this host has no helpers");
            return;
        }
        assert!(is_native, "{how}: translated");
        if how == "warm" {
            let mut snapshot = biv(&["snapshot", "one", file]);
            let status = snapshot.env("XDG_RUNTIME_DIR", &place).status();
            assert!(status.is_ok_and(|status| status.success()), "no snapshot");
        }
    }
    assert!(Machine::start(&place, &["restore", file]).computes_natively(), "restored: translated");
    std::fs::remove_dir_all(&place).expect("it is ours");
}
