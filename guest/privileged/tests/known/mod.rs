//! Checks that fail on some hosts, whoever is right.

/// Whether a failed check is of this host: where a program runs directly on a processor of
/// Intel's, `sysenter` in 64-bit code enters the host's kernel, and nobody knows any more where it
/// stood (QUIRKS.md).
pub fn is_of_host(is_direct: bool, program: &str, failed: &str) -> bool {
    is_direct && program == "long/syscall" && failed.starts_with("sysenter") && !host_is_amd()
}

/// Whether this is a processor of AMD's, or one that is built after its manuals: there it is
/// invalid in 64-bit mode.
fn host_is_amd() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0).ebx;
    // "Auth" and "Hygo".
    matches!(vendor, 0x6874_7541 | 0x6f67_7948)
}
