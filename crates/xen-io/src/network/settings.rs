//! What a card's two halves tell each other over the store (public/io/netif.h).

use crate::bus::{FrontKeys, Key, Settings};

/// The event channels of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// For the ring that the front-end transmits by.
    pub transmit: u32,
    /// For the other; it may be the same one.
    pub receive: u32,
}

/// What the front-end takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Takes {
    /// Packets in several pages.
    pub several_pages: bool,
    /// Packets of TCP over IPv4 that are larger than a frame, and of TCP over IPv6.
    pub large: [bool; 2],
    /// Packets with blank checksums, over IPv4 and IPv6.
    pub blank: [bool; 2],
}

/// What a card's front-end has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VifSettings {
    /// Grants of the two rings' pages.
    pub transmit: u32,
    /// See above.
    pub receive: u32,
    /// Its event channels.
    pub ports: Ports,
    /// What it takes.
    pub takes: Takes,
}

/// What a card offers to its front-end: one queue, whose bytes are copied.
pub fn offers() -> Vec<Key> {
    let offered = [
        ("feature-rx-copy", 1),
        ("feature-rx-flip", 0),
        ("feature-sg", 1),
        ("feature-gso-tcpv4", 1),
        ("feature-gso-tcpv6", 1),
        ("feature-ipv6-csum-offload", 1),
        ("feature-split-event-channels", 1),
        ("multi-queue-max-queues", 1),
    ];
    offered.map(|(key, value)| (key, u32::to_string(&value))).into()
}

impl Settings for VifSettings {
    fn read(keys: &mut FrontKeys<'_>) -> Result<Self, String> {
        if !keys.is_set("request-rx-copy") {
            return Err("the front-end wants pages flipped, which is not offered".into());
        }
        if keys.number("multi-queue-num-queues").is_ok_and(|queues| queues > 1) {
            return Err("the card has one queue".into());
        }
        let ports = match keys.number("event-channel") {
            Ok(port) => Ports { transmit: port, receive: port },
            Err(_) => Ports {
                transmit: keys.number("event-channel-tx")?,
                receive: keys.number("event-channel-rx")?,
            },
        };
        Ok(Self {
            transmit: keys.number("tx-ring-ref")?,
            receive: keys.number("rx-ring-ref")?,
            ports,
            takes: Takes {
                several_pages: keys.is_set("feature-sg"),
                large: [keys.is_set("feature-gso-tcpv4"), keys.is_set("feature-gso-tcpv6")],
                blank: [
                    !keys.is_set("feature-no-csum-offload"),
                    keys.is_set("feature-ipv6-csum-offload"),
                ],
            },
        })
    }
}
