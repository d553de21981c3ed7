//! What is counted.

/// Why a frame is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Reason {
    /// Its headers contradict themselves, or go on after the bytes that are looked at.
    Malformed,
    /// It is longer than any packet of IP.
    TooLong,
    /// It has a tag of a VLAN (IEEE 802.1Q).
    Tagged,
    /// It says itself which way it goes, which rules about its destination would not see.
    SourceRouted,
    /// Its sender's Ethernet address is not the port's.
    SpoofedMac,
    /// Its sender's IP address is not one of the port's.
    SpoofedAddress,
    /// ARP's sender is not the port.
    SpoofedArp,
    /// Neighbour discovery's sender or target is not the port.
    SpoofedNeighbour,
    /// What only routers and DHCP servers say.
    RogueService,
    /// A rule says so.
    Rule,
    /// It is beyond the rate of a rule.
    Rate,
    /// Neither ARP nor IP, and no rule accepts it.
    OtherProtocol,
    /// Nobody here has its destination, or only its sender.
    NoDestination,
    /// It is for the port's Ethernet address, but for another's IP address.
    NotItsAddress,
    /// Rules send it from port to port.
    Loop,
    /// The receiver has no buffer for it.
    NoBuffer,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Malformed,
        Self::TooLong,
        Self::Tagged,
        Self::SourceRouted,
        Self::SpoofedMac,
        Self::SpoofedAddress,
        Self::SpoofedArp,
        Self::SpoofedNeighbour,
        Self::RogueService,
        Self::Rule,
        Self::Rate,
        Self::OtherProtocol,
        Self::NoDestination,
        Self::NotItsAddress,
        Self::Loop,
        Self::NoBuffer,
    ];

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong => "too-long",
            Self::Tagged => "tagged",
            Self::SourceRouted => "source-routed",
            Self::SpoofedMac => "spoofed-mac",
            Self::SpoofedAddress => "spoofed-address",
            Self::SpoofedArp => "spoofed-arp",
            Self::SpoofedNeighbour => "spoofed-neighbour",
            Self::RogueService => "rogue-service",
            Self::Rule => "rule",
            Self::Rate => "rate",
            Self::OtherProtocol => "other-protocol",
            Self::NoDestination => "no-destination",
            Self::NotItsAddress => "not-its-address",
            Self::Loop => "loop",
            Self::NoBuffer => "no-buffer",
        }
    }
}

/// Frames, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    /// One more.
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes.into());
    }

    /// One less, which was counted before.
    pub(crate) fn take_back(&mut self, bytes: u32) {
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes.into());
    }
}

/// What a port has sent, received and lost.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// What it has submitted, dropped or not.
    pub transmitted: Tally,
    /// What it was to get, and had a buffer for.
    pub received: Tally,
    dropped: [Tally; Reason::ALL.len()],
}

impl Counters {
    /// What was dropped for a reason: of what the port sent, or by what it does not want to receive.
    pub fn dropped(&self, reason: Reason) -> Tally {
        self.dropped[reason as usize]
    }

    /// All that was dropped.
    pub fn all_dropped(&self) -> Tally {
        self.dropped.iter().fold(Tally::default(), |all, one| Tally {
            packets: all.packets.saturating_add(one.packets),
            bytes: all.bytes.saturating_add(one.bytes),
        })
    }

    pub(crate) fn drop(&mut self, reason: Reason, bytes: u32) {
        self.dropped[reason as usize].add(bytes);
    }
}
