//! Damaged, truncated and hostile files: each is one clear error.

use std::sync::LazyLock;

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::images::{Bz, LINKED, PE_CERTIFICATES, PE_CHECKSUM, relocations, vmlinux};
use super::others::{multiboot_elf, multiboot_flat, pvh};
use super::*;
use crate::unpack::{Format, tests::FORMATS};

fn error_of(kernel: &[u8]) -> Error {
    let machine = Machine::new(64, 0);
    let result = machine.load(&machine.request(kernel));
    let error = result.expect_err("must not load");
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 200, "{text}");
    error
}

#[test]
fn what_is_no_kernel_is_said_to_be_none() {
    for kernel in [&b""[..], b"#!/bin/sh\n", &[0; 10_000], &[0xff; 600], b"\x7fEL"] {
        assert!(matches!(error_of(kernel), Error::NotAKernel));
    }
}

#[test]
fn a_truncated_bzimage_is_refused_wherever_it_ends() {
    for format in FORMATS {
        let kernel = Bz::new(format).build();
        for size in (0..kernel.len()).step_by(512).chain(kernel.len() - 16..kernel.len()) {
            let error = error_of(&kernel[..size]);
            assert!(
                matches!(error, Error::Truncated { .. } | Error::NotAKernel),
                "{format:?} cut to {size}: {error}"
            );
        }
    }
}

#[test]
fn a_damaged_bzimage_is_refused_wherever_it_is_hit() {
    for format in FORMATS {
        let kernel = Bz::new(format).build();
        for at in (0..kernel.len()).step_by(256) {
            let mut damaged = kernel.clone();
            damaged[at] ^= 0x04;
            let error = error_of(&damaged);
            assert!(matches!(error, Error::Checksum), "{format:?} at {at:#x}: {error}");
        }
    }
}

#[test]
fn damage_to_the_setup_header_is_refused() {
    let kernel = Bz::new(Format::Lz4).build();
    for at in 0x1f1..0x268 {
        for bit in 0..8 {
            let mut damaged = kernel.clone();
            damaged[at] ^= 1 << bit;
            error_of(&damaged);
        }
    }
}

#[test]
fn signing_does_not_break_the_checksum() {
    let bz = Bz { has_pe: true, ..Bz::new(Format::Gzip) };
    let mut kernel = bz.build();
    let machine = Machine::new(64, 0);
    machine.load(&machine.request(&kernel)).unwrap();
    kernel[PE_CHECKSUM..PE_CHECKSUM + 4].copy_from_slice(&0x1234_5678_u32.to_le_bytes());
    let certificates = (kernel.len() as u64) | 8 << 32;
    kernel[PE_CERTIFICATES..PE_CERTIFICATES + 8].copy_from_slice(&certificates.to_le_bytes());
    kernel.extend_from_slice(&[1; 8]);
    machine.load(&machine.request(&kernel)).unwrap();
    kernel[PE_CERTIFICATES + 8] ^= 1;
    assert!(matches!(error_of(&kernel), Error::Checksum));
}

#[test]
fn a_kernel_without_crc_is_checked_by_its_signature() {
    let bz = Bz { has_pe: true, has_crc: false, release: "6.18.3-test", ..Bz::new(Format::Lz4) };
    let unsigned = bz.build();
    let machine = Machine::new(64, 0);
    machine.load(&machine.request(&unsigned)).unwrap();

    let mut digest = Sha256::new();
    digest.update(&unsigned[..PE_CHECKSUM]);
    digest.update(&unsigned[PE_CHECKSUM + 4..PE_CERTIFICATES]);
    digest.update(&unsigned[PE_CERTIFICATES + 8..]);
    let mut signature = vec![0x30; 40];
    signature.extend_from_slice(&digest.finalize());
    signature.extend_from_slice(&[0; 40]);
    let mut signed = unsigned.clone();
    let certificates = unsigned.len() as u64 | (signature.len() as u64) << 32;
    signed[PE_CERTIFICATES..PE_CERTIFICATES + 8].copy_from_slice(&certificates.to_le_bytes());
    signed.extend_from_slice(&signature);
    machine.load(&machine.request(&signed)).unwrap();

    for at in [0x700, unsigned.len() - 100] {
        let mut damaged = signed.clone();
        damaged[at] ^= 1;
        assert!(matches!(error_of(&damaged), Error::Checksum));
    }
    let cut = &signed[..signed.len() - 60];
    assert!(matches!(error_of(cut), Error::Checksum));
}

#[test]
fn an_old_kernel_must_have_its_crc() {
    let bz = Bz { has_crc: false, ..Bz::new(Format::Xz) };
    assert!(matches!(error_of(&bz.build()), Error::Checksum));
}

#[test]
fn a_32_bit_or_ancient_kernel_is_named_so() {
    let bz = Bz { xloadflags: 0x7e, ..Bz::new(Format::Gzip) };
    assert!(matches!(error_of(&bz.build()), Error::Only32Bit));
    let bz = Bz { version: 0x0207, ..Bz::new(Format::Gzip) };
    assert!(matches!(error_of(&bz.build()), Error::ProtocolTooOld { version: 0x0207 }));
    let mut elf = vmlinux();
    elf.is_64 = false;
    elf.notes.clear();
    let bz = Bz { version: 0x0208, unpacked: elf.build(), ..Bz::new(Format::Gzip) };
    assert!(matches!(error_of(&bz.build()), Error::Only32Bit));
    assert!(matches!(error_of(&elf.build()), Error::Only32Bit));
}

#[test]
fn an_unknown_compression_is_named_so() {
    let mut kernel = Bz::new(Format::Gzip).build();
    kernel[0x800 + 0x100] = 0x55;
    let end = kernel.len();
    let crc = !crc32fast::hash(&kernel[..end - 4]);
    kernel[end - 4..].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(error_of(&kernel), Error::UnknownCompression));
}

#[test]
fn elf_files_for_something_else_are_refused() {
    let good = vmlinux().build();
    let with = |at: usize, byte: u8| {
        let mut file = good.clone();
        file[at] = byte;
        error_of(&file)
    };
    assert!(matches!(with(18, 183), Error::WrongElf { .. }));
    assert!(matches!(with(16, 1), Error::WrongElf { .. }));
    assert!(matches!(with(5, 2), Error::WrongElf { .. } | Error::BadElf { .. }));
    assert!(matches!(with(4, 3), Error::WrongElf { .. }));
    let mut elf = vmlinux();
    elf.entry = LINKED - 1;
    assert!(matches!(error_of(&elf.build()), Error::BadElf { .. }));
    elf.parts.clear();
    assert!(matches!(error_of(&elf.build()), Error::WrongElf { .. }));
}

#[test]
fn truncated_elf_files_are_refused_wherever_they_end() {
    for good in [vmlinux().build(), pvh(false).build(), multiboot_elf(&[]).build()] {
        for size in (5..good.len()).step_by(97) {
            let error = error_of(&good[..size]);
            // The notes are last and optional: without them a file may be taken for another kind.
            assert!(
                matches!(error, Error::Truncated { .. } | Error::Only32Bit),
                "cut to {size}: {error}"
            );
        }
    }
}

#[test]
fn relocations_outside_the_kernel_are_refused() {
    let mut kernel = vmlinux().build();
    let words = [0, 0, 0x8f00_0000_u32];
    kernel.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let machine = Machine::new(64, 0);
    let request = Request { randomness: randomness(1, 1), ..machine.request(&kernel) };
    assert!(matches!(machine.load(&request), Err(Error::Relocation)));
}

#[test]
fn what_does_not_fit_is_said_to_be_too_large() {
    let kernel = Bz { init_size: 63 << 20, ..Bz::new(Format::Lz4) }.build();
    assert!(matches!(error_of(&kernel), Error::KernelTooLarge { .. }));
    assert!(matches!(error_of(&vmlinux_at(1 << 40)), Error::NoMemoryAt { .. }));

    let kernel = Bz::new(Format::Lz4).build();
    let machine = Machine::new(32, 0);
    let initrd = vec![0; 32 << 20];
    let modules = [Module { data: &initrd, command_line: "" }];
    for randomness in [None, randomness(1, 1)] {
        let request = Request { modules: &modules, randomness, ..machine.request(&kernel) };
        let error = machine.load(&request).unwrap_err();
        assert!(matches!(error, Error::InitrdTooLarge { .. } | Error::KernelTooLarge { .. }));
    }
    let machine = Machine::new(2, 0);
    let error = machine.load(&machine.request(&kernel)).unwrap_err();
    assert!(matches!(error, Error::KernelTooLarge { .. }), "{error}");
    let request = Request { memory_map: &[], ..machine.request(&kernel) };
    assert!(machine.load(&request).is_err());
}

fn vmlinux_at(physical: u64) -> Vec<u8> {
    let mut elf = vmlinux();
    elf.entry = physical;
    elf.parts.truncate(1);
    elf.parts[0].physical = physical;
    elf.build()
}

#[test]
fn a_command_line_that_is_too_long_or_has_a_zero_is_refused() {
    let machine = Machine::new(64, 0);
    let kernel = Bz::new(Format::Lz4).build();
    let check = |length: usize| {
        let text = "x".repeat(length);
        machine.load(&Request { command_line: &text, ..machine.request(&kernel) }).map(drop)
    };
    assert!(check(2047).is_ok());
    assert!(matches!(check(2048), Err(Error::CommandLineTooLong { length: 2048, limit: 2047 })));
    let request = Request { command_line: "a\0b", ..machine.request(&kernel) };
    assert!(matches!(machine.load(&request), Err(Error::CommandLineZero)));
}

#[test]
fn a_memory_map_that_lies_is_an_error() {
    let machine = Machine::new(64, 0);
    let kernel = Bz::new(Format::Lz4).build();
    let map = [MapEntry { start: 0, size: 1 << 40, kind: MapKind::Ram }];
    let initrd = [1; 100];
    let modules = [Module { data: &initrd, command_line: "" }];
    let request = Request { memory_map: &map, modules: &modules, ..machine.request(&kernel) };
    assert!(matches!(machine.load(&request), Err(Error::Memory { .. })));
    let map = vec![MapEntry { start: 0, size: 16, kind: MapKind::Reserved }; 129];
    let request = Request { memory_map: &map, ..machine.request(&kernel) };
    assert!(matches!(machine.load(&request), Err(Error::MapTooLong { count: 129, .. })));
}

/// One of everything, for mutation.
static KERNELS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut with_table = vmlinux().build();
    with_table.extend(relocations(true));
    let mut kernels = vec![
        with_table,
        pvh(true).build(),
        pvh(false).build(),
        multiboot_elf(&[]).build(),
        multiboot_flat(),
    ];
    // Without CRC, so that damage reaches what lies behind the check.
    let release = "6.18.0";
    kernels.extend(FORMATS.map(|f| Bz { has_crc: false, release, ..Bz::new(f) }.build()));
    kernels
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is done to a kernel, loading it ends, and in one line if in an error.
    #[test]
    fn no_damage_makes_the_loader_panic(
        which in 0_usize..12,
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_head in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        is_cut in 0_u8..4,
    ) {
        let mut kernel = KERNELS[which].clone();
        let reach = if in_head { kernel.len().min(0x300) } else { kernel.len() };
        for (at, byte) in hits {
            kernel[at.index(reach)] = byte;
        }
        if is_cut == 0 {
            kernel.truncate(cut.index(kernel.len()));
        }
        let machine = Machine::new(48, 0);
        let request = Request { randomness: randomness(77, 99), ..machine.request(&kernel) };
        if let Err(error) = machine.load(&request) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..2000), kind in 0_u8..4) {
        let mut kernel = noise;
        let magic: (usize, &[u8]) = match kind {
            0 => (0x202, b"HdrS"),
            1 => (0, b"\x7fELF\x02\x01\x01"),
            2 => (0, b"\x7fELF\x01\x01\x01"),
            _ => (4, &[0x02, 0xb0, 0xad, 0x1b, 0, 0, 1, 0, 0xfe, 0x4f, 0x51, 0xe4]),
        };
        if kernel.len() >= magic.0 + magic.1.len() {
            kernel[magic.0..magic.0 + magic.1.len()].copy_from_slice(magic.1);
        }
        let machine = Machine::new(16, 0);
        let _ = machine.load(&machine.request(&kernel));
        let _ = protocol(&kernel);
    }
}
