//! Files that are no kernels, or mean harm: each is refused, or built as if it were harmless.

use proptest::prelude::*;
use xen::builder::{self, Error};
use xen_abi::note::kind;

use super::image::Image;
use super::{Domain, parameters};

const PAGES: u64 = 4096;

/// The message with which a kernel is refused.
fn refusal(image: &Image) -> String {
    let refused = Domain::new(&image.file(), &parameters(PAGES));
    refused.err().expect("it is refused").to_string()
}

fn check(image: &Image, expected: &str) {
    let message = refusal(image);
    assert!(message.contains(expected), "{message}");
}

#[test]
fn kernels_for_something_else_are_refused() {
    let usual = Image::usual;
    check(&usual().without(kind::XEN_VERSION), "no ELF note with a version");
    check(&usual().note(kind::XEN_VERSION, b"xen-4.0\0"), "not xen-3.0");
    check(&usual().note(kind::XEN_VERSION, b"xen-3.01\0"), "not xen-3.0");
    check(&usual().without(kind::LOADER), "generic loader");
    check(&usual().note(kind::LOADER, b"special\0"), "generic loader");
    let pvh = usual().without(kind::ENTRY).number(kind::PHYS32_ENTRY, 0x20_0000);
    check(&pvh, "PVH only");
    check(&usual().without(kind::VIRT_BASE), "relative to");
    check(&usual().note(kind::ENTRY, b"abc"), "note 1");
}

#[test]
fn addresses_that_cannot_be_used_are_refused() {
    let usual = Image::usual;
    check(&usual().number(kind::ENTRY, 0xffff_ffff_8000_0000), "its entry");
    check(&usual().number(kind::ENTRY, u64::MAX), "its entry");
    check(&usual().number(kind::VIRT_BASE, 0xffff_ffff_8000_0800), "start of a page");
    check(&usual().number(kind::PADDR_OFFSET, 0x20_0001), "below");
    let at =
        |base: u64| usual().number(kind::VIRT_BASE, base).number(kind::ENTRY, base + 0x20_0000);
    check(&at(0xffff_8000_0000_0000), "Xen's own");
    check(&at(0xffff_87ff_fff0_0000), "Xen's own");
    check(&at(0x7fff_ffff_f000), "canonical");
    check(&at(0x1_0000_0000_0000), "canonical");
    check(&at(0xffff_ffff_ffc0_0000), "end of all addresses");
    let list = |address| usual().number(kind::INIT_P2M, address);
    check(&list(0xffff_ffff_8030_0000), "own mapping");
    check(&list(0xffff_8000_0000_0000), "Xen's own");
    check(&list(0x7fff_ffff_c000), "canonical");
    check(&list(0xffff_ffff_ffff_f000), "end of all addresses");
    check(&list(0x80_0000_0001), "start of a page");
    check(&usual().number(kind::HYPERCALL_PAGE, 0), "hypercall page");
    check(&usual().number(kind::HYPERCALL_PAGE, 0xffff_ffff_8020_1001), "hypercall page");
    check(&usual().number(kind::HYPERCALL_PAGE, 0xffff_ffff_8020_4000), "hypercall page");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_made() {
    let mut image = Image::usual();
    for size in [1 << 24, 1 << 40, u64::MAX - 0x20_1800] {
        image.segments[1].1 = size;
        assert!(refusal(&image).contains("larger --mem"), "{size:#x}");
    }
    image.segments[1].1 = u64::MAX;
    check(&image, "beyond all memory");
    let (disk, line) = (vec![0; 15 << 20], vec![b'x'; 1024]);
    let file = Image::usual().file();
    let large = builder::Parameters { ram_disk: Some(&disk), ..parameters(PAGES) };
    let refused = builder::plan(&file, &large).expect_err("it does not fit");
    assert!(matches!(refused, Error::TooLittleMemory { pages: PAGES, .. }), "{refused}");
    let long = builder::Parameters { command_line: &line, ..parameters(PAGES) };
    let refused = builder::plan(&file, &long).expect_err("it does not fit");
    assert_eq!(refused, Error::CommandLineTooLong { bytes: 1024, limit: 1023 });
    for pages in [0, 1, 0x203, 0x3ff] {
        assert!(builder::plan(&file, &parameters(pages)).is_err(), "{pages:#x}");
    }
    assert!(builder::plan(&file, &parameters(0x400)).is_ok());
}

#[test]
fn files_that_contradict_themselves_are_refused() {
    let mut image = Image::usual();
    image.segments[1].0 = 0x20_1000;
    check(&image, "overlap");
    let mut image = Image::usual();
    image.segments[0].1 = 0x10;
    check(&image, "larger in the file");
    let mut image = Image::usual();
    image.segments.clear();
    check(&image, "nothing to load");
    let mut image = Image::usual();
    image.notes[1].extend(vec![(0, Vec::new()); 2000]);
    check(&image, "too many notes");
    let mut image = Image::usual();
    image.segments.extend(vec![(1 << 30, 1, Vec::new()); 200]);
    check(&image, "too many program headers");
    let file = Image::usual().file();
    for end in 0..file.len() {
        assert!(builder::plan(&file[..end], &parameters(PAGES)).is_err(), "{end} bytes");
    }
}

/// A file with some of its words replaced.
fn damaged(changes: &[(prop::sample::Index, u64)]) -> Vec<u8> {
    let image = Image::usual().number(kind::INIT_P2M, 0x80_0000_0000);
    let mut file = image.number(kind::HYPERCALL_PAGE, 0xffff_ffff_8020_1000).file();
    let (headers, notes) = (64 + 56 * 4, 300);
    let tail = file.len() - notes;
    for (place, word) in changes {
        let at = place.index(headers + notes - 8);
        let at = if at < headers { at } else { at - headers + tail };
        file[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    file
}

/// Numbers that are near to something.
fn words() -> impl Strategy<Value = u64> {
    let near = |bit: u32| (-2_i64..3).prop_map(move |by| (1_u64 << bit).wrapping_add(by as u64));
    let number = (0_u32..64).prop_flat_map(near);
    prop_oneof![number.clone(), number.prop_map(|word| word.wrapping_neg()), any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..Default::default()
    })]

    /// `Domain::new` checks whatever is built.
    #[test]
    fn damaged_kernels_are_refused_or_built_properly(
        changes in prop::collection::vec((any::<prop::sample::Index>(), words()), 1..4),
    ) {
        let _ = Domain::new(&damaged(&changes), &parameters(PAGES));
    }
}
