//! The options, and the variables that stand for some of them where a command line is out of reach.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};
use vmm::inspect::{BlockId, BlockRanges};

use super::Error;

/// Stands for `--interpret-blocks`.
pub(crate) const INTERPRET_BLOCKS: &str = "BIVOUAC_INTERPRET_BLOCKS";

/// Stands for `--list-blocks`.
pub(crate) const LIST_BLOCKS: &str = "BIVOUAC_LIST_BLOCKS";

/// Where the help puts them.
const HEADING: &str = "Debugging and profiling Bivouac";

/// What is to be seen of the engine; docs/debugging.md explains it.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Keep /tmp/perf-PID.map, by which perf(1) names translated code. It stays for `perf report`;
    /// remove it when done
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub perf_map: bool,

    /// Name the guest kernel's code after FILE: its System.map, its /proc/kallsyms, or its vmlinux
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true,
        help_heading = HEADING)]
    pub symbols: Option<PathBuf>,

    /// Say on standard error what each processor did last, N things of it: when it shuts down, when
    /// the guest resets the machine (as a panic does), when time is up, and upon SIGUSR1
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = HEADING)]
    pub history: Option<usize>,

    /// Write each block that is executed to FILE, from the Nth one on and so many (slow; translates
    /// user code unless it is to run directly)
    #[arg(long, value_name = "FILE[,from=N][,count=N]", hide_short_help = true,
        help_heading = HEADING)]
    pub trace_blocks: Option<TraceOrder>,

    /// Interpret the blocks with these names, or those in FILE, instead of translating them
    #[arg(long, value_name = "FIRST-LAST,...|@FILE", hide = true)]
    pub interpret_blocks: Option<Selection>,

    /// Write the name of each block that is translated to FILE, and all of those in the ranges
    #[arg(long, value_name = "FILE[,show=FIRST-LAST]", hide = true)]
    pub list_blocks: Option<ListOrder>,

    /// Translate this block wrongly, to try what finds faults
    #[arg(long, value_name = "BLOCK", hide = true)]
    pub plant_fault: Option<BlockId>,
}

impl Options {
    /// Whether anything is to be seen, or changed, of what the engine does.
    pub fn is_used(&self) -> bool {
        let variables = [INTERPRET_BLOCKS, LIST_BLOCKS].into_iter();
        self.perf_map
            || self.symbols.is_some()
            || self.history.is_some()
            || self.trace_blocks.is_some()
            || self.interpret_blocks.is_some()
            || self.list_blocks.is_some()
            || self.plant_fault.is_some()
            || variables.into_iter().any(|name| std::env::var_os(name).is_some())
    }

    /// Which blocks are interpreted.
    pub(super) fn interpreted(&self) -> Result<BlockRanges, Error> {
        let given = self.interpret_blocks.clone();
        let given = given.map_or_else(|| variable(INTERPRET_BLOCKS), |given| Ok(Some(given)))?;
        Ok(given.unwrap_or_default().0)
    }

    /// The list of blocks that is wanted.
    pub(super) fn list(&self) -> Result<Option<ListOrder>, Error> {
        self.list_blocks.clone().map_or_else(|| variable(LIST_BLOCKS), |given| Ok(Some(given)))
    }
}

fn variable<T: FromStr<Err = String>>(name: &'static str) -> Result<Option<T>, Error> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let read = text.to_string_lossy().parse();
    read.map(Some).map_err(|reason| Error::Variable { name, reason })
}

/// Blocks as they are named on a command line, or in a file: a command line is short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(pub BlockRanges);

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('@') else { return text.parse().map(Self) };
        let ranges = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        ranges.trim().parse().map(Self)
    }
}

/// What is to be traced, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOrder {
    /// The file.
    pub path: PathBuf,
    /// Number of the first block.
    pub from: u64,
    /// How many.
    pub count: u64,
}

/// Blocks that are traced unless another number is given: some 100 MiB.
const DEFAULT_COUNT: u64 = 1_000_000;

impl FromStr for TraceOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let path = words.next().filter(|path| !path.is_empty()).ok_or("it names no file")?.into();
        let mut order = Self { path, from: 0, count: DEFAULT_COUNT };
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let value = value.parse().map_err(|_| format!("{word:?} has no number"))?;
            match name {
                "from" => order.from = value,
                "count" => order.count = value,
                _ => return Err(format!("{name:?} is neither `from` nor `count`")),
            }
        }
        Ok(order)
    }
}

/// Which list of blocks is wanted, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOrder {
    /// The file.
    pub path: PathBuf,
    /// Blocks that are shown whole. If there are any, the others are not listed.
    pub show: BlockRanges,
}

impl FromStr for ListOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, show) = text.split_once(",show=").unwrap_or((text, ""));
        if path.is_empty() {
            return Err("it names no file".to_owned());
        }
        let show = if show.is_empty() { BlockRanges::default() } else { show.parse()? };
        Ok(Self { path: path.into(), show })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_ordered() {
        let order = |text: &str| text.parse::<TraceOrder>();
        let check = |text: &str, from, count| {
            assert_eq!(order(text), Ok(TraceOrder { path: "a".into(), from, count }), "{text}");
        };
        check("a", 0, DEFAULT_COUNT);
        check("a,count=5", 0, 5);
        check("a,from=7,count=5", 7, 5);
        for wrong in ["", ",from=1", "a,from", "a,from=x", "a,to=1", "a,count=-1"] {
            assert!(order(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_list_is_ordered() {
        let order: ListOrder = "a,show=1-2,5".parse().unwrap();
        assert_eq!(order.path, PathBuf::from("a"));
        assert_eq!(order.show, BlockRanges::new(vec![1..=2, 5..=5]));
        assert_eq!("b".parse::<ListOrder>().unwrap().show, BlockRanges::default());
        assert!("a,show=x".parse::<ListOrder>().is_err() && "".parse::<ListOrder>().is_err());
    }
}
