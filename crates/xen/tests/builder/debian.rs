//! Debian's kernels: what their notes say, and that the domain is as they expect it.

use std::fs;

use whole_machine::kernels;
use xen::builder;
use xen_abi::feature;

use super::{Domain, Parameters, parameters};

/// 512 MiB.
const PAGES: u64 = 1 << 17;

const BASE: u64 = 0xffff_ffff_8000_0000;

fn check(suite: &str) {
    let file = fs::read(kernels::debian(suite, "linux-image-cloud-amd64")).expect("it is there");
    let kernel = boot::unpack(&file, None, &boot::unpack_payload).expect("it can be unpacked");
    let disk: Vec<u8> = (0..3 << 20).map(|index: u32| (index % 251) as u8).collect();
    let parameters = Parameters { ram_disk: Some(&disk), ..parameters(PAGES) };
    let plan = builder::plan(&kernel, &parameters).expect("it is paravirtual");
    let notes = plan.notes();
    assert_eq!(notes.guest_os.as_deref(), Some(&b"linux"[..]));
    assert_eq!((notes.virtual_base, notes.physical_offset), (Some(BASE), Some(0)));
    assert_eq!(notes.init_p2m, Some(0x80_0000_0000));
    assert!(notes.mod_start_pfn && notes.suspend_cancel && notes.has_pvh_entry);
    assert_eq!(notes.hypercall_page, None);
    let features = [feature::bit::WRITABLE_PAGE_TABLES, feature::bit::LINUX_RSDP_UNRESTRICTED];
    assert!(features.iter().all(|bit| notes.supported_features >> bit & 1 == 1));

    let domain = Domain::new(&kernel, &parameters).expect("it has been planned");
    let entry = domain.built.entry;
    // cld; then the stack is set.
    let code = domain.memory.read(&domain.mapped, entry.rip, 3);
    assert_eq!((code[0], code[1] & 0xf8), (0xfc, 0x48), "{code:02x?}");
    assert!(entry.rip > BASE + (16 << 20));
    // The mapping is 1:1 from the base on and ends at a border of 4 MiB; only the list is elsewhere.
    let kernel_pages = domain.mapped.range(BASE..).count() as u64;
    assert_eq!(kernel_pages % 1024, 0);
    for (address, page) in domain.mapped.range(BASE..) {
        assert_eq!(page.frame.0, (address - BASE) / 4096);
    }
    assert_eq!(domain.mapped.range(..BASE).count() as u64, PAGES * 8 / 4096);
    // The RAM disk, then the list and its three tables.
    assert_eq!(domain.info.mod_start, kernel_pages);
    assert_eq!(domain.info.first_p2m_frame, kernel_pages + 768);
    assert_eq!(domain.info.p2m_frames, PAGES * 8 / 4096 + 3);
    let last = domain.memory.page(xen_abi::Pfn(kernel_pages + 767));
    assert_eq!(last[4095], ((3 << 20) - 1_u32).rem_euclid(251) as u8);
    // Linux uses the first three tables again: the top one, and the two on the way to the kernel.
    let levels: Vec<_> = domain.built.tables.iter().take(3).map(|table| table.level).collect();
    assert_eq!(levels, [4, 3, 2]);
}

#[test]
fn the_kernel_of_debian_12() {
    check("bookworm");
}

#[test]
fn the_kernel_of_its_backports() {
    check("bookworm-backports");
}
