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
    /// Nothing inside: the machine is watched from outside while it boots and when it has finished.
    Outside,
    /// A function of the runner that needs nothing else.
    Function,
    /// A function of the runner that needs a distribution's programs.
    FunctionWithPrograms,
    /// Shell scripts in a machine with a distribution's programs.
    Script(Script),
}

/// Two shell scripts (`sh -eu`). `$bench_scale` is how much to do, in percent, and `/tmp` is in
/// memory and, but for what earlier scripts of the same machine left, empty.
#[derive(Debug, PartialEq)]
pub struct Script {
    /// Not timed.
    pub prepare: &'static str,
    /// Timed, unless it prints a line `rate NUMBER`.
    pub run: &'static str,
    /// Virtual CPUs.
    pub processors: u32,
}

/// The file system of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// The runner and nothing else.
    Programs,
    /// A Debian with compilers and servers.
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
    /// All that occur.
    pub const ALL: [Shape; 3] = [
        Shape { root: Root::Programs, processors: 1 },
        Shape { root: Root::Applications, processors: 1 },
        Shape { root: Root::Applications, processors: 4 },
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
            Work::Outside | Work::Function => Shape { root: Root::Programs, processors: 1 },
            Work::FunctionWithPrograms => Shape { root: Root::Applications, processors: 1 },
            Work::Script(script) => {
                Shape { root: Root::Applications, processors: script.processors }
            }
        }
    }

    /// How long the runner may be silent about it, in seconds.
    pub fn patience_seconds(&self) -> u64 {
        match self {
            Work::Outside | Work::Function | Work::FunctionWithPrograms => 120,
            Work::Script(_) => 900,
        }
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
}
