//! Links the program at a fixed address, which is that of memory that a guest's kernel does not use (`cpu`'s
//! memory/place.rs): what is linked at none lies in the middle of that kernel's memory.

/// In the PML4 entry that Linux does not use, with room for a heap; shared libraries come later
/// (crates/cpu/build.rs and tests/build.rs have the same for tests).
const IMAGE_BASE: u64 = 0x7e90_0000_0000;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A static program has no shared libraries that would lie elsewhere than it does; it is a position-independent one,
    // for which Linux finds a place where it would have these (fs/binfmt_elf.c, `load_elf_binary`).
    if std::env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|all| all.contains("crt-static")) {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,--no-pie,--image-base={IMAGE_BASE:#x}");
}
