//! The traces and statistics that a machine writes for its user, or for those who look for faults
//! of ours (docs/debugging.md).

use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Gdb, Other, is_default, text};

/// Traces and statistics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Watch {
    /// Verbosity on standard error: the kernel's messages and ours (1), our details (2).
    #[serde(skip_serializing_if = "is_default")]
    pub verbose: u8,
    /// The engine's statistics are printed there at the end.
    #[serde(skip_serializing_if = "is_default")]
    pub statistics: bool,
    /// The serial console is written to this file.
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub console: Option<PathBuf>,
    /// /tmp/perf-PID.map is kept.
    #[serde(skip_serializing_if = "is_default")]
    pub perf_map: bool,
    /// The guest kernel's code is named after this file.
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub symbols: Option<PathBuf>,
    /// So many of the last events of each vCPU are printed when the machine fails or hangs.
    #[serde(skip_serializing_if = "is_default")]
    pub history: Option<usize>,
    /// Trace of the blocks that are executed.
    #[serde(skip_serializing_if = "is_default")]
    pub trace_blocks: Option<TraceBlocks>,
    /// The interpreter executes the blocks with these names, or those in @FILE.
    #[serde(skip_serializing_if = "is_default")]
    pub interpret_blocks: Option<String>,
    /// List of the blocks that are translated.
    #[serde(skip_serializing_if = "is_default")]
    pub list_blocks: Option<ListBlocks>,
    /// This block is translated wrongly, to test the tools that find such a block.
    #[serde(skip_serializing_if = "is_default")]
    pub plant_fault: Option<String>,
    /// gdb may connect.
    #[serde(skip_serializing_if = "is_default")]
    pub gdb: Option<Gdb>,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// A trace of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceBlocks {
    /// The file.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Number of the first block.
    #[serde(default)]
    pub from: u64,
    /// The number of blocks.
    #[serde(default = "trace_length")]
    pub count: u64,
}

/// A list of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListBlocks {
    /// The file.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Blocks that are shown with their instructions. If there are any, the others are not listed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub show: Option<String>,
}

/// Blocks that are traced unless another number is given: some 100 MiB.
const fn trace_length() -> u64 {
    1_000_000
}

impl TraceBlocks {
    /// All blocks, as far as a trace goes.
    #[must_use]
    pub fn of(path: PathBuf) -> Self {
        Self { path, from: 0, count: trace_length() }
    }
}

impl Watch {
    /// Whether anything is to be seen, or changed, of what the engine does.
    #[must_use]
    pub fn looks_into_engine(&self) -> bool {
        self.perf_map
            || self.symbols.is_some()
            || self.history.is_some()
            || self.trace_blocks.is_some()
            || self.interpret_blocks.is_some()
            || self.list_blocks.is_some()
            || self.plant_fault.is_some()
    }
}

impl FromStr for TraceBlocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let path = words.next().filter(|path| !path.is_empty()).ok_or("it names no file")?.into();
        let mut order = Self::of(path);
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

impl FromStr for ListBlocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, show) = text.split_once(",show=").unwrap_or((text, ""));
        if path.is_empty() {
            return Err("it names no file".to_owned());
        }
        let show = (!show.is_empty()).then(|| show.to_owned());
        Ok(Self { path: path.into(), show })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_ordered() {
        let order = |text: &str| text.parse::<TraceBlocks>();
        let check = |text: &str, from, count| {
            assert_eq!(order(text), Ok(TraceBlocks { path: "a".into(), from, count }), "{text}");
        };
        check("a", 0, trace_length());
        check("a,count=5", 0, 5);
        check("a,from=7,count=5", 7, 5);
        for wrong in ["", ",from=1", "a,from", "a,from=x", "a,to=1", "a,count=-1"] {
            assert!(order(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_list_is_ordered() {
        let order: ListBlocks = "a,show=1-2,5".parse().unwrap();
        assert_eq!(order, ListBlocks { path: "a".into(), show: Some("1-2,5".into()) });
        assert_eq!("b".parse::<ListBlocks>().unwrap().show, None);
        assert!("".parse::<ListBlocks>().is_err());
    }
}
