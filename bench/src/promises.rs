//! What is promised about each number.

/// A promise, and what would be better still.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Promise {
    /// At least this part of the host's speed.
    SpeedOfHost {
        /// The promise.
        must: f64,
        /// Better.
        aim: f64,
    },
    /// At most this multiple of the host's time.
    TimeOfHost {
        /// The promise.
        must: f64,
        /// Better.
        aim: f64,
    },
    /// At most this part of TCG's time; and less than User-Mode Linux's.
    TimeOfTcg {
        /// The promise.
        must: f64,
        /// Better.
        aim: f64,
    },
    /// At most this much, in the number's unit.
    AtMost {
        /// The promise.
        must: f64,
        /// Better.
        aim: f64,
    },
}

use Promise::{AtMost, SpeedOfHost, TimeOfHost, TimeOfTcg};

/// The promises, each with the numbers it is about.
pub const PROMISES: [(&[&str], Promise); 16] = [
    (
        &["sha256", "nbody", "qsort", "bytecode", "chase", "memcpy", "sse", "avx"],
        SpeedOfHost { must: 0.97, aim: 0.99 },
    ),
    (&["povray"], SpeedOfHost { must: 0.95, aim: 0.99 }),
    (
        &["null-syscall", "read-byte", "stat", "open-close", "select-tcp", "signal-install"],
        TimeOfHost { must: 1.5, aim: 0.7 },
    ),
    (&["create-0k", "delete-0k", "create-10k", "delete-10k"], TimeOfHost { must: 2.0, aim: 1.0 }),
    (
        &[
            "switch-2p-0k",
            "switch-2p-16k",
            "switch-2p-64k",
            "switch-8p-16k",
            "switch-8p-64k",
            "switch-16p-16k",
            "switch-16p-64k",
        ],
        TimeOfHost { must: 2.0, aim: 1.0 },
    ),
    (&["signal", "protection-fault"], TimeOfHost { must: 2.0, aim: 0.8 }),
    (&["pipe", "unix-socket", "tcp"], TimeOfHost { must: 2.0, aim: 1.0 }),
    (&["fork-exit", "fork-exec", "shell", "thread"], TimeOfHost { must: 2.0, aim: 1.0 }),
    (
        &["anonymous-fault", "file-fault", "map-touch-unmap", "map-file"],
        TimeOfHost { must: 1.9, aim: 1.0 },
    ),
    (&["build"], TimeOfHost { must: 1.4, aim: 1.15 }),
    (&["parallel-build"], TimeOfHost { must: 1.6, aim: 1.2 }),
    (&["sqlite"], TimeOfHost { must: 1.4, aim: 1.05 }),
    (&["true-loop"], TimeOfHost { must: 2.0, aim: 1.0 }),
    (&["nginx"], SpeedOfHost { must: 0.5, aim: 0.9 }),
    (&["iperf3"], SpeedOfHost { must: 0.6, aim: 0.95 }),
    (&["launch"], TimeOfTcg { must: 0.5, aim: 0.25 }),
];

/// What is promised about host memory beyond the guest's own.
const MEMORY: Promise = AtMost { must: 60.0, aim: 60.0 };

/// The promise about the number called `name`.
pub fn about(name: &str) -> Option<Promise> {
    if name == "memory" {
        return Some(MEMORY);
    }
    PROMISES.iter().find(|(names, _)| names.contains(&name)).map(|&(_, promise)| promise)
}

/// How a promise was kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// And the aim reached as well.
    Aim,
    /// The promise, but not the aim.
    Kept,
    /// Missed by this much, in the promise's own terms.
    Missed(f64),
}

impl Promise {
    /// How it was kept by this ratio or amount.
    pub fn judge(self, value: f64) -> Verdict {
        let (must, aim, sign) = match self {
            SpeedOfHost { must, aim } => (must, aim, -1.0),
            TimeOfHost { must, aim } | TimeOfTcg { must, aim } | AtMost { must, aim } => {
                (must, aim, 1.0)
            }
        };
        match value * sign {
            signed if signed <= aim * sign => Verdict::Aim,
            signed if signed <= must * sign => Verdict::Kept,
            signed => Verdict::Missed(signed - must * sign),
        }
    }

    /// For tables.
    pub fn text(self) -> String {
        match self {
            SpeedOfHost { must, aim } => format!("speed >= {must} ({aim}) of host"),
            TimeOfHost { must, aim } => format!("time <= {must} ({aim}) of host"),
            TimeOfTcg { must, aim } => format!("time <= {must} ({aim}) of TCG"),
            AtMost { must, .. } => format!("<= {must}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers;

    #[test]
    fn every_function_has_one_promise_and_every_promise_a_number() {
        let promised: Vec<&str> = PROMISES
            .iter()
            .flat_map(|(names, _)| names.iter().copied())
            .chain(["memory"])
            .collect();
        for number in numbers::ALL {
            let count = promised.iter().filter(|&&name| name == number.name).count();
            // Programs may have none.
            assert!(count == 1 || (count == 0 && number.work.is_fresh()), "{}", number.name);
        }
        for name in promised {
            assert!(numbers::ALL.iter().any(|number| number.name == name), "{name}");
        }
    }

    #[test]
    fn promises_are_judged_in_their_own_terms() {
        let speed = SpeedOfHost { must: 0.97, aim: 0.99 };
        assert_eq!(speed.judge(1.0), Verdict::Aim);
        assert_eq!(speed.judge(0.98), Verdict::Kept);
        assert!(matches!(speed.judge(0.47), Verdict::Missed(by) if (by - 0.5).abs() < 1e-9));
        let time = TimeOfHost { must: 1.5, aim: 0.7 };
        assert_eq!(time.judge(0.7), Verdict::Aim);
        assert_eq!(time.judge(1.5), Verdict::Kept);
        assert_eq!(time.judge(2.0), Verdict::Missed(0.5));
    }
}
