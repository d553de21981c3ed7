//! Every limit of the machine in one place, except those of the loader, which has its own.

use crate::time::Nanoseconds;

/// Most processors: xAPIC ids are 8 bits wide and 255 means everybody.
pub const MAX_PROCESSORS: usize = 255;

/// A periodic timer whose guest asks for less interrupts this often (KVM's `min_timer_period_us`
/// is the same): a guest cannot keep its own processor from running by a period of a nanosecond.
pub const MIN_TIMER_PERIOD_NANOSECONDS: Nanoseconds = Nanoseconds(100_000);

/// A periodic timer that is later than this forgets the periods it has missed.
pub const MAX_TIMER_BACKLOG_NANOSECONDS: Nanoseconds = Nanoseconds(1_000_000_000);

/// Devices on either bus.
pub const MAX_BUS_DEVICES: usize = 250;

/// Functions on the PCI bus besides its host bridge.
pub const MAX_PCI_FUNCTIONS: usize = 31;

/// Interrupt messages of one PCI function.
pub const MAX_MSI_X_VECTORS: usize = 64;

/// Seconds for which the clock looks for a missed alarm after it was not asked for long.
pub const MAX_MISSED_ALARM_SECONDS: u64 = 64;
