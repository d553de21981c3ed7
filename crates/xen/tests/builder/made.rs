//! Kernels made by hand: each place is known beforehand.

use xen::builder::Table;
use xen_abi::Pfn;
use xen_abi::note::kind;

use super::image::Image;
use super::{Domain, parameters};

const BASE: u64 = 0xffff_ffff_8000_0000;

/// 16 MiB.
const PAGES: u64 = 4096;

fn built(image: &Image) -> Domain {
    Domain::new(&image.file(), &parameters(PAGES)).expect("it can be built")
}

/// The list of frames in the kernel's mapping, as older kernels want it.
#[test]
fn everything_is_in_its_order() {
    let domain = built(&Image::usual());
    // The kernel ends with page 0x203; the list takes 8.
    assert_eq!(domain.info.frame_list, BASE + 0x20_4000);
    assert_eq!(domain.built.start_info, Pfn(0x20c));
    assert_eq!((domain.built.store, domain.built.console), (Pfn(0x20d), Pfn(0x20e)));
    let table = |frame, level| Table { frame: Pfn(frame), level };
    let expected = [(0x20f, 4), (0x210, 3), (0x211, 2), (0x212, 1), (0x213, 1)];
    assert_eq!(domain.built.tables, expected.map(|(frame, level)| table(frame, level)));
    assert_eq!(domain.built.entry.rip, BASE + 0x20_0010);
    assert_eq!(domain.built.entry.rsp, BASE + 0x21_5000);
    assert_eq!(domain.built.entry.rsi, BASE + 0x20_c000);
    // 0x215 pages and 512 KiB more end in the first 4 MiB.
    assert_eq!(domain.mapped.len(), 0x400);
    assert_eq!(domain.built.first_free, Pfn(0x400));
    for (address, page) in &domain.mapped {
        assert_eq!(page.frame, Pfn((address - BASE) / 4096));
    }
    assert_eq!((domain.info.first_p2m_frame, domain.info.p2m_frames), (0, 0));
    assert_eq!((domain.info.flags, domain.info.mod_start, domain.info.mod_bytes), (0, 0, 0));
}

#[test]
fn segments_that_share_a_page_are_both_there() {
    let domain = built(&Image::usual());
    let bytes = domain.memory.read(&domain.mapped, BASE + 0x20_0000, 0x4000);
    assert!(bytes[..0x1800].iter().all(|byte| *byte == 0x11));
    assert!(bytes[0x1800..0x2100].iter().all(|byte| *byte == 0x22));
    assert!(bytes[0x2100..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_need_not_be_mapped_is_behind_the_mapping() {
    let image = Image::usual().number(kind::INIT_P2M, 0x80_0000_0000);
    let image = image.number(kind::MOD_START_PFN, 1);
    let disk = vec![0x33; 0x2345];
    let parameters = super::Parameters { ram_disk: Some(&disk), ..parameters(PAGES) };
    let domain = Domain::new(&image.file(), &parameters).expect("it can be built");
    assert_eq!(domain.built.start_info, Pfn(0x204));
    assert_eq!((domain.info.mod_start, domain.info.mod_bytes), (0x400, 0x2345));
    assert_eq!(domain.info.flags, xen_abi::start::flag::MOD_START_PFN);
    let last = domain.memory.page(Pfn(0x402));
    assert_eq!((last[0x344], last[0x345]), (0x33, 0));
    // Eight pages, and a table of each level below the top.
    assert_eq!(domain.info.frame_list, 0x80_0000_0000);
    assert_eq!((domain.info.first_p2m_frame, domain.info.p2m_frames), (0x403, 11));
    assert_eq!(domain.mapped[&0x80_0000_7000].frame, Pfn(0x40a));
    assert_eq!(domain.mapped.len(), 0x408);
    assert_eq!(domain.info.page_table_frames, 5);
    let others: Vec<_> = domain.built.tables[5..].iter().map(|table| table.level).collect();
    assert_eq!(others, [3, 2, 1]);
    assert_eq!(domain.built.first_free, Pfn(0x40e));
}

#[test]
fn a_ram_disk_is_mapped_for_kernels_that_want_it() {
    let disk = vec![0x44; 0x1001];
    let parameters = super::Parameters { ram_disk: Some(&disk), ..parameters(PAGES) };
    let domain = Domain::new(&Image::usual().file(), &parameters).expect("it can be built");
    assert_eq!((domain.info.mod_start, domain.info.mod_bytes), (BASE + 0x20_4000, 0x1001));
    assert_eq!(domain.info.flags, 0);
    let bytes = domain.memory.read(&domain.mapped, domain.info.mod_start, 0x1002);
    assert_eq!(bytes[0x1000..], [0x44, 0]);
    assert_eq!(domain.info.frame_list, BASE + 0x20_6000);
}

#[test]
fn a_list_beside_the_kernel_shares_its_tables() {
    let image = Image::usual().number(kind::INIT_P2M, BASE - 0x8000);
    let domain = built(&image);
    // The tables of the top three levels are there already, but for the second.
    let levels: Vec<_> = domain.built.tables.iter().map(|table| table.level).collect();
    assert_eq!(levels, [4, 3, 2, 1, 1, 2, 1]);
    assert_eq!(domain.info.page_table_frames, 5);
}

#[test]
fn a_kernel_may_start_at_address_0() {
    let image = Image::usual().number(kind::ENTRY, 0x20_0000).number(kind::VIRT_BASE, 0);
    let domain = built(&image);
    assert_eq!(domain.built.entry.rip, 0x20_0000);
    assert_eq!(domain.mapped.keys().next(), Some(&0));
}

#[test]
fn physical_addresses_are_relative_to_their_offset() {
    let mut image = Image::usual().number(kind::PADDR_OFFSET, 0x10_0000);
    image.segments.iter_mut().for_each(|segment| segment.0 += 0x10_0000);
    assert_eq!(built(&image).memory.page(Pfn(0x200))[0], 0x11);
}

#[test]
fn a_hypercall_page_has_a_call_for_each_number() {
    let page = BASE + 0x20_1000;
    let domain = built(&Image::usual().number(kind::HYPERCALL_PAGE, page));
    let bytes = domain.memory.read(&domain.mapped, page, 4096);
    let call = [0x51, 0x41, 0x53, 0xb8, 17, 0, 0, 0, 0x0f, 0x05, 0x41, 0x5b, 0x59, 0xc3, 0xcc];
    assert_eq!(bytes[17 * 32..17 * 32 + 15], call);
    let leave = [0x51, 0x41, 0x53, 0x50, 0xb8, 23, 0, 0, 0, 0x0f, 0x05, 0xcc];
    assert_eq!(bytes[23 * 32..23 * 32 + 12], leave);
}

/// The tables grow with the mapping, in which they are themselves.
#[test]
fn large_kernels_get_the_tables_that_they_need() {
    let mut image = Image::usual();
    image.segments[1].1 = 1 << 30;
    let domain = Domain::new(&image.file(), &parameters(1 << 19)).expect("it can be built");
    let spare = domain.mapped.len() as u64 * 4096 - (domain.built.entry.rsp - BASE);
    assert!((512 << 10..(512 << 10) + (4 << 20)).contains(&spare), "{spare:#x}");
    assert_eq!(domain.mapped.len() % 1024, 0);
}

/// The one that `tests/oracle-xen` runs under Debian's Xen.
#[test]
fn the_tiny_kernel_can_be_built() {
    let domain = Domain::new(paravirtual::KERNEL, &parameters(PAGES)).expect("it can be built");
    assert_eq!(domain.built.entry.rip, BASE + 0x10_0000);
    let file = &paravirtual::KERNEL[0x1000..0x1100];
    assert_eq!(domain.memory.read(&domain.mapped, BASE + 0x10_0000, 0x100), file);
}
