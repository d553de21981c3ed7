//! Extended state in memory, and conditional accesses to memory.

use iced_x86::code_asm::*;

use super::{check_long, place};

fn nothing(_: &mut super::Machine) {}

fn pattern() -> [u8; 64] {
    std::array::from_fn(|n| n as u8 * 3 + 1)
}

#[test]
fn extended_state_survives_a_round_trip() {
    let area = place::DATA + 0x1000;
    check_long(
        |machine| machine.write(place::DATA + 0x40, &pattern()),
        |a| {
            a.mov(rdi, place::DATA + 0x40)?;
            a.vmovdqu(ymm3, ymmword_ptr(rdi))?;
            a.fld1()?;
            a.mov(eax, 7)?;
            a.xor(edx, edx)?;
            a.mov(rsi, area)?;
            a.xsave64(ptr(rsi))?;
            a.vpxor(ymm3, ymm3, ymm3)?;
            a.fninit()?;
            a.xrstor64(ptr(rsi))?;
            a.vmovdqu(ymmword_ptr(place::DATA + 0x80), ymm3)?;
            a.fstp(qword_ptr(place::DATA + 0x100))?;
            a.xsavec64(ptr(rsi + 0x1000))?;
            a.vzeroall()?;
            a.xrstor64(ptr(rsi + 0x1000))?;
            a.vmovdqu(ymmword_ptr(place::DATA + 0xa0), ymm3)?;
            a.fxsave64(ptr(rsi + 0x2000))?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read::<32>(place::DATA + 0x80), pattern()[..32]);
            assert_eq!(machine.read::<32>(place::DATA + 0xa0), pattern()[..32]);
            assert_eq!(machine.read_u64(place::DATA + 0x100), 1.0f64.to_bits());
            assert_eq!(machine.read_u64(area + 512), 7);
            assert_eq!(machine.read::<16>(area + 0x2000 + 160 + 48), pattern()[..16]);
            assert_eq!(machine.read_u32(area + 0x2000 + 24), 0x1f80);
        },
    );
}

#[test]
fn a_bad_header_is_refused() {
    let area = place::DATA + 0x1000;
    check_long(
        |machine| machine.write_u64(area + 512, 1 << 60),
        |a| {
            a.mov(eax, 7)?;
            a.xor(edx, edx)?;
            a.mov(rsi, area)?;
            a.xrstor64(ptr(rsi))?;
            a.hlt()
        },
        |machine| assert_eq!(machine.read::<1>(place::DATA)[0], 13),
    );
}

#[test]
fn masked_moves_do_not_touch_what_the_mask_leaves_out() {
    check_long(
        |machine| {
            machine.write(place::HOLE - 8, &[1, 0, 0, 0, 2, 0, 0, 0]);
            let signs = [0xffu8, 0xff, 0xff, 0xff].repeat(2);
            machine.write(place::DATA + 0x40, &signs);
        },
        |a| {
            a.vmovdqu(xmm1, xmmword_ptr(place::DATA + 0x40))?;
            a.vpmaskmovd(xmm2, xmm1, xmmword_ptr(place::HOLE - 8))?;
            a.vmovdqu(xmmword_ptr(place::DATA + 0x80), xmm2)?;
            a.vpaddd(xmm2, xmm2, xmm2)?;
            a.vpmaskmovd(xmmword_ptr(place::HOLE - 8), xmm1, xmm2)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read_u64(place::DATA + 0x80), 0x2_0000_0001);
            assert_eq!(machine.read_u64(place::DATA + 0x88), 0);
            assert_eq!(machine.read_u64(place::HOLE - 8), 0x4_0000_0002);
        },
    );
}

#[test]
fn masked_operands_of_avx512_do_not_fault_where_masked() {
    if !std::is_x86_feature_detected!("avx512f") {
        return;
    }
    check_long(
        |machine| machine.write(place::HOLE - 8, &[1, 0, 0, 0, 2, 0, 0, 0]),
        |a| {
            a.mov(eax, 3)?;
            a.kmovw(k1, eax)?;
            a.vmovdqu32(zmm2.k1().z(), zmmword_ptr(place::HOLE - 8))?;
            a.vpaddd(zmm3.k1().z(), zmm2, zmmword_ptr(place::HOLE - 8))?;
            a.vmovdqu32(zmmword_ptr(place::HOLE - 8).k1(), zmm3)?;
            a.vmovdqu32(zmmword_ptr(place::DATA + 0x40), zmm3)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read_u64(place::HOLE - 8), 0x4_0000_0002);
            assert_eq!(machine.read_u64(place::DATA + 0x40), 0x4_0000_0002);
            assert_eq!(machine.read_u64(place::DATA + 0x48), 0);
        },
    );
}

#[test]
fn gathers_collect_and_clear_their_mask() {
    check_long(
        |machine| {
            for n in 0..64u64 {
                machine.write(place::DATA + 0x200 + 4 * n, &(100 + n as u32).to_le_bytes());
            }
            let indices = [3u32, 1, 60, 0];
            for (n, index) in indices.into_iter().enumerate() {
                machine.write(place::DATA + 0x40 + 4 * n as u64, &index.to_le_bytes());
            }
        },
        |a| {
            a.vmovdqu(xmm1, xmmword_ptr(place::DATA + 0x40))?;
            a.vpcmpeqd(xmm2, xmm2, xmm2)?;
            a.mov(rbx, place::DATA + 0x200)?;
            // vpgatherdd xmm3, [rbx + 4 * xmm1], xmm2
            a.db(&[0xc4, 0xe2, 0x69, 0x90, 0x1c, 0x8b])?;
            a.vmovdqu(xmmword_ptr(place::DATA + 0x80), xmm3)?;
            a.vmovdqu(xmmword_ptr(place::DATA + 0x90), xmm2)?;
            a.hlt()
        },
        |machine| {
            let low = machine.read_u64(place::DATA + 0x80);
            let high = machine.read_u64(place::DATA + 0x88);
            assert_eq!((low, high), (101 << 32 | 103, 100 << 32 | 160));
            assert_eq!(machine.read_u64(place::DATA + 0x90), 0);
        },
    );
}

#[test]
fn bytes_are_stored_by_sign() {
    check_long(
        |machine| {
            machine.write(place::DATA + 0x40, &pattern());
            machine.write(place::DATA + 0x80, &[0x80, 0, 0x80, 0, 0, 0, 0, 0xff]);
        },
        |a| {
            a.movdqu(xmm0, xmmword_ptr(place::DATA + 0x40))?;
            a.movdqu(xmm1, xmmword_ptr(place::DATA + 0x80))?;
            a.mov(rdi, place::DATA + 0x100)?;
            a.maskmovdqu(xmm0, xmm1)?;
            a.hlt()
        },
        |machine| {
            let stored = machine.read::<8>(place::DATA + 0x100);
            assert_eq!(stored, [1, 0, 7, 0, 0, 0, 0, 22]);
        },
    );
}

#[test]
fn vector_state_must_be_enabled() {
    check_long(
        |machine| machine.cpu.arch.context.regs.xcr0 = 3,
        |a| {
            a.vpxor(ymm0, ymm0, ymm0)?;
            a.hlt()
        },
        |machine| assert_eq!(machine.read::<1>(place::DATA)[0], 6),
    );
    check_long(
        |machine| machine.cpu.arch.context.regs.cr0 |= 8,
        |a| {
            a.pxor(xmm0, xmm0)?;
            a.hlt()
        },
        |machine| assert_eq!(machine.read::<1>(place::DATA)[0], 7),
    );
}

#[test]
fn identification_is_consistent() {
    check_long(
        nothing,
        |a| a.hlt(),
        |machine| {
            let cpu = &machine.cpu;
            let [_, _, features, older] = cpu.arch.cpuid(1, 0);
            assert_ne!(features & (1 << 31), 0, "hypervisor bit");
            assert_ne!(features & (1 << 27), 0, "OSXSAVE follows CR4");
            assert_eq!(features & (1 << 3), 0, "MONITOR is not offered");
            assert_ne!(older & (1 << 9), 0, "APIC");
            let [components, now, most, _] = cpu.arch.cpuid(0xd, 0);
            assert_eq!(u64::from(components), cpu.arch.context.xsave_mask);
            assert!(now <= most && now >= 576 && most <= 4096);
            let [_, first, second, third] = cpu.arch.cpuid(0x4000_0000, 0);
            let name: Vec<u8> =
                [first, second, third].iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(&name, b"KVMKVMKVM\0\0\0");
            assert_eq!(cpu.arch.cpuid(7, 0)[3] & (1 << 22 | 1 << 24), 0, "no AMX");
            assert_eq!(cpu.arch.cpuid(0xd, 1)[0], 7, "no XSAVES");
        },
    );
}

#[test]
fn compressed_elements_are_as_many_as_the_mask_has_bits() {
    if !std::is_x86_feature_detected!("avx512f") {
        return;
    }
    check_long(
        |machine| machine.write(place::DATA + 0x40, &pattern()),
        |a| {
            a.mov(eax, 0x8001)?;
            a.kmovw(k2, eax)?;
            a.vmovdqu32(zmm1, zmmword_ptr(place::DATA + 0x40))?;
            a.vpcompressd(zmmword_ptr(place::HOLE - 8).k2(), zmm1)?;
            a.vpxord(zmm3, zmm3, zmm3)?;
            a.vpexpandd(zmm3.k2(), zmmword_ptr(place::HOLE - 8))?;
            a.vmovdqu32(zmmword_ptr(place::DATA + 0x80), zmm3)?;
            a.hlt()
        },
        |machine| {
            let first = machine.read::<4>(place::DATA + 0x40);
            let last = machine.read::<4>(place::DATA + 0x7c);
            assert_eq!(machine.read::<4>(place::HOLE - 8), first);
            assert_eq!(machine.read::<4>(place::HOLE - 4), last);
            let expanded = machine.read::<64>(place::DATA + 0x80);
            assert_eq!((&expanded[..4], &expanded[60..]), (&first[..], &last[..]));
            assert!(expanded[4..60].iter().all(|&byte| byte == 0));
        },
    );
}

#[test]
fn broadcasts_need_one_element_and_only_if_the_mask_has_a_bit() {
    if !std::is_x86_feature_detected!("avx512f") {
        return;
    }
    check_long(
        |machine| machine.write(place::HOLE - 4, &7u32.to_le_bytes()),
        |a| {
            a.vpxord(zmm1, zmm1, zmm1)?;
            a.xor(eax, eax)?;
            a.kmovw(k1, eax)?;
            // Nothing is read: this does not fault.
            a.vpaddd(zmm2.k1().z(), zmm1, dword_bcst(place::HOLE))?;
            a.mov(eax, 0x10)?;
            a.kmovw(k1, eax)?;
            a.vpaddd(zmm2.k1().z(), zmm1, dword_bcst(place::HOLE - 4))?;
            a.vmovdqu32(zmmword_ptr(place::DATA + 0x40), zmm2)?;
            a.hlt()
        },
        |machine| {
            let sum = machine.read::<64>(place::DATA + 0x40);
            assert_eq!(sum[16], 7);
            assert_eq!(sum.iter().filter(|&&byte| byte != 0).count(), 1);
        },
    );
}

#[test]
fn scatters_store_in_order_and_clear_their_mask() {
    if !std::is_x86_feature_detected!("avx512f") {
        return;
    }
    check_long(
        |machine| {
            let indices = [5u32, 2, 5, 9].map(u32::to_le_bytes).concat();
            machine.write(place::DATA + 0x40, &indices.repeat(4));
            let values: Vec<u8> = (1..17u32).flat_map(u32::to_le_bytes).collect();
            machine.write(place::DATA + 0x80, &values);
        },
        |a| {
            a.mov(eax, 0x7)?;
            a.kmovw(k1, eax)?;
            a.vmovdqu32(zmm1, zmmword_ptr(place::DATA + 0x40))?;
            a.vmovdqu32(zmm2, zmmword_ptr(place::DATA + 0x80))?;
            a.mov(rbx, place::DATA + 0x200)?;
            a.vpscatterdd(zmmword_ptr(rbx + zmm1 * 4).k1(), zmm2)?;
            a.kmovw(ecx, k1)?;
            a.hlt()
        },
        |machine| {
            assert_eq!(machine.read_u32(place::DATA + 0x200 + 20), 3);
            assert_eq!(machine.read_u32(place::DATA + 0x200 + 8), 2);
            assert_eq!(machine.read_u32(place::DATA + 0x200 + 36), 0);
            assert_eq!(machine.regs().gpr[1], 0);
        },
    );
}

#[test]
fn permutations_take_elements_that_the_mask_leaves_out() {
    if !std::is_x86_feature_detected!("avx512f") {
        return;
    }
    check_long(
        |machine| machine.write(place::DATA + 0x40, &pattern()),
        |a| {
            // Element 0 of the result is element 15 of memory.
            a.mov(eax, 15)?;
            a.vmovd(xmm1, eax)?;
            a.mov(eax, 1)?;
            a.kmovw(k1, eax)?;
            a.vpermd(zmm2.k1().z(), zmm1, zmmword_ptr(place::DATA + 0x40))?;
            a.vmovd(ecx, xmm2)?;
            a.hlt()
        },
        |machine| {
            let last = machine.read_u32(place::DATA + 0x7c);
            assert_eq!(machine.regs().gpr[1], u64::from(last));
        },
    );
}
