//! What a disk's two halves tell each other over the store (public/io/blkif.h).

use xen_abi::block::{SECTOR_BYTES, disk};

use super::vbd::Vbd;
use crate::bus::{FrontKeys, Key, Settings};
use crate::limits::{MAX_INDIRECT_SEGMENTS, MAX_RING_PAGE_ORDER};

/// What a disk's front-end has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSettings {
    /// Grants of the ring's pages.
    pub ring: Vec<u32>,
    /// The front-end's event channel.
    pub port: u32,
}

/// What a disk offers to its front-end.
pub fn offers(discards: bool) -> Vec<Key> {
    let offered = [
        ("max-ring-page-order", MAX_RING_PAGE_ORDER),
        ("multi-queue-max-queues", 1),
        ("feature-persistent", 0),
        ("feature-max-indirect-segments", MAX_INDIRECT_SEGMENTS as u32),
        ("feature-flush-cache", 1),
        ("feature-barrier", 1),
        ("feature-discard", discards.into()),
    ];
    offered.map(|(key, value)| (key, value.to_string())).into()
}

/// What a disk is, for a front-end that is connected.
pub fn description(vbd: &Vbd) -> Vec<Key> {
    let info = if vbd.is_read_only() { disk::READONLY } else { 0 };
    vec![
        ("sectors", vbd.sectors().to_string()),
        ("sector-size", SECTOR_BYTES.to_string()),
        ("physical-sector-size", SECTOR_BYTES.to_string()),
        ("info", info.to_string()),
    ]
}

impl Settings for DiskSettings {
    fn read(keys: &mut FrontKeys<'_>) -> Result<Self, String> {
        if let Some(other) = keys.text("protocol").filter(|it| it != "x86_64-abi") {
            return Err(format!("the protocol is x86_64-abi, not {other:.40}"));
        }
        let port = keys.number("event-channel")?;
        let order = keys.number("ring-page-order").unwrap_or(0);
        if order > MAX_RING_PAGE_ORDER {
            return Err(format!("a ring's order is at most {MAX_RING_PAGE_ORDER}, not {order}"));
        }
        let ring = match order {
            0 => vec![keys.number("ring-ref").or_else(|_| keys.number("ring-ref0"))?],
            _ => (0..1 << order)
                .map(|it| keys.number(&format!("ring-ref{it}")))
                .collect::<Result<_, _>>()?,
        };
        Ok(Self { ring, port })
    }
}
