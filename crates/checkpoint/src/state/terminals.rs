//! Pseudoterminals (pty(7)).

use serde::{Deserialize, Serialize};

use super::Bytes;

/// A pseudoterminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its number: that of `/dev/pts/N`.
    pub index: u32,
    /// The slot that whoever has the master gives it by; none if a process of the tree has it.
    pub slot: Option<String>,
    /// The path of what makes a new one.
    pub multiplexer: String,
    /// Its settings: `struct termios2`.
    pub settings: Bytes,
    /// Rows, columns, and the same in pixels.
    pub size: [u16; 4],
    /// Whether its slave may not be opened.
    pub locked: bool,
    /// Whether the master is told of what happens, in packets.
    pub packets: bool,
    /// Whether nobody else may open it.
    pub exclusive: bool,
    /// Whether its slave has ever been opened.
    pub opened: bool,
    /// What waits in it.
    pub queues: Queues,
    /// The session that it controls, by its leader; 0 if there is none.
    pub session: u32,
    /// The foreground process group; 0 if it is nobody's of the tree.
    pub foreground: u32,
    /// Processes of the session that have given it up.
    pub without: Vec<u32>,
}

/// What waits in a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Queues {
    /// Lines that were typed and not read.
    pub lines: Vec<InputLine>,
    /// What was typed behind them: the beginning of a line, or all of it where lines do not matter.
    pub rest: Bytes,
    /// What was written and not read by who has the master. It is empty if that is a slot's.
    pub output: Bytes,
    /// Whether output is held back.
    pub held: bool,
}

/// A line that was typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputLine {
    /// What it says, with its end.
    pub bytes: Bytes,
    /// Whether it has ended by an end of file instead.
    pub end_of_file: bool,
}

/// As what a terminal is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TerminalEnd {
    /// By its multiplexer.
    Master,
    /// By its own name.
    Slave,
    /// By `/dev/tty`.
    Controlling,
}
