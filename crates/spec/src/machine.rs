//! Processors and memory.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Error, Other, Scheduling, is_default, parse_size};

/// The hardware of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Machine {
    /// Bytes of memory, or a size such as "512M" [default: 1 GiB].
    #[serde(deserialize_with = "size")]
    #[schemars(with = "Size")]
    pub memory: u64,
    /// The most memory that it may ever have, on the board `xen` [default: as much as it starts with].
    #[serde(deserialize_with = "some_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Size>")]
    pub maximum_memory: Option<u64>,
    /// Processors, 1 to 16 [default: 1].
    pub processors: u8,
    /// Its share of the host's processors in proportion to those of others, while they want more than there are: 2 to
    /// 262144, of which an ordinary program has 1024. It is rounded to a nice value, and more than 1024 take a
    /// privilege of the host's (CAP_SYS_NICE) [default: that of whoever starts it].
    #[serde(skip_serializing_if = "is_default")]
    pub shares: Option<u32>,
    /// The board.
    #[serde(skip_serializing_if = "is_default")]
    pub board: Board,
    /// Its share of the host's processors, if it is a paravirtual domain that has a name or is detached.
    #[serde(skip_serializing_if = "is_default")]
    pub scheduling: Scheduling,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

/// Shares of the host's processors that a program has which nobody gives any.
pub const ORDINARY_SHARES: u32 = 1024;

/// The least and the most shares that a machine may have, as control groups have them.
const SHARES: std::ops::RangeInclusive<u32> = 2..=262_144;

/// The hardware around the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Board {
    /// A PC with virtio devices and KVM's paravirtual interface.
    #[default]
    Pc,
    /// A paravirtual domain by Xen's interface: no PCI bus, disks and a network card by split drivers.
    Xen,
}

impl Machine {
    /// Whether such a machine has its share of processors.
    pub(crate) fn check_scheduling(&self) -> Result<(), Error> {
        if self.scheduling != Scheduling::default() && self.board != Board::Xen {
            return Err(Error::Contradiction(
                "only a paravirtual machine has a share of processors (machine.scheduling, \
                 machine.board)"
                    .to_owned(),
            ));
        }
        if self.shares.is_some() && self.board == Board::Xen {
            return Err(Error::Contradiction(
                "a paravirtual machine has its share by a weight (machine.shares, \
                 machine.scheduling.weight)"
                    .to_owned(),
            ));
        }
        if self.shares.is_some_and(|shares| !SHARES.contains(&shares)) {
            let (least, most) = SHARES.into_inner();
            let complaint = format!("shares of processors are {least} to {most} (machine.shares)");
            return Err(Error::Contradiction(complaint));
        }
        self.scheduling.check()
    }
}

impl Default for Machine {
    fn default() -> Self {
        let (board, other) = (Board::default(), Other::default());
        let scheduling = Scheduling::default();
        Self {
            memory: 1 << 30,
            maximum_memory: None,
            processors: 1,
            shares: None,
            board,
            scheduling,
            other,
        }
    }
}

/// The forms of a size.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match Size::deserialize(from)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Text(text) => parse_size(&text).map_err(serde::de::Error::custom),
    }
}
