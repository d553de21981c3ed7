//! Several scripted processors in one machine.

use vm_memory::{Bytes, GuestAddress};

use super::*;

/// The local APIC in x2APIC mode, enabled.
fn x2apic() -> Vec<Step> {
    vec![wrmsr(0x1b, 0xfee0_0c00), wrmsr(0x80f, 0x1ff)]
}

/// The same for the bootstrap processor.
fn bootstrap() -> Vec<Step> {
    vec![wrmsr(0x1b, 0xfee0_0d00), wrmsr(0x80f, 0x1ff)]
}

/// Send an interrupt command to an APIC id (SDM 3A 11.12.9).
fn send(to: u64, command: u64) -> Step {
    wrmsr(0x830, to << 32 | command)
}

/// INIT and start-up for every other processor, at page 0x12.
fn start_others() -> [Step; 2] {
    [wrmsr(0x830, 0xc_4500), wrmsr(0x830, 0xc_4612)]
}

fn call(number: u64, arguments: [u64; 4]) -> Step {
    Step::Exit(Exit::Hypercall { number, arguments })
}

fn said(bench: &Bench, processor: usize) -> &[Said] {
    &bench.runner.cpus[processor].said
}

fn power_off() -> Step {
    Step::Exit(Exit::IoWrite { port: 0x604, size: 2, value: 0x2000 })
}

/// The same script for so many others.
fn others(count: usize, script: impl Fn() -> Vec<Step>) -> Vec<VecDeque<Step>> {
    (0..count).map(|_| script().into()).collect()
}

fn run(first: Vec<Step>, others: Vec<VecDeque<Step>>) -> (Bench, Outcome) {
    let scripts = std::iter::once(first.into()).chain(others).collect();
    let mut bench = build(scripts, None);
    let outcome = bench.runner.run().unwrap();
    (bench, outcome)
}

#[test]
fn who_is_not_started_does_nothing() {
    let (bench, outcome) = run(vec![power_off()], others(15, Vec::new));
    assert_eq!(outcome, Outcome::PoweredOff);
    assert!(bench.runner.cpus[1..].iter().all(|cpu| cpu.thread.is_none() && cpu.said.is_empty()));
}

#[test]
fn each_processor_is_started_once_on_a_thread_of_its_own() {
    let mut first = bootstrap();
    first.extend(start_others());
    // A second start-up message, as the manual wants it, changes nothing.
    first.push(wrmsr(0x830, 0xc_4613));
    // The last one to come sends the interrupt that ends this.
    first.extend([Step::Interrupts(true), Step::HaltUntilInterrupt, power_off()]);
    let mut third = x2apic();
    third.extend([send(0, 0x4041), Step::HaltUntilInterrupt]);
    let sleeper = || vec![Step::HaltUntilInterrupt];
    let mut all = others(1, sleeper);
    all.push(third.into());
    let (bench, outcome) = run(first, all);
    assert_eq!(outcome, Outcome::PoweredOff);
    assert_eq!(said(&bench, 0).last(), Some(&Said::Interrupt(0x41)));
    let started = [Said::Initialized, Said::StartedAt(0x12)];
    assert_eq!(said(&bench, 2)[..2], started);
    // The other one may have been stopped before it came to anything.
    assert!(started.starts_with(said(&bench, 1)));
    let threads: Vec<_> = bench.runner.cpus.iter().filter_map(|cpu| cpu.thread).collect();
    assert!(threads.iter().enumerate().all(|(n, id)| !threads[..n].contains(id)));
}

#[test]
fn processors_wake_each_other_in_turn() {
    const ROUNDS: usize = 300;
    let mut first = bootstrap();
    first.extend(start_others());
    first.push(Step::Interrupts(true));
    let mut second = x2apic();
    second.push(Step::Interrupts(true));
    for _ in 0..ROUNDS {
        first.extend([Step::HaltUntilInterrupt, wrmsr(0x80b, 0), send(1, 0x4052)]);
        second.extend([send(0, 0x4051), Step::HaltUntilInterrupt, wrmsr(0x80b, 0)]);
    }
    second.push(write(0xf4, 7));
    first.push(Step::HaltUntilInterrupt);
    let (bench, outcome) = run(first, vec![second.into()]);
    assert_eq!(outcome, Outcome::DebugExit(15));
    for (processor, vector) in [(0, 0x51), (1, 0x52)] {
        let said = said(&bench, processor);
        let interrupts = said.iter().filter(|said| **said == Said::Interrupt(vector)).count();
        assert_eq!(interrupts, ROUNDS, "processor {processor}");
    }
}

#[test]
fn an_interrupt_stops_a_processor_that_computes() {
    let mut first = bootstrap();
    first.extend(start_others());
    first.extend([Step::Interrupts(true), Step::HaltUntilInterrupt]);
    first.extend([send(1, 0x4061), send(1, 0x4400), Step::HaltUntilInterrupt]);
    let mut second = x2apic();
    second.extend([Step::Interrupts(true), send(0, 0x4041)]);
    second.extend([Step::ComputeUntilInterrupt, write(0xf4, 1)]);
    let (bench, outcome) = run(first, vec![second.into()]);
    assert_eq!(outcome, Outcome::DebugExit(3));
    assert!(said(&bench, 1).contains(&Said::Interrupt(0x61)));
}

#[test]
fn any_processor_may_end_the_machine() {
    let ends = [
        (power_off(), Outcome::PoweredOff),
        (write(0xcf9, 6), Outcome::Reset),
        (write(0xf4, 4), Outcome::DebugExit(9)),
        (Step::Exit(Exit::Shutdown), end_of_script()),
    ];
    for (end, expected) in ends {
        let mut first = bootstrap();
        first.extend(start_others());
        first.push(Step::HaltUntilInterrupt);
        // One that computes for ever, one that sleeps for ever, one that ends it.
        let mut all = others(1, || vec![Step::Compute, Step::Compute, Step::Compute]);
        all.extend(others(1, || vec![Step::HaltUntilInterrupt]));
        all.push(VecDeque::from([end]));
        let (_, outcome) = run(first, all);
        assert_eq!(outcome, expected);
    }
}

#[test]
fn somebody_outside_may_end_it_too_and_for_good() {
    let mut first = bootstrap();
    first.extend(start_others());
    first.extend((0..100_000).map(|_| Step::Compute));
    let sleepers = others(3, || vec![Step::HaltUntilInterrupt]);
    let mut bench = build(std::iter::once(first.into()).chain(sleepers).collect(), None);
    let control = bench.runner.control();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        control.stop();
    });
    assert_eq!(bench.runner.run().unwrap(), Outcome::Stopped);
    other.join().unwrap();
    assert_eq!(bench.runner.run().unwrap(), Outcome::Stopped);
}

#[test]
fn all_stand_still_and_go_on_or_end() {
    for goes_on in [true, false] {
        let mut first = bootstrap();
        first.extend(start_others());
        first.extend((0..100_000).map(|_| Step::Compute));
        let sleepers = others(3, || vec![Step::HaltUntilInterrupt]);
        let mut bench = build(std::iter::once(first.into()).chain(sleepers).collect(), None);
        let control = bench.runner.control();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let stood_still = control.pause(PATIENCE) && control.is_paused();
            let before = control.published();
            std::thread::sleep(Duration::from_millis(20));
            let did_nothing = control.published() == before;
            if goes_on {
                control.resume();
                // Twice is as good as once.
                control.resume();
                std::thread::sleep(Duration::from_millis(20));
            }
            control.stop();
            stood_still && did_nothing
        });
        assert_eq!(bench.runner.run().unwrap(), Outcome::Stopped);
        assert!(other.join().unwrap(), "they did not stand still");
    }
}

#[test]
fn a_processor_that_fails_ends_the_machine_with_its_error() {
    for (end, expected) in [(Step::Fail, "patience"), (Step::Panic, "processor 2 panicked")] {
        let mut first = bootstrap();
        first.extend(start_others());
        first.push(Step::HaltUntilInterrupt);
        let scripts = vec![first.into(), [Step::HaltUntilInterrupt].into(), VecDeque::from([end])];
        let mut bench = build(scripts, None);
        let error = bench.runner.run().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_machine_runs_again_after_a_reset() {
    let first = || {
        let mut first = bootstrap();
        first.extend(start_others());
        first.push(Step::HaltUntilInterrupt);
        first
    };
    let scripts = vec![first().into(), [write(0xcf9, 6)].into()];
    let mut bench = build(scripts, None);
    assert_eq!(bench.runner.run().unwrap(), Outcome::Reset);
    bench.runner.board.reset();
    bench.runner.cpus[0].script = first().into();
    bench.runner.cpus[1].script = [power_off()].into();
    assert_eq!(bench.runner.run().unwrap(), Outcome::PoweredOff);
}

#[test]
fn a_call_ends_a_halt_with_interrupts_disabled() {
    let mut first = bootstrap();
    first.extend(start_others());
    first.extend([Step::Interrupts(true), Step::HaltUntilInterrupt]);
    first.extend([call(5, [0, 1, 0, 0]), Step::Interrupts(false), Step::HaltUntilInterrupt]);
    let mut second = x2apic();
    second.extend([send(0, 0x4041), Step::HaltUntilEnd, write(0xf4, 0)]);
    let (bench, outcome) = run(first, vec![second.into()]);
    assert_eq!(outcome, Outcome::DebugExit(1));
    assert_eq!(said(&bench, 1).last(), Some(&Said::HaltEnded));
    assert!(said(&bench, 0).contains(&Said::Read(0)), "the call was answered");
    assert_eq!(bench.runner.activity[0].calls_to_end_halts, 1);
}

#[test]
fn who_is_woken_as_it_halts_can_be_woken_again() {
    let mut first = bootstrap();
    first.extend(start_others());
    // The message cannot be delivered, but whoever leaves the next one relies on its being taken.
    first.extend([Step::HaltWhenKicked, Step::HaltUntilEnd, write(0xf4, 0)]);
    let mut second = x2apic();
    second.push(send(0, 0x4041));
    second.extend(timer(0x45, 50_000_000).into_iter().skip(2));
    second.extend([Step::Interrupts(true), Step::HaltUntilInterrupt, call(5, [0, 0, 0, 0])]);
    second.push(Step::HaltUntilInterrupt);
    let (bench, outcome) = run(first, vec![second.into()]);
    assert_eq!(outcome, Outcome::DebugExit(1));
    assert_eq!(said(&bench, 0).last(), Some(&Said::HaltEnded));
}

#[test]
fn a_call_interrupts_many() {
    let mut first = bootstrap();
    first.extend(start_others());
    // Wait until each of the others has come.
    for _ in 0..3 {
        first.extend([Step::Interrupts(true), Step::HaltUntilInterrupt, Step::Interrupts(false)]);
        first.push(wrmsr(0x80b, 0));
    }
    first.extend([call(10, [0b1110, 0, 0, 0x4071]), Step::HaltUntilInterrupt]);
    let script = |vector: u64| {
        let mut script = x2apic();
        script.extend([Step::Interrupts(true), send(0, 0x4000 | vector)]);
        script.extend([Step::HaltUntilInterrupt, wrmsr(0x80b, 0)]);
        script
    };
    let mut last = script(0x61);
    last.push(write(0xf4, 0));
    let sleeps = |mut script: Vec<Step>| {
        script.push(Step::HaltUntilInterrupt);
        VecDeque::from(script)
    };
    let all = vec![sleeps(script(0x41)), sleeps(script(0x51)), last.into()];
    let (bench, outcome) = run(first, all);
    assert_eq!(outcome, Outcome::DebugExit(1));
    assert!(said(&bench, 0).contains(&Said::Read(3)), "three processors were there");
    assert_eq!(bench.runner.activity[0].calls_to_interrupt, 1);
    assert!(said(&bench, 3).contains(&Said::Interrupt(0x71)));
}

#[test]
fn a_sleeping_processor_flushes_when_another_has_asked_for_it() {
    let mut first = bootstrap();
    first.extend(start_others());
    // Long enough for the other to fall asleep; then its flag is set, and it is woken.
    first.extend([Step::Interrupts(true), Step::HaltUntilInterrupt, Step::Interrupts(false)]);
    first.extend(timer(0x45, 50_000_000).into_iter().skip(2));
    first.extend([wrmsr(0x80b, 0), Step::Interrupts(true), Step::HaltUntilInterrupt]);
    first.extend([Step::Interrupts(false), send(1, 0x4052), Step::HaltUntilInterrupt]);
    let mut second = x2apic();
    second.extend([wrmsr(0x4b56_4d03, 0x10_0001), Step::Interrupts(true), send(0, 0x4041)]);
    second.extend([Step::HaltUntilInterrupt, write(0xf4, 0)]);
    let mut bench = build(vec![first.into(), second.into()], None);
    let map = bench.memory.map().clone();
    let flag = GuestAddress(0x10_0010);
    // What another processor of the guest does (`kvm_flush_tlb_multi`).
    let guest = std::thread::spawn(move || {
        let start = Instant::now();
        while map.read_obj::<u8>(flag).unwrap() != 1 {
            assert!(start.elapsed() < PATIENCE, "it never fell asleep");
            std::thread::yield_now();
        }
        map.write_obj(3u8, flag).unwrap();
    });
    assert_eq!(bench.runner.run().unwrap(), Outcome::DebugExit(1));
    guest.join().unwrap();
    assert!(said(&bench, 1).contains(&Said::AddressesForgotten));
    assert_eq!(bench.runner.activity[1].flushes_on_waking, 1);
    assert_eq!(bench.memory.map().read_obj::<u8>(flag).unwrap(), 0);
}

#[test]
fn the_timer_of_each_processor_is_its_own() {
    let mut first = bootstrap();
    first.extend(start_others());
    first.extend([Step::Interrupts(true), Step::HaltUntilInterrupt]);
    let mut second = x2apic();
    second.extend(timer(0x55, 20_000_000).into_iter().skip(2));
    second.extend([Step::Interrupts(true), Step::HaltUntilInterrupt, write(0xf4, 0)]);
    let start = Instant::now();
    let (bench, outcome) = run(first, vec![second.into()]);
    assert_eq!(outcome, Outcome::DebugExit(1));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(said(&bench, 1).last(), Some(&Said::Interrupt(0x55)));
    assert!(!said(&bench, 0).contains(&Said::Interrupt(0x55)));
}
