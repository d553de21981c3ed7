//! What one interrupt controller says to another: an interrupt message (SDM 3A 11.11).

/// How the receiver is to take it: the delivery-mode field of the ICR, the LVT, the redirection
/// table and MSI data, which agree (SDM 3A 11.6.1, 82093AA 3.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// To every processor addressed.
    Fixed,
    /// To the addressed processor with the lowest priority.
    LowestPriority,
    /// System management: there is none, so nothing happens.
    SystemManagement,
    /// Reserved encoding: nothing happens.
    Reserved,
    /// Non-maskable.
    NonMaskable,
    /// Reset the processor and have it wait for a start-up message.
    Init,
    /// Start at the page that the vector says.
    StartUp,
    /// The vector comes from the 8259 pair.
    External,
}

impl DeliveryMode {
    /// From bits 10:8 of a register that has the field there.
    pub const fn from_register(value: u32) -> Self {
        match value >> 8 & 7 {
            0 => Self::Fixed,
            1 => Self::LowestPriority,
            2 => Self::SystemManagement,
            3 => Self::Reserved,
            4 => Self::NonMaskable,
            5 => Self::Init,
            6 => Self::StartUp,
            _ => Self::External,
        }
    }
}

/// Whom a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The APIC with this id.
    Physical(u32),
    /// The APICs whose logical id matches (SDM 3A 11.6.2.2).
    Logical(u32),
    /// Everybody, whatever the addressing mode.
    All,
    /// Everybody but this processor.
    AllBut(usize),
    /// This processor.
    Processor(usize),
}

/// Writes of interrupt messages go to addresses that begin so (SDM 3A 11.11.1).
const MESSAGE_ADDRESS: u64 = 0xfee;

/// An interrupt on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Whom it is for.
    pub destination: Destination,
    /// How it is to be taken.
    pub mode: DeliveryMode,
    /// Which.
    pub vector: u8,
    /// The source is level triggered: the end of the interrupt is to be broadcast.
    pub level: bool,
}

impl Message {
    /// What a device says that writes `data` to `address` (SDM 3A 11.11); nothing if that is no
    /// address of local APICs. Such an interrupt is an edge, whatever its trigger mode says: no line
    /// holds it.
    pub fn from_memory_write(address: u64, data: u32) -> Option<Self> {
        if address >> 20 != MESSAGE_ADDRESS {
            return None;
        }
        let (id, is_logical) = ((address >> 12 & 0xff) as u32, address & 1 << 2 != 0);
        let destination = match (is_logical, id) {
            (_, 0xff) => Destination::All,
            (true, id) => Destination::Logical(id),
            (false, id) => Destination::Physical(id),
        };
        let mode = DeliveryMode::from_register(data);
        Some(Self { destination, mode, vector: data as u8, level: false })
    }
}
