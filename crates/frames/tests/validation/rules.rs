//! Each rule of the validation by itself.

use frames::{Entry, Errno, FrameType, Level, Outcome, Outside, Refused, Stop, check_descriptor};
use xen_abi::Mfn;

use crate::support::{BASE, Domain, Machine, entry, frame};

const W: u64 = Entry::WRITABLE;
const READ_ONLY: u64 = 0;

/// What an operation comes to, without interruptions.
fn refused<T>(errno: Errno) -> Result<T, Stop> {
    Err(Stop::Refused(errno))
}

/// Nothing differs from what a walk finds.
fn check(domain: &mut Domain, outside: &[Outside]) {
    assert_eq!(domain.tables(0).audit(outside), []);
    domain.machine.untold.clear();
}

fn update(domain: &mut Domain, table: u64, index: u64, entry: Entry) -> Result<(), Stop> {
    domain.tables(0).update(((BASE + table) << 12) | (index * 8), entry.0)
}

/// L4 in frame 0, L3 in 1, L2 in 2, L1 in 3, which maps frames 10 (writable) and 11; the tables are pinned.
fn domain() -> Domain {
    let mut domain = Domain::new(0);
    domain.write(3, 0, entry(10, W));
    domain.write(3, 1, entry(11, READ_ONLY));
    domain.chain();
    domain.tables(0).pin(frame(0), Level::L4).expect("the tables are right");
    check(&mut domain, &[]);
    domain
}

#[test]
fn a_pin_validates_all_that_it_leads_to() {
    let mut domain = domain();
    let types = [0, 1, 2, 3, 10, 11].map(|index| domain.frames().frame_type(frame(index)));
    use FrameType::{L1, L2, L3, L4, None, Writable};
    assert_eq!(types, [L4, L3, L2, L1, Writable, None]);
    assert_eq!([10, 11, 12].map(|index| domain.frames().references(frame(index))), [1, 1, 0]);
    let order = domain.machine.revoked.iter().map(|(mfn, _)| mfn.0 - BASE);
    assert_eq!(order.collect::<Vec<_>>(), [0, 1, 2, 3], "marked and revoked from above");

    domain.tables(0).unpin(frame(0)).expect("it is pinned");
    assert!((0..40).all(|index| domain.frames().references(frame(index)) == 0));
    assert_eq!(domain.machine.demoted.len(), 4);
    check(&mut domain, &[]);
}

#[test]
fn a_table_cannot_be_written_to() {
    let mut domain = domain();
    let busy = refused(Errno::Busy);
    assert_eq!(update(&mut domain, 3, 2, entry(3, W)), busy, "an L1 maps itself");
    assert_eq!(update(&mut domain, 3, 2, entry(0, W)), busy, "a root");
    assert_eq!(update(&mut domain, 3, 2, entry(0, READ_ONLY)), Ok(()));
    assert_eq!(domain.frames().take_writable(frame(2)), Err(Refused::Type));
    check(&mut domain, &[]);
}

#[test]
fn what_is_writable_becomes_no_table() {
    let mut domain = domain();
    let inval = refused(Errno::Inval);
    assert_eq!(domain.tables(0).pin(frame(10), Level::L1), inval);
    assert_eq!(update(&mut domain, 2, 1, entry(10, W)), inval);
    assert_eq!(update(&mut domain, 3, 0, Entry(0)), Ok(()));
    domain.machine.revoked.clear();
    assert_eq!(update(&mut domain, 2, 1, entry(10, W)), Ok(()));
    assert_eq!(domain.machine.revoked, [(frame(10), FrameType::Writable)]);
    check(&mut domain, &[]);
}

#[test]
fn a_table_has_one_level() {
    let mut domain = domain();
    let inval = refused(Errno::Inval);
    assert_eq!(domain.tables(0).pin(frame(1), Level::L2), inval);
    assert_eq!(domain.tables(0).pin(frame(1), Level::L3), Ok(()));
    assert_eq!(domain.tables(0).pin(frame(1), Level::L3), inval, "pinned already");
    assert_eq!(update(&mut domain, 1, 5, entry(3, W)), inval, "an L1 in an L3");
    assert_eq!(domain.tables(0).unpin(frame(2)), inval, "not pinned");
    check(&mut domain, &[]);
}

#[test]
fn errors_are_those_of_xen() {
    let mut domain = domain();
    domain.frames().release(frame(20)).expect("nothing refers to it");
    let check = |domain: &mut Domain, table, entry, expected| {
        assert_eq!(update(domain, table, 7, entry), refused(expected), "{table} {entry:?}");
    };
    check(&mut domain, 3, entry(20, READ_ONLY), Errno::Busy);
    check(&mut domain, 3, entry(1000, READ_ONLY), Errno::Perm);
    check(&mut domain, 3, Entry::new(Mfn(0xff_ffff_ffff), 1), Errno::Inval);
    for table in 0..3 {
        check(&mut domain, table, entry(20, READ_ONLY), Errno::Inval);
        check(&mut domain, table, entry(1000, READ_ONLY), Errno::Inval);
        check(&mut domain, table, entry(21, Entry::GLOBAL), Errno::Inval);
        check(&mut domain, table, entry(21, Entry::LARGE), Errno::Inval);
    }
    for bit in [Entry::WRITE_THROUGH, Entry::CACHE_DISABLED, Entry::LARGE] {
        check(&mut domain, 3, entry(21, bit), Errno::Inval);
    }
    assert_eq!(update(&mut domain, 3, 7, entry(21, Entry::GLOBAL)), Ok(()));
    assert_eq!(domain.tables(0).update((BASE + 3) << 12 | 4, 0), refused(Errno::NoSys));
    assert_eq!(domain.tables(0).update(7 << 12, 0), refused(Errno::Inval));
    self::check(&mut domain, &[]);
}

#[test]
fn a_bad_entry_deep_below_undoes_everything() {
    let mut domain = Domain::new(0);
    for (table, index) in [(0, 3), (1, 4), (2, 5)] {
        domain.write(table, index, entry(table + 1, W));
    }
    domain.write(2, 4, entry(4, W));
    domain.write(4, 511, entry(12, W));
    domain.write(3, 100, entry(12, W));
    domain.write(3, 101, entry(1000, W));
    let before = domain.machine.memory.clone();
    assert_eq!(domain.tables(0).pin(frame(0), Level::L4), refused(Errno::Perm));
    assert!((0..40).all(|index| domain.frames().references(frame(index)) == 0));
    assert_eq!(domain.machine.memory, before);
    check(&mut domain, &[]);
}

#[test]
fn slots_of_the_hypervisor_are_cleared_and_stay_so() {
    let mut domain = Domain::new(0);
    domain.write(0, 256, Entry(u64::MAX));
    domain.write(0, 271, Entry(1));
    domain.write(0, 272, Entry(0));
    domain.tables(0).pin(frame(0), Level::L4).expect("these slots are not looked at");
    assert_eq!(domain.machine.memory[0], [0; 512]);
    for slot in [256, 271] {
        assert_eq!(update(&mut domain, 0, slot, Entry(0)), refused(Errno::Inval));
    }
    assert_eq!(update(&mut domain, 0, 272, Entry(0)), Ok(()));
    check(&mut domain, &[]);
}

#[test]
fn linear_tables_are_read_only_and_not_chained() {
    let mut domain = domain();
    let inval = refused(Errno::Inval);
    assert_eq!(update(&mut domain, 0, 8, entry(0, W)), inval, "a root maps itself, writable");
    assert_eq!(update(&mut domain, 0, 8, entry(0, READ_ONLY)), Ok(()));
    for root in [5, 6] {
        domain.tables(0).pin(frame(root), Level::L4).expect("an empty root");
    }
    assert_eq!(update(&mut domain, 0, 9, entry(5, W)), inval);
    assert_eq!(update(&mut domain, 0, 9, entry(5, READ_ONLY)), Ok(()), "another root");
    assert_eq!(update(&mut domain, 5, 9, entry(6, READ_ONLY)), inval, "is linear itself");
    assert_eq!(update(&mut domain, 6, 9, entry(0, READ_ONLY)), inval, "has linear entries");
    check(&mut domain, &[]);
    domain.tables(0).unpin(frame(5)).expect("it is pinned");
    assert_eq!(domain.frames().frame_type(frame(5)), FrameType::L4, "the entry holds it");
    check(&mut domain, &[]);
    domain.tables(0).unpin(frame(0)).expect("it is pinned");
    assert_eq!(domain.frames().frame_type(frame(5)), FrameType::None);
    check(&mut domain, &[]);
}

#[test]
fn flags_change_without_a_look_and_ad_bits_can_be_preserved() {
    let mut domain = domain();
    let all = W | Entry::ACCESSED | Entry::DIRTY | Entry::NO_EXECUTE | Entry::AVAILABLE;
    assert_eq!(update(&mut domain, 3, 0, entry(10, all)), Ok(()));
    let pointer = (BASE + 3) << 12;
    assert_eq!(domain.tables(0).update(pointer | 2, entry(10, READ_ONLY).0), Ok(()));
    let kept = entry(10, Entry::ACCESSED | Entry::DIRTY);
    assert_eq!(domain.machine.memory[3][0], kept.0);
    assert_eq!(domain.frames().frame_type(frame(10)), FrameType::None, "no writable entry");
    let change = *domain.machine.changes.last().expect("it was told");
    assert_eq!((change.old, change.new), (entry(10, all), kept));
    assert_eq!(domain.tables(0).update(pointer, entry(10, READ_ONLY).0), Ok(()));
    assert_eq!(domain.machine.memory[3][0], entry(10, READ_ONLY).0);
    check(&mut domain, &[]);
}

#[test]
fn memory_that_is_no_table_is_written_plainly() {
    let mut domain = domain();
    assert_eq!(update(&mut domain, 10, 5, Entry(77)), Ok(()), "writable");
    assert_eq!(update(&mut domain, 30, 5, Entry(78)), Ok(()), "not mapped at all");
    assert_eq!((domain.machine.memory[10][5], domain.machine.memory[30][5]), (77, 78));
    domain.tables(0).take_descriptors(frame(31)).expect("zeroes");
    assert_eq!(update(&mut domain, 31, 5, Entry(0)), refused(Errno::Inval), "descriptors");
    assert_eq!(domain.tables(0).update((BASE + 9) << 12 | 1, 1234), Ok(()));
    assert_eq!(domain.machine.physical[&frame(9).0], 1234);
    domain.tables(0).put_descriptors(frame(31));
    check(&mut domain, &[]);
}

#[test]
fn roots_of_processors_hold_their_tables() {
    let mut domain = domain();
    assert_eq!(domain.tables(0).new_baseptr(frame(3)), refused(Errno::Inval));
    assert_eq!(domain.tables(0).new_baseptr(Mfn(0)), refused(Errno::Inval));
    assert_eq!(domain.tables(0).new_baseptr(frame(0)), Ok(()));
    assert_eq!(domain.tables(0).new_baseptr(frame(0)), Ok(()), "the same again");
    assert_eq!(domain.tables(1).new_user_baseptr(frame(7)), Ok(()), "validated for it");
    domain.tables(0).unpin(frame(0)).expect("it is pinned");
    assert_eq!(domain.frames().frame_type(frame(0)), FrameType::L4);
    check(&mut domain, &[]);
    assert_eq!(domain.tables(0).new_baseptr(frame(8)), Ok(()));
    assert_eq!(domain.frames().frame_type(frame(0)), FrameType::None);
    assert_eq!(domain.tables(1).new_user_baseptr(Mfn(0)), Ok(()));
    assert_eq!(domain.frames().frame_type(frame(7)), FrameType::None);
    domain.tables(0).forget().expect("nobody waits");
    assert_eq!(domain.frames().frame_type(frame(8)), FrameType::None);
    check(&mut domain, &[]);
}

#[test]
fn a_linear_address_is_walked_as_the_tables_are_now() {
    let mut domain = domain();
    domain.tables(0).new_baseptr(frame(0)).expect("it is a root");
    let value = entry(12, READ_ONLY).0;
    assert_eq!(domain.tables(0).update_va_mapping(0x5000, value), Ok(()));
    assert_eq!(domain.machine.memory[3][5], value);
    let inval = refused(Errno::Inval);
    for address in [0x20_0000, 1 << 47, 0xffff_8000_0000_0000, 0x7fff_ffff_f000] {
        assert_eq!(domain.tables(0).update_va_mapping(address, value), inval, "{address:x}");
    }
    assert_eq!(domain.tables(1).update_va_mapping(0x5000, value), inval, "has no root");
    assert_eq!(update(&mut domain, 0, 0, Entry(0)), Ok(()));
    assert_eq!(domain.tables(0).update_va_mapping(0x5000, value), inval);
    check(&mut domain, &[]);
}

#[test]
fn a_guests_own_write_to_an_l1_is_checked() {
    let mut domain = domain();
    let (old, new) = (entry(11, READ_ONLY).0, entry(12, W).0);
    assert_eq!(domain.tables(0).write_leaf(frame(3), 1, 0, new), Ok(false), "has changed");
    assert_eq!(domain.tables(0).write_leaf(frame(3), 1, old, new), Ok(true));
    assert_eq!(domain.tables(0).write_leaf(frame(3), 1, new, entry(0, W).0), refused(Errno::Busy));
    assert_eq!(domain.tables(0).write_leaf(frame(2), 1, 0, 0), refused(Errno::Inval), "an L2");
    assert_eq!(domain.tables(0).write_leaf(frame(3), 1, new, 0), Ok(true));
    check(&mut domain, &[]);
}

#[test]
fn a_grant_in_use_keeps_a_frame_from_becoming_a_table() {
    let mut domain = domain();
    domain.frames().take_writable(frame(15)).expect("it is ordinary");
    let outside = [Outside { mfn: frame(15), frame_type: FrameType::Writable }];
    check(&mut domain, &outside);
    assert_ne!(domain.tables(0).audit(&[]), [], "without it the counts differ");
    assert_eq!(domain.tables(0).pin(frame(15), Level::L1), refused(Errno::Inval));
    assert_eq!(domain.frames().release(frame(15)), Err(Errno::Busy));
    domain.frames().put_writable(frame(15));
    assert_eq!(domain.tables(0).pin(frame(15), Level::L1), Ok(()));
    check(&mut domain, &[]);
}

#[test]
fn only_what_nothing_refers_to_is_released() {
    let mut domain = domain();
    for index in [0, 3, 10, 11] {
        assert_eq!(domain.frames().release(frame(index)), Err(Errno::Busy), "{index}");
    }
    assert_eq!(domain.frames().release(frame(12)), Ok(()));
    assert_eq!(domain.frames().release(frame(12)), Err(Errno::Inval));
    assert_eq!(domain.frames().release(frame(4000)), Err(Errno::Inval));
    assert_eq!(domain.frames().assign(frame(12)), Ok(()));
    assert_eq!(domain.frames().assign(frame(12)), Err(Errno::Inval));
    domain.frames().release(frame(13)).expect("it is unused");
    domain.frames().assign_special(frame(13), true).expect("it is nobody's");
    domain.frames().release(frame(14)).expect("it is unused");
    domain.frames().assign_special(frame(14), false).expect("it is nobody's");
    assert_eq!(domain.frames().release(frame(13)), Err(Errno::Busy));
    assert_eq!(domain.tables(0).pin(frame(13), Level::L1), refused(Errno::Inval));
    assert_eq!(update(&mut domain, 3, 13, entry(13, W)), Ok(()));
    assert_eq!(update(&mut domain, 3, 14, entry(14, W)), refused(Errno::Busy));
    assert_eq!(update(&mut domain, 3, 14, entry(14, READ_ONLY)), Ok(()));
    check(&mut domain, &[]);
}

#[test]
fn descriptors_are_made_harmless() {
    let kernel_code = 0x00af_9b00_0000_ffff;
    assert_eq!(check_descriptor(kernel_code), Some(0x00af_fb00_0000_ffff));
    assert_eq!(check_descriptor(0), Some(0));
    assert_eq!(check_descriptor(0x0000_8900_0000_0067), None, "a TSS");
    assert_eq!(check_descriptor(0x0000_8e00_0000_0000), None, "an interrupt gate");
    assert_eq!(check_descriptor(0x1234_ec00_0010_5678), Some(0x1234_8c00_0013_5678));
    assert_eq!(check_descriptor(0x1234_ec01_0010_5678), None, "reserved bits");
    assert_eq!(check_descriptor(0x1234_ec00_e038_5678), None, "a selector of the hypervisor's");
    assert_eq!(check_descriptor(0x1234_ec00_e033_5678), Some(0x1234_8c00_e033_5678));

    let mut domain = domain();
    domain.write(20, 2, Entry(kernel_code));
    domain.write(20, 511, Entry(0x0000_8900_0000_0067));
    assert_eq!(domain.tables(0).take_descriptors(frame(20)), refused(Errno::Inval));
    assert_eq!(domain.machine.memory[20][2], kernel_code, "refused is unchanged");
    domain.write(20, 511, Entry(0));
    assert_eq!(domain.tables(0).take_descriptors(frame(20)), Ok(()));
    assert_eq!(domain.machine.memory[20][2], 0x00af_fb00_0000_ffff);
    let address = frame(20).0 << 12;
    assert_eq!(domain.tables(0).update_descriptor(address | 8, kernel_code), Ok(()));
    assert_eq!(domain.machine.memory[20][1], 0x00af_fb00_0000_ffff);
    assert_eq!(domain.tables(0).update_descriptor(address | 4, 0), refused(Errno::Inval));
    let table = frame(3).0 << 12;
    assert_eq!(domain.tables(0).update_descriptor(table, 0), refused(Errno::Inval), "an L1");
    check(&mut domain, &[Outside { mfn: frame(20), frame_type: FrameType::Descriptors }]);
}

/// Ask until nobody waits; how often it was interrupted.
fn insist(
    domain: &mut Domain,
    mut ask: impl FnMut(&mut Domain) -> Result<(), Stop>,
) -> (Result<(), Stop>, usize) {
    for interruptions in 0..1000 {
        let result = ask(domain);
        if result != Err(Stop::Yield) {
            return (result, interruptions);
        }
    }
    panic!("it does not get on");
}

#[test]
fn an_interrupted_promotion_goes_on() {
    let mut domain = Domain::with_chain(1);
    let (result, interruptions) =
        insist(&mut domain, |domain| domain.tables(0).pin(frame(0), Level::L4));
    assert_eq!(result, Ok(()));
    assert!(interruptions >= 3, "only {interruptions}");
    // Another processor finishes the demotion.
    domain.tables(0).unpin(frame(0)).expect("it is pinned");
    assert!(!domain.state.is_settled());
    let (result, _) = insist(&mut domain, |domain| domain.tables(1).pin(frame(9), Level::L1));
    assert_eq!(result, Ok(()));
    assert_eq!(domain.frames().frame_type(frame(3)), FrameType::None);
    check(&mut domain, &[]);
}

#[test]
fn a_promotion_that_another_processor_finishes_is_kept_for_its_own() {
    let mut domain = Domain::with_chain(1);
    assert_eq!(domain.tables(0).pin(frame(0), Level::L4), Err(Stop::Yield));
    domain.machine.yields_in = 0;
    assert_eq!(domain.tables(1).pin(frame(0), Level::L4), Ok(()), "on top of the first");
    check(&mut domain, &[]);
    let pinned = refused(Errno::Inval);
    assert_eq!(domain.tables(0).pin(frame(0), Level::L4), pinned, "it has the outcome, too late");
    check(&mut domain, &[]);
    assert_eq!(domain.frames().shown(frame(0)).map(|shown| shown.uses), Some(1));
}

/// A domain of which a vCPU has begun to pin a table, and another one has finished that.
fn abandoned_pin() -> Domain {
    let mut domain = Domain::with_chain(1);
    assert_eq!(domain.tables(0).pin(frame(0), Level::L4), Err(Stop::Yield));
    domain.machine.yields_in = 0;
    domain.tables(1).settle().expect("nobody waits");
    domain
}

#[test]
fn what_a_processor_does_not_come_back_for_is_dropped() {
    let mut domain = abandoned_pin();
    assert_eq!(domain.frames().frame_type(frame(0)), FrameType::L4);
    check(&mut domain, &[]);
    assert_eq!(domain.tables(0).pin(frame(9), Level::L1), Ok(()));
    assert_eq!(domain.frames().frame_type(frame(0)), FrameType::None);
    check(&mut domain, &[]);
}

#[test]
fn a_table_that_only_a_dropped_promotion_held_is_updated_before_it_is_demoted() {
    let mut domain = abandoned_pin();
    assert_eq!(domain.frames().frame_type(frame(1)), FrameType::L3);
    assert_eq!(update(&mut domain, 1, 0, entry(20, W)), Ok(()));
    assert_eq!(domain.machine.memory[1][0], entry(20, W).0);
    assert!((0..40).all(|index| domain.frames().references(frame(index)) == 0));
    check(&mut domain, &[]);
}

#[test]
fn lists_say_how_far_they_got() {
    let mut domain = domain();
    let operations = [(3, 0), (3, 1), (3, 1000), (3, 2)];
    let run = |domain: &mut Domain, from: usize| {
        let mut tables = domain.tables(0);
        tables.run_list(operations.len() - from, |tables, index| {
            let (table, target) = operations[from + index];
            let value = entry(20 + target, W).0;
            tables.update(((BASE + table) << 12) | (8 * (20 + index as u64)), value)
        })
    };
    let progress = run(&mut domain, 0);
    assert_eq!((progress.done, progress.outcome), (2, Outcome::Refused(Errno::Perm)));
    let progress = run(&mut domain, 3);
    assert_eq!((progress.done, progress.outcome), (1, Outcome::Done));
    domain.machine.yields_in = 1;
    let progress = run(&mut domain, 0);
    assert_eq!((progress.done, progress.outcome), (1, Outcome::Continue));
    let progress = domain.tables(0).run_list(1, |tables, _| tables.unpin(frame(0)));
    assert_eq!((progress.done, progress.outcome), (1, Outcome::Continue), "demotions are left");
    domain.machine.yields_in = 0;
    let progress = domain.tables(0).run_list(0, |_, _| Ok(()));
    assert_eq!((progress.done, progress.outcome), (0, Outcome::Done));
    check(&mut domain, &[]);
}

#[test]
fn the_machine_of_these_tests_notices_what_is_not_told() {
    let mut machine: Machine = Domain::new(0).machine;
    frames::Memory::store(&mut machine, frame(0), 0, 1);
    assert_eq!(machine.untold, [(frame(0), 0, 1)]);
}
