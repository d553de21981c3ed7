//! `biv debug`: tools that run `biv` to find faults of `biv`. docs/debugging.md explains them.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use vmm::inspect::{BlockId, BlockRanges};

use crate::cli::{Bisect, DebugTool};
use api::status;
use domain::inspect::{BLOCK, INTERPRET_BLOCKS, LIST_BLOCKS, names};

mod error;
mod narrow;

pub use self::error::Error;
use narrow::{Narrowing, Verdict};

/// Does what `biv debug` says; returns the exit status.
pub fn debug(tool: &DebugTool) -> Result<u8, Error> {
    match tool {
        DebugTool::Bisect(arguments) => bisect(arguments),
    }
}

/// A command that is run again and again.
struct Subject<'a> {
    words: &'a [OsString],
    success: i32,
    /// Where it lists its blocks, and where it finds those that are to be interpreted.
    list: PathBuf,
    selection: PathBuf,
}

impl Subject<'_> {
    /// Runs it with these blocks interpreted; whether it succeeds.
    fn run(&self, interpreted: &BlockRanges, list: &str) -> Result<bool, Error> {
        let (name, words) = self.words.split_first().expect("clap wants a word");
        let mut command = Command::new(name);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if interpreted.is_empty() {
            command.env_remove(INTERPRET_BLOCKS);
        } else {
            fs::write(&self.selection, interpreted.to_string())
                .map_err(|error| Error::List { path: self.selection.clone(), error })?;
            command.env(INTERPRET_BLOCKS, format!("@{}", self.selection.display()));
        }
        command.env(LIST_BLOCKS, list);
        let status = command.status();
        let status = status.map_err(|error| Error::Start { command: name.clone(), error })?;
        Ok(status.code() == Some(self.success))
    }

    fn read_list(&self) -> Result<String, Error> {
        fs::read_to_string(&self.list)
            .map_err(|error| Error::List { path: self.list.clone(), error })
    }

    /// Runs it with everything translated; the names of its blocks, in order.
    fn blocks(&self) -> Result<Vec<BlockId>, Error> {
        let _ = fs::remove_file(&self.list);
        if self.run(&BlockRanges::default(), &self.list.to_string_lossy())? {
            return Err(Error::Succeeds);
        }
        if !self.list.exists() {
            return Err(Error::NoBlocks);
        }
        let blocks = names(&self.read_list()?);
        if blocks.is_empty() { Err(Error::NoBlocks) } else { Ok(blocks) }
    }

    /// What `--list-blocks` shows of the guilty: each once.
    fn show(&self, guilty: &BlockRanges) -> Result<String, Error> {
        self.run(&BlockRanges::default(), &format!("{},show={guilty}", self.list.display()))?;
        let text = self.read_list()?;
        let mut shown: Vec<&str> = Vec::new();
        let mut report = String::new();
        for block in text.split(BLOCK).skip(1) {
            let name = block.split(' ').next().unwrap_or_default();
            if !shown.contains(&name) {
                shown.push(name);
                report.push_str(BLOCK);
                report.push_str(block);
            }
        }
        Ok(report)
    }
}

impl Drop for Subject<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.list);
        let _ = fs::remove_file(&self.selection);
    }
}

fn bisect(arguments: &Bisect) -> Result<u8, Error> {
    let scratch = |name| std::env::temp_dir().join(format!("biv-{name}-{}", std::process::id()));
    let subject = Subject {
        words: &arguments.command,
        success: arguments.success.into(),
        list: scratch("blocks"),
        selection: scratch("interpreted"),
    };
    let innocent = match &arguments.except {
        Some(path) => {
            let list = fs::read_to_string(path);
            names(&list.map_err(|error| Error::List { path: path.clone(), error })?)
        }
        None => Vec::new(),
    };
    let mut blocks = subject.blocks()?;
    let all = blocks.len();
    blocks.retain(|block| innocent.binary_search(block).is_err());
    say(&format!("the command fails; searching {} of its {all} blocks", blocks.len()));
    if blocks.is_empty() {
        return Err(Error::Fails);
    }
    let test = |interpreted: &BlockRanges, count: usize| {
        let succeeds = subject.run(interpreted, "")?;
        let verdict = if succeeds { "succeeds" } else { "fails" };
        say(&format!("{verdict} with {count} of the blocks interpreted"));
        Ok(if succeeds { Verdict::Succeeds } else { Verdict::Fails })
    };
    let mut narrowing = Narrowing::new(&blocks, &innocent, arguments.runs, test);
    let guilty = narrowing.narrow()?;
    let ranges = BlockRanges::new(guilty.iter().map(|id| id.0..=id.0).collect());
    let report = subject.show(&ranges)?;
    let what = if guilty.len() == 1 { "block is" } else { "blocks together are" };
    say(&format!("this {what} at fault; with --interpret-blocks {ranges} the command succeeds"));
    // Whoever reads it may have seen enough.
    let _ = io::stdout().write_all(report.as_bytes());
    Ok(status::SUCCESS)
}

fn say(message: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "biv: {message}");
}
