//! What a number is: something that is done, in a machine of some shape, and how it is counted.

/// A line of the tables.
#[derive(Debug, PartialEq)]
pub struct Number {
    /// What the runner and the command line call it.
    pub name: &'static str,
    /// What the tables call it.
    pub title: &'static str,
    /// How it is counted.
    pub unit: Unit,
    /// What is done.
    pub work: Work,
}

/// How a number is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// For tables.
    pub name: &'static str,
    /// What the runner says, divided by this.
    pub divisor: f64,
    /// Whether more is better: a rate and not a time or an amount.
    pub rate: bool,
}

impl Unit {
    /// Times, which the runner gives in nanoseconds.
    pub const NANOSECONDS: Unit = Unit { name: "ns", divisor: 1.0, rate: false };
    /// 1,000 of them.
    pub const MICROSECONDS: Unit = Unit { name: "us", divisor: 1e3, rate: false };
    /// A million.
    pub const MILLISECONDS: Unit = Unit { name: "ms", divisor: 1e6, rate: false };
    /// 1,000 million.
    pub const SECONDS: Unit = Unit { name: "s", divisor: 1e9, rate: false };
    /// Memory, given in bytes.
    pub const MEBIBYTES: Unit = Unit { name: "MiB", divisor: 1_048_576.0, rate: false };
    /// What a server answers.
    pub const REQUESTS: Unit = Unit { name: "requests/s", divisor: 1.0, rate: true };
    /// What a database does.
    pub const TRANSACTIONS: Unit = Unit { name: "transactions/s", divisor: 1.0, rate: true };
    /// What a connection carries, given in bits per second.
    pub const GIGABITS: Unit = Unit { name: "Gbit/s", divisor: 1e9, rate: true };

    /// How many times as good `own` is as `other`.
    pub fn speed(self, own: f64, other: f64) -> f64 {
        if self.rate { own / other } else { other / own }
    }
}

/// What is done for a number.
#[derive(Debug, PartialEq)]
pub enum Work {
    /// Nothing inside: the machine is watched from outside when it has finished.
    Outside,
    /// A function of the runner that needs nothing else.
    Function,
    /// A function of the runner that needs a distribution's programs.
    FunctionWithPrograms,
    /// Nothing inside: a fresh machine is started, and its first line is waited for.
    Launch,
    /// A function of the runner, in a fresh machine each time.
    FreshFunction,
    /// A distribution's programs, in a fresh machine each time.
    Program(Program),
}

/// Two shell scripts (`sh -eu`). `$bench_scale` is how much to do, in percent, `$bench_processors` how many
/// virtual CPUs there are; `/tmp`, `/run` and `/var` are in memory and empty. Both check what they did, and fail
/// where it is not what it should be.
#[derive(Debug, PartialEq)]
pub struct Program {
    /// The programs without which it is absent.
    pub needs: &'static [&'static str],
    /// Not timed.
    pub prepare: &'static str,
    /// Timed, unless it prints a line `rate NUMBER`.
    pub run: &'static str,
    /// Virtual CPUs.
    pub processors: u32,
}

impl Program {
    /// The first script: what is missing is said before anything is done.
    pub fn preparation(&self) -> String {
        let check = |need| {
            format!("command -v {need} >/dev/null || {{ echo absent no {need} here; exit 0; }}\n")
        };
        self.needs.iter().map(check).chain([self.prepare.to_owned()]).collect()
    }
}

/// The file system of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// The runner and nothing else, in memory.
    Programs,
    /// A Debian with compilers and servers, read-only: for machines a disk with ext4, for the others the
    /// directory that it was made from.
    Applications,
}

/// Numbers of the same shape are measured in one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// The file system.
    pub root: Root,
    /// Virtual CPUs.
    pub processors: u32,
}

impl Shape {
    /// All in which several numbers are measured.
    pub const SHARED: [Shape; 2] = [
        Shape { root: Root::Programs, processors: 1 },
        Shape { root: Root::Applications, processors: 1 },
    ];

    /// Memory of the machine.
    pub fn memory_mib(self) -> u32 {
        match self.root {
            Root::Programs => 512,
            Root::Applications => 4096,
        }
    }
}

impl Work {
    /// What kind of machine it needs.
    pub fn shape(&self) -> Shape {
        match self {
            Work::Outside | Work::Function | Work::Launch | Work::FreshFunction => {
                Shape { root: Root::Programs, processors: 1 }
            }
            Work::FunctionWithPrograms => Shape { root: Root::Applications, processors: 1 },
            Work::Program(program) => {
                Shape { root: Root::Applications, processors: program.processors }
            }
        }
    }

    /// Whether each sample is taken in a machine of its own.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Work::Launch | Work::FreshFunction | Work::Program(_))
    }

    /// Whether the runner has nothing to do for it.
    pub fn is_outside(&self) -> bool {
        matches!(self, Work::Outside | Work::Launch)
    }

    /// For the command line: what of both it is.
    pub fn kind(&self) -> &'static str {
        if self.is_fresh() { "program" } else { "function" }
    }

    /// How long it may take, in seconds.
    pub fn patience_seconds(&self) -> u64 {
        if let Work::Program(_) = self { 900 } else { 120 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_more_where_time_is_less() {
        assert_eq!(Unit::SECONDS.speed(2.0, 4.0), 2.0);
        assert_eq!(Unit::REQUESTS.speed(2.0, 4.0), 0.5);
    }

    #[test]
    fn what_is_missing_is_said_before_anything_is_done() {
        let script = |needs| Program { needs, prepare: "echo done", run: "", processors: 1 };
        let check = |needs, expected: &str| {
            let mut shell = std::process::Command::new("sh");
            let shell = shell.args(["-eu", "-c", &script(needs).preparation()]);
            assert_eq!(crate::run(shell).unwrap().trim_end(), expected);
        };
        check(&["sh"], "done");
        check(&["sh", "no-such-program", "nor-this"], "absent no no-such-program here");
    }
}
