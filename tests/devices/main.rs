//! Devices as the guest's own drivers see them.

#![forbid(unsafe_code)]

use whole_machine::complaints::complaint;
use whole_machine::in_each_mode;
use whole_machine::modes::Mode;

fn the_kernel_finds_its_pci_bus_and_has_nothing_to_complain_of(mode: Mode) {
    let script = "cat /sys/bus/pci/devices/0000:00:00.0/class; dmesg";
    let said = mode.shell(&[], script);
    assert!(said.starts_with("0x060000\n"), "{said}");
    assert_eq!(complaint(&said), None, "{said}");
    // Since Linux 6.9 its name is what the specification has.
    assert!(said.contains("PCI: MMCONFIG") || said.contains("PCI: ECAM"), "{said}");
    for line in ["PCI: Using configuration type 1", "PCI host bridge to bus 0000:00"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    for line in said.lines().filter(|line| line.contains("pci") || line.contains("PCI")) {
        let bad = ["Bug", "fail", "conflict", "can't", "error"];
        assert!(!bad.iter().any(|word| line.contains(word)), "{line}");
    }
}

fn the_guest_gets_randomness_from_the_host(mode: Mode) {
    let script = "cat /sys/class/misc/hw_random/rng_current; \
        dd if=/dev/hwrng bs=1000 count=3 2>/dev/null | sort -u | wc -c; dmesg";
    let said = mode.shell(&["--entropy"], script);
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("virtio_rng.0"), "{said}");
    let bytes: usize = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    assert!(bytes >= 2900, "{said}");
    assert_eq!(complaint(&said), None, "{said}");
}

in_each_mode!(
    the_kernel_finds_its_pci_bus_and_has_nothing_to_complain_of,
    the_guest_gets_randomness_from_the_host,
);
