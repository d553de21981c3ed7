//! What a hypercall takes from other vCPUs: write access to a frame, and translations of addresses.
//!
//! Both are called between two runs, when this vCPU holds no address of guest memory. Both end with all other vCPUs
//! brought to the heads of their run loops ([`Vcpu::alone`]), if these could have had something: what they had
//! looked up is used by then, and they see what has changed before they execute anything.
//!
//! A frame whose type changes is mapped writable nowhere any more, which the hypervisor's counts say. What is
//! revoked is what was cached from the time when it was. A vCPU that has walked the page tables meanwhile, and enters
//! what it has found when the frame's writers have been looked at already, sees that something has been taken away
//! since it began to walk, and walks once more ([`Architectural::translate_linear`]). One that stores between two
//! runs does so as if it ran ([`Vcpu::busily`]). In the common case nobody has the frame cached for writing, which
//! costs one look at the frame's writers.
//!
//! [`Architectural::translate_linear`]: crate::architectural::Architectural::translate_linear

use crate::memory::Physical;
use crate::vcpu::Vcpu;

impl Vcpu {
    /// No vCPU writes a frame, given by its machine address, by what it has cached from before.
    pub fn revoke_writable(&mut self, frame: u64) {
        let page = Physical(frame);
        if let Some(host) = self.arch.ram.host(page) {
            let writers = self.arch.ram.take_writers(page);
            self.revoke(page, writers, host);
        }
    }

    /// Have other vCPUs, of which each has a bit, flush all that they have translated, before they execute anything
    /// more. The address is for those that could flush less.
    pub fn flush_others_translations(&mut self, vcpus: u64, _: Option<u64>) {
        let group = std::sync::Arc::clone(&self.arch.group);
        let mut others = false;
        for (number, peer) in group.peers.iter() {
            if number != self.arch.vcpu_index && vcpus >> number & 1 != 0 {
                peer.kick.ask_to_flush();
                others |= peer.kick.is_busy();
            }
        }
        if others {
            self.alone(|_| ());
        }
    }
}
