//! The time that a domain sees: system time, which starts with the domain, and the wall clock.

use machine::time::Nanoseconds;
use vm_memory::GuestAddress;

use crate::domain::Domain;

/// Where the time is in a `vcpu_info`, and the wall clock in `shared_info`.
const TIME: u64 = 32;
const WALL_CLOCK: u64 = 3072;
const WALL_SECONDS_HIGH: u64 = 3084;

impl Domain {
    /// Nanoseconds since the domain started.
    pub(crate) fn system_time(&self) -> u64 {
        self.clock.now().since(self.time().origin).0
    }

    /// A system time on the machine's clock.
    pub(crate) fn instant(&self, system_time: u64) -> Nanoseconds {
        self.time().origin.after(Nanoseconds(system_time))
    }

    /// Write the time into a vCPU's `vcpu_info`.
    pub(crate) fn write_time(&self, vcpu: usize) {
        self.write_time_and_say(vcpu, false);
    }

    /// The machine has stood still: say so to a vCPU.
    pub(crate) fn write_time_after_stop(&self, vcpu: usize) {
        self.write_time_and_say(vcpu, true);
    }

    fn write_time_and_say(&self, vcpu: usize, has_stopped: bool) {
        let at = GuestAddress(self.vcpus.info(vcpu) + TIME);
        let mut time = self.time();
        let offset = time.counter_offset;
        time.clock.write_page(at, offset, has_stopped, &*self.clock, self.memory.bytes());
    }

    /// Write the wall clock: when the domain started.
    pub(crate) fn write_wall_clock(&self) {
        let shared = self.geometry.shared_info().address();
        let memory = self.memory.bytes();
        self.time().clock.set_wall_clock(shared + WALL_CLOCK, &*self.clock, memory);
        // Until 2106 the seconds fit into 32 bits.
        let _ = memory.write(GuestAddress(shared + WALL_SECONDS_HIGH), &[0; 4]);
    }
}
