//! What other vCPUs and devices send to a vCPU, and by which addresses they reach it: the only part of a local APIC
//! that other threads touch.
//!
//! There is no lock. A sender sets the message's bits first and `attention` last; the vCPU's thread takes `attention`
//! first and the bits after it. So no message is missed; and of many senders before the vCPU's thread looks, only the
//! first finds `attention` clear and has to wake the thread.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use bitflags::bitflags;

use super::message::{DeliveryMode, Message};
use super::vectors::Vectors;

bitflags! {
    /// What is not a vector.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Signals: u32 {
        /// A non-maskable interrupt.
        const NON_MASKABLE = 1 << 0;
        /// An ExtINT message of the I/O APIC.
        const EXTERNAL = 1 << 1;
        /// INIT.
        const INIT = 1 << 2;
        /// Start-up; the page is in [`Signals::PAGE`].
        const START_UP = 1 << 3;
        /// LINT0 has risen.
        const LINT0 = 1 << 4;
        /// A vector below 16 was sent here.
        const ILLEGAL_VECTOR = 1 << 5;
        /// Another processor has ended a halt of this one (`KVM_HC_KICK_CPU`).
        const UNHALT = 1 << 6;
        /// The page of the start-up message.
        const PAGE = 0xff << 8;
    }

    /// What senders must know of a local APIC.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Face: u32 {
        /// It is switched on (IA32_APIC_BASE).
        const ENABLED = 1 << 0;
        /// It is enabled by software (the spurious-interrupt register).
        const ACCEPTS_VECTORS = 1 << 1;
        /// It is in x2APIC mode.
        const X2APIC = 1 << 2;
        /// Logical addresses are flat.
        const FLAT = 1 << 3;
        /// INTR of the 8259 pair means something to it.
        const LINT0_OPEN = 1 << 4;
        /// What arbitration goes by: the processor priority.
        const PRIORITY = 0xff << 8;
        /// Its logical id in xAPIC mode.
        const LOGICAL = 0xff << 24;
    }
}

impl Face {
    /// With a priority and a logical id.
    pub fn with(self, priority: u8, logical: u8) -> Self {
        self | Self::from_bits_retain(u32::from(priority) << 8 | u32::from(logical) << 24)
    }
}

/// The mailbox of one processor.
#[derive(Debug)]
#[repr(align(128))]
pub struct Mailbox {
    id: u32,
    attention: AtomicBool,
    requests: [AtomicU64; 4],
    /// Which of the requests are level triggered.
    levels: [AtomicU64; 4],
    signals: AtomicU32,
    face: AtomicU32,
}

impl Mailbox {
    /// An empty one for the APIC `id`, which takes nothing until it has shown its face.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            attention: AtomicBool::new(false),
            requests: Default::default(),
            levels: Default::default(),
            signals: AtomicU32::new(0),
            face: AtomicU32::new(0),
        }
    }

    /// The APIC's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    // The owner's side.

    /// Say how the APIC is to be addressed from now on.
    #[inline]
    pub fn show(&self, face: Face) {
        self.face.store(face.bits(), Ordering::Release);
    }

    /// Whether something was left since this was last asked.
    #[inline]
    pub fn take_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) && self.attention.swap(false, Ordering::SeqCst)
    }

    /// All signals, once.
    pub fn take_signals(&self) -> Signals {
        let sticky = Signals::UNHALT.bits();
        Signals::from_bits_retain(self.signals.fetch_and(sticky, Ordering::SeqCst))
            - Signals::UNHALT
    }

    /// Whether a halt is to end, once. It is kept until it is asked for.
    #[inline]
    pub fn take_unhalt(&self) -> bool {
        let bit = Signals::UNHALT.bits();
        self.signals.load(Ordering::Relaxed) & bit != 0
            && self.signals.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Whether a halt is to end, which is still to be asked for.
    pub fn has_unhalt(&self) -> bool {
        self.signals.load(Ordering::SeqCst) & Signals::UNHALT.bits() != 0
    }

    /// A halt is to end, as [`Self::has_unhalt`] has said.
    pub fn restore_unhalt(&self) {
        self.signals.fetch_or(Signals::UNHALT.bits(), Ordering::SeqCst);
    }

    /// Move the vectors that were left into the registers IRR and TMR.
    pub fn move_vectors(&self, request: &mut Vectors, trigger: &mut Vectors) {
        for index in 0..4 {
            if self.requests[index].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let new = self.requests[index].swap(0, Ordering::SeqCst);
            let level = self.levels[index].load(Ordering::Acquire);
            request.set_word(index, request.word(index) | new);
            trigger.set_word(index, trigger.word(index) & !new | level & new);
        }
    }

    /// Forget everything.
    pub fn clear(&self) {
        self.attention.store(false, Ordering::SeqCst);
        self.signals.store(0, Ordering::SeqCst);
        self.requests.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }

    // Everybody's side.

    #[inline]
    fn face(&self) -> Face {
        Face::from_bits_retain(self.face.load(Ordering::Acquire))
    }

    /// Leave a message that is addressed to this processor; whether the owner must be woken.
    pub fn accept(&self, message: &Message) -> bool {
        let face = self.face();
        if !face.contains(Face::ENABLED) {
            return false;
        }
        match message.mode {
            DeliveryMode::Fixed | DeliveryMode::LowestPriority => {
                if !face.contains(Face::ACCEPTS_VECTORS) {
                    return false;
                }
                if message.vector < 16 {
                    return self.signal(Signals::ILLEGAL_VECTOR);
                }
                self.request(message.vector, message.level);
            }
            DeliveryMode::NonMaskable => return self.signal(Signals::NON_MASKABLE),
            DeliveryMode::External => return self.signal(Signals::EXTERNAL),
            DeliveryMode::Init => {
                // What came before INIT has missed its moment.
                self.change_signals(|old| old & Signals::UNHALT | Signals::INIT);
            }
            DeliveryMode::StartUp => {
                // Of several, the first one starts the processor; the others find it at work.
                let page = Signals::from_bits_retain(u32::from(message.vector) << 8);
                self.change_signals(|old| match old.contains(Signals::START_UP) {
                    true => old,
                    false => old | Signals::START_UP | page,
                });
            }
            DeliveryMode::SystemManagement | DeliveryMode::Reserved => return false,
        }
        self.draw_attention()
    }

    /// Leave a signal; whether the owner must be woken.
    pub fn signal(&self, signal: Signals) -> bool {
        self.signals.fetch_or(signal.bits(), Ordering::SeqCst);
        self.draw_attention()
    }

    /// INTR of the 8259 pair has risen; whether the owner must be woken.
    pub fn raise_lint0(&self) -> bool {
        self.face().contains(Face::LINT0_OPEN) && self.signal(Signals::LINT0)
    }

    /// Whether `address` names this APIC logically (SDM 3A 11.6.2.2, 11.12.10.1).
    pub fn matches_logical(&self, address: u32) -> bool {
        let face = self.face();
        if face.contains(Face::X2APIC) {
            let own = x2apic_logical_id(self.id);
            return own >> 16 == address >> 16 && own & address & 0xffff != 0;
        }
        let own = (face & Face::LOGICAL).bits() >> 24;
        if face.contains(Face::FLAT) {
            return own & address & 0xff != 0;
        }
        let same_cluster = own >> 4 == address >> 4 & 0xf || address >> 4 & 0xf == 0xf;
        same_cluster && own & address & 0xf != 0
    }

    /// What arbitration for a lowest-priority message goes by (SDM 3A 11.6.2.4); a processor whose
    /// APIC is off does not take part.
    pub fn arbitration(&self) -> Option<u8> {
        let face = self.face();
        let on = face.contains(Face::ENABLED | Face::ACCEPTS_VECTORS);
        on.then(|| ((face & Face::PRIORITY).bits() >> 8) as u8)
    }

    fn request(&self, vector: u8, level: bool) {
        let (index, bit) = (usize::from(vector >> 6), 1 << (vector & 63));
        if level {
            self.levels[index].fetch_or(bit, Ordering::Release);
        } else if self.levels[index].load(Ordering::Relaxed) & bit != 0 {
            self.levels[index].fetch_and(!bit, Ordering::Release);
        }
        self.requests[index].fetch_or(bit, Ordering::SeqCst);
    }

    fn change_signals(&self, change: impl Fn(Signals) -> Signals) {
        let change = |old| Some(change(Signals::from_bits_retain(old)).bits());
        // It cannot fail: the closure always has a value.
        let _ = self.signals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }

    fn draw_attention(&self) -> bool {
        !self.attention.swap(true, Ordering::SeqCst)
    }
}

/// The logical id that an x2APIC derives from its id (SDM 3A 11.12.10.2).
pub fn x2apic_logical_id(id: u32) -> u32 {
    id >> 4 << 16 | 1 << (id & 15)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::message::Destination;
    use super::*;

    fn message(mode: DeliveryMode, vector: u8, level: bool) -> Message {
        Message { destination: Destination::All, mode, vector, level }
    }

    fn open() -> Mailbox {
        let mailbox = Mailbox::new(1);
        mailbox.show(Face::ENABLED | Face::ACCEPTS_VECTORS);
        mailbox
    }

    #[test]
    fn only_the_first_of_several_has_to_wake_the_owner() {
        let mailbox = open();
        assert!(mailbox.accept(&message(DeliveryMode::Fixed, 0x40, false)));
        assert!(!mailbox.accept(&message(DeliveryMode::Fixed, 0x41, false)));
        assert!(!mailbox.accept(&message(DeliveryMode::NonMaskable, 0, false)));
        assert!(mailbox.take_attention() && !mailbox.take_attention());
        assert_eq!(mailbox.take_signals(), Signals::NON_MASKABLE);
        let (mut request, mut trigger) = (Vectors::default(), Vectors::default());
        mailbox.move_vectors(&mut request, &mut trigger);
        assert!(request.contains(0x40) && request.contains(0x41));
        assert!(mailbox.accept(&message(DeliveryMode::Fixed, 0x40, false)));
    }

    #[test]
    fn the_last_message_says_how_a_vector_is_triggered() {
        let (mut request, mut trigger) = (Vectors::default(), Vectors::default());
        let mailbox = open();
        for level in [false, true, false] {
            mailbox.accept(&message(DeliveryMode::Fixed, 0x52, level));
            mailbox.move_vectors(&mut request, &mut trigger);
            assert_eq!(trigger.contains(0x52), level);
        }
    }

    #[test]
    fn a_start_up_message_before_init_is_lost_and_one_after_it_kept() {
        let mailbox = open();
        mailbox.accept(&message(DeliveryMode::StartUp, 0x12, false));
        mailbox.accept(&message(DeliveryMode::Init, 0, false));
        assert_eq!(mailbox.take_signals(), Signals::INIT);
        mailbox.accept(&message(DeliveryMode::Init, 0, false));
        mailbox.accept(&message(DeliveryMode::StartUp, 0x99, false));
        mailbox.accept(&message(DeliveryMode::StartUp, 0x66, false));
        let expected = Signals::INIT | Signals::START_UP | Signals::from_bits_retain(0x9900);
        assert_eq!(mailbox.take_signals(), expected);
    }

    #[test]
    fn what_ends_a_halt_is_kept_until_there_is_one() {
        let mailbox = open();
        mailbox.signal(Signals::UNHALT);
        assert!(mailbox.take_signals().is_empty());
        assert!(mailbox.take_unhalt() && !mailbox.take_unhalt());
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let mailbox = Arc::new(open());
        let sender = Arc::clone(&mailbox);
        let (woken, wake) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            for round in 0..20_000u32 {
                let vector = 16 + (round % 240) as u8;
                if sender.accept(&message(DeliveryMode::Fixed, vector, false)) {
                    woken.send(()).unwrap();
                }
            }
        });
        // Whoever is woken looks; when the sender has ended, nothing may be left behind.
        let (mut request, mut trigger) = (Vectors::default(), Vectors::default());
        while wake.recv().is_ok() {
            if mailbox.take_attention() {
                mailbox.move_vectors(&mut request, &mut trigger);
            }
        }
        thread.join().unwrap();
        assert!((16..=255).all(|vector| request.contains(vector)));
        assert!(mailbox.requests.iter().all(|word| word.load(Ordering::SeqCst) == 0));
    }
}
