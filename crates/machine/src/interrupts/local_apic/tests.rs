use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::bits::offset;
use super::{Effect, Fault, LocalApic, StartUp};
use crate::interrupts::mailbox::Mailbox;
use crate::interrupts::message::{DeliveryMode, Destination, Message};
use crate::time::{Clock, Hertz, ManualClock, Nanoseconds};

/// Two ticks of the time-stamp counter are a nanosecond.
const TSC: Hertz = Hertz(2_000_000_000);
const MASKED: u32 = 1 << 16;
const PERIODIC: u32 = 1 << 17;
const TSC_DEADLINE: u32 = 2 << 17;
/// IA32_APIC_BASE of the bootstrap processor in xAPIC and in x2APIC mode.
const XAPIC: u64 = 0xfee0_0900;
const X2APIC: u64 = 0xfee0_0d00;

fn clock() -> ManualClock {
    ManualClock::new(TSC, Duration::ZERO)
}

/// Enabled by software, as a kernel does it.
fn enabled() -> LocalApic {
    let mut apic = new_apic(0);
    write(&mut apic, offset::SPURIOUS, 0x1ff);
    apic
}

fn new_apic(id: u32) -> LocalApic {
    LocalApic::new(Arc::new(Mailbox::new(id)), TSC)
}

/// A message comes, and the processor looks.
fn receive(apic: &mut LocalApic, message: &Message) {
    apic.mailbox.accept(message);
    apic.absorb();
}

fn in_x2apic_mode(id: u32) -> LocalApic {
    let mut apic = new_apic(id);
    apic.set_base(X2APIC).unwrap();
    apic
}

fn write(apic: &mut LocalApic, at: u32, value: u32) -> Effect {
    apic.write_mmio(at, value, &clock())
}

fn read(apic: &mut LocalApic, at: u32) -> u32 {
    apic.read_mmio(at, &clock())
}

fn message(vector: u8, level: bool) -> Message {
    Message { destination: Destination::All, mode: DeliveryMode::Fixed, vector, level }
}

fn accept(apic: &mut LocalApic, vectors: &[u8]) {
    vectors.iter().for_each(|&vector| receive(apic, &message(vector, false)));
}

#[test]
fn it_starts_as_firmware_leaves_it() {
    let mut apic = new_apic(0);
    assert_eq!(apic.base(), XAPIC);
    assert_eq!(read(&mut apic, offset::VERSION), 0x0005_0014);
    assert_eq!(read(&mut apic, offset::SPURIOUS), 0xff);
    assert!(apic.takes_external(true), "LINT0 is in virtual wire mode");
    let mut second = new_apic(1);
    assert_eq!(second.base(), 0xfee0_0800);
    assert_eq!(read(&mut second, offset::ID), 1 << 24);
    assert!(!second.takes_external(true));
}

#[test]
fn nothing_is_accepted_while_it_is_off() {
    let mut apic = new_apic(0);
    accept(&mut apic, &[0x40]);
    assert_eq!(apic.pending(), None);
}

#[test]
fn higher_vectors_go_first_and_hold_back_their_class() {
    let mut apic = enabled();
    accept(&mut apic, &[0x31, 0x52, 0x51]);
    assert_eq!(apic.acknowledge(), Some(0x52));
    assert_eq!(apic.pending(), None, "0x51 is of the same class");
    accept(&mut apic, &[0x60]);
    assert_eq!(apic.acknowledge(), Some(0x60));
    write(&mut apic, offset::END_OF_INTERRUPT, 0);
    write(&mut apic, offset::END_OF_INTERRUPT, 0);
    assert_eq!(apic.acknowledge(), Some(0x51));
    write(&mut apic, offset::END_OF_INTERRUPT, 0);
    assert_eq!(apic.acknowledge(), Some(0x31));
}

#[test]
fn the_task_priority_holds_back_its_class_and_lower() {
    let mut apic = enabled();
    accept(&mut apic, &[0x4f]);
    apic.set_task_priority_class(4);
    assert_eq!(apic.pending(), None);
    assert_eq!(read(&mut apic, offset::PROCESSOR_PRIORITY), 0x40);
    write(&mut apic, offset::TASK_PRIORITY, 0x3f);
    assert_eq!(apic.task_priority_class(), 3);
    assert_eq!(apic.pending(), Some(0x4f));
}

#[test]
fn registers_show_what_is_requested_and_served() {
    let mut apic = enabled();
    receive(&mut apic, &message(0x45, true));
    assert_eq!(read(&mut apic, offset::REQUEST + 0x20), 1 << 5);
    assert_eq!(read(&mut apic, offset::TRIGGER_MODE + 0x20), 1 << 5);
    apic.acknowledge();
    assert_eq!(read(&mut apic, offset::REQUEST + 0x20), 0);
    assert_eq!(read(&mut apic, offset::IN_SERVICE + 0x20), 1 << 5);
}

#[test]
fn only_the_end_of_a_level_is_told() {
    let mut apic = enabled();
    receive(&mut apic, &message(0x45, true));
    receive(&mut apic, &message(0x55, false));
    apic.acknowledge();
    assert_eq!(write(&mut apic, offset::END_OF_INTERRUPT, 0), Effect::None);
    apic.acknowledge();
    assert_eq!(write(&mut apic, offset::END_OF_INTERRUPT, 0), Effect::End(0x45));
    assert_eq!(write(&mut apic, offset::END_OF_INTERRUPT, 0), Effect::None);
}

#[test]
fn illegal_vectors_and_registers_are_errors() {
    let mut apic = enabled();
    write(&mut apic, offset::LVT_ERROR, 0xfe);
    accept(&mut apic, &[0x0f]);
    assert_eq!(apic.acknowledge(), Some(0xfe));
    write(&mut apic, offset::COMMAND_LOW, 0x05);
    read(&mut apic, 0x040);
    assert_eq!(read(&mut apic, offset::ERROR_STATUS), 0);
    write(&mut apic, offset::ERROR_STATUS, 0);
    assert_eq!(read(&mut apic, offset::ERROR_STATUS), 0xe0);
}

#[test]
fn an_illegal_error_vector_does_not_recurse() {
    let mut apic = enabled();
    write(&mut apic, offset::LVT_ERROR, 0x01);
    accept(&mut apic, &[0x02]);
    assert_eq!(apic.pending(), None);
}

#[test]
fn switching_it_off_masks_its_own_interrupts() {
    let mut apic = enabled();
    write(&mut apic, offset::LVT_TIMER, 0x40);
    write(&mut apic, offset::SPURIOUS, 0xff);
    assert_eq!(read(&mut apic, offset::LVT_TIMER), 0x40 | MASKED);
    write(&mut apic, offset::LVT_TIMER, 0x40);
    assert_eq!(read(&mut apic, offset::LVT_TIMER), 0x40 | MASKED);
}

#[test]
fn the_one_shot_counts_down_and_interrupts_once() {
    let (mut apic, clock) = (enabled(), clock());
    write(&mut apic, offset::LVT_TIMER, 0x40);
    write(&mut apic, offset::DIVIDE, 0b0011);
    apic.write_mmio(offset::INITIAL_COUNT, 1000, &clock);
    assert_eq!(apic.next_deadline(), Nanoseconds(16_000));
    clock.advance(Nanoseconds(4_000));
    assert_eq!(apic.read_mmio(offset::CURRENT_COUNT, &clock), 750);
    clock.advance(Nanoseconds(12_000));
    assert!(apic.advance(clock.now()));
    assert_eq!(apic.acknowledge(), Some(0x40));
    assert_eq!(apic.read_mmio(offset::CURRENT_COUNT, &clock), 0);
    assert_eq!(apic.next_deadline(), Nanoseconds::NEVER);
}

#[test]
fn divisors_are_those_of_the_manual() {
    for (code, divisor) in [(0, 2), (1, 4), (2, 8), (3, 16), (8, 32), (9, 64), (10, 128), (11, 1)] {
        let mut apic = enabled();
        write(&mut apic, offset::DIVIDE, code);
        write(&mut apic, offset::INITIAL_COUNT, 10);
        assert_eq!(apic.next_deadline(), Nanoseconds(10 * divisor), "{code:#b}");
    }
}

#[test]
fn the_periodic_timer_does_not_drift_and_merges_what_was_missed() {
    let mut apic = enabled();
    write(&mut apic, offset::LVT_TIMER, 0x40 | PERIODIC);
    write(&mut apic, offset::DIVIDE, 0b1011);
    write(&mut apic, offset::INITIAL_COUNT, 1_000_000);
    assert!(apic.advance(Nanoseconds(1_000_000)));
    assert!(apic.advance(Nanoseconds(4_500_000)));
    assert!(!apic.advance(Nanoseconds(4_900_000)));
    assert_eq!(apic.next_deadline(), Nanoseconds(5_000_000));
}

#[test]
fn a_period_of_a_nanosecond_is_not_one() {
    let mut apic = enabled();
    write(&mut apic, offset::LVT_TIMER, 0x40 | PERIODIC);
    write(&mut apic, offset::DIVIDE, 0b1011);
    write(&mut apic, offset::INITIAL_COUNT, 1);
    assert!(apic.next_deadline() >= Nanoseconds(100_000));
}

#[test]
fn a_masked_timer_passes_in_silence() {
    let mut apic = enabled();
    write(&mut apic, offset::LVT_TIMER, 0x40 | MASKED);
    write(&mut apic, offset::INITIAL_COUNT, 10);
    assert!(!apic.advance(Nanoseconds(1_000)));
    write(&mut apic, offset::LVT_TIMER, 0x40);
    assert_eq!((apic.pending(), apic.next_deadline()), (None, Nanoseconds::NEVER));
}

#[test]
fn the_tsc_deadline_is_in_ticks_of_the_guest() {
    let (mut apic, clock) = (enabled(), clock());
    write(&mut apic, offset::LVT_TIMER, 0x40 | TSC_DEADLINE);
    apic.set_tsc_offset(1_000_000);
    apic.set_tsc_deadline(1_002_000, &clock);
    assert_eq!(apic.tsc_deadline(&clock), 1_002_000);
    assert_eq!(apic.next_deadline(), Nanoseconds(1_000));
    clock.advance(Nanoseconds(1_000));
    assert_eq!(apic.tsc_deadline(&clock), 0);
    assert_eq!(apic.acknowledge(), Some(0x40));
}

#[test]
fn a_tsc_deadline_in_the_past_is_due_and_zero_is_none() {
    let (mut apic, clock) = (enabled(), clock());
    write(&mut apic, offset::LVT_TIMER, 0x40 | TSC_DEADLINE);
    clock.advance(Nanoseconds(500));
    apic.set_tsc_deadline(1, &clock);
    assert_eq!(apic.next_deadline(), Nanoseconds(500));
    apic.set_tsc_deadline(0, &clock);
    assert_eq!(apic.next_deadline(), Nanoseconds::NEVER);
    apic.write_mmio(offset::INITIAL_COUNT, 5, &clock);
    assert_eq!(apic.next_deadline(), Nanoseconds::NEVER, "counting is off in this mode");
}

#[test]
fn changing_the_mode_disarms_the_tsc_deadline() {
    let (mut apic, clock) = (enabled(), clock());
    apic.set_tsc_deadline(1_000, &clock);
    assert_eq!(apic.next_deadline(), Nanoseconds::NEVER, "not in this mode");
    write(&mut apic, offset::LVT_TIMER, 0x40 | TSC_DEADLINE);
    apic.set_tsc_deadline(1_000, &clock);
    write(&mut apic, offset::LVT_TIMER, 0x40);
    assert_eq!(apic.next_deadline(), Nanoseconds::NEVER);
}

#[test]
fn commands_go_where_they_say() {
    let mut apic = enabled();
    let mut sent = |high: u32, low: u32| {
        write(&mut apic, offset::COMMAND_HIGH, high << 24);
        match write(&mut apic, offset::COMMAND_LOW, low) {
            Effect::Send(message) => Some((message.destination, message.mode, message.vector)),
            _ => None,
        }
    };
    let fixed = DeliveryMode::Fixed;
    assert_eq!(sent(3, 0x44), Some((Destination::Physical(3), fixed, 0x44)));
    assert_eq!(sent(3, 0x844), Some((Destination::Logical(3), fixed, 0x44)));
    assert_eq!(sent(0xff, 0x44), Some((Destination::All, fixed, 0x44)));
    assert_eq!(sent(0, 0x4_0044), Some((Destination::Processor(0), fixed, 0x44)));
    assert_eq!(sent(0, 0xc_0044), Some((Destination::AllBut(0), fixed, 0x44)));
    assert_eq!(sent(1, 0xc500), Some((Destination::Physical(1), DeliveryMode::Init, 0)));
    assert_eq!(sent(1, 0x8500), None, "de-asserting INIT does nothing");
    assert_eq!(sent(1, 0x0699), Some((Destination::Physical(1), DeliveryMode::StartUp, 0x99)));
    assert_eq!(sent(1, 0x0400), Some((Destination::Physical(1), DeliveryMode::NonMaskable, 0)));
}

#[test]
fn init_and_start_up_are_each_taken_once() {
    let mut apic = new_apic(1);
    write(&mut apic, offset::SPURIOUS, 0x1ff);
    let mut take = |mode, vector| {
        receive(&mut apic, &Message { mode, ..message(vector, false) });
        [apic.take_start_up(), apic.take_start_up()]
    };
    assert_eq!(take(DeliveryMode::Init, 0), [Some(StartUp::Init), None]);
    assert_eq!(take(DeliveryMode::StartUp, 0x99), [Some(StartUp::At(0x99)), None]);
    assert_eq!(take(DeliveryMode::StartUp, 0x98), [None, None], "it is at work");
    assert_eq!(read(&mut apic, offset::SPURIOUS), 0xff, "INIT resets it");
}

#[test]
fn only_application_processors_wait_to_be_started() {
    let mut first = new_apic(0);
    assert!(!first.waits_for_start_up() && new_apic(1).waits_for_start_up());
    receive(&mut first, &Message { mode: DeliveryMode::Init, ..message(0, false) });
    assert_eq!(first.take_start_up(), Some(StartUp::Init));
    assert!(!first.waits_for_start_up(), "the bootstrap processor starts at the reset vector");
}

#[test]
fn init_forgets_what_was_on_its_way() {
    let mut apic = new_apic(1);
    write(&mut apic, offset::SPURIOUS, 0x1ff);
    for (mode, vector) in
        [(DeliveryMode::Fixed, 0x40), (DeliveryMode::NonMaskable, 0), (DeliveryMode::Init, 0)]
    {
        apic.mailbox.accept(&Message { mode, ..message(vector, false) });
    }
    apic.absorb();
    assert_eq!((apic.pending(), apic.take_non_maskable()), (None, false));
    assert_eq!(apic.take_start_up(), Some(StartUp::Init));
    assert!(apic.waits_for_start_up());
}

#[test]
fn an_end_is_silent_if_nobody_waits_for_it() {
    let mut apic = enabled();
    assert_eq!(apic.silent_end(), None);
    accept(&mut apic, &[0x41]);
    apic.acknowledge();
    assert_eq!(apic.silent_end(), Some(0x41));
    accept(&mut apic, &[0x31]);
    assert_eq!(apic.silent_end(), None, "0x31 waits");
    let mut apic = enabled();
    receive(&mut apic, &message(0x45, true));
    apic.acknowledge();
    assert_eq!(apic.silent_end(), None, "the I/O APIC waits");
}

#[test]
fn logical_addresses_are_flat_or_clustered() {
    let mut apic = enabled();
    write(&mut apic, offset::LOGICAL_DESTINATION, 0x2400_0000);
    assert!(
        apic.mailbox.matches_logical(0x04)
            && apic.mailbox.matches_logical(0xff)
            && !apic.mailbox.matches_logical(0x43)
    );
    write(&mut apic, offset::DESTINATION_FORMAT, 0x0fff_ffff);
    assert!(apic.mailbox.matches_logical(0x24) && apic.mailbox.matches_logical(0xf4));
    assert!(!apic.mailbox.matches_logical(0x14) && !apic.mailbox.matches_logical(0x23));
    let apic = in_x2apic_mode(0x25);
    assert!(
        apic.mailbox.matches_logical(0x0002_0020) && !apic.mailbox.matches_logical(0x0001_0020)
    );
    assert!(!apic.mailbox.matches_logical(0x0002_0040));
}

#[test]
fn x2apic_registers_are_msrs_and_not_memory() {
    let (mut apic, clock) = (new_apic(0), clock());
    assert!(apic.is_at(0xfee0_0080));
    assert_eq!(apic.read_msr(0x802, &clock), Err(Fault));
    apic.set_base(X2APIC).unwrap();
    assert!(!apic.is_at(0xfee0_0080));
    assert_eq!(apic.read_msr(0x802, &clock), Ok(0));
    assert_eq!(apic.write_msr(0x80f, 0x1ff, &clock), Ok(Effect::None));
    accept(&mut apic, &[0x50]);
    assert_eq!(apic.acknowledge(), Some(0x50));
    assert_eq!(apic.write_msr(0x80b, 0, &clock), Ok(Effect::None));
    assert_eq!(apic.write_msr(0x83f, 0x61, &clock), Ok(Effect::None));
    assert_eq!(apic.pending(), Some(0x61));
    let sent = apic.write_msr(0x830, 7 << 32 | 0x44, &clock);
    assert!(matches!(sent, Ok(Effect::Send(m)) if m.destination == Destination::Physical(7)));
    assert_eq!(apic.read_msr(0x830, &clock), Ok(7 << 32 | 0x44));
}

#[test]
fn x2apic_refuses_reserved_bits_and_registers() {
    let (mut apic, clock) = (in_x2apic_mode(0), clock());
    let refused = [
        (0x802, 0),
        (0x80b, 1),
        (0x80d, 0),
        (0x80e, 0),
        (0x808, 0x100),
        (0x80f, 0x1000),
        (0x828, 1),
        (0x830, 1 << 12),
        (0x831, 0),
        (0x832, 1 << 8),
        (0x838, 1 << 32),
        (0x839, 0),
        (0x83e, 4),
        (0x8ff, 0),
    ];
    for (index, value) in refused {
        assert_eq!(apic.write_msr(index, value, &clock), Err(Fault), "{index:#x}");
    }
    for index in [0x80b, 0x80e, 0x831, 0x83f, 0x8ff] {
        assert_eq!(apic.read_msr(index, &clock), Err(Fault), "{index:#x}");
    }
}

#[test]
fn x2apic_ignores_what_is_written_to_read_only_bits() {
    let (mut apic, clock) = (in_x2apic_mode(0), clock());
    apic.write_msr(0x80f, 0x1ff, &clock).unwrap();
    assert_eq!(apic.write_msr(0x835, 0x5700, &clock), Ok(Effect::None));
    assert_eq!(apic.read_msr(0x835, &clock), Ok(0x700));
}

#[test]
fn the_base_register_allows_what_the_manual_does() {
    let (enable, extend) = (1 << 11, 1 << 10);
    let mut apic = new_apic(0);
    assert_eq!(apic.set_base(0xfee0_0000 | extend), Err(Fault), "extended but not enabled");
    assert_eq!(apic.set_base(XAPIC | 1), Err(Fault), "reserved");
    for bit in 40..64 {
        assert_eq!(apic.set_base(XAPIC | 1 << bit), Err(Fault), "address bit {bit}");
    }
    assert_eq!(apic.base(), XAPIC);
    assert_eq!(apic.set_base(XAPIC | 1 << 39), Ok(()), "the highest address bit");
    assert_eq!(apic.set_base(X2APIC), Ok(()));
    assert_eq!(apic.set_base(XAPIC), Err(Fault), "back without switching off");
    assert_eq!(apic.set_base(0xfee0_0000), Ok(()));
    assert_eq!(apic.base() & (enable | extend), 0);
    assert_eq!(apic.set_base(X2APIC), Err(Fault), "from off to extended");
    assert_eq!(apic.set_base(0xfed0_0000 | enable), Ok(()));
    assert!(apic.is_at(0xfed0_0030) && !apic.is_at(0xfee0_0030));
    assert_eq!(apic.base() & 0x100, 0x100, "the bootstrap bit stays");
}

#[test]
fn the_external_interrupt_follows_lint0() {
    let mut apic = enabled();
    assert!(apic.takes_external(true) && !apic.takes_external(false));
    write(&mut apic, 0x350, 0x700 | MASKED);
    assert!(!apic.takes_external(true));
    write(&mut apic, 0x350, 0x41);
    apic.mailbox.raise_lint0();
    apic.absorb();
    assert_eq!(apic.acknowledge(), Some(0x41), "a fixed interrupt through the same pin");
    write(&mut apic, 0x360, 0x400);
    apic.lint1_rises();
    assert!(apic.take_non_maskable() && !apic.take_non_maskable());
    apic.set_base(0xfee0_0000).unwrap();
    assert!(apic.takes_external(true), "without an APIC the pin is INTR");
}

proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(
        steps in prop::collection::vec(any::<(u8, u16, u32, u8)>(), 0..300),
    ) {
        let (mut apic, clock) = (enabled(), clock());
        for (what, at, value, shift) in steps {
            match what % 8 {
                0 => drop(apic.read_mmio(u32::from(at), &clock)),
                1 => drop(apic.write_msr(0x800 + u32::from(at & 0xff), value.into(), &clock)),
                2 => drop(apic.read_msr(0x800 + u32::from(at & 0xff), &clock)),
                3 => clock.advance(Nanoseconds(u64::from(value) << (shift % 20))),
                4 => apic.set_tsc_deadline(u64::from(value) << (shift & 31), &clock),
                5 => drop(apic.set_base(u64::from(value & 0xd00) | 0xfee0_0000)),
                6 => receive(&mut apic, &message(at as u8, shift & 1 != 0)),
                _ => drop(apic.write_mmio(u32::from(at) & 0xff0, value, &clock)),
            }
            apic.advance(clock.now());
            prop_assert!(apic.next_deadline() > clock.now());
            let pending = apic.pending();
            prop_assert!(pending.is_none_or(|vector| vector >= 16));
            if shift & 2 != 0 {
                prop_assert_eq!(apic.acknowledge(), pending);
            }
        }
    }
}
