//! Model-specific registers of the machine, as far as the processor follows them.

use iced_x86::code_asm::*;

use super::{Machine, long_mode, place};
use crate::exit::Exit;

const APIC_BASE: u32 = 0x1b;
const ENABLED: u64 = 0xfee0_0900;
const DISABLED: u64 = 0xfee0_0100;

/// Whether CPUID says that there is a local APIC.
fn has_apic(machine: &Machine) -> bool {
    let [_, _, _, features] = machine.cpu.arch.cpuid(1, 0);
    features >> 9 & 1 != 0
}

/// Write IA32_APIC_BASE, which the machine accepts or does not.
fn set_apic_base(machine: &mut Machine, value: u64, accepted: bool) {
    machine.assemble(64, place::CODE, |a| {
        a.mov(ecx, APIC_BASE)?;
        a.mov(eax, value as u32)?;
        a.xor(edx, edx)?;
        a.wrmsr()?;
        a.hlt()
    });
    machine.regs().rip = place::CODE;
    assert_eq!(machine.exit(), Exit::MsrWrite { index: APIC_BASE, value });
    if accepted {
        machine.cpu.complete_write_msr();
    } else {
        machine.cpu.fail_msr();
    }
    machine.run();
    machine.cpu.end_halt();
}

#[test]
fn cpuid_has_an_apic_as_long_as_it_is_enabled() {
    let mut machine = long_mode(true);
    assert!(has_apic(&machine));
    set_apic_base(&mut machine, DISABLED, true);
    assert!(!has_apic(&machine));
    set_apic_base(&mut machine, ENABLED, true);
    assert!(has_apic(&machine));
    set_apic_base(&mut machine, DISABLED, false);
    assert!(has_apic(&machine), "the machine has refused that");
}

#[test]
fn an_apic_that_is_off_survives_init_and_a_snapshot_but_not_reset() {
    let mut machine = long_mode(true);
    set_apic_base(&mut machine, DISABLED, true);
    machine.cpu.initialize();
    assert!(!has_apic(&machine), "after INIT");
    let mut other = long_mode(true);
    other.cpu.restore(machine.cpu.save(), 0).expect("it is of this host");
    assert!(!has_apic(&other), "in a snapshot");
    machine.cpu.reset();
    assert!(has_apic(&machine), "after RESET");
}
