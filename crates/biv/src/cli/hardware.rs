//! How large a machine is: the options of `biv run` for that, and what is without them.
//!
//! What is without them is for the host that the machine starts on. Then it is in the machine's description, where it
//! stays: `--print-spec`, a snapshot and a record name numbers, and a description without them is of the same machine
//! on every host (1 GiB, one processor).
//!
//! It depends on what the host has, not on what is free there at the moment: a machine is to be the same at the next
//! start, and finds its snapshot in the cache only then.

use std::thread;

use clap::Args;

const GIB: u64 = 1 << 30;

/// Memory is a multiple of this many bytes, where nobody says how much.
const STEP: u64 = 256 << 20;

/// The options.
#[derive(Debug, Default, Args)]
pub struct Hardware {
    /// Memory of the machine, such as 512M or 8G [default: an eighth of the host's, but 1 to 4 GiB; at most half of it]
    #[arg(short, long, visible_alias = "memory", value_name = "SIZE",
        value_parser = spec::parse_size)]
    mem: Option<u64>,

    /// The most memory that a machine of Xen's interface may ever have (--xen); `biv balloon` and `biv xen set --mem`
    /// change what it has [default: --mem]
    #[arg(long, value_name = "SIZE", requires = "xen", value_parser = spec::parse_size)]
    pub max_mem: Option<u64>,

    /// Number of processors, 1 to 16 [default: 2, or 1 where the host has one]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=vmm::MAX_PROCESSORS as i64))]
    cpus: Option<u8>,
}

impl Hardware {
    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        self.mem.unwrap_or_else(|| share_of_memory(host::Available::ever().bytes))
    }

    /// Processors.
    pub fn processors(&self) -> u8 {
        let of_host = || thread::available_parallelism().map_or(1, usize::from);
        self.cpus.unwrap_or_else(|| of_host().min(2) as u8)
    }
}

/// How much of a host's memory is a machine's, in bytes.
fn share_of_memory(of_host: u64) -> u64 {
    let share = (of_host / 8).clamp(GIB, 4 * GIB).min(of_host / 2);
    (share - share % STEP).max(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_fair_share_of_the_hosts_memory() {
        let check = |of_host, expected| assert_eq!(share_of_memory(of_host), expected, "{of_host}");
        check(0, STEP);
        check(GIB, GIB / 2);
        check(2 * GIB, GIB);
        check(8 * GIB, GIB);
        check(16 * GIB - 1, 7 * STEP);
        check(24 * GIB, 3 * GIB);
        check(64 * GIB, 4 * GIB);
        check(u64::MAX, 4 * GIB);
    }
}
