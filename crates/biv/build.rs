//! Links the program at a fixed address, which is that of memory that a guest's kernel does not use (`cpu`'s
//! memory/place.rs): what is linked at none lies in the middle of that kernel's memory.

/// In the PML4 entry that Linux does not use, with room for a heap; shared libraries come later
/// (crates/cpu/build.rs and tests/build.rs have the same for tests).
const IMAGE_BASE: u64 = 0x7e90_0000_0000;

/// What a static program needs of the linker to lie there; and one thing that makes it smaller, functions that are
/// alike being there once (`--icf`).
///
/// `rustc` has the compiler driver link a static program from code that can be placed anywhere (`-static-pie`), and
/// that is what lies where Linux wants it, its heap with it (fs/binfmt_elf.c, `load_elf_binary`). The code can as well
/// be linked at an address, with these:
/// - The C library's start relocates the program by where it is (glibc's elf/dl-reloc-static-pie.c). Here nothing is
///   left to relocate, so that function is to do nothing. [crti.o's `_fini`][1] is one that does nothing.
/// - The C library calls functions that it does without if the program has none of them. That they are at address 0 is
///   too far away for an instruction to say. So they are there: as themselves, or, for the one that no longer
///   exists, as one that does nothing.
///
/// [1]: https://www.sco.com/developers/gabi/latest/ch5.dynamic.html#init_fini
const STATIC: &str = "--defsym=_dl_relocate_static_pie=_fini,\
                      --defsym=__pthread_initialize_minimal=_fini,\
                      -u,__call_tls_dtors,-u,__cxa_finalize,-u,__glibc_tls_internal_free,\
                      -u,__mq_notify_fork_subprocess,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--no-pie,--image-base={IMAGE_BASE:#x}");
    if std::env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|all| all.contains("crt-static")) {
        println!("cargo::rustc-link-arg-bins=-Wl,{STATIC}");
    }
}
