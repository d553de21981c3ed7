//! Every format, made by an independent compressor and damaged in every way.

mod pack;

use super::*;
use proptest::prelude::*;

pub use pack::{FORMATS, pack};
use pack::{pack_lz4, pack_lzo};

/// Something like machine code: compressible, but not trivially so.
pub fn sample(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..size)
        .map(|index| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if index % 7 < 3 { (index / 64) as u8 } else { (state >> 28) as u8 }
        })
        .collect()
}

#[test]
fn every_format_unpacks() {
    for size in [1, 5000, 700_000] {
        let data = sample(size);
        for format in FORMATS {
            let packed = pack(format, &data);
            assert_eq!(Format::of(&packed), Some(format));
            assert!(unpack(&packed).unwrap() == data, "{format:?} of {size}");
        }
    }
}

#[test]
fn several_blocks_unpack() {
    let data = sample(9 << 20);
    for format in [Format::Lz4, Format::Lzo] {
        assert!(unpack(&pack(format, &data)).unwrap() == data, "{format:?}");
    }
}

#[test]
fn lzo_with_every_combination_of_checksums_unpacks() {
    let data = sample(300_000);
    for flags in [0, 1, 2, 3, 0x100, 0x200, 0x303] {
        let mut packed = pack_lzo(&data, flags);
        packed.extend_from_slice(&(data.len() as u32).to_le_bytes());
        assert!(unpack(&packed).unwrap() == data, "{flags:#x}");
    }
}

#[test]
fn truncated_payloads_are_refused() {
    let data = sample(100_000);
    for format in FORMATS {
        let packed = pack(format, &data);
        for size in (0..packed.len()).step_by(997) {
            assert!(unpack(&packed[..size]).is_err(), "{format:?} cut to {size}");
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_where_the_format_has_a_checksum() {
    let data = sample(60_000);
    for format in FORMATS {
        let packed = pack(format, &data);
        for at in (16..packed.len() - 4).step_by(211) {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            match unpack(&damaged) {
                Ok(unpacked) if matches!(format, Format::Lz4 | Format::Lzma) => {
                    assert_eq!(unpacked.len(), data.len());
                }
                // What is left are fields that do not matter, such as a name in a header.
                Ok(unpacked) => assert!(unpacked == data, "{format:?} at {at}"),
                Err(Error::Payload { reason, .. }) => assert!(!reason.contains('\n')),
                Err(error) => panic!("{format:?} at {at}: {error}"),
            }
        }
    }
}

#[test]
fn a_wrong_length_is_refused() {
    let data = sample(50_000);
    for format in FORMATS {
        for claimed in [0, 49_999, 50_001] {
            let mut packed = pack(format, &data);
            let trailer = packed.len() - 4;
            packed[trailer..].copy_from_slice(&u32::to_le_bytes(claimed));
            assert!(
                matches!(unpack(&packed), Err(Error::Payload { .. })),
                "{format:?} claims {claimed}"
            );
        }
    }
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let zeros = vec![0; 8 << 20];
    for format in FORMATS {
        let mut packed = pack(format, &zeros);
        let trailer = packed.len() - 4;
        packed[trailer..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(unpack(&packed), Err(Error::UnpackedTooLarge { .. })));
        packed[trailer..].copy_from_slice(&4096_u32.to_le_bytes());
        assert!(matches!(unpack(&packed), Err(Error::Payload { .. })), "{format:?}");
    }
}

#[test]
fn an_unknown_format_is_named_so() {
    assert!(matches!(unpack(b"\x7fELF and so on"), Err(Error::UnknownCompression)));
    assert!(matches!(unpack(b""), Err(Error::UnknownCompression)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_packed_unpacks(
        data in prop::collection::vec(0_u8..9, 1..3000),
        index in 0_usize..7,
    ) {
        prop_assert_eq!(unpack(&pack(FORMATS[index], &data)).unwrap(), data);
    }

    #[test]
    fn damaged_lzo_and_lz4_never_panic(
        at in any::<prop::sample::Index>(),
        garbage in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let data = sample(20_000);
        for (format, head) in [(Format::Lzo, 9 + 28 + 4 + 16), (Format::Lz4, 4)] {
            let mut packed = match format {
                Format::Lzo => pack_lzo(&data, 0),
                _ => pack_lz4(&data),
            };
            let at = head + at.index(packed.len() - head);
            let end = packed.len().min(at + garbage.len());
            packed[at..end].copy_from_slice(&garbage[..end - at]);
            packed.extend_from_slice(&20_000_u32.to_le_bytes());
            let _ = unpack(&packed);
        }
    }
}
