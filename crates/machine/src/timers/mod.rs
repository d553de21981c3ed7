//! The timers of a PC that are not in the processor or in the ACPI block.

mod pit;
mod rtc;

pub use pit::Pit;
pub use rtc::Rtc;
