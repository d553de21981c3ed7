//! What blocks do with the XSAVE family by themselves (translate/extended.rs): the same as the
//! interpreter does.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::mirror::{check_upper, entry_of};
use super::{Machine, place};

fn nothing(_: &mut Machine) {}

/// Areas in the kernel's half and, for comparison, where the interpreter is asked: the lower half.
const AREA: u64 = place::DATA + 0x1_0000;
const OTHER_AREA: u64 = place::DATA + 0x1_8000;

fn load_state(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(rax, 0x1122_3344_5566_7788u64)?;
    a.vmovq(xmm0, rax)?;
    a.vpbroadcastq(ymm5, xmm0)?;
    a.vpbroadcastq(ymm15, xmm0)?;
    a.fldpi()?;
    a.mov(dword_ptr(rbx), 0x1fa0)?;
    a.ldmxcsr(dword_ptr(rbx))
}

fn components(a: &mut CodeAssembler, low: i32) -> Result<(), IcedError> {
    a.mov(eax, low)?;
    a.xor(edx, edx)
}

#[test]
fn extended_state_is_saved_as_the_interpreter_saves_it() {
    type Save = fn(&mut CodeAssembler, AsmMemoryOperand) -> Result<(), IcedError>;
    let forms: [Save; 5] = [
        |a, place| a.xsave64(place),
        |a, place| a.xsavec64(place),
        |a, place| a.xsave(place),
        |a, place| a.xsaveopt64(place),
        |a, place| a.fxsave64(place),
    ];
    for (number, save) in forms.into_iter().enumerate() {
        for mask in [0xe7, 7, 6, 2, 0x0ee, -1] {
            check_upper(
                nothing,
                |a| {
                    load_state(a)?;
                    components(a, mask)?;
                    a.lea(rsi, ptr(rbx + (AREA - place::DATA) as i32))?;
                    save(a, ptr(rsi))?;
                    a.mov(edi, OTHER_AREA as i32)?;
                    save(a, ptr(rdi))?;
                    a.mov(rdx, 77u64)?;
                    a.hlt()
                },
                |machine| {
                    assert_eq!(machine.regs().gpr[2], 77, "form {number}, mask {mask:#x}");
                    let (here, there) =
                        (machine.read::<0x1000>(AREA), machine.read::<0x1000>(OTHER_AREA));
                    assert!(here == there, "form {number}, mask {mask:#x}");
                    assert!(here.iter().any(|&byte| byte != 0));
                    let statistics = machine.cpu.statistics();
                    // That in the lower half, after the host has refused it.
                    assert!(statistics.interpreted + statistics.assisted < 5, "{statistics:?}");
                },
            );
        }
    }
}

#[test]
fn extended_state_is_restored_from_the_kernels_memory() {
    check_upper(
        nothing,
        |a| {
            let mut again = a.create_label();
            a.lea(rsi, ptr(rbx + (AREA - place::DATA) as i32))?;
            a.lea(rdi, ptr(rsi + 0x1000))?;
            a.lea(rbp, ptr(rsi + 0x2000))?;
            a.mov(ecx, 50)?;
            a.set_label(&mut again)?;
            load_state(a)?;
            components(a, 7)?;
            a.xsavec64(ptr(rsi))?;
            a.xsave64(ptr(rdi))?;
            a.fxsave64(ptr(rbp))?;
            for (number, register) in [rsi, rdi].into_iter().enumerate() {
                a.vzeroall()?;
                a.fninit()?;
                components(a, 7)?;
                a.xrstor64(ptr(register))?;
                a.vextracti128(xmm6, ymm15, 1)?;
                a.vmovq(if number == 0 { r8 } else { r9 }, xmm6)?;
            }
            a.vzeroall()?;
            a.fxrstor64(ptr(rbp))?;
            a.vmovq(r10, xmm15)?;
            a.fstp(qword_ptr(rbx + 16))?;
            a.stmxcsr(dword_ptr(rbx + 24))?;
            a.dec(ecx)?;
            a.jnz(again)?;
            a.hlt()
        },
        |machine| {
            let gpr = machine.regs().gpr;
            let value = 0x1122_3344_5566_7788;
            assert_eq!((gpr[8], gpr[9], gpr[10]), (value, value, value));
            assert_eq!(machine.read_u64(place::DATA + 16), std::f64::consts::PI.to_bits());
            assert_eq!(machine.read_u32(place::DATA + 24), 0x1fa0);
            let statistics = machine.cpu.statistics();
            assert!(statistics.interpreted + statistics.assisted < 5, "{statistics:?}");
        },
    );
}

/// What comes of an `xrstor` from an area in the kernel's half that `spoil` has had its way with: the
/// vector, 0 if it is taken.
fn vector_of_restore(
    offset: i32,
    spoil: impl Fn(&mut Machine),
    mask: i32,
    verify: impl Fn(&mut Machine),
) -> u8 {
    let vector = std::cell::Cell::new(0);
    check_upper(
        |machine| {
            spoil(machine);
            machine.regs().gpr[9] = 5;
        },
        |a| {
            components(a, mask)?;
            a.lea(rsi, ptr(rbx + (AREA - place::DATA) as i32 + offset))?;
            a.xrstor64(ptr(rsi))?;
            a.mov(r9d, 6)?;
            a.hlt()
        },
        |machine| {
            vector.set(machine.read::<1>(place::DATA)[0]);
            let expected = if vector.get() == 0 { 6 } else { 5 };
            assert_eq!(machine.regs().gpr[9], expected);
            verify(machine);
        },
    );
    vector.get()
}

#[test]
fn areas_that_no_save_has_written_are_refused() {
    let vector = |offset, at: u64, value: u64| {
        let spoil = |machine: &mut Machine| {
            machine.write(AREA + 24, &0x1f80u32.to_le_bytes());
            machine.write_u64(AREA + at, value);
        };
        vector_of_restore(offset, spoil, 7, |_| ())
    };
    assert_eq!(vector(0, 512, 7), 0);
    assert_eq!(vector(0, 512, 1 << 60), 13, "a component that there is not");
    assert_eq!(vector(0, 512, 1 << 9), 13, "one that only the host may have");
    assert_eq!(vector(0, 520, 1), 13, "a format that there is not");
    assert_eq!(vector(0, 528, 1), 13, "a reserved byte of the header");
    assert_eq!(vector(0, 24, 0x8000_0000_0000), 0, "MXCSR_MASK is not read");
    assert_eq!(vector(0, 24, 0xffff_ffff), 13, "MXCSR has reserved bits");
    assert_eq!(vector(8, 512, 0), 13, "an area that is not aligned");
}

/// On a host that has switched on more than guests can have, PKRU for instance.
#[test]
fn components_that_only_the_host_has_are_left_to_the_interpreter() {
    const PKRU: u64 = 1 << 9;
    let on_such_a_host = |machine: &mut Machine| {
        machine.cpu.arch.context.foreign_mask = PKRU;
        machine.write(AREA + 24, &0x1f80u32.to_le_bytes());
    };
    let asked = |expected: u64| {
        move |machine: &mut Machine| assert_eq!(machine.cpu.statistics().assisted, expected)
    };
    let header = |machine: &mut Machine| {
        on_such_a_host(machine);
        machine.write_u64(AREA + 512, PKRU);
    };
    assert_eq!(vector_of_restore(0, on_such_a_host, 7, asked(0)), 0);
    assert_eq!(vector_of_restore(0, on_such_a_host, 0x207, asked(1)), 0);
    assert_eq!(vector_of_restore(0, header, 7, asked(1)), 13);
    check_upper(
        on_such_a_host,
        |a| {
            components(a, 0x207)?;
            a.lea(rsi, ptr(rbx + (AREA - place::DATA) as i32))?;
            a.xsavec64(ptr(rsi))?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.cpu.statistics().assisted, 1);
            assert_eq!(machine.read_u64(AREA + 520), 1 << 63 | 7);
        },
    );
}

#[test]
fn an_area_whose_second_page_is_missing_faults_there() {
    check_upper(
        |machine| machine.write_u64(entry_of(AREA + 0x1000), 0),
        |a| {
            components(a, 7)?;
            a.lea(rsi, ptr(rbx + (AREA + 0x1000 - 576 - place::DATA) as i32))?;
            a.mov(r9d, 5)?;
            a.xsave64(ptr(rsi))?;
            a.mov(r9d, 6)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<1>(place::DATA)[0], 14);
            assert_eq!(machine.read_u64(place::DATA + 8), 2);
            // AMD's processors look at the last byte first.
            let page = machine.regs().cr2 & !0xfff;
            assert_eq!(page, super::mirror::UPPER + AREA + 0x1000);
            assert_eq!(machine.regs().gpr[9], 5);
        },
    );
}
