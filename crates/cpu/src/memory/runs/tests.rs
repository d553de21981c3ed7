//! What the host's processor may do at the mirror's addresses, as the host's kernel says it, against what tables say.

use super::*;
use crate::config::RamRegion;
use crate::memory::place::BASE;

const MEMORY_BYTES: u64 = 16 << 20;

/// Where no other test has its kernel.
const START: Linear = Linear(0xffff_8890_0000_0000);

/// Tables, by their physical addresses. Both roots have the same L3.
const ROOTS: [u64; 2] = [0x1000, 0x2000];
const L3: u64 = 0x3000;
const L2: u64 = 0x4000;
const L1: u64 = 0x5000;

/// What the L1 maps: consecutive frames.
const BASE_FRAME: u64 = 4 << 20;

const TABLE: u64 = entry::PRESENT | entry::WRITABLE | entry::ACCESSED;
const READ: u64 = entry::PRESENT | entry::ACCESSED;
const WRITE: u64 = READ | entry::WRITABLE | entry::DIRTY;

/// Pages that are not as the others are.
const READ_ONLY: usize = 10;
const NOT_DIRTY: usize = 11;
const NOT_ACCESSED: usize = 12;
const OF_USERS: usize = 13;
const ABSENT: usize = 14;

const READS: Access = Access::Read;
const WRITES: Access = Access::Write;

struct Guest {
    memory: host::GuestMemory,
    ram: Ram,
    runs: Runs,
}

impl Guest {
    fn new() -> Self {
        let memory = host::GuestMemory::new(&[(0, MEMORY_BYTES)]).expect("a little memory");
        let regions = memory.regions();
        let regions =
            regions.iter().map(|it| RamRegion { guest: it.guest, size: it.size, host: it.host });
        let ram = Ram::new(regions.collect(), Some(&memory));
        let mut guest = Self { memory, ram, runs: Runs::default() };
        let index = |shift: u64| (START.0 >> shift & 511) as usize;
        for root in ROOTS {
            guest.store(root, index(39), L3 | TABLE);
        }
        guest.store(L3, index(30), L2 | TABLE);
        guest.store(L2, index(21), L1 | TABLE);
        for page in 0..PAGES {
            let flags = match page {
                READ_ONLY => READ | entry::DIRTY,
                NOT_DIRTY => WRITE & !entry::DIRTY,
                NOT_ACCESSED => WRITE & !entry::ACCESSED,
                OF_USERS => WRITE | entry::USER,
                ABSENT => WRITE & !entry::PRESENT,
                _ => WRITE,
            };
            guest.store(L1, page, frame(page) | flags);
        }
        guest
    }

    fn store(&mut self, table: u64, index: usize, value: u64) {
        let host = self.ram.host(Physical(table + 8 * index as u64)).expect("it is memory");
        // SAFETY: an aligned word of memory that nobody else uses.
        unsafe { host.cast::<u64>().write(value) };
    }

    /// As the board changes an entry.
    fn change(&mut self, (table, level): (u64, u8), index: usize, value: u64) {
        self.store(table, index, value);
        self.runs.entry_changed((table, level), index, value);
    }

    fn enter(&mut self, vcpu: usize, page: usize, access: Access) -> bool {
        self.runs.enter(at(page), access, (vcpu, ROOTS[vcpu]), (&self.memory, &self.ram))
    }

    fn check(&self, page: usize, expected: Rights) {
        assert_eq!(allowed(at(page)), expected, "page {page}");
    }

    /// The sum of pieces is right.
    fn end(mut self) {
        let sum: usize = self.runs.regions.values().map(Region::pieces).sum();
        assert_eq!(self.runs.pieces, sum);
        self.runs.clear();
        assert_eq!(allowed(at(0)), Rights::None);
    }
}

fn at(page: usize) -> Linear {
    START.plus(page as u64 * PAGE_SIZE)
}

fn frame(page: usize) -> u64 {
    BASE_FRAME + page as u64 * PAGE_SIZE
}

/// What the host's processor may do at a kernel's address.
fn allowed(at: Linear) -> Rights {
    let host = at.0.wrapping_add(BASE);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the host has it");
    let rights = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        (number(start)..number(end)).contains(&host).then(|| rest[..2].to_owned())
    });
    match rights.as_deref() {
        None | Some("--") => Rights::None,
        Some("r-") => Rights::Read,
        Some("rw") => Rights::Write,
        other => panic!("{other:?}"),
    }
}

/// Tests take turns, as the addresses are the same.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn pages_get_what_their_entries_allow() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let mut guest = Guest::new();
    assert!(guest.enter(0, 0, READS));
    for (page, expected) in [
        (0, Rights::Write),
        (READ_ONLY, Rights::Read),
        (NOT_DIRTY, Rights::Read),
        (NOT_ACCESSED, Rights::None),
        (OF_USERS, Rights::None),
        (ABSENT, Rights::None),
        (511, Rights::Write),
    ] {
        guest.check(page, expected);
    }
    assert!(!guest.enter(0, READ_ONLY, WRITES) && !guest.enter(0, ABSENT, READS));
    assert!(!guest.enter(0, OF_USERS, READS));
    guest.store(L1, NOT_DIRTY, frame(NOT_DIRTY) | WRITE);
    assert!(guest.enter(0, NOT_DIRTY, WRITES));
    guest.check(NOT_DIRTY, Rights::Write);
    guest.end();
}

#[test]
fn what_an_entry_takes_away_is_gone_when_it_has_changed() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let mut guest = Guest::new();
    assert!(guest.enter(0, 0, READS));
    guest.change((L1, 1), 1, frame(1) | READ);
    guest.change((L1, 1), 2, 0);
    guest.change((L1, 1), 3, frame(100) | WRITE);
    guest.change((L1, 1), 4, frame(4) | WRITE | entry::USER);
    for (page, expected) in [
        (0, Rights::Write),
        (1, Rights::Read),
        (2, Rights::None),
        (3, Rights::None),
        (4, Rights::None),
        (5, Rights::Write),
    ] {
        guest.check(page, expected);
    }
    // The region has become one whose frames are not consecutive.
    assert!(guest.enter(0, 3, WRITES));
    guest.check(3, Rights::Write);
    guest.check(5, Rights::None);
    guest.change((L1, 1), 3, 0);
    guest.check(3, Rights::None);
    guest.end();
}

#[test]
fn a_page_that_was_a_table_is_opened_late() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let mut guest = Guest::new();
    assert!(guest.enter(0, 0, READS));
    guest.change((L1, 1), 1, frame(1) | READ);
    guest.change((L1, 1), 1, frame(1) | WRITE);
    for _ in 0..MAX_TABLE_WRITERS {
        assert!(!guest.enter(0, 1, WRITES), "an instruction that writes tables, perhaps");
        guest.check(1, Rights::Read);
    }
    assert!(guest.enter(0, 1, WRITES));
    guest.check(1, Rights::Write);
    guest.end();
}

#[test]
fn tables_take_along_what_they_led_to() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let index = |shift: u64| (START.0 >> shift & 511) as usize;
    let mut guest = Guest::new();
    type Loss = fn(&mut Guest, [usize; 3]);
    let losses: [Loss; 5] = [
        |guest, [index, ..]| guest.change((L2, 2), index, L1 | READ),
        |guest, [_, index, _]| guest.change((L3, 3), index, 0),
        |guest, [.., index]| guest.change((ROOTS[0], 4), index, 0),
        |guest, _| guest.runs.demoted(L1),
        |guest, _| guest.runs.demoted(L2),
    ];
    for (number, loses) in losses.iter().enumerate() {
        guest = Guest::new();
        assert!(guest.enter(0, 0, WRITES));
        guest.check(0, Rights::Write);
        // Another entry of the same table is of no concern.
        guest.change((L2, 2), index(21) + 1, 0);
        guest.check(0, Rights::Write);
        loses(&mut guest, [index(21), index(30), index(39)]);
        assert_eq!(allowed(at(0)), Rights::None, "loss {number}");
        assert_eq!(guest.runs.pieces, 0, "loss {number}");
    }
    guest.end();
}

#[test]
fn roots_have_to_agree() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let slot = slot_of(START);
    let mut guest = Guest::new();
    assert!(guest.enter(0, 0, READS) && guest.enter(1, 1, READS));
    guest.store(ROOTS[1], slot, 0);
    guest.runs.load_root(1, ROOTS[1], &guest.ram);
    guest.check(0, Rights::None);
    assert!(!guest.enter(0, 0, READS), "the other vCPU has no such page");
    guest.runs.demoted(ROOTS[1]);
    assert!(guest.enter(0, 0, READS), "the other vCPU's root is none any more");
    guest.end();
}

#[test]
fn code_is_read_only() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let mut guest = Guest::new();
    guest.ram.set_code(Physical(frame(1)), true);
    assert!(guest.enter(0, 0, READS));
    guest.check(1, Rights::Read);
    assert!(!guest.enter(0, 1, WRITES));
    guest.ram.set_code(Physical(frame(2)), true);
    guest.runs.write_protect(Physical(frame(2)));
    guest.check(2, Rights::Read);
    guest.check(3, Rights::Write);
    guest.ram.set_code(Physical(frame(1)), false);
    assert!(guest.enter(0, 1, WRITES));
    guest.check(1, Rights::Write);
    guest.end();
}

#[test]
fn what_is_not_the_guests_is_read_only() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let mut guest = Guest::new();
    let place = (START, BASE_FRAME + PAGE_SIZE, 3 * PAGE_SIZE);
    assert!(guest.runs.enter_fixed(at(2), place, &guest.memory));
    assert!(!guest.runs.enter_fixed(at(3), place, &guest.memory));
    guest.check(0, Rights::Read);
    guest.check(2, Rights::Read);
    guest.check(3, Rights::None);
    guest.end();
}

/// The pages from `first` on that the guest makes read-only, one after the other.
fn seal(guest: &mut Guest, pages: std::ops::Range<usize>) {
    for page in pages {
        guest.change((L1, 1), page, frame(page) | READ | entry::DIRTY);
        guest.check(page, Rights::Read);
    }
}

#[test]
fn pages_that_become_read_only_in_a_row_do_so_ahead() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let mut guest = Guest::new();
    assert!(guest.enter(0, 0, WRITES));
    let (first, last) = (100, 100 + SEALED - 1);
    seal(&mut guest, first..last);
    guest.check(last, Rights::Write);
    seal(&mut guest, last..last + 1);
    let ahead = last + 1;
    guest.check(ahead, Rights::Read);
    guest.check(ahead + AHEAD_PAGES - 1, Rights::Read);
    guest.check(ahead + AHEAD_PAGES, Rights::Write);
    // That the guest comes there changes nothing, and that it has is known.
    seal(&mut guest, ahead..ahead + 2);
    assert!(!guest.enter(0, ahead, WRITES), "its entry does not allow that");
    // Where it does not come, a write opens the page, and nothing is guessed any more.
    let other = ahead + 10;
    guest.check(other, Rights::Read);
    assert!(guest.enter(0, other, WRITES));
    guest.check(other, Rights::Write);
    guest.check(other + 1, Rights::Read);
    seal(&mut guest, 300..300 + 2 * SEALED);
    guest.check(300 + 2 * SEALED, Rights::Write);
    guest.end();
}

#[test]
fn no_more_than_what_is_writable_is_made_read_only_ahead() {
    let _turn = locks::Unpoisoned::unpoisoned(TURN.lock());
    let mut guest = Guest::new();
    assert!(guest.enter(0, 0, WRITES));
    // Up to the end of the region, and up to the pages that are not as the others are.
    seal(&mut guest, PAGES - SEALED - 1..PAGES);
    seal(&mut guest, 0..SEALED);
    for (page, expected) in [
        (SEALED, Rights::Read),
        (READ_ONLY, Rights::Read),
        (NOT_ACCESSED, Rights::None),
        (OF_USERS, Rights::None),
        (ABSENT, Rights::None),
        (ABSENT + 1, Rights::Write),
    ] {
        guest.check(page, expected);
    }
    // A page that goes away while it is ahead is gone.
    guest.change((L1, 1), SEALED, 0);
    guest.check(SEALED, Rights::None);
    guest.end();
}
